# SPDX-License-Identifier: Apache-2.0
"""One GPU as NVML describes it: which call fills which field, and what its absence means."""

from typing import Any, NamedTuple

from gpuaudit.facts.base import Absent, Fact
from gpuaudit.facts.gpuvalues import (
    Banks,
    Bar1,
    Celsius,
    Count,
    Fabric,
    Flag,
    Memory,
    Pci,
    Positive,
    RemappedRows,
    Setting,
    Sram,
    Text,
    Utilization,
)
from gpuaudit.host.answers import SECOND

VGPU, VGPU_HOSTS = 2, frozenset({3, 4})
"""NVML_GPU_VIRTUALIZATION_MODE_VGPU, _HOST_VGPU and _HOST_VSGA of nvml.h."""


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
    compute_pids: tuple[int, ...] | Absent
    display_active: int | Absent
    virtualization: int | Absent
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
    clock_boost: int | Absent
    memory_clock: int | Absent
    memory_clock_max: int | Absent
    state: int | Absent
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
    memory_temperature: int | Absent
    memory_slowdown_at: int | Absent
    fabric: Fabric | Absent
    recovery_action: int | Absent
    utilization: Utilization | Absent
    pcie_replays: int | Absent
    repairs: tuple[int, int] | Absent
    unrepairable: int | Absent
    accounting: int | Absent
    auto_boost: tuple[int, int] | Absent
    c2c: dict[str, int] | Absent
    graphics_pids: tuple[int, ...] | Absent
    mps_pids: tuple[int, ...] | Absent
    gsp_mode: tuple[int, int] | Absent
    gsp_version: str | Absent
    inforom: str | Absent
    architecture: int | Absent
    power_now: int | Absent
    clock_reasons_later: int | Absent
    sm_clock_later: int | Absent
    memory_clock_later: int | Absent
    state_later: int | Absent
    power_draw_later: int | Absent
    power_now_later: int | Absent

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

    @property
    def is_coherent(self) -> bool:
        """NVLink-C2C is known to join its memory with that of the CPU."""
        return isinstance(self.c2c, dict) and bool(self.c2c.get("isC2cEnabled"))

    @property
    def computes(self) -> bool | None:
        """Whether a compute process holds it; None when that is not to be had."""
        return None if isinstance(self.compute_pids, Absent) else bool(self.compute_pids)

    @property
    def has_display(self) -> bool:
        """It is known to drive a display, or is the display card of a DGX Station."""
        return self.display_active == 1 or "DGX Display" in str(self.name)

    @property
    def is_vgpu(self) -> bool:
        """It is known to be a share of a GPU, as a guest sees it."""
        return self.virtualization == VGPU


class Call(NamedTuple):
    """An NVML call without nvmlDeviceGet, its type, the driver release that brought it.

    `older` is the call that gpuaudit.host.nvml_calls asks instead where the library lacks this one.
    """

    name: str
    kind: Any
    since: int = 0
    older: str | None = None


