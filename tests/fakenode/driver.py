# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA driver as the kernel shows it, and the packages' files."""

from fakenvml import DRIVER
from trees import Link as To

from fakenode.irqs import numbering
from fakenode.layout import gpu_addresses
from fakenode.values import Files

VBIOS = "96.00.99.00.01"
OPEN = "NVIDIA UNIX Open Kernel Module for x86_64"
PROPRIETARY = "NVIDIA UNIX x86_64 Kernel Module"
PARAMETERS = {
    "EnableMSI": 1,
    "EnableGpuFirmware": 18,
    "OpenRmEnableUnsupportedGpus": 1,
    "DeviceFileMode": 438,
    "PreserveVideoMemoryAllocations": 0,
}


def uuid_of(index: int) -> str:
    """A made-up UUID."""
    return f"GPU-{index:08x}-0e0e-4a4a-8b8b-{index + 0xABC0:012x}"


def version_text(flavour: str = OPEN, driver: str = DRIVER) -> str:
    """/proc/driver/nvidia/version."""
    return (
        f"NVRM version: {flavour}  {driver}  Release Build  (builder@example)  Tue Jul  8 2025\n"
        "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n"
    )


def driver_files() -> Files:
    """/proc/driver/nvidia, /sys/module/nvidia*, device nodes and libraries."""
    found: Files = {
        "/proc/driver/nvidia/version": version_text(),
        "/proc/driver/nvidia/params": "".join(f"{k}: {v}\n" for k, v in PARAMETERS.items()),
        "/proc/driver/nvidia-nvswitch/devices": None,
        "/sys/module/nvidia/version": f"{DRIVER}\n",
        "/sys/module/nvidia_uvm/refcnt": "4\n",
        "/sys/module/nvidia_modeset/refcnt": "1\n",
        "/sys/module/nvidia_peermem/version": f"{DRIVER}\n",
        "/sys/kernel/mm/memory_peers/nv_mem/version": "1.0\n",
        "/sys/module/ib_core/refcnt": "9\n",
        "/sys/module/ib_uverbs/refcnt": "3\n",
        "/sys/module/mlx5_core/refcnt": "2\n",
        "/sys/module/mlx5_ib/refcnt": "2\n",
        "/usr/bin/nv-fabricmanager": b"\x7fELF",
        "/etc/nvidia/fabricmanager.cfg": "LOG_LEVEL=4\nFABRIC_MODE=0\n",
        "/run/nvidia-persistenced/nvidia-persistenced.pid": "1601\n",
        "/run/nvidia-fabricmanager/nv-fabricmanager.pid": "1650\n",
    }
    for index, address in enumerate(gpu_addresses()):
        found[f"/proc/driver/nvidia/gpus/{address}/information"] = information(index, address)
    return found | libraries()


def information(index: int, address: str) -> str:
    """/proc/driver/nvidia/gpus/A/information."""
    lines = {
        "Model": "NVIDIA H100 80GB HBM3",
        "IRQ": numbering()[address][0],
        "GPU UUID": uuid_of(index),
        "Video BIOS": VBIOS,
        "Bus Type": "PCIe",
        "DMA Size": "52 bits",
        "Bus Location": address,
        "Device Minor": index,
        "GPU Firmware": DRIVER,
        "GPU Excluded": "No",
    }
    return "".join(f"{name}: \t {value}\n" for name, value in lines.items())


def libraries() -> Files:
    """User-space libraries of the driver."""
    folder = "/usr/lib/x86_64-linux-gnu"
    found: Files = {}
    for name in ("libnvidia-ml", "libcuda"):
        found[f"{folder}/{name}.so.{DRIVER}"] = b"\x7fELF"
        found[f"{folder}/{name}.so.1"] = To(f"{name}.so.{DRIVER}")
    return found
