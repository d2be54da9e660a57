# SPDX-License-Identifier: Apache-2.0
"""One GPU as NVML describes it: which call fills which field, and what its absence means."""

from typing import Any, NamedTuple

import msgspec

from gpuaudit.facts.base import Absent, Fact
from gpuaudit.host.answers import Answer
from gpuaudit.host.nvml_problems import (
    ARGUMENT_VERSION_MISMATCH,
    DEPRECATED,
    FUNCTION_NOT_FOUND,
    NO_ANSWER,
)

INVALID_ARGUMENT = 2
"""What an older driver answers to a field ID it does not know (nvml.h, NVML_ERROR_...)."""


class Setting(msgspec.Struct, frozen=True, array_like=True):
    """A mode that runs now and the one that runs after a reset: 0 off, 1 on."""

    current: int
    pending: int


class RemappedRows(msgspec.Struct, frozen=True, array_like=True):
    """nvmlDeviceGetRemappedRows: rows by cause, and whether one waits or one failed."""

    correctable: int
    uncorrectable: int
    pending: int
    failed: int


class Banks(msgspec.Struct, frozen=True):
    """nvmlDeviceGetRowRemapperHistogram: memory banks by how many spare rows they have left."""

    max: int
    high: int
    partial: int
    low: int
    none: int


class Sram(msgspec.Struct, frozen=True):
    """nvmlEccSramErrorStatus_t."""

    threshold_exceeded: int = msgspec.field(name="bThresholdExceeded")
    parity: int = msgspec.field(name="aggregateUncParity", default=0)
    secded: int = msgspec.field(name="aggregateUncSecDed", default=0)


class Fabric(msgspec.Struct, frozen=True):
    """nvmlGpuFabricInfoV_t; health is missing in the first form of the call (before 550)."""

    state: int
    status: int
    health_mask: int | None = msgspec.field(name="healthMask", default=None)
    health_summary: int | None = msgspec.field(name="healthSummary", default=None)


class Pci(msgspec.Struct, frozen=True):
    """nvmlPciInfo_t."""

    bus_id: str = msgspec.field(name="busId")
    device_id: int = msgspec.field(name="pciDeviceId")


class Bar1(msgspec.Struct, frozen=True):
    """nvmlBAR1Memory_t, bytes."""

    total: int = msgspec.field(name="bar1Total")


class Memory(msgspec.Struct, frozen=True):
    """nvmlMemory_v2_t, bytes."""

    total: int


class Gpu(Fact, frozen=True, kw_only=True):
    """One GPU; each field is named in CALLS with the NVML call that fills it.

    Power is in milliwatts, clocks in MHz, temperatures in degrees Celsius, as NVML gives them.
    """

    index: int
    address: str | None
    """PCI address as sysfs writes it, or None when neither NVML nor the bus tells it."""

    lost: Absent | None
    """Why the GPU does not answer at all, or None."""

    name: str | Absent
    uuid: str | Absent
    pci: Pci | Absent
    vbios: str | Absent
    memory: Memory | Absent
    bar1: Bar1 | Absent
    persistence: int | Absent
    compute_mode: int | Absent
    mig: Setting | Absent
    ecc: Setting | Absent
    volatile_uncorrected: int | Absent
    aggregate_uncorrected: int | Absent
    sram: Sram | Absent
    remapped: RemappedRows | Absent
    banks: Banks | Absent
    retired_single: int | Absent
    retired_double: int | Absent
    retired_pending: int | Absent
    clock_reasons: int | Absent
    sm_clock: int | Absent
    sm_clock_max: int | Absent
    sm_clock_applied: int | Absent
    memory_clock_applied: int | Absent
    sm_clock_default: int | Absent
    memory_clock_default: int | Absent
    power_limit: int | Absent
    power_default: int | Absent
    power_draw: int | Absent
    temperature: int | Absent
    slowdown_at: int | Absent
    highest_operating: int | Absent
    thermal_margin: int | Absent
    fabric: Fabric | Absent
    recovery_action: int | Absent

    @property
    def subject(self) -> str:
        """What findings call it: GPU 3 0000:9b:00.0."""
        return f"GPU {self.index} {self.address}" if self.address else f"GPU {self.index}"

    @property
    def pci_id(self) -> str | Absent:
        """vendor:device in hex; NVML packs the device into the upper half (nvmlPciInfo_t)."""
        if isinstance(self.pci, Absent):
            return self.pci
        return f"{self.pci.device_id & 0xFFFF:04x}:{self.pci.device_id >> 16:04x}"

    @property
    def mig_runs(self) -> bool:
        """MIG is known to be on."""
        return isinstance(self.mig, Setting) and self.mig.current == 1