CALLS: dict[str, Call] = {
    "name": Call("Name", Text),
    "uuid": Call("UUID", Text),
    "pci": Call("PciInfo", Pci),
    "vbios": Call("VbiosVersion", Text),
    "memory": Call("MemoryInfo_v2", Memory, 510, "MemoryInfo"),
    "bar1": Call("BAR1MemoryInfo", Bar1),
    "persistence": Call("PersistenceMode", Flag),
    "compute_mode": Call("ComputeMode", Count),
    "compute_pids": Call("ComputeRunningProcesses", tuple[int, ...], 535),
    "display_active": Call("DisplayActive", Flag),
    "virtualization": Call("VirtualizationMode", Count),
    "mig": Call("MigMode", Setting, 450),
    "ecc": Call("EccMode", Setting),
    "volatile_uncorrected": Call("TotalEccErrors(1,0)", Count),
    "aggregate_uncorrected": Call("TotalEccErrors(1,1)", Count),
    "sram": Call("SramEccErrorStatus", Sram, 535),
    "remapped": Call("RemappedRows", RemappedRows, 450),
    "banks": Call("RowRemapperHistogram", Banks, 450),
    "retired_single": Call("RetiredPages(0)", Count),
    "retired_double": Call("RetiredPages(1)", Count),
    "retired_pending": Call("RetiredPagesPendingStatus", Count),
    "clock_reasons": Call("CurrentClocksEventReasons", Count, 535, "CurrentClocksThrottleReasons"),
    "sm_clock": Call("ClockInfo(1)", Count),
    "sm_clock_max": Call("MaxClockInfo(1)", Positive),
    "clock_boost": Call("MaxCustomerBoostClock(0)", Positive),
    "memory_clock": Call("ClockInfo(2)", Count),
    "memory_clock_max": Call("MaxClockInfo(2)", Positive),
    "state": Call("PerformanceState", Count),
    "sm_clock_applied": Call("ApplicationsClock(0)", Count),
    "memory_clock_applied": Call("ApplicationsClock(2)", Count),
    "sm_clock_default": Call("DefaultApplicationsClock(0)", Count),
    "memory_clock_default": Call("DefaultApplicationsClock(2)", Count),
    "power_limit": Call("EnforcedPowerLimit", Positive),
    "power_default": Call("PowerManagementDefaultLimit", Positive),
    "power_draw": Call("PowerUsage", Count),
    "temperature": Call("Temperature(0)", Celsius),
    "slowdown_at": Call("TemperatureThreshold(1)", Count),
    "highest_operating": Call("TemperatureThreshold(3)", Count),
    "thermal_margin": Call("MarginTemperature", Celsius, 570),
    "memory_temperature": Call("FieldValues(82)", Count),
    "memory_slowdown_at": Call("TemperatureThreshold(2)", Count),
    "fabric": Call("GpuFabricInfoV", Fabric, 525, "GpuFabricInfo"),
    "recovery_action": Call("FieldValues(230)", Count, 570),
    "utilization": Call("UtilizationRates", Utilization),
    "pcie_replays": Call("PcieReplayCounter", Count),
    "repairs": Call("RepairStatus", tuple[Flag, Flag], 580),
    "unrepairable": Call("UnrepairableMemoryFlag_v1", Count, 590),
    "accounting": Call("AccountingMode", Flag),
    "auto_boost": Call("AutoBoostedClocksEnabled", tuple[Flag, Flag]),
    "c2c": Call("C2cModeInfoV", dict[str, Flag], 550),
    "graphics_pids": Call("GraphicsRunningProcesses", tuple[int, ...], 535),
    "mps_pids": Call("MPSComputeRunningProcesses", tuple[int, ...], 535),
    "gsp_mode": Call("GspFirmwareMode", tuple[Flag, Flag], 515),
    "gsp_version": Call("GspFirmwareVersion", Text, 515),
    "inforom": Call("InforomImageVersion", Text),
    "architecture": Call("Architecture", Count),
    "power_now": Call("FieldValues(186)", Count, 530),
    "clock_reasons_later": Call(
        f"CurrentClocksEventReasons{SECOND}", Count, 535, f"CurrentClocksThrottleReasons{SECOND}"
    ),
    "sm_clock_later": Call(f"ClockInfo(1){SECOND}", Count),
    "memory_clock_later": Call(f"ClockInfo(2){SECOND}", Count),
    "state_later": Call(f"PerformanceState{SECOND}", Count),
    "power_draw_later": Call(f"PowerUsage{SECOND}", Count),
    "power_now_later": Call(f"FieldValues(186){SECOND}", Count, 530),
}
"""Releases: first nvidia-ml-py that has the name (SramEccErrorStatus 12.535, MarginTemperature and
the recovery-action field 12.570, GpuFabricInfo 11.525)."""
