# SPDX-License-Identifier: Apache-2.0
"""PCI Express links and devices that may go to sleep."""

from collections.abc import Iterator
from typing import Literal

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
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.cmdline import CommandLine
from gpuaudit.facts.node import Machine
from gpuaudit.facts.pci import PciDevice, PciDevices
from gpuaudit.facts.pcipower import POLICY, AspmPolicy, PciPower, Sleep
from gpuaudit.facts.pciregisters import L0S, L1, PciRegisters, Registers
from gpuaudit.facts.pciways import movers
from gpuaudit.topology import GUEST, Hop, hops_of, is_provided

UNREAD = Absent("missing", "its registers were not read")
PARAMETER = "pcie_aspm.policy"
FORCED = "pcie_aspm=force turns it on for devices that claim not to support it"
SAVES = "the kernel lets links go to sleep between transfers"
RTD3_OFF = ("Disabled", "Not supported", "Not Supported")


class PciePowerExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy accepts of links that sleep."""

    aspm_policies: tuple[Literal["default", "performance", "powersave", "powersupersave"], ...]
    aspm_on: Literal["warn", "accept"]


@check("pcie-aspm-off", severity=Severity.LOW)
def aspm_off(
    devices: PciDevices, registers: PciRegisters, machine: Machine, want: PciePowerExpectations
) -> Iterator[Finding]:
    """No link to a GPU, NIC or NVMe drive sleeps between transfers.

    ## Why it matters
    A link in L1 needs microseconds to wake, as much as a whole small message takes. On a way with a
    switch each sleeping link adds its own.

    ## Evidence
    ASPM Control in Link Control of both ends of every link on the way, and the L1 exit latency in
    Link Capabilities, in /sys/bus/pci/devices/A/config. Reading it needs root.

    ## How it is judged
    L1 counts where both ends have it on, L0s where either has. It warns; `pcie_power.aspm_on`
    says `accept` where power counts more.

    ## Exceptions
    Not applicable in guests. NICs without RDMA are left out.

    ## What to do
    Switch ASPM off in the BIOS, or boot with `pcie_aspm.policy=performance`; at run time
    `echo performance > /sys/module/pcie_aspm/parameters/policy`.

    `pcie_aspm=off` does not switch it off: the kernel then leaves what the firmware set.

    ## References
    - https://docs.kernel.org/admin-guide/kernel-parameters.html
    - https://github.com/torvalds/linux/blob/master/drivers/pci/pcie/aspm.c
    """
    if machine.is_vm:
        raise NotApplicable(GUEST)
    if want.aspm_on == "accept":
        raise NotApplicable("the policy accepts links that sleep")
    for device in movers(devices):
        yield aspm_finding(device, hops_of(devices, device), registers)


def aspm_finding(device: PciDevice, hops: tuple[Hop, ...], registers: PciRegisters) -> Finding:
    """All links of one device; one that sleeps is enough, one that is not read too."""
    if not hops:
        where = "it stands on the root bus" if device.root else "the recording holds no PCI tree"
        return (not_applicable if device.root else unknown)(device.address, where)
    asleep, latency_us = [], 0
    for hop in hops:
        ends = [registers.by_address.get(a, UNREAD) for a in (hop.upper, hop.lower)]
        known = [end for end in ends if isinstance(end, Registers)]
        if len(known) < len(ends):
            lost = next(end for end in ends if isinstance(end, Absent))
            return unknown(device.address, f"{hop.name}: {lost.reason}")
        states = sleeps(known[0], known[1])
        if states:
            asleep.append(f"{hop.name} {states}")
            latency_us += max(end.l1_exit_us for end in known) if "L1" in states else 0
    if not asleep:
        return passes(device.address, "off")
    cost = f"up to {latency_us} us for the links to wake" if latency_us else None
    return warns(device.address, f"links may sleep: {', '.join(asleep)}", "on", cost=cost)


def sleeps(upper: Registers, lower: Registers) -> str:
    """L0s is each end's own; L1 needs both (PCI Express Base Specification 5.0, section 5.4.1)."""
    both, either = upper.aspm & lower.aspm, upper.aspm | lower.aspm
    return " and ".join(["L0s"] * bool(either & L0S) + ["L1"] * bool(both & L1))


