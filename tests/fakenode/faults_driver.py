# SPDX-License-Identifier: Apache-2.0
"""Single faults of the driver, of NVML as a whole, and of the services around them."""

from fakenode import FakeNode
from fakenode.breaking import attribute, forget_gpu, lose_gpu, no_nvml, remove, stop, text, write
from fakenode.commands import fabric_manager
from fakenode.driver import PROPRIETARY, version_text
from fakenode.fault import ALIKE, NAMES, NVML, PCI_WORDS, PER_GPU, Fault, unknown
from fakenode.layout import gpu_addresses
from fakenode.pci import path_of

CALL = "nvmlDeviceGetEccMode"
LINKS = frozenset({"pcie-link-speed", "pcie-link-width", "pcie-slot-limit"})
DRIVER = frozenset(
    {
        "driver-gpudirect-rdma",
        "driver-library-match",
        "driver-open-modules",
        "fabric-manager-version",
    }
)
"""Compare something with the driver that is loaded."""

FABRIC_MANAGER, PERSISTENCED = 1650, 1601


def gpu_missing_from_nvml(node: FakeNode) -> None:
    forget_gpu(node, 5)


def gpu_missing_everywhere(node: FakeNode) -> None:
    """Gone from the bus, the driver and NVML: only the policy knows that there were eight."""
    address = gpu_addresses()[5]
    remove(node, path_of(address), f"/sys/bus/pci/devices/{address}")
    remove(node, f"/sys/bus/pci/drivers/nvidia/{address}")
    remove(node, f"/proc/driver/nvidia/gpus/{address}")
    groups = [p for p in node.files if p.endswith(f"/devices/{address}")]
    for path in groups:
        del node.files[path]
    forget_gpu(node, 5)


def gpu_lost(node: FakeNode) -> None:
    lose_gpu(node, 3)


def gpu_dead_on_the_bus(node: FakeNode) -> None:
    """Registers read ones while sysfs still shows what it remembers, and NVML calls it lost."""
    address = gpu_addresses()[3]
    node.files[f"{path_of(address)}/config"] = b"\xff" * 4096
    for end in ("current", "max"):
        attribute(node, address, f"{end}_link_speed", "Unknown")
        attribute(node, address, f"{end}_link_width", "63")
    lose_gpu(node, 3)


def gpu_excluded(node: FakeNode) -> None:
    path = f"/proc/driver/nvidia/gpus/{gpu_addresses()[5]}/information"
    write(node, path, text(node, path).replace("GPU Excluded: \t No", "GPU Excluded: \t Yes"))
    forget_gpu(node, 5)
    node.nvml["system"]["nvmlGetExcludedDeviceCount"] = {"v": 1}


def driver_not_loaded(node: FakeNode) -> None:
    remove(node, "/proc/driver/nvidia", "/sys/module/nvidia", "/sys/module/nvidia_uvm")
    remove(node, "/sys/module/nvidia_modeset", "/sys/module/nvidia_peermem")
    remove(node, "/sys/kernel/mm/memory_peers")
    for address in gpu_addresses():
        remove(node, f"{path_of(address)}/driver")
    no_nvml(node, 9)


def library_mismatch(node: FakeNode) -> None:
    write(node, "/sys/module/nvidia/version", "550.90.07")
    write(node, "/sys/module/nvidia_peermem/version", "550.90.07")
    node.files["/proc/driver/nvidia/version"] = version_text(driver="550.90.07")
    no_nvml(node, 18)


def library_missing(node: FakeNode) -> None:
    folder = "/usr/lib/x86_64-linux-gnu"
    remove(node, *(p for p in node.files if p.startswith(f"{folder}/libnvidia-ml")))
    no_nvml(node, 12)


def no_permission(node: FakeNode) -> None:
    no_nvml(node, 4)


def proprietary_modules(node: FakeNode) -> None:
    node.files["/proc/driver/nvidia/version"] = version_text(PROPRIETARY)


def nouveau_loaded(node: FakeNode) -> None:
    node.files["/sys/module/nouveau/refcnt"] = "0\n"


def fabric_manager_stopped(node: FakeNode) -> None:
    stop(node, FABRIC_MANAGER)
    remove(node, "/run/nvidia-fabricmanager")


