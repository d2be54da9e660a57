# SPDX-License-Identifier: Apache-2.0
"""A libnvidia-ml.so.1 for the real nvidia-ml-py: answers from a document, faults included."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

Document = dict[str, Any]

MIB = 1 << 20
DRIVER = "570.86.15"
BUSES = (0x19, 0x2D, 0x3F, 0x54, 0x98, 0xAB, 0xBC, 0xDF)
NVLINKS, LINK_MB_PER_S = 18, 26562
SWITCH = 2
"""NVML_NVLINK_DEVICE_TYPE_SWITCH of nvml.h."""
OTHER_FIELDS, BLACKWELL = (38, 45, 52, 59), (206, 208, 211, 213, 214, 219)
"""Counters of links that a Hopper does not have."""
UNSUPPORTED = {"e": 3, "t": "not supported"}
SLEEP = {"sleep": True}
CRASH = {"crash": True}


def build_shim(folder: Path, *flags: str) -> Path:
    """Compile the library into `folder` and return that folder, for shim_env."""
    source = Path(__file__).with_name("shim.c")
    library = folder / "libnvidia-ml.so.1"
    command = ["gcc", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *flags]
    command += [f"-Wl,-soname,{library.name}", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return folder


def shim_env(folder: Path, document: Path) -> dict[str, str]:
    """The environment in which a new process finds the fake library and its document."""
    return {**os.environ, "LD_LIBRARY_PATH": str(folder), "GPUAUDIT_FAKE_NVML": str(document)}


def write_document(path: Path, document: Document) -> Path:
    """Write a document for the library."""
    path.write_text(json.dumps(document))
    return path


def values(**answers: Any) -> Document:
    """Answers with a value, by the name behind nvmlDeviceGet."""
    return {f"nvmlDeviceGet{name}": {"v": value} for name, value in answers.items()}


def of_arguments(name: str, by_argument: dict[str, Any]) -> Document:
    """Answers of one call with several arguments."""
    return {f"nvmlDeviceGet{name}({key})": {"v": value} for key, value in by_argument.items()}


def healthy_h100(count: int = 8) -> Document:
    """A document of HGX H100 GPUs at idle; every number is typical, every identifier invented."""
    confidential = {"environment": 0, "ccFeature": 0, "devToolsMode": 0}
    return {
        "schema": "gpuaudit.nvml/1",
        "binding": None,
        "init": {"v": True},
        "system": {
            "nvmlSystemGetDriverVersion": {"v": DRIVER},
            "nvmlSystemGetNVMLVersion": {"v": f"12.{DRIVER}"},
            "nvmlSystemGetCudaDriverVersion_v2": {"v": 12080},
            "nvmlDeviceGetCount_v2": {"v": count},
            "nvmlGetExcludedDeviceCount": {"v": 0},
            "nvmlSystemGetConfComputeState": {"v": confidential},
            "nvmlSystemGetConfComputeSettings": {"v": {**confidential, "multiGpuMode": 0}},
        },
        "devices": [_h100(index, count) for index in range(count)],
        "hung": None,
        "crashed": None,
    }


def _h100(index: int, count: int) -> Document:
    return {
        **_identity(index),
        **_pcie(),
        **_memory(),
        **_clocks(),
        **_power(),
        **_modes(),
        **_fabric(index, count),
    }


def _identity(index: int) -> Document:
    bus = BUSES[index % len(BUSES)] + index // len(BUSES)
    pci = {
        "busId": f"00000000:{bus:02X}:00.0",
        "domain": 0,
        "bus": bus,
        "device": 0,
        "pciDeviceId": 0x233010DE,
        "pciSubSystemId": 0x16C110DE,
    }
    return {
        "nvmlDeviceGetHandleByIndex_v2": {"v": True},
        **values(Name="NVIDIA H100 80GB HBM3", PciInfo=pci, MinorNumber=index),
        **values(UUID=f"GPU-00000000-aaaa-4bbb-8ccc-{index:012x}", Serial=f"19000000000{index:02}"),
        **values(Brand=14, Architecture=9),
        **values(VbiosVersion="96.00.99.00.01", InforomImageVersion="G520.0200.00.05"),
    }


def _pcie() -> Document:
    bar1 = {"bar1Total": 131072 * MIB, "bar1Free": 131071 * MIB, "bar1Used": MIB}
    return {
        **values(CurrPcieLinkGeneration=5, MaxPcieLinkGeneration=5, GpuMaxPcieLinkGeneration=5),
        **values(CurrPcieLinkWidth=16, MaxPcieLinkWidth=16, PcieReplayCounter=0),
        **values(BAR1MemoryInfo=bar1),
    }


def _memory() -> Document:
    total, reserved = 81559 * MIB, 551 * MIB
    memory = {"total": total, "reserved": reserved, "free": total - reserved, "used": 0}
    histogram = {"max": 2560, "high": 0, "partial": 0, "low": 0, "none": 0}
    kinds = [
        f"{when}Unc{what}" for when in ("aggregate", "volatile") for what in ("Parity", "SecDed")
    ]
    places = [f"aggregateUncBucket{place}" for place in ("L2", "Sm", "Pcie", "Mcu", "Other")]
    others = ["aggregateCor", "volatileCor", "bThresholdExceeded"]
    return {
        **values(MemoryInfo_v2=memory, EccMode=[1, 1]),
        **of_arguments("TotalEccErrors", {"0,0": 0, "0,1": 0, "1,0": 0, "1,1": 0}),
        **values(SramEccErrorStatus=dict.fromkeys(kinds + places + others, 0)),
        **values(RemappedRows=[0, 0, 0, 0], RowRemapperHistogram=histogram),
        "nvmlDeviceGetRetiredPagesPendingStatus": UNSUPPORTED,
        "nvmlDeviceGetRetiredPages(0)": UNSUPPORTED,
        "nvmlDeviceGetRetiredPages(1)": UNSUPPORTED,
    }


def _clocks() -> Document:
    return {
        **values(CurrentClocksEventReasons=1, PerformanceState=0),
        **values(UtilizationRates={"gpu": 0, "memory": 0}),
        **of_arguments("ClockInfo", {"0": 345, "1": 345, "2": 2619}),
        "nvmlDeviceGetCurrentClocksEventReasons#2": {"v": 1},
        "nvmlDeviceGetClockInfo(1)#2": {"v": 345},
        "nvmlDeviceGetClockInfo(2)#2": {"v": 2619},
        "nvmlDeviceGetPerformanceState#2": {"v": 0},
        "nvmlDeviceGetCurrPcieLinkGeneration#2": {"v": 5},
        **of_arguments("MaxCustomerBoostClock", {"0": 1980}),
        **of_arguments("MaxClockInfo", {"0": 1980, "1": 1980, "2": 2619}),
        **of_arguments("ApplicationsClock", {"0": 1980, "2": 2619}),
        **of_arguments("DefaultApplicationsClock", {"0": 1980, "2": 2619}),
        "nvmlDeviceGetAutoBoostedClocksEnabled": UNSUPPORTED,
        **of_arguments("FieldValues", {"75": 0}),
        **{f"nvmlDeviceGetFieldValues({since_580})": UNSUPPORTED for since_580 in (269, 270, 271)},
    }


def _power() -> Document:
    limits = ("EnforcedPowerLimit", "PowerManagementLimit", "PowerManagementDefaultLimit")
    return {
        **values(**dict.fromkeys(limits, 700_000)),
        **values(PowerManagementLimitConstraints=[200_000, 700_000], PowerUsage=71_350),
        **of_arguments("Temperature", {"0": 31}),
        **of_arguments("TemperatureThreshold", {"0": 95, "1": 90, "2": 95, "3": 87}),
        **values(MarginTemperature=56),
        **of_arguments("FieldValues", {"82": 38, "186": 71_410}),
        "nvmlDeviceGetPowerUsage#2": {"v": 71_350},
        "nvmlDeviceGetFieldValues(186)#2": {"v": 71_390},
    }


def _modes() -> Document:
    return {
        **values(PersistenceMode=1, MigMode=[0, 0], ComputeMode=0, VirtualizationMode=0),
        **values(DisplayActive=0),
        **values(GspFirmwareMode=[1, 1], GspFirmwareVersion=DRIVER),
        **values(ComputeRunningProcesses=[], GraphicsRunningProcesses=[]),
        **values(MPSComputeRunningProcesses=[]),
        **values(RepairStatus=[0, 0], UnrepairableMemoryFlag_v1=0, AccountingMode=0),
        **values(C2cModeInfoV={"isC2cEnabled": 0}),
        "nvmlDeviceGetFieldValues(170)": UNSUPPORTED,
        **of_arguments("FieldValues", {"230": 0}),
    }


def _fabric(index: int, count: int) -> Document:
    fabric = {
        "clusterUuid": "0" * 32,
        "status": 0,
        "cliqueId": 0,
        "state": 3,
        "healthMask": 0x1AA,
        "version": 2,
    }
    return {
        **values(GpuFabricInfoV=fabric),
        **_links(),
        **of_arguments("P2PStatus", {f"{peer},2": 0 for peer in range(index + 1, count)}),
    }


def _links() -> Document:
    """What a Hopper answers; only the first link is asked for what Ampere or Blackwell has."""
    each = {161: 0, 162: 0, 163: 0, 164: LINK_MB_PER_S, 165: 1}
    found = {f"{field},{link}": value for link in range(NVLINKS) for field, value in each.items()}
    other = (*(f"{field}" for field in OTHER_FIELDS), *(f"{field},0" for field in BLACKWELL))
    return {
        **of_arguments("NvLinkState", {str(link): 1 for link in range(NVLINKS)}),
        f"nvmlDeviceGetNvLinkState({NVLINKS})": {"e": 2, "t": "invalid argument"},
        **of_arguments("NvLinkRemoteDeviceType", {"0": SWITCH}),
        **of_arguments("FieldValues", found),
        **{f"nvmlDeviceGetFieldValues({key})": UNSUPPORTED for key in other},
    }
