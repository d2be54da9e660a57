# SPDX-License-Identifier: Apache-2.0
"""What NVML answers on the healthy machine: a document of schema gpuaudit.nvml/1.

Values are those an idle H100 SXM board gives after nvml.h of release 570; UUIDs, serial numbers
and versions of firmware are made up.
"""

from typing import Any

from fakenode.driver import DRIVER, uuid_of
from fakenode.layout import gpu_addresses
from fakenode.values import Answers

GIB = 1 << 30
NOT_SUPPORTED = {"e": 3, "t": "not supported"}
NVLINKS = 18
POWER_MW = 700_000
CLOCKS_MHZ = {0: 1980, 1: 1980, 2: 2619}
SRAM = (
    "aggregateUncParity",
    "aggregateUncSecDed",
    "aggregateCor",
    "volatileUncParity",
    "volatileUncSecDed",
    "volatileCor",
    "aggregateUncBucketL2",
    "aggregateUncBucketSm",
    "aggregateUncBucketPcie",
    "aggregateUncBucketMcu",
    "aggregateUncBucketOther",
    "bThresholdExceeded",
)


def nvml_document() -> Answers:
    """The whole document."""
    count = len(gpu_addresses())
    system = {
        "nvmlSystemGetNVMLVersion": f"12.{DRIVER}",
        "nvmlSystemGetDriverVersion": DRIVER,
        "nvmlSystemGetCudaDriverVersion_v2": 12080,
        "nvmlGetExcludedDeviceCount": 0,
        "nvmlDeviceGetCount_v2": count,
    }
    return {
        "schema": "gpuaudit.nvml/1",
        "binding": "13.615.71",
        "init": {"v": True},
        "system": answered(system),
        "devices": [device(index, address) for index, address in enumerate(gpu_addresses())],
        "hung": None,
        "crashed": None,
    }


def answered(values: dict[str, Any]) -> Answers:
    """Values as answers; an answer that is an error already stays one."""
    return {key: v if v is NOT_SUPPORTED else {"v": v} for key, v in values.items()}


def device(index: int, address: str) -> Answers:
    """Everything one GPU is asked."""
    values: dict[str, Any] = {"nvmlDeviceGetHandleByIndex_v2": True}
    parts = (identity, link, memory, errors, clocks, power, modes, fabric)
    for part in parts:
        found = part(index, address)
        values |= {f"nvmlDeviceGet{name}": value for name, value in found.items()}
    return answered(values)


def identity(index: int, address: str) -> dict[str, Any]:
    """Names and numbers."""
    domain, bus, slot = address.replace(".", ":").split(":")[:3]
    return {
        "Name": "NVIDIA H100 80GB HBM3",
        "UUID": uuid_of(index),
        "PciInfo": {
            "busId": f"0000{address.upper()}",
            "domain": int(domain, 16),
            "bus": int(bus, 16),
            "device": int(slot, 16),
            "pciDeviceId": 0x233010DE,
            "pciSubSystemId": 0x16C110DE,
        },
        "Serial": f"16500230000{index:02d}",
        "MinorNumber": index,
        "Brand": 1,
        "Architecture": 9,
        "VbiosVersion": "96.00.A5.00.01",
        "InforomImageVersion": "G520.0200.00.05",
    }


def link(index: int, address: str) -> dict[str, Any]:
    """The PCIe link, as the GPU sees it."""
    return {
        "CurrPcieLinkGeneration": 5,
        "MaxPcieLinkGeneration": 5,
        "GpuMaxPcieLinkGeneration": 5,
        "CurrPcieLinkWidth": 16,
        "MaxPcieLinkWidth": 16,
        "PcieReplayCounter": 0,
    }


def memory(index: int, address: str) -> dict[str, Any]:
    """Framebuffer and BAR1."""
    total, reserved = 85_520_809_984, 580_000_000
    return {
        "BAR1MemoryInfo": {"bar1Total": 128 * GIB, "bar1Free": 127 * GIB, "bar1Used": GIB},
        "MemoryInfo_v2": {"total": total, "reserved": reserved, "free": total - reserved, "used": 0},
    }


def errors(index: int, address: str) -> dict[str, Any]:
    """ECC and remapped rows: nothing ever happened."""
    return {
        "EccMode": [1, 1],
        **{f"TotalEccErrors({kind},{span})": 0 for kind in (0, 1) for span in (0, 1)},
        "SramEccErrorStatus": dict.fromkeys(SRAM, 0),
        "RemappedRows": [0, 0, 0, 0],
        "RowRemapperHistogram": {"max": 2560, "high": 0, "partial": 0, "low": 0, "none": 0},
        "RetiredPages(0)": NOT_SUPPORTED,
        "RetiredPages(1)": NOT_SUPPORTED,
        "RetiredPagesPendingStatus": NOT_SUPPORTED,
    }


def clocks(index: int, address: str) -> dict[str, Any]:
    """An idle GPU at its application clocks."""
    application = {0: CLOCKS_MHZ[0], 2: CLOCKS_MHZ[2]}
    return {
        "CurrentClocksEventReasons": 1,
        "PerformanceState": 0,
        "ClockInfo(0)": 345,
        "ClockInfo(1)": 345,
        "ClockInfo(2)": CLOCKS_MHZ[2],
        **{f"MaxClockInfo({kind})": mhz for kind, mhz in CLOCKS_MHZ.items()},
        **{f"ApplicationsClock({kind})": mhz for kind, mhz in application.items()},
        **{f"DefaultApplicationsClock({kind})": mhz for kind, mhz in application.items()},
    }


def power(index: int, address: str) -> dict[str, Any]:
    """Milliwatts and degrees."""
    return {
        "EnforcedPowerLimit": POWER_MW,
        "PowerManagementLimit": POWER_MW,
        "PowerManagementDefaultLimit": POWER_MW,
        "PowerManagementLimitConstraints": [200_000, POWER_MW],
        "PowerUsage": 71_000 + 137 * index,
        "Temperature(0)": 31 + index % 3,
        "TemperatureThreshold(0)": 92,
        "TemperatureThreshold(1)": 89,
        "TemperatureThreshold(2)": 95,
        "TemperatureThreshold(3)": 87,
        "MarginTemperature": 56 - index % 3,
    }


def modes(index: int, address: str) -> dict[str, Any]:
    """Settings."""
    return {
        "PersistenceMode": 1,
        "MigMode": [0, 0],
        "ComputeMode": 0,
        "GspFirmwareMode": [1, 1],
        "GspFirmwareVersion": DRIVER,
        "VirtualizationMode": 0,
        "FieldValues(230)": 0,
        "ComputeRunningProcesses": [],
    }


def fabric(index: int, address: str) -> dict[str, Any]:
    """NVLink and NVSwitch. The health mask: every two-bit field says false, which is good."""
    return {
        "GpuFabricInfoV": {
            "clusterUuid": "00" * 16,
            "status": 0,
            "cliqueId": 0,
            "state": 3,
            "healthMask": 0x1AA,
            "version": 2,
        },
        **{f"NvLinkState({number})": 1 for number in range(NVLINKS)},
        f"NvLinkState({NVLINKS})": NOT_SUPPORTED,
        **{f"P2PStatus({peer},0)": 0 for peer in range(8) if peer != index},
    }
