# SPDX-License-Identifier: Apache-2.0
"""Single faults of one GPU: modes, memory errors, clocks, power, fabric."""

from fakenode import FakeNode
from fakenode.breaking import answer, busy, error, everywhere
from fakenode.fault import Fault

GIB = 1 << 30
HW_SLOWDOWN, SW_POWER_CAP, SW_THERMAL, HW_THERMAL = 0x8, 0x4, 0x20, 0x40
"""nvmlClocksEventReason* of nvml.h."""


def persistence_off(node: FakeNode) -> None:
    everywhere(node, "PersistenceMode", 0)


def mig_pending(node: FakeNode) -> None:
    answer(node, 2, "MigMode", [0, 1])


def mig_on(node: FakeNode) -> None:
    answer(node, 2, "MigMode", [1, 1])


def compute_mode_exclusive(node: FakeNode) -> None:
    answer(node, 2, "ComputeMode", 3)


def compute_mode_prohibited(node: FakeNode) -> None:
    answer(node, 2, "ComputeMode", 2)


def ecc_off(node: FakeNode) -> None:
    answer(node, 4, "EccMode", [0, 0])


def ecc_pending(node: FakeNode) -> None:
    answer(node, 4, "EccMode", [1, 0])


def volatile_uncorrected_errors(node: FakeNode) -> None:
    answer(node, 4, "TotalEccErrors(1,0)", 2)
    answer(node, 4, "TotalEccErrors(1,1)", 2)


def aggregate_uncorrected_errors(node: FakeNode) -> None:
    answer(node, 4, "TotalEccErrors(1,1)", 700)


def a_few_old_errors(node: FakeNode) -> None:
    answer(node, 4, "TotalEccErrors(1,1)", 7)


def many_corrected_errors(node: FakeNode) -> None:
    answer(node, 4, "TotalEccErrors(0,0)", 120_000)
    answer(node, 4, "TotalEccErrors(0,1)", 120_000)


def sram_threshold_exceeded(node: FakeNode) -> None:
    status = dict(node.nvml["devices"][4]["nvmlDeviceGetSramEccErrorStatus"]["v"])
    answer(node, 4, "SramEccErrorStatus", status | {"bThresholdExceeded": 1})


def row_remap_pending(node: FakeNode) -> None:
    answer(node, 6, "RemappedRows", [0, 1, 1, 0])


def row_remap_failed(node: FakeNode) -> None:
    answer(node, 6, "RemappedRows", [0, 9, 0, 1])


def rows_remapped(node: FakeNode) -> None:
    answer(node, 6, "RemappedRows", [1, 1, 0, 0])


def no_spare_rows_left(node: FakeNode) -> None:
    histogram = {"max": 2558, "high": 0, "partial": 0, "low": 1, "none": 1}
    answer(node, 6, "RowRemapperHistogram", histogram)


def hardware_slowdown(node: FakeNode) -> None:
    answer(node, 1, "CurrentClocksEventReasons", HW_SLOWDOWN | HW_THERMAL)


def software_thermal_slowdown(node: FakeNode) -> None:
    answer(node, 1, "CurrentClocksEventReasons", SW_THERMAL)


def clocks_locked_low(node: FakeNode) -> None:
    """Busy, held by nothing that the driver reports, and far below what it can do."""
    busy(node, 1, reasons=0, clock_mhz=1200, power_mw=400_000)


def at_its_limit(node: FakeNode) -> None:
    """No fault: what every GPU does in the middle of a large matrix product."""
    busy(node, 1, reasons=SW_POWER_CAP, clock_mhz=1500, power_mw=692_000)


def job_starts(node: FakeNode) -> None:
    """No fault, though each reading alone looks like one: an H200 in the moments of a start."""
    busy(node, 1, reasons=0, clock_mhz=1575, power_mw=87_805)
    busy(node, 2, reasons=SW_POWER_CAP, clock_mhz=1575, power_mw=142_742)
    for gpu, used, now_mw in ((1, 0, 119_441), (2, 1, 812_117)):
        answer(node, gpu, "UtilizationRates", {"gpu": used, "memory": 0})
        answer(node, gpu, "FieldValues(186)", now_mw)
        answer(node, gpu, "FieldValues(186)#2", now_mw)


def application_clocks_left_behind(node: FakeNode) -> None:
    answer(node, 1, "ApplicationsClock(0)", 1410)


def power_limit_lowered(node: FakeNode) -> None:
    for call in ("PowerManagementLimit", "EnforcedPowerLimit"):
        answer(node, 1, call, 500_000)


def power_limited_out_of_band(node: FakeNode) -> None:
    answer(node, 1, "EnforcedPowerLimit", 600_000)


def little_thermal_margin(node: FakeNode) -> None:
    answer(node, 1, "Temperature(0)", 86)
    answer(node, 1, "MarginTemperature", 1)


