# SPDX-License-Identifier: Apache-2.0
"""What generation the GPUs are of, and which levers of speed it has.

A lever is a number format or a way to communicate that a product has or lacks by design. A check
about a lever that no GPU of the node has does not apply, and says so with the reason given here.
"""

from typing import NamedTuple

from gpuaudit.facts.base import Fact, probe
from gpuaudit.facts.gpuscan import LISTED, GpuScan
from gpuaudit.host import Host, NotApplicable, Unavailable


class Family(NamedTuple):
    """Chips that have the same levers. `levers` are those that every product of them has."""

    name: str
    capability: str
    levers: frozenset[str]
    varies: frozenset[str] = frozenset()
    """Levers that some products of the family have and others lack."""


NAMES = {
    "tf32": "TF32 on tensor cores",
    "bf16": "BF16 on tensor cores",
    "fp8": "FP8 on tensor cores",
    "fp4": "FP4 on tensor cores",
    "nvlink": "NVLink",
    "nvls": "NVLink SHARP (NVLS)",
    "pcie-p2p": "peer-to-peer over PCIe",
    "gpudirect-rdma": "GPUDirect RDMA",
    "mig": "Multi-Instance GPU",
    "confidential": "confidential computing",
}
SOURCES = {
    "tf32": "https://docs.nvidia.com/cuda/ampere-tuning-guide/",
    "bf16": "https://docs.nvidia.com/cuda/ampere-tuning-guide/",
    "fp8": "https://nvidia.github.io/TransformerEngine/support_matrix.html",
    "fp4": "https://nvidia.github.io/TransformerEngine/support_matrix.html",
    "nvlink": "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/",
    "nvls": "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-nvls-enable",
    "pcie-p2p": "https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__PEER__ACCESS.html",
    "gpudirect-rdma": "https://docs.nvidia.com/cuda/gpudirect-rdma/",
    "mig": "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-gpus.html",
    "confidential": "https://docs.nvidia.com/confidential-computing/",
}
EVERY = frozenset({"pcie-p2p", "gpudirect-rdma"})
AMPERE = EVERY | {"tf32", "bf16"}
ADA = AMPERE | {"fp8"}
HOPPER = ADA | {"mig", "confidential"}
LINKS = frozenset({"nvlink", "nvls"})
FAMILIES = {
    "GV100": Family("Volta", "7.0", EVERY, frozenset({"nvlink"})),
    "TU10x": Family("Turing", "7.5", EVERY, frozenset({"nvlink"})),
    "GA100": Family("Ampere", "8.0", AMPERE | {"mig"}, frozenset({"nvlink"})),
    "GA10x": Family("Ampere", "8.6", AMPERE, frozenset({"nvlink"})),
    "AD10x": Family("Ada Lovelace", "8.9", ADA),
    "GH100": Family("Hopper", "9.0", HOPPER, LINKS),
    "GB100": Family("Blackwell", "10.0", HOPPER | {"fp4", "nvlink"}, frozenset({"nvls"})),
    "GB110": Family("Blackwell Ultra", "10.3", HOPPER | {"fp4", "nvlink"}, frozenset({"nvls"})),
    "GB20x": Family("Blackwell RTX", "12.0", ADA | {"fp4"}, frozenset({"mig", "confidential"})),
    "GB10": Family("Blackwell (GB10)", "12.1", frozenset({"tf32", "bf16", "fp8", "fp4"})),
}
"""NVLink and NVLS of a product: its data sheet. A board without NVSwitch has no NVLS. GB10 has no
GPUDirect RDMA: https://docs.nvidia.com/dgx/dgx-spark-porting-guide/porting/cuda.html"""

CHIPS = (
    (0x1D80, 0x1DFF, "GV100"),
    (0x1E00, 0x1FFF, "TU10x"),
    (0x2080, 0x20FF, "GA100"),
    (0x2180, 0x21FF, "TU10x"),
    (0x2200, 0x227F, "GA10x"),
    (0x2300, 0x237F, "GH100"),
    (0x2400, 0x25FF, "GA10x"),
    (0x2680, 0x28FF, "AD10x"),
    (0x2900, 0x29FF, "GB100"),
    (0x2B80, 0x2DFF, "GB20x"),
    (0x2E00, 0x2E7F, "GB10"),
    (0x2F00, 0x2FFF, "GB20x"),
    (0x3180, 0x31FF, "GB110"),
)
"""PCI device IDs: README.md of NVIDIA's open-gpu-kernel-modules, and pci.ids for older chips."""

