# SPDX-License-Identifier: Apache-2.0
"""NVIDIA GPUs as the PCI bus and the kernel driver list them, before NVML is asked."""

from gpuaudit.facts.base import Absent, Fact, probe, unread
from gpuaudit.facts.confinement import JOBS, confinement
from gpuaudit.facts.pci import FOLDER, NVIDIA, PciDevice, identified
from gpuaudit.facts.pciplace import ADDRESS
from gpuaudit.host import Host, NotApplicable, Unavailable

LISTED = "/proc/driver/nvidia/gpus"
NO_GPU = "no NVIDIA GPU on this machine"
ALL_HANDED_OUT = "every NVIDIA GPU is handed to guests (vfio-pci)"
PASSTHROUGH = frozenset({"vfio-pci", "nvgrace_gpu_vfio_pci", "pci-stub", "xen-pciback"})
DEAD = b"\xff\xff\xff\xff"


class PciGpu(Fact, frozen=True, kw_only=True):
    """A physical NVIDIA GPU function on the PCI bus: /sys/bus/pci/devices/A.

    `dead`: the first four bytes of config read ff, so the device does not answer on the bus (PCIe
    Base Specification 5.0, section 2.3.2: a failed configuration read returns all ones).
    """

    address: str
    id: str
    driver: str | None
    dead: bool | Absent


class GpuScan(Fact, frozen=True, kw_only=True):
    """The GPUs of this node: /sys/bus/pci/devices, /proc/driver/nvidia/gpus/*/information."""

    functions: tuple[PciGpu, ...] | None
    """None when the PCI bus cannot be read. GPUs handed to guests are not among them."""

    handed_out: tuple[str, ...]
    switches: tuple[str, ...]
    """Addresses of NVSwitches. Fourth generation switches (B200) are not on the host's bus."""

    listed: dict[str, bool] | None
    """What the kernel driver lists: address -> excluded by NVreg_ExcludedGpus."""

    confined: str | None
    """What this process is confined to, for example "a Slurm job", or None."""

    untold: tuple[str, ...] = ()
    """Addresses of functions that nothing recorded identifies: each may be a GPU."""

    image: bool = False

    kinds: tuple[str, ...] = ()
    """PCI IDs of all physical GPUs, of those handed to guests too."""

    @property
    def in_container(self) -> bool:
        """The process table and the units are not the host's."""
        return self.confined not in {None, *JOBS}


@probe
def gpu_scan(host: Host) -> GpuScan:
    """Look at the bus. Raises NotApplicable when the machine has no NVIDIA GPU."""
    if host.source == "image":
        return GpuScan(
            functions=None, handed_out=(), switches=(), listed=None, confined=None, image=True
        )
    found = pci_functions(host)
    devices = found and [d for d in found if d.vendor == NVIDIA or d.role == "gpu"]
    untold = tuple(d.address for d in found or () if not d.known and d.vendor in {0, NVIDIA})
    gpus = [d for d in devices or () if d.role == "gpu" and "physfn" not in host.names(d.path)]
    mine = [d for d in gpus if d.driver not in PASSTHROUGH]
    if gpus and not mine and not untold:
        raise NotApplicable(ALL_HANDED_OUT)
    if devices is not None and not gpus and not nvml_has_gpus(host):
        if untold:
            raise Unavailable(f"nothing says what kind of device {untold[0]} is", "garbled")
        raise NotApplicable(NO_GPU)
    return GpuScan(
        functions=None if devices is None else tuple(pci_gpu(host, d) for d in mine),
        handed_out=tuple(d.address for d in gpus if d.driver in PASSTHROUGH),
        switches=tuple(d.address for d in devices or () if d.role == "nvswitch"),
        listed=listed_gpus(host),
        confined=confinement(host),
        untold=untold,
        kinds=tuple(d.id for d in gpus),
    )


def pci_functions(host: Host) -> list[PciDevice] | None:
    """Every function, or None when the bus was not recorded; [] where there is no PCI."""
    try:
        names = [name for name in host.list(FOLDER) if ADDRESS.fullmatch(name.lower())]
        if not names:
            host.exists(f"{FOLDER}/0000:00:00.0")
    except Unavailable as absent:
        return [] if absent.kind == "missing" else None
    return [identified(host, name) for name in names]


def nvml_has_gpus(host: Host) -> bool:
    """Whether NVML answers for a GPU that the bus does not show (WSL, some sandboxes)."""
    try:
        return bool(host.nvml().devices)
    except Unavailable:
        return False


def pci_gpu(host: Host, device: PciDevice) -> PciGpu:
    """One GPU, with whether it answers on the bus."""
    return PciGpu(
        address=device.address,
        id=device.id,
        driver=device.driver,
        dead=is_dead(host, device.path),
    )


def is_dead(host: Host, path: str) -> bool | Absent:
    """Whether config space reads ff. A device that sleeps in D3cold reads ff as well."""
    try:
        dead = host.read_bytes(f"{path}/config")[:4] == DEAD
    except Unavailable as absent:
        return unread(absent)
    if dead and host.optional(f"{path}/power/runtime_status") == "suspended":
        return Absent("failed", "the GPU sleeps (runtime power management)")
    return dead


def listed_gpus(host: Host) -> dict[str, bool] | None:
    """The driver's own list, or None when there is none."""
    try:
        names = host.list(LISTED)
    except Unavailable:
        return None
    return {name.lower(): excluded(host, name) for name in names if ADDRESS.fullmatch(name.lower())}


def excluded(host: Host, name: str) -> bool:
    """`GPU Excluded: Yes` in the GPU's information file."""
    text = host.optional(f"{LISTED}/{name}/information") or ""
    pairs = (line.partition(":") for line in text.splitlines())
    return any(key.strip() == "GPU Excluded" and value.strip() == "Yes" for key, _, value in pairs)