def bar1_small(node: FakeNode) -> None:
    answer(node, 1, "BAR1MemoryInfo", {"bar1Total": GIB // 4, "bar1Free": GIB // 8, "bar1Used": 0})


def other_vbios(node: FakeNode) -> None:
    answer(node, 7, "VbiosVersion", "96.00.74.00.01")


def other_model(node: FakeNode) -> None:
    answer(node, 7, "Name", "NVIDIA H100 PCIe")


def less_memory(node: FakeNode) -> None:
    memory = node.nvml["devices"][7]["nvmlDeviceGetMemoryInfo_v2"]["v"]
    answer(node, 7, "MemoryInfo_v2", memory | {"total": 68 * GIB, "free": 67 * GIB})


def needs_a_reset(node: FakeNode) -> None:
    answer(node, 7, "FieldValues(230)", 1)


def needs_a_reboot(node: FakeNode) -> None:
    answer(node, 7, "FieldValues(230)", 2)


def fabric_failed(node: FakeNode) -> None:
    fabric = node.nvml["devices"][0]["nvmlDeviceGetGpuFabricInfoV"]["v"]
    answer(node, 0, "GpuFabricInfoV", fabric | {"status": 999})


def fabric_in_progress(node: FakeNode) -> None:
    fabric = node.nvml["devices"][0]["nvmlDeviceGetGpuFabricInfoV"]["v"]
    answer(node, 0, "GpuFabricInfoV", fabric | {"state": 2, "healthMask": 0})


def fabric_bandwidth_degraded(node: FakeNode) -> None:
    fabric = node.nvml["devices"][0]["nvmlDeviceGetGpuFabricInfoV"]["v"]
    answer(node, 0, "GpuFabricInfoV", fabric | {"healthMask": 0x1A9})


def a_value_failed(node: FakeNode) -> None:
    error(node, 3, "EccMode", 999)


def a_value_unsupported(node: FakeNode) -> None:
    error(node, 3, "RowRemapperHistogram", 3)


FAULTS: tuple[Fault, ...] = (
    Fault(persistence_off, {"gpu-persistence": "fail"}),
    Fault(mig_pending, {"mig-mode-settled": "fail"}),
    Fault(mig_on, {"mig-mode-alike": "warn"}),
    Fault(compute_mode_exclusive, {"gpu-compute-mode": "fail"}),
    Fault(compute_mode_prohibited, {"gpu-compute-mode": "fail"}),
    Fault(ecc_off, {"ecc-mode-enabled": "fail"}),
    Fault(ecc_pending, {"ecc-mode-settled": "fail"}),
    Fault(volatile_uncorrected_errors, {"ecc-volatile-uncorrected": "fail"}),
    Fault(aggregate_uncorrected_errors, {"ecc-aggregate-uncorrected": "fail"}),
    Fault(a_few_old_errors, {}),
    Fault(many_corrected_errors, {}),
    Fault(sram_threshold_exceeded, {"ecc-aggregate-uncorrected": "fail"}),
    Fault(row_remap_pending, {"ecc-row-remap-pending": "warn"}),
    Fault(row_remap_failed, {"ecc-row-remap-failed": "fail"}),
    Fault(rows_remapped, {}),
    Fault(no_spare_rows_left, {"ecc-row-remap-banks": "fail"}),
    Fault(hardware_slowdown, {"clocks-throttle-reasons": "fail"}),
    Fault(software_thermal_slowdown, {"clocks-throttle-reasons": "fail"}),
    Fault(at_its_limit, {"gpu-processes-left": "warn"}),
    Fault(job_starts, {"gpu-processes-left": "warn"}),
    Fault(clocks_locked_low, {"clocks-locked": "warn", "gpu-processes-left": "warn"}),
    Fault(application_clocks_left_behind, {"clocks-application-default": "fail"}),
    Fault(power_limit_lowered, {"power-limit-default": "fail"}),
    Fault(power_limited_out_of_band, {"power-limit-default": "fail"}),
    Fault(little_thermal_margin, {"thermal-margin": "fail"}),
    Fault(bar1_small, {"gpu-bar1-size": "fail"}),
    Fault(other_vbios, {"gpu-vbios-alike": "fail"}),
    Fault(other_model, {"gpu-models-alike": "fail"}),
    Fault(less_memory, {"gpu-memory-alike": "fail"}),
    Fault(needs_a_reset, {"gpu-recovery-action": "fail"}),
    Fault(needs_a_reboot, {"gpu-recovery-action": "fail"}),
    Fault(fabric_failed, {"fabric-state": "fail"}),
    Fault(fabric_in_progress, {"fabric-state": "fail"}),
    Fault(fabric_bandwidth_degraded, {"fabric-health": "fail"}),
    Fault(a_value_failed, {"ecc-mode-enabled": "unknown", "ecc-mode-settled": "unknown"}),
    Fault(a_value_unsupported, {}),
)
