# SPDX-License-Identifier: Apache-2.0
"""How devices send their requests: size, order, and how many at once."""

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Verdict,
    check,
    expect,
    not_applicable,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.node import Machine
from gpuaudit.facts.pci import PciDevice, PciDevices
from gpuaudit.facts.pciregisters import RELAXED, PciRegisters, Registers
from gpuaudit.facts.pciways import movers
from gpuaudit.topology import Rate, own_link

PciId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{4}:[0-9a-f]{4}$")]
Request = Literal[128, 256, 512, 1024, 2048, 4096]
GUEST_REGISTERS = "in a guest the hypervisor answers for these registers: look on its host"
UNREAD = Absent("missing", "its registers were not read")
HEADER_BYTES = 24
EXTENDED_TAG_SUPPORTED = 0x20

# Root ports that may let a relaxed write overtake: the kernel clears the bit below them (Linux
# drivers/pci/quirks.c, quirk_relaxedordering_disable). 8086:2f01 to 2f0e are Haswell, 6f01 to 6f0e
# Broadwell; 1022:1a00 to 1a02 are AMD's A1100.
UNORDERED = {
    0x8086: (*range(0x2F01, 0x2F0F), *range(0x6F01, 0x6F0F)),
    0x1022: range(0x1A00, 0x1A03),
}


class PcieRequestsExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of the requests that devices send."""

    min_read_request_by_id: dict[PciId, Request]
    relaxed_ordering_roles: tuple[Literal["gpu", "nic"], ...]
    read_latency_ns: Annotated[int, msgspec.Meta(ge=100, le=10_000)]


def senders(devices: PciDevices, machine: Machine) -> list[PciDevice]:
    """GPUs and RDMA NICs whose registers are their own. Raises NotApplicable."""
    if machine.is_vm:
        raise NotApplicable(GUEST_REGISTERS)
    found = [d for d in movers(devices) if d.role != "nvme"]
    if not found:
        raise NotApplicable("no GPU and no RDMA-capable NIC is in use")
    return found


@check("pcie-max-read-request", severity=Severity.LOW)
def max_read_request(
    devices: PciDevices, registers: PciRegisters, machine: Machine, want: PcieRequestsExpectations
) -> Iterator[Finding]:
    """Fast NICs may read as much with one request as the policy wants.

    ## Why it matters
    A NIC of 200 Gb/s and more that has to ask for each 512 bytes spends its upstream link on
    requests, and has less data under way.

    ## Evidence
    Max_Read_Request_Size in Device Control, in /sys/bus/pci/devices/A/config. Reading it needs
    root.

    ## How it is judged
    NIC models named in `pcie_requests.min_read_request_by_id` are set to at least that many bytes;
    less warns.

    ## Exceptions
    Other models and GPUs are not judged. Not applicable in guests. Firmware and drivers may set it
    again after a reset of the device.

    ## What to do
    Set "PCIe max read request size" to 4096 in the BIOS, or at run time
    `setpci -s ADDRESS CAP_EXP+8.w=5000:7000`, after each boot.

    ## References
    - https://enterprise-support.nvidia.com/s/article/understanding-pcie-configuration-for-maximum-performance
    """
    for device in senders(devices, machine):
        least = want.min_read_request_by_id.get(device.id)
        found = registers.by_address.get(device.address, UNREAD)
        if least is None:
            yield not_applicable(device.address, "the policy asks nothing of this model")
        elif isinstance(found, Absent):
            yield expect(found, None, of=device.address)
        else:
            yield request_finding(device.address, found.read_request, least)


def request_finding(address: str, now: int, least: int) -> Finding:
    """Each request has 24 bytes around nothing: framing, header and check sum."""
    seen, wanted = f"{now} bytes", f"at least {least} bytes"
    if now >= least:
        return passes(address, seen, expected=wanted)
    shares = [100 * HEADER_BYTES / size for size in (now, least)]
    cost = f"requests take {shares[0]:.1f} % of what is read upstream, instead of {shares[1]:.1f} %"
    message = f"one read asks for at most {now} bytes"
    return warns(address, message, seen, expected=wanted, cost=cost)


@check("pcie-relaxed-ordering", severity=Severity.LOW)
def relaxed_ordering(
    devices: PciDevices, registers: PciRegisters, machine: Machine, want: PcieRequestsExpectations
) -> Iterator[Finding]:
    """GPUs and RDMA NICs may use relaxed ordering.

    ## Why it matters
    Without it each write waits for those before it. NICs at 200 Gb/s and more, and CPUs that order
    strictly (EPYC), then do not reach their rate. mlx5 offers it to NCCL only where this bit is on.

    ## Evidence
    Enable Relaxed Ordering (bit 4 of Device Control) in /sys/bus/pci/devices/A/config. Reading it
    needs root.

    ## How it is judged
    The bit is on for the roles in `pcie_requests.relaxed_ordering_roles`; else it warns. It only
    permits: whether a transfer uses it is the driver's choice.

    ## Exceptions
    Not applicable below root ports whose erratum makes the kernel clear it (Xeon of the Haswell and
    Broadwell generations, AMD A1100), and in guests.

    ## What to do
    Enable relaxed ordering in the BIOS, or at run time
    `setpci -s ADDRESS CAP_EXP+8.w=0010:0010`; for NVIDIA NICs see PCI_WR_ORDERING of mlxconfig.

    ## References
    - https://github.com/torvalds/linux/blob/master/drivers/pci/quirks.c
    - https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-pci-relaxed-ordering
    """
    for device in senders(devices, machine):
        found = registers.by_address.get(device.address, UNREAD)
        if device.role not in want.relaxed_ordering_roles:
            yield not_applicable(device.address, f"the policy does not ask it of a {device.role}")
        elif unordered(devices, device):
            yield not_applicable(device.address, "its root port has the erratum")
        else:
            on = found if isinstance(found, Absent) else bool(found.control & RELAXED)
            message = "it may not use relaxed ordering"
            yield expect(
                on, expected=True, of=device.address, message=message, otherwise=Verdict.WARN
            )


def unordered(devices: PciDevices, device: PciDevice) -> bool:
    """True below a root port that the kernel keeps relaxed ordering from."""
    root = devices.by_address.get(device.parents[0]) if device.parents else None
    return root is not None and root.device in UNORDERED.get(root.vendor, ())


@check("pcie-read-tags", severity=Severity.MEDIUM)
def read_tags(
    devices: PciDevices, registers: PciRegisters, machine: Machine, want: PcieRequestsExpectations
) -> Iterator[Finding]:
    """No GPU or RDMA NIC has read tags switched off that its link needs.

    ## Why it matters
    A read takes about a microsecond. To fill a link in that time many must be under way, each with
    a tag of its own: 32 with five bits, 256 with extended tags, 768 with ten-bit tags.

    ## Evidence
    Extended and 10-Bit Tag bits of Device Control and Device Control 2, Max_Read_Request_Size, and
    what the device and its root port support, in /sys/bus/pci/devices/A/config. Needs root.

    ## How it is judged
    Tags times read request size must be at least the link's rate times
    `pcie_requests.read_latency_ns`. Less warns where the device supports extended tags that are
    off, or where the device can ask and the root port answer with ten-bit tags that are off.

    ## Exceptions
    A device that uses all it can passes. Not applicable in guests.

    ## What to do
    Enable extended and ten-bit tags in the BIOS, or raise the read request size (see
    `pcie-max-read-request`); look for `no_ext_tags` quirks in the kernel log.

    ## References
    - https://github.com/torvalds/linux/blob/master/drivers/pci/probe.c
    - https://doi.org/10.1145/3230543.3230560
    """
    for device in senders(devices, machine):
        found = registers.by_address.get(device.address, UNREAD)
        link = own_link(devices, device)
        rate = link.could if link else Absent("unsupported", "it has no PCI Express link")
        if isinstance(found, Absent) or isinstance(rate, Absent):
            yield expect(found if isinstance(found, Absent) else rate, None, of=device.address)
        else:
            top = registers.by_address.get(device.parents[0] if device.parents else "", UNREAD)
            yield tags_finding(device.address, found, top, rate, want.read_latency_ns)


def tags_finding(
    address: str, found: Registers, top: Registers | Absent, rate: Rate, latency_ns: int
) -> Finding:
    """GB/s are bytes in a nanosecond."""
    reaches = found.tags * found.read_request / latency_ns
    seen = f"{found.tags} reads of {found.read_request} bytes"
    better = more_tags(found, top)
    if reaches >= rate.gb_per_s:
        return passes(address, seen)
    if not better:
        return passes(address, f"{seen}, all it can")
    cost = f"{reaches:.1f} instead of {rate.gb_per_s:.1f} GB/s while a read takes {latency_ns} ns"
    return warns(address, f"{better} are off: {seen} do not fill its link", seen, cost=cost)


def more_tags(found: Registers, top: Registers | Absent) -> str:
    """What both ends could do and is off, or nothing."""
    if found.tags == 32 and found.capability & EXTENDED_TAG_SUPPORTED:
        return "extended tags"
    both = found.ten_bit_requester and isinstance(top, Registers) and top.ten_bit_completer
    return "ten-bit tags" if both and found.tags < 768 else ""
