# SPDX-License-Identifier: Apache-2.0
"""Whole audits of machines as they are met in the field: no false alarm, and the real faults."""

from pathlib import Path
from typing import Any

import pytest
from fakenvml import healthy_h100
from gpufacts import POLICIES
from trees import Link, Tree, make_host

from gpuaudit.check import CHECKS
from gpuaudit.engine import Facts, judge

SUBJECTS = ("gpu", "driver", "mig", "ecc", "clocks", "power", "thermal", "fabric")
OF_THE_HOST = {"driver-device-nodes", "driver-persistence-enabled", "driver-next-kernel"}
"""These ask for files of the machine, and not for what its GPUs answer."""
MIB = 1 << 20
ADDRESS = "0000:19:00.0"
GET = "nvmlDeviceGet"


def tree(device: str, driver: str, flavour: str) -> Tree:
    here, libraries = f"/sys/bus/pci/devices/{ADDRESS}", "/usr/lib/x86_64-linux-gnu"
    return {
        f"{here}/uevent": f"DRIVER=nvidia\nPCI_CLASS=30200\nPCI_ID=10DE:{device.upper()}\n",
        f"{here}/driver": Link("/sys/bus/pci/drivers/nvidia"),
        f"{here}/config": bytes.fromhex("de10") + b"\0" * 62,
        "/sys/bus/pci/drivers/nvidia": None,
        "/sys/class/dmi/id/sys_vendor": "QEMU",
        "/sys/module/nvidia/version": driver,
        "/proc/driver/nvidia/version": f"NVRM version: {flavour}  {driver}  Tue\n",
        f"{libraries}/libnvidia-ml.so.{driver}": "",
        f"{libraries}/libnvidia-ml.so.1": Link(f"libnvidia-ml.so.{driver}"),
        "/proc/sys/kernel/osrelease": "5.15.0-185-generic",
        "/etc/systemd/system/x.wants": None,
    }


def document(device: str, driver: str, values: dict[str, Any], errors: dict[str, int]) -> Any:
    found = healthy_h100(1)
    found["system"]["nvmlSystemGetDriverVersion"] = {"v": driver}
    found["system"]["nvmlSystemGetNVMLVersion"] = {"v": f"12.{driver}"}
    gpu = found["devices"][0]
    gpu[f"{GET}PciInfo"]["v"]["pciDeviceId"] = int(device, 16) << 16 | 0x10DE
    fast = dict.fromkeys(("MaxClockInfo(1)", "MaxClockInfo(2)", "MaxCustomerBoostClock(0)"), 9001)
    values = {"GspFirmwareVersion": driver, **fast, **values}
    gpu |= {f"{GET}{name}": {"v": value} for name, value in values.items()}
    gpu |= {f"{GET}{name}": {"e": code} for name, code in errors.items()}
    return found


DEPRECATED = dict.fromkeys(("ApplicationsClock(0)", "ApplicationsClock(2)"), 26) | dict.fromkeys(
    ("DefaultApplicationsClock(0)", "DefaultApplicationsClock(2)"), 26
)
NO_FABRIC = {"GpuFabricInfoV": 3}
NO_ROWS = {"RemappedRows": 3, "RowRemapperHistogram": 3}
BEFORE_535 = {"SramEccErrorStatus": 13, "MarginTemperature": 13, "FieldValues(230)": 2}
BEFORE_535 |= {"GpuFabricInfoV": 13, "GpuFabricInfo": 13}
FABRIC = {"clusterUuid": "0" * 32, "status": 0, "cliqueId": 0, "state": 3, "healthMask": 0}


def memory(total_mib: int, bar1_mib: int) -> dict[str, Any]:
    return {
        "MemoryInfo_v2": {"total": total_mib * MIB, "reserved": 0, "free": 0, "used": 0},
        "BAR1MemoryInfo": {"bar1Total": bar1_mib * MIB, "bar1Free": 0, "bar1Used": 0},
    }


