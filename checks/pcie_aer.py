# SPDX-License-Identifier: Apache-2.0
"""Errors on PCI Express links, as the kernel counts them. See also pcie_replay."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    DAY,
    HOUR,
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Verdict,
    check,
    expect,
    expect_rate,
    fails,
    not_applicable,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.counters import Earlier, Growth
from gpuaudit.facts.kernelhealth import KernelHealth
from gpuaudit.facts.kernelline import Line
from gpuaudit.facts.pci import PciDevices
from gpuaudit.facts.pciaer import FIRMWARE, ROOT_BUS, Errors, PciErrors, told_by_firmware
from gpuaudit.facts.pciregisters import PciRegisters
from gpuaudit.facts.pciways import below_port

Count = Annotated[int, msgspec.Meta(ge=0)]
GUEST_ERRORS = "what a guest's devices report goes to the root ports of its host"
SILENT = "it is not told to report them (Device Control): nothing is counted"
SURPRISE_DOWN = "SDES"
UNREAD = Absent("missing", "its registers were not read")
CORRECTABLE, NONFATAL, FATAL = 0, 1, 2


class PcieAerExpectations(Expectations, frozen=True, kw_only=True):
    """How many errors a link may have."""

    correctable_max_per_hour: Count
    nonfatal_max_per_day: Count


def require_counts(found: PciErrors) -> None:
    """Raise NotApplicable where the kernel counts nothing for this machine at all."""
    if not found.by_address:
        raise NotApplicable(GUEST_ERRORS)
    every = [one for errors in found.by_address.values() for one in errors.values()]
    if FIRMWARE in every and all(one in (FIRMWARE, ROOT_BUS) for one in every):
        raise NotApplicable(FIRMWARE.reason.replace("its root port", "any root port"))


def reports(address: str, registers: PciRegisters) -> tuple[bool, bool, bool] | Finding:
    """Which severities a function tells the root port; a finding where that cannot be told."""
    found = registers.by_address.get(address, UNREAD)
    if isinstance(found, Absent):
        return unknown(address, f"whether it reports errors at all is not known: {found.reason}")
    return found.reports


@check("pcie-aer-correctable", severity=Severity.MEDIUM)
def correctable(
    found: PciErrors,
    registers: PciRegisters,
    earlier: Earlier,
    want: PcieAerExpectations,
) -> Iterator[Finding]:
    """Corrected PCIe errors are rare on the way of every GPU, NIC and drive.

    ## Why it matters
    Each one is a packet sent again. A link that needs many has a bad contact, cable or retimer; it
    slows transfers in bursts, and the next step is a link that retrains or goes down.

    ## Evidence
    aer_dev_correctable of each GPU, NIC and NVMe drive in use and of every port above them, which
    counts since boot; the error reporting bits of Device Control in config;
    /sys/bus/pci_express/drivers/aer.

    ## How it is judged
    The total grows by at most `pcie_aer.correctable_max_per_hour`. The kinds that lead are named.

    ## Exceptions
    Where the firmware handles errors, with pci=noaer, without the capability, in a guest, and for a
    function that is not told to report, the kernel counts nothing: not applicable. Without root a
    zero may also mean that: unknown.

    ## What to do
    Reseat the card, riser or cable of the device named, and compare the counts of both ends: a port
    that counts BadTLP or RxErr receives badly from the device below it.

    ## References
    - https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci-devices-aer
    - https://docs.kernel.org/PCI/pcieaer-howto.html
    - https://github.com/NVIDIA/DCGM
    """
    require_counts(found)
    for address, errors in found.by_address.items():
        one = errors["correctable"]
        if isinstance(one, Errors) and not one.total:
            yield none_corrected(address, registers)
            continue
        yield expect_rate(
            grown(earlier, address, "aer-correctable", one),
            want.correctable_max_per_hour,
            per_s=HOUR,
            of=address,
            what="corrected PCIe errors",
            evidence=led_by(one),
            otherwise=Verdict.WARN,
        )


def none_corrected(address: str, registers: PciRegisters) -> Finding:
    """A zero counts where errors would have been reported."""
    told = reports(address, registers)
    if isinstance(told, Finding):
        return told
    return passes(address, "0 since boot") if told[CORRECTABLE] else not_applicable(address, SILENT)


def grown(earlier: Earlier, address: str, name: str, errors: Errors | Absent) -> Growth | Absent:
    """How a count of the kernel's grew."""
    if isinstance(errors, Absent):
        return errors
    return earlier.growth(address, name, errors.serious, since_boot=True)


