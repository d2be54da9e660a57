# SPDX-License-Identifier: Apache-2.0
"""Every question to NVML. None of them changes the state of a device."""

from gpuaudit.host.answers import SECOND
from gpuaudit.host.nvml_calls import (
    Read,
    confidential_settings,
    each,
    fabric_info,
    fabric_info_before_550,
    gsp_mode,
    gsp_version,
    memory_info,
    pci_info,
    pids,
    plain,
    retired_pages,
    sram_ecc,
    whole,
)
from gpuaudit.host.nvml_fields import field_value

MEMORY_TEMPERATURE = 82
"""NVML_FI_DEV_MEMORY_TEMP of nvml.h, in degrees Celsius; HBM has it."""
POWER_NOW = 186
"""NVML_FI_DEV_POWER_INSTANT of nvml.h, in mW. PowerUsage is the mean of the last second on GPUs
after the GA100."""
TIME_FIELDS = ((75,), (269,), (270,), (271,))
"""Time below the clocks, in ns: thermal policy; since 580 software thermal, hardware thermal, power
brake. Release 575 had other numbers for the three, and 269 was a profile of power smoothing."""
RECOVERY_ACTION = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, nvml.h since release 570."""

SYSTEM_CALLS: tuple[tuple[str, Read], ...] = (
    *whole("SystemGetDriverVersion", "SystemGetCudaDriverVersion_v2", "GetExcludedDeviceCount"),
    *whole("SystemGetConfComputeState"),
    ("nvmlSystemGetConfComputeSettings", confidential_settings),
)
IDENTITY_CALLS = (*plain("Name", "UUID"), ("nvmlDeviceGetPciInfo", pci_info))
DEVICE_CALLS: tuple[tuple[str, Read], ...] = (
    *plain("Serial", "MinorNumber", "Brand", "Architecture", "VbiosVersion"),
    *plain("InforomImageVersion", "CurrPcieLinkGeneration", "MaxPcieLinkGeneration"),
    *plain("GpuMaxPcieLinkGeneration", "CurrPcieLinkWidth", "MaxPcieLinkWidth"),
    *plain("PcieReplayCounter", "BAR1MemoryInfo", "PersistenceMode", "MigMode", "EccMode"),
    ("nvmlDeviceGetMemoryInfo_v2", memory_info),
    *each("TotalEccErrors", (0, 0), (0, 1), (1, 0), (1, 1)),
    ("nvmlDeviceGetSramEccErrorStatus", sram_ecc),
    *plain("RemappedRows", "RowRemapperHistogram", "RetiredPagesPendingStatus"),
    retired_pages(0),
    retired_pages(1),
    *plain("CurrentClocksEventReasons", "PerformanceState"),
    field_value(POWER_NOW),
    *each("ClockInfo", (0,), (1,), (2,)),
    *each("MaxClockInfo", (0,), (1,), (2,)),
    *each("ApplicationsClock", (0,), (2,)),
    *each("DefaultApplicationsClock", (0,), (2,)),
    *plain("EnforcedPowerLimit", "PowerManagementLimit", "PowerManagementDefaultLimit"),
    *plain("PowerManagementLimitConstraints", "PowerUsage"),
    *each("Temperature", (0,)),
    *each("TemperatureThreshold", (0,), (1,), (2,), (3,)),
    *plain("MarginTemperature", "ComputeMode"),
    ("nvmlDeviceGetGspFirmwareMode", gsp_mode),
    ("nvmlDeviceGetGspFirmwareVersion", gsp_version),
    *plain("VirtualizationMode", "DisplayActive"),
    ("nvmlDeviceGetGpuFabricInfoV", fabric_info),
    field_value(RECOVERY_ACTION),
    field_value(MEMORY_TEMPERATURE),
    *each("MaxCustomerBoostClock", (0,)),
    *plain("RepairStatus", "UnrepairableMemoryFlag_v1", "AccountingMode"),
    *plain("AutoBoostedClocksEnabled", "C2cModeInfoV"),
)
WORK_CALL = plain("UtilizationRates")[0]
PIDS_CALL = pids("Compute")
OTHER_PIDS = (pids("Graphics"), pids("MPSCompute"))

C2C_LINKS = (170,)
"""NVML_FI_DEV_C2C_LINK_COUNT."""
FIELDS = ((38,), (45,), (52,), (59,), C2C_LINKS)
"""All links together until Ampere: CRC flit, CRC data, replay and recovery errors."""
C2C_STATUS = 171
LINK_FIELDS = (161, 162, 163, 164, 165, 206, 208, 211, 213, 214, 219)
"""Of one link. Replay, recovery, CRC errors until Hopper; MB/s; state; from Blackwell on malformed
packets, receive errors, local link integrity errors, recoveries that went well and that failed,
effective errors."""
SECOND_CALLS = tuple(
    (f"{key}{SECOND}", read)
    for key, read in (
        *plain("CurrentClocksEventReasons", "PowerUsage", "PerformanceState"),
        *each("ClockInfo", (1,), (2,)),
        *plain("CurrPcieLinkGeneration"),
        field_value(POWER_NOW),
    )
)
"""Asked again when all else is answered: one reading of a clock tells nothing about a load."""
THROTTLE = plain("CurrentClocksThrottleReasons")[0]
FALLBACKS: dict[str, tuple[str, Read]] = {
    "nvmlDeviceGetCurrentClocksEventReasons": THROTTLE,
    f"nvmlDeviceGetCurrentClocksEventReasons{SECOND}": (f"{THROTTLE[0]}{SECOND}", THROTTLE[1]),
    "nvmlDeviceGetMemoryInfo_v2": plain("MemoryInfo")[0],
    "nvmlDeviceGetGpuFabricInfoV": ("nvmlDeviceGetGpuFabricInfo", fabric_info_before_550),
}
"""Asked when the first call is not in the library: drivers before 510, 535 and 550."""