H100 = ("2330", "590.48.01", {"GpuFabricInfoV": FABRIC, "ClockInfo(1)": 345}, DEPRECATED)
L40S = (
    "26b9",
    "595.80",
    {"Name": "NVIDIA L40S", "PersistenceMode": 0, "CurrentClocksEventReasons": 0}
    | {"ClockInfo(1)": 2520, "MaxClockInfo(1)": 2520, **memory(46068, 65536)},
    {"MigMode": 3, **DEPRECATED, **NO_FABRIC},
)
A100 = (
    "20b2",
    "535.54.03",
    {"Name": "NVIDIA A100-SXM4-80GB", "PersistenceMode": 0, "MigMode": [1, 1]}
    | {"CurrentClocksEventReasons": 0, "ClockInfo(1)": 1275, "MaxClockInfo(1)": 1410}
    | {"ApplicationsClock(0)": 1275, "DefaultApplicationsClock(0)": 1275, "Temperature(0)": 27}
    | {"TemperatureThreshold(1)": 89, "TemperatureThreshold(3)": 85, "GpuFabricInfo": FABRIC}
    | memory(81920, 131072),
    {"MarginTemperature": 13, "FieldValues(230)": 2, "GpuFabricInfoV": 13, "GpuFabricInfo": 3}
    | NO_ROWS,
)
T4 = (
    "1eb8",
    "515.105.01",
    {"Name": "Tesla T4", "PersistenceMode": 0, "CurrentClocksEventReasons": 0}
    | {"ClockInfo(1)": 585, "MaxClockInfo(1)": 1590, "Temperature(0)": 40}
    | {"ApplicationsClock(0)": 585, "DefaultApplicationsClock(0)": 585}
    | {"TemperatureThreshold(1)": 93, "TemperatureThreshold(3)": 85}
    | {"RetiredPages(0)": 0, "RetiredPages(1)": 0, "RetiredPagesPendingStatus": 0}
    | memory(15360, 256),
    {"MigMode": 3, **NO_ROWS, **BEFORE_535},
)
H200_MIG = (
    "2335",
    "580.173.02",
    {"Name": "NVIDIA H200", "MigMode": [1, 1], "VirtualizationMode": 1, "GpuFabricInfoV": FABRIC}
    | memory(143771, 262144),
    NO_ROWS,
)
GEFORCE_WITH_DISPLAY = (
    "2702",
    "595.71.05",
    {"Name": "NVIDIA GeForce RTX 4080 SUPER", "PersistenceMode": 0, "DisplayActive": 1}
    | {"CurrentClocksEventReasons": 0x4, "PowerUsage": 318_000, "EnforcedPowerLimit": 320_000}
    | {"PowerManagementDefaultLimit": 320_000, "MarginTemperature": 33}
    | memory(16376, 16384),
    {"MigMode": 3, "EccMode": 3, "TotalEccErrors(1,0)": 3, "TotalEccErrors(1,1)": 3}
    | {"SramEccErrorStatus": 3, **DEPRECATED, **NO_FABRIC, **NO_ROWS},
)
VGPU = (
    "26b9",
    "570.133.20",
    {"Name": "NVIDIA L40S-12Q", "VirtualizationMode": 2, **memory(12288, 256)},
    dict.fromkeys(("EnforcedPowerLimit", "PowerManagementDefaultLimit", "PowerUsage"), 3)
    | dict.fromkeys(("Temperature(0)", "MarginTemperature", "FieldValues(230)"), 3)
    | dict.fromkeys(("MigMode", "SramEccErrorStatus", "ComputeRunningProcesses"), 3)
    | {**DEPRECATED, **NO_FABRIC, **NO_ROWS},
)
WOKEN_T4 = (
    "1eb8",
    "590.48.01",
    {**T4[2], "PersistenceMode": 0, "ComputeRunningProcesses": []},
    {"MigMode": 3, "FieldValues(230)": 3, "MarginTemperature": 3, "SramEccErrorStatus": 3}
    | {**NO_ROWS, **NO_FABRIC, **DEPRECATED},
)
PROPRIETARY = "NVIDIA UNIX x86_64 Kernel Module"


@pytest.mark.parametrize(
    ("machine", "wanted"),
    [
        (H100, {}),
        (L40S, {"gpu-persistence": "fail"}),
        (A100, {"gpu-persistence": "fail"}),
        (T4, {"gpu-persistence": "fail", "gpu-product-known": "warn"}),
        (H200_MIG, {}),
        (GEFORCE_WITH_DISPLAY, {"gpu-product-known": "warn"}),
        (VGPU, {}),
        (WOKEN_T4, {"gpu-persistence": "fail", "gpu-product-known": "warn"}),
    ],
    ids=[
        "h100-guest",
        "l40s-guest",
        "a100-mig",
        "t4-cloud",
        "h200-mig",
        "geforce",
        "vgpu",
        "woken",
    ],
)
def test_machines_of_the_field(
    tmp_path: Path, machine: tuple[str, str, Any, Any], wanted: dict[str, str]
) -> None:
    device, driver, values, errors = machine
    nvml = document(device, driver, values, errors)
    host = make_host(
        tmp_path,
        tree(device, driver, PROPRIETARY),
        nvml=nvml,
        processes=[{"pid": 9, "name": "nvidia-persiste", "state": "sleeping"}],
    )
    mine = [
        one
        for one in CHECKS.values()
        if one.id.partition("-")[0] in SUBJECTS and one.id not in OF_THE_HOST
    ]
    done = judge(Facts(host), mine, POLICIES, timeout_s=60, check_timeout_s=30)
    bad = {
        result.check: result.verdict.value
        for result in done.results
        if result.verdict.value not in {"pass", "notapplicable"}
    }
    assert done.traces == {}
    assert bad == wanted