def fabric_manager_not_after_boot(node: FakeNode) -> None:
    wants = "/etc/systemd/system/multi-user.target.wants"
    remove(node, f"{wants}/nvidia-fabricmanager.service")


def fabric_manager_of_other_version(node: FakeNode) -> None:
    node.commands = [one for one in node.commands if one["argv"][0] != "nv-fabricmanager"]
    node.commands.append(fabric_manager("570.124.06"))


def persistence_daemon_stopped(node: FakeNode) -> None:
    """The mode stays as it was set, for example by nvidia-smi -pm 1."""
    stop(node, PERSISTENCED)
    remove(node, "/run/nvidia-persistenced")


def peermem_missing(node: FakeNode) -> None:
    """Open modules on a kernel since 5.12 have DMA-BUF instead."""
    remove(node, "/sys/module/nvidia_peermem", "/sys/kernel/mm/memory_peers")


def peermem_missing_with_proprietary_modules(node: FakeNode) -> None:
    proprietary_modules(node)
    peermem_missing(node)


def nvml_hung(node: FakeNode) -> None:
    half_answered(node, 5)
    node.nvml["hung"] = {"call": CALL, "device": 5, "after_s": 10.0}


def nvml_hung_at_once(node: FakeNode) -> None:
    node.nvml |= {"devices": [], "system": {}, "init": {"e": -3}}
    node.nvml["hung"] = {"call": "nvmlInit", "device": None, "after_s": 10.0}


def nvml_crashed(node: FakeNode) -> None:
    half_answered(node, 2)
    node.nvml["crashed"] = {"call": CALL, "device": 2, "signal": 11}


def half_answered(node: FakeNode, last: int) -> None:
    """Calls go device by device: the last one stops at CALL, later ones were only named."""
    named = ("HandleByIndex_v2", "Name", "UUID", "PciInfo")
    for index, answers in enumerate(node.nvml["devices"]):
        keys = list(answers)
        kept = keys if index < last else [f"nvmlDeviceGet{name}" for name in named]
        if index == last:
            kept = keys[: keys.index(CALL)]
        node.nvml["devices"][index] = {key: answers[key] for key in kept}


FAULTS: tuple[Fault, ...] = (
    Fault(gpu_missing_from_nvml, {"gpu-count": "fail"}),
    Fault(gpu_missing_everywhere, {"gpu-count": "fail"}),
    Fault(gpu_lost, unknown(PER_GPU | ALIKE) | {"gpu-alive": "fail"}),
    Fault(
        gpu_dead_on_the_bus,
        unknown(PER_GPU | ALIKE | LINKS | PCI_WORDS) | {"gpu-alive": "fail"},
    ),
    Fault(gpu_excluded, {"gpu-count": "warn"}),
    Fault(
        driver_not_loaded,
        unknown(NVML | DRIVER | {"environment-forward-compat"})
        | {"driver-loaded": "fail", "driver-device-nodes": "notapplicable"},
    ),
    Fault(library_mismatch, unknown(NVML) | {"driver-library-match": "fail"}),
    Fault(library_missing, unknown(NVML) | {"driver-library-match": "fail"}),
    Fault(no_permission, unknown(NVML)),
    Fault(proprietary_modules, {}),
    Fault(nouveau_loaded, {"driver-nouveau-absent": "warn"}),
    Fault(fabric_manager_stopped, {"fabric-manager-running": "fail"}),
    Fault(fabric_manager_not_after_boot, {"fabric-manager-enabled": "fail"}),
    Fault(fabric_manager_of_other_version, {"fabric-manager-version": "fail"}),
    Fault(persistence_daemon_stopped, {"gpu-persistence": "warn"}),
    Fault(peermem_missing, {}),
    Fault(peermem_missing_with_proprietary_modules, {"driver-gpudirect-rdma": "fail"}),
    Fault(nvml_hung, unknown(NVML - NAMES - {"gpu-count", "memory-per-gpu"})),
    Fault(nvml_hung_at_once, unknown(NVML)),
    Fault(nvml_crashed, unknown(NVML - NAMES - {"gpu-count", "memory-per-gpu"})),
)