@check("pcie-aspm-policy", severity=Severity.LOW)
def policy(
    found: AspmPolicy, line: CommandLine, machine: Machine, want: PciePowerExpectations
) -> Finding:
    """The kernel does not send PCIe links to sleep of its own accord.

    ## Why it matters
    `powersave` and `powersupersave` turn sleep states on for every link that supports them, also
    for devices that are plugged in later, whatever the firmware chose.

    ## Evidence
    /sys/module/pcie_aspm/parameters/policy; in an image `pcie_aspm.policy=` and `pcie_aspm=` of the
    boot entries.

    ## How it is judged
    The policy must be one of `pcie_power.aspm_policies`, and `pcie_aspm=force` must not be given;
    else it warns.

    ## Exceptions
    Not applicable in guests and on kernels without ASPM. `default` leaves what the firmware set:
    `pcie-aspm-off` looks at that. An image whose boot entries say nothing is not judged.

    ## What to do
    Run `echo performance > /sys/module/pcie_aspm/parameters/policy`, and boot with
    `pcie_aspm.policy=performance` to keep it.

    ## References
    - https://docs.kernel.org/admin-guide/kernel-parameters.html
    - https://github.com/torvalds/linux/blob/master/drivers/pci/pcie/aspm.c
    """
    if machine.is_vm:
        raise NotApplicable(GUEST)
    if line.value("pcie_aspm") == "force":
        return warns("pcie_aspm", FORCED, "force", expected=want.aspm_policies)
    if found.now is not None:
        return expect(
            found.now, want.aspm_policies, of=POLICY, message=SAVES, otherwise=Verdict.WARN
        )
    value = line.value(PARAMETER)
    if value is None:
        raise NotApplicable("the boot entries leave it to the kernel and the firmware")
    message = "the next boot lets links go to sleep between transfers"
    return expect(value, want.aspm_policies, of=PARAMETER, message=message, otherwise=Verdict.WARN)


@check("pcie-runtime-pm", severity=Severity.LOW)
def runtime_pm(power: PciPower, devices: PciDevices, machine: Machine) -> Iterator[Finding]:
    """No GPU, RDMA NIC or NVMe drive in use is put to sleep when idle.

    ## Why it matters
    A sleeping GPU loses its link and is set up again when a job starts: seconds, and while it
    sleeps NVML, health checks and the firmware of the board see a device that is not there.

    ## Evidence
    power/control and power/runtime_status in /sys/bus/pci/devices; for GPUs in `auto` also the line
    Runtime D3 status of /proc/driver/nvidia/gpus/A/power.

    ## How it is judged
    `on` passes. `auto` passes when the device is active and cannot sleep: the NVIDIA driver says
    that Runtime D3 is disabled or not supported, or the driver of a NIC or drive holds it. Asleep
    now, or a GPU that may be put to sleep, warns.

    ## Exceptions
    Ports above are not looked at: a port does not sleep while a device below it is awake, and the
    kernel's default for them is `auto`. Virtual devices of a guest are left out, and what is handed
    to guests (VFIO).

    ## What to do
    Run `echo on > /sys/bus/pci/devices/ADDRESS/power/control`, and remove the udev rule that says
    `auto`; for GPUs load the driver with `NVreg_DynamicPowerManagement=0x00`.

    ## References
    - https://docs.kernel.org/power/runtime_pm.html
    - https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-devices-power
    - https://download.nvidia.com/XFree86/Linux-x86_64/570.86.16/README/dynamicpowermanagement.html
    """
    for address, sleep in power.by_address.items():
        device = devices.by_address[address]
        if is_provided(device, is_vm=machine.is_vm):
            yield not_applicable(address, "the hypervisor provides this device")
        elif "vfio" in (device.driver or ""):
            yield not_applicable(address, "it is handed to guests (VFIO)")
        else:
            yield sleep_finding(device, sleep)


def sleep_finding(device: PciDevice, sleep: Sleep) -> Finding:
    """Awake now is not enough for a GPU: its driver may let it sleep when the job ends."""
    if isinstance(sleep.control, Absent) or sleep.control != "auto":
        return expect(sleep.control, "on", of=device.address, otherwise=Verdict.WARN)
    seen = f"auto, {sleep.status}"
    if isinstance(sleep.status, Absent):
        return unknown(device.address, sleep.status.reason, "auto")
    if sleep.status != "active":
        message = "it may be put to sleep when idle, and is not awake now"
        return warns(device.address, message, seen, expected="on")
    if device.role != "gpu":
        return passes(device.address, f"{seen}: its driver holds it")
    return gpu_may_sleep(device.address, sleep.rtd3)


def gpu_may_sleep(address: str, rtd3: str | Absent) -> Finding:
    """A GPU in `auto`, awake now: what its driver says."""
    if isinstance(rtd3, Absent):
        return unknown(address, rtd3.reason, "auto, active")
    seen = f"auto, active, Runtime D3: {rtd3}"
    if rtd3.startswith(RTD3_OFF):
        return passes(address, seen)
    if not rtd3.startswith("Enabled"):
        return unknown(address, "the driver does not say whether it may put the GPU to sleep", seen)
    return warns(address, "its driver may put it to sleep when idle", seen, expected="on")
