# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA kernel driver, its user-space libraries, and the drivers that must not be there."""

import re
from typing import Literal

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.gpuscan import GpuScan
from gpuaudit.facts.present import target_if_there
from gpuaudit.host import Host, NotApplicable, Unavailable

VERSION = re.compile(r"\b(\d{3,4}\.\d+(?:\.\d+)?)\b")
LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
)
OTHER_FOLDERS = (
    *(f"/run/nvidia/driver{folder}" for folder in LIBRARY_FOLDERS),
    "/home/kubernetes/bin/nvidia/lib64",
    "/run/opengl-driver/lib",
)
"""NVIDIA's GPU Operator (driver container), GKE's Container-Optimized OS, NixOS."""

LIBRARIES = ("libnvidia-ml.so.1", "libcuda.so.1")
OPEN_SOURCE_DRIVERS = ("nouveau", "nova_core", "nova_drm")
MODPROBE_FOLDERS = ("/etc/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
NOT_LOADED = "the NVIDIA kernel driver is not loaded"
NO_DRIVER_IN_IMAGE = "the image holds no NVIDIA driver"
NOT_ON_THE_BUS = "the GPUs are not on this machine's PCI bus: their driver runs outside (WSL)"
MEMORY_PEERS = "/sys/kernel/mm/memory_peers"
EFA_DRIVER = "efa"

Flavour = Literal["open", "proprietary"]


class KernelDriver(Fact, frozen=True, kw_only=True):
    """The NVIDIA kernel driver: /proc/driver/nvidia/version, /sys/module/nvidia/version.

    The text of the first holds "Open Kernel Module" in the open flavour (NVIDIA
    open-gpu-kernel-modules, kernel-open/nvidia/nv-procfs.c prints NV_VERSION_STRING).
    """

    loaded: bool
    version: str | Absent
    flavour: Flavour | Absent


class DriverLibraries(Fact, frozen=True, kw_only=True):
    """Path -> version of the driver's libraries: the file that libX.so.1 leads to."""

    versions: dict[str, str]


class Nouveau(Fact, frozen=True, kw_only=True):
    """Other drivers that take NVIDIA GPUs: /sys/module/{nouveau,nova_core,nova_drm}.

    In an image `loaded` is empty and `kept_out` says whether *.conf files in modprobe.d name it.
    """

    loaded: tuple[str, ...]
    kept_out: bool | None
    idle: bool = False
    """Every GPU on the bus is bound to the NVIDIA driver all the same."""


class GpuDirect(Fact, frozen=True, kw_only=True):
    """What GPUDirect RDMA needs.

    /sys/class/infiniband, and the places at which NCCL looks (src/transport/net_ib.cc):
    /sys/module/nvidia_peermem and /sys/kernel/mm/memory_peers.
    """

    adapters: tuple[str, ...]
    ethernet_only: bool
    """Every port of every adapter is known to be Ethernet (ports/N/link_layer)."""

    peermem_loaded: bool
    registered: bool


@probe
def kernel_driver(host: Host, scan: GpuScan) -> KernelDriver:
    """Read the driver's version text. Needs no NVML; `scan` ends it where there is no GPU."""
    if scan.functions == () and not scan.untold:
        raise NotApplicable(NOT_ON_THE_BUS)
    loaded = host.exists("/sys/module/nvidia") or host.exists("/proc/driver/nvidia/version")
    if not loaded:
        absent = Absent("missing", NOT_LOADED)
        return KernelDriver(loaded=False, version=absent, flavour=absent)
    line = (host.optional("/proc/driver/nvidia/version") or "").partition("\n")[0]
    return KernelDriver(loaded=True, version=version_of(host, line), flavour=flavour_of(line))


def version_of(host: Host, line: str) -> str | Absent:
    """570.86.15 from the NVRM line, or from the module's version file."""
    match = VERSION.search(line)
    text = match[1] if match else host.optional("/sys/module/nvidia/version")
    if text and VERSION.fullmatch(text):
        return text
    if not line and not text:
        return Absent("missing", NOT_LOADED)
    return garbled(line)


def flavour_of(line: str) -> Flavour | Absent:
    """Open or proprietary, by the NVRM line."""
    if "NVRM version" not in line:
        return garbled(line)
    return "open" if "Open Kernel Module" in line else "proprietary"


def garbled(line: str) -> Absent:
    """The driver is there and its file says nothing of use; a container may hide it."""
    said = f"reads {line[:60]!r}" if line else "is missing or empty"
    return Absent("failed", f"/proc/driver/nvidia/version {said}")


@probe
def driver_libraries(host: Host) -> DriverLibraries:
    """Follow libnvidia-ml.so.1 and libcuda.so.1 in the 64-bit library folders."""
    elsewhere = () if host.source == "image" else OTHER_FOLDERS
    targets = {
        path
        for folder in (*LIBRARY_FOLDERS, *elsewhere)
        for name in LIBRARIES
        if (path := followed(host, f"{folder}/{name}"))
    }
    found = {path: re.search(r"\.so\.(\d[\d.]*)$", path) for path in sorted(targets)}
    return DriverLibraries(
        versions={path: match[1] for path, match in found.items() if match and "." in match[1]}
    )


def followed(host: Host, path: str) -> str | None:
    """Where a link leads, or None when it is not there or was not recorded."""
    try:
        return host.resolve(path)
    except Unavailable:
        return None


@probe
def nouveau(host: Host, scan: GpuScan, libraries: DriverLibraries) -> Nouveau:
    """Loaded modules of a running kernel; in an image what modprobe.d says."""
    if not scan.image:
        loaded = tuple(m for m in OPEN_SOURCE_DRIVERS if host.exists(f"/sys/module/{m}"))
        bound = {one.driver for one in scan.functions or ()}
        return Nouveau(loaded=loaded, kept_out=None, idle=bool(loaded) and bound == {"nvidia"})
    if not libraries.versions:
        raise NotApplicable(NO_DRIVER_IN_IMAGE)
    return Nouveau(loaded=(), kept_out=any(keeps_out(text) for text in modprobe_files(host)))


def modprobe_files(host: Host) -> list[str]:
    """Texts of the files that modprobe reads (man modprobe.d)."""
    return [
        host.optional(f"{folder}/{name}") or ""
        for folder in MODPROBE_FOLDERS
        for name in host.names(folder)
        if name.endswith(".conf")
    ]


def keeps_out(text: str) -> bool:
    """`blacklist nouveau` or `install nouveau /bin/false` (also /bin/true)."""
    pattern = r"^[ \t]*(blacklist[ \t]+nouveau[ \t]*$|install[ \t]+nouveau[ \t]+\S*/(false|true)\b)"
    return re.search(pattern, text, re.MULTILINE) is not None


@probe
def gpu_direct(host: Host, scan: GpuScan) -> GpuDirect:
    """RDMA adapters that are hardware, and whether GPU memory can be registered with them."""
    del scan
    names = host.list("/sys/class/infiniband") if host.exists("/sys/class/infiniband") else ()
    adapters = tuple(name for name in names if needs_peer_memory(host, name))
    return GpuDirect(
        adapters=adapters,
        ethernet_only=all(is_ethernet(host, name) for name in adapters),
        peermem_loaded=host.exists("/sys/module/nvidia_peermem"),
        registered=any(
            host.exists(f"{MEMORY_PEERS}/{client}/version") for client in ("nv_mem", "nv_mem_nc")
        ),
    )


def is_ethernet(host: Host, name: str) -> bool:
    """True when all ports of an adapter say so; False when one does not, or says nothing."""
    folder = f"/sys/class/infiniband/{name}/ports"
    layers = {host.optional(f"{folder}/{port}/link_layer") for port in host.names(folder)}
    return layers == {"Ethernet"}


def needs_peer_memory(host: Host, name: str) -> bool:
    """False for software RDMA (no device) and for EFA, whose driver pins GPU memory itself."""
    device = f"/sys/class/infiniband/{name}/device"
    if target_if_there(host, device) is None:
        return False
    return (followed(host, f"{device}/driver") or "").rpartition("/")[2] != EFA_DRIVER