def led_by(errors: Errors | Absent) -> tuple[str, ...]:
    """The kinds since boot, most frequent first."""
    return (f"since boot: {errors.leading}",) if isinstance(errors, Errors) else ()


@check("pcie-aer-uncorrectable", severity=Severity.HIGH)
def uncorrectable(
    found: PciErrors,
    registers: PciRegisters,
    earlier: Earlier,
    devices: PciDevices,
    health: KernelHealth,
    want: PcieAerExpectations,
) -> Iterator[Finding]:
    """No uncorrectable PCIe error hit a GPU, NIC or drive, or a port above.

    ## Why it matters
    After a fatal error a link was reset under its devices; after a non-fatal one a transfer was
    lost. Jobs on them hung or failed, and the cause is seldom gone by itself.

    ## Evidence
    aer_dev_fatal and aer_dev_nonfatal of each GPU, NIC and NVMe drive in use and of every port
    above them; the error reporting bits of Device Control in config. Where firmware handles errors,
    "aer_uncor_severity" in the kernel log.

    ## How it is judged
    A fatal error since boot fails. Non-fatal ones warn when more than
    `pcie_aer.nonfatal_max_per_day` came since the earlier reading, or since boot without one. What
    firmware handed to the kernel since boot warns: it says not how grave it is.

    ## Exceptions
    Requests that nobody answers (UnsupReq) are shown and do not count: buses are scanned and
    devices probed that way. A surprise link down (SDES) at a port above drives only warns: that is
    how a drive is pulled. Not applicable in guests and, unless the log tells of an error, where the
    kernel does not handle errors, as for corrected ones.

    ## What to do
    Drain the node, look for the device in `dmesg | grep -e AER -e DPC`, reseat or replace it, and
    boot: the counts begin anew.

    ## References
    - https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci-devices-aer
    - https://docs.kernel.org/PCI/pcieaer-howto.html
    """
    lines = health.lines("AER: aer_status: 0x", "AER: aer_uncor_severity: 0x")
    handed = {a: told for a, told in told_by_firmware(lines).items() if a in found.by_address}
    if not handed:
        require_counts(found)
    for address, errors in found.by_address.items():
        fatal, nonfatal = errors["fatal"], errors["nonfatal"]
        if address in handed:
            yield handed_finding(address, handed[address])
        elif isinstance(fatal, Absent) or isinstance(nonfatal, Absent):
            yield expect(fatal if isinstance(fatal, Absent) else nonfatal, 0, of=address)
        elif fatal.total:
            yield fatal_finding(address, fatal, devices)
        elif nonfatal.serious:
            yield nonfatal_finding(address, nonfatal, earlier, want)
        else:
            yield none_uncorrected(address, nonfatal, registers)


def handed_finding(address: str, told: list[Line]) -> Finding:
    """What the firmware made the kernel write."""
    text = f"firmware reported an uncorrected PCIe error, last {told[-1].when}"
    lines = tuple(line.text for line in told[-3:])
    return warns(address, text, len(told), expected=0, evidence=lines)


def none_uncorrected(address: str, nonfatal: Errors, registers: PciRegisters) -> Finding:
    """A zero counts where errors would have been reported."""
    told = reports(address, registers)
    if isinstance(told, Finding):
        return told
    if not told[FATAL]:
        return not_applicable(address, SILENT)
    if not told[NONFATAL]:
        return passes(address, "0 fatal since boot; non-fatal ones are not reported")
    return passes(address, f"0 since boot{' but ' * bool(nonfatal.total)}{nonfatal.leading}")


def fatal_finding(address: str, fatal: Errors, devices: PciDevices) -> Finding:
    """A drive that was pulled is no broken link."""
    below = {d.role for d in below_port(devices, address)}
    pulled = below == {"nvme"} and set(nonzero(fatal)) == {SURPRISE_DOWN}
    word = warns if pulled else fails
    message = f"fatal PCIe errors since boot: {fatal.leading or fatal.total}"
    return word(address, message, fatal.total, expected=0)


def nonzero(errors: Errors) -> dict[str, int]:
    """The kinds that occurred."""
    return {kind: count for kind, count in errors.kinds.items() if count}


def nonfatal_finding(
    address: str, errors: Errors, earlier: Earlier, want: PcieAerExpectations
) -> Finding:
    """By rate; requests that nobody answers do not count."""
    return expect_rate(
        grown(earlier, address, "aer-nonfatal", errors),
        want.nonfatal_max_per_day,
        per_s=DAY,
        of=address,
        what="non-fatal PCIe errors",
        evidence=led_by(errors),
        otherwise=Verdict.WARN,
    )