SXM = frozenset(
    {
        *("10de:1db1", "10de:1db5", "10de:1db8"),  # V100
        *("10de:20b0", "10de:20b2", "10de:20b3", "10de:20bd", "10de:20f3"),  # A100, A800
        *("10de:2324", "10de:2330", "10de:2335", "10de:2336", "10de:2339"),  # H800, H100, H200
        *("10de:2329", "10de:232c"),  # H20
    }
)
"""Modules that are wired to each other; their PCIe cards have NVLink with a bridge only."""

GEFORCE = ("GeForce", "TITAN")
GEFORCE_LACKS = {
    "gpudirect-rdma": "GeForce GPUs do not support GPUDirect RDMA",
    "mig": "GeForce GPUs have no MIG",
    "confidential": "GeForce GPUs have no confidential computing",
}
NO_P2P = "the driver allows GeForce GPUs since Ampere no peer-to-peer over PCIe"
WITH_P2P = frozenset({"GV100", "TU10x"})


class Lever(NamedTuple):
    """Whether a GPU has a lever: None when that is not known. `why` says what decides it."""

    there: bool | None
    why: str


class GpuKind(NamedTuple):
    """One GPU: PCI address and ID, its model where the driver tells it, its chip."""

    address: str
    id: str
    model: str | None
    chip: str | None

    @property
    def family(self) -> Family | None:
        """The levers of its chip, None for a chip that this release does not know."""
        return FAMILIES[self.chip] if self.chip else None

    @property
    def geforce(self) -> bool:
        """True for a model that is known to be made for consumers."""
        return any(word in (self.model or "") for word in GEFORCE)

    @property
    def title(self) -> str:
        """NVIDIA H200 (Hopper, compute capability 9.0)."""
        if self.family is None:
            return f"{self.model or self.id} (unknown to this release)"
        return f"{self.model or self.id} ({self.family.name}, {self.family.capability})"


class Generation(Fact, frozen=True, kw_only=True):
    """The GPUs on the PCI bus, by /sys/bus/pci/devices and /proc/driver/nvidia/gpus."""

    gpus: tuple[GpuKind, ...]

    @property
    def any_geforce(self) -> bool:
        """True when one of them is known to be made for consumers."""
        return any(gpu.geforce for gpu in self.gpus)

    def lacks(self, name: str) -> str | None:
        """Why no GPU of this node has a lever, None when one has it or may have it."""
        found = [lever(gpu, name) for gpu in self.gpus]
        if not found or any(one.there is not False for one in found):
            return None
        return found[0].why


def lever(gpu: GpuKind, name: str) -> Lever:
    """Whether one GPU has a lever of NAMES."""
    family = gpu.family
    if gpu.geforce and name in GEFORCE_LACKS:
        return Lever(there=False, why=GEFORCE_LACKS[name])
    if family is None:
        return Lever(there=None, why="this release of gpuaudit does not know the GPU")
    if gpu.geforce and name == "pcie-p2p" and gpu.chip not in WITH_P2P:
        return Lever(there=False, why=NO_P2P)
    if gpu.geforce and name == "pcie-p2p" and gpu.chip == "TU10x":
        return Lever(there=None, why="GeForce GPUs of Turing differ: ask nvidia-smi topo -p2p r")
    if name == "nvlink" and gpu.id in SXM:
        return Lever(there=True, why="SXM modules have it")
    return of_family(family, name)


def of_family(family: Family, name: str) -> Lever:
    """What holds for every product of a family."""
    if name in family.levers:
        return Lever(there=True, why=f"{family.name} has it")
    if name in family.varies:
        some = "boards with NVSwitch" if name == "nvls" else f"some products of {family.name}"
        return Lever(there=None, why=f"{some} have it")
    return Lever(there=False, why=f"{family.name} GPUs have no {NAMES[name]}")


@probe
def generation(host: Host, scan: GpuScan) -> Generation:
    """Look the chips up. Raises NotApplicable in an image, Unavailable without the bus."""
    if scan.image:
        raise NotApplicable("an image has no GPUs")
    if scan.functions is None:
        raise Unavailable("the PCI bus was not recorded", "not-recorded")
    return Generation(
        gpus=tuple(
            GpuKind(gpu.address, gpu.id, model(host, gpu.address), chip(gpu.id))
            for gpu in scan.functions
        )
    )


def chip(pci_id: str) -> str | None:
    """10de:2335 -> GH100, None for what the table does not hold."""
    vendor, _, device = pci_id.partition(":")
    number = int(device or "0", 16)
    found = (name for low, high, name in CHIPS if low <= number <= high)
    return next(found, None) if vendor == "10de" else None


def model(host: Host, address: str) -> str | None:
    """The Model line of the driver's information file."""
    text = host.optional(f"{LISTED}/{address}/information") or ""
    pairs = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for key, _, value in pairs if key.strip() == "Model"), None)