class Call(NamedTuple):
    """An NVML call without nvmlDeviceGet, its type, the driver release that brought it.

    `older` is the call that gpuaudit.host.nvml_calls asks instead where the library lacks this one.
    """

    name: str
    kind: type
    since: int = 0
    older: str | None = None


CALLS: dict[str, Call] = {
    "name": Call("Name", str),
    "uuid": Call("UUID", str),
    "pci": Call("PciInfo", Pci),
    "vbios": Call("VbiosVersion", str),
    "memory": Call("MemoryInfo_v2", Memory, 510),
    "bar1": Call("BAR1MemoryInfo", Bar1),
    "persistence": Call("PersistenceMode", int),
    "compute_mode": Call("ComputeMode", int),
    "mig": Call("MigMode", Setting, 450),
    "ecc": Call("EccMode", Setting),
    "volatile_uncorrected": Call("TotalEccErrors(1,0)", int),
    "aggregate_uncorrected": Call("TotalEccErrors(1,1)", int),
    "sram": Call("SramEccErrorStatus", Sram, 535),
    "remapped": Call("RemappedRows", RemappedRows, 450),
    "banks": Call("RowRemapperHistogram", Banks, 450),
    "retired_single": Call("RetiredPages(0)", int),
    "retired_double": Call("RetiredPages(1)", int),
    "retired_pending": Call("RetiredPagesPendingStatus", int),
    "clock_reasons": Call("CurrentClocksEventReasons", int, 535, "CurrentClocksThrottleReasons"),
    "sm_clock": Call("ClockInfo(1)", int),
    "sm_clock_max": Call("MaxClockInfo(1)", int),
    "sm_clock_applied": Call("ApplicationsClock(0)", int),
    "memory_clock_applied": Call("ApplicationsClock(2)", int),
    "sm_clock_default": Call("DefaultApplicationsClock(0)", int),
    "memory_clock_default": Call("DefaultApplicationsClock(2)", int),
    "power_limit": Call("EnforcedPowerLimit", int),
    "power_default": Call("PowerManagementDefaultLimit", int),
    "power_draw": Call("PowerUsage", int),
    "temperature": Call("Temperature(0)", int),
    "slowdown_at": Call("TemperatureThreshold(1)", int),
    "highest_operating": Call("TemperatureThreshold(3)", int),
    "thermal_margin": Call("MarginTemperature", int, 570),
    "fabric": Call("GpuFabricInfoV", Fabric, 525, "GpuFabricInfo"),
    "recovery_action": Call("FieldValues(230)", int, 570),
}
"""Releases: first nvidia-ml-py that has the name (SramEccErrorStatus 12.535, MarginTemperature and
the recovery-action field 12.570, GpuFabricInfo 11.525)."""


def value_of(answer: Answer, call: Call, driver: str | None) -> Any:
    """The value as the field's type, or Absent with the reason."""
    if not answer.ok:
        return absence(answer, call, driver)
    try:
        return msgspec.convert(answer.v, call.kind)
    except msgspec.ValidationError as error:
        return Absent("failed", f"{call.name} answered something else: {error}")


def absence(answer: Answer, call: Call, driver: str | None) -> Absent:
    """Unsupported, denied or failed. A question that a driver never knew is unsupported too."""
    if answer.unsupported:
        return Absent("unsupported", f"this GPU does not support it ({call.name})")
    if answer.e == DEPRECATED:
        return Absent("unsupported", f"driver {driver} no longer has it ({call.name})")
    if answer.denied:
        return Absent("denied", f"{call.name} needs root: run gpuaudit as root")
    if answer.e == NO_ANSWER:
        return Absent("failed", answer.reason)
    too_old = {FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, INVALID_ARGUMENT}
    if answer.e in too_old and 0 < release_of(driver) < call.since:
        return Absent("unsupported", f"driver {driver} is older than {call.since} ({call.name})")
    return Absent("failed", f"{call.name}: {answer.reason}")


def release_of(driver: str | None) -> int:
    """570 of '570.86.15'; zero when it is not known."""
    major = (driver or "").partition(".")[0]
    return int(major) if major.isdigit() else 0
