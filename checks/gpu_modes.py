# SPDX-License-Identifier: Apache-2.0
"""Modes of a GPU that outlive the one who set them."""

from collections.abc import Iterator
from typing import Literal

from gpuaudit.check import (
    Expectations,
    Finding,
    Severity,
    check,
    expect,
    expect_at_least,
    not_applicable,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpu, Gpus
from gpuaudit.facts.gpupersistence import PersistenceDaemon
from gpuaudit.facts.gpuscan import GpuScan

COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
DAEMON = "nvidia-persistenced"
NO_EXPECTATION = "the policy expects nothing for this product"


class GpuModesExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of a GPU's modes."""

    persistence: bool
    compute_modes: tuple[Literal["default", "exclusive-process", "prohibited"], ...]
    bar1_covers_memory: bool | None


@check("gpu-persistence", severity=Severity.MEDIUM)
def persistence(
    scan: GpuScan, gpus: Gpus, daemon: PersistenceDaemon, want: GpuModesExpectations
) -> Iterator[Finding]:
    """Persistence keeps the driver on every GPU between jobs.

    ## Why it matters
    Without it the driver lets go of an idle GPU: each first use waits seconds for initialization,
    and clocks, power limit and ECC counters of the session are lost.

    ## Evidence
    nvmlDeviceGetPersistenceMode, and whether nvidia-persistenced runs.

    ## How it is judged
    The mode must be `gpu_modes.persistence`. When it is on without the daemon, the driver's
    legacy mode holds it: a warning, because it is lost when the module is loaded again.

    ## Exceptions
    In a container the daemon cannot be seen and only the mode is judged. A GPU with an active
    display needs no persistence: the display server keeps the driver on it.

    ## What to do
    Run `systemctl enable --now nvidia-persistenced`; its ExecStart must not carry
    --no-persistence-mode. `nvidia-smi -pm 1` alone is lost with the next module reload.

    ## References
    - https://docs.nvidia.com/deploy/driver-persistence/persistence-daemon.html
    """
    for gpu in gpus.asked():
        mode = gpu.persistence if isinstance(gpu.persistence, Absent) else bool(gpu.persistence)
        if mode is False and gpu.display_active == 1:
            yield not_applicable(gpu.subject, "its display keeps the driver on it", mode)
            continue
        yield expect(
            mode,
            want.persistence,
            of=gpu.subject,
            message="persistence mode is off",
            cost="seconds of start for every first use of an idle GPU",
        )
    legacy = any(gpu.persistence == 1 for gpu in gpus.records) and daemon.running is False
    if want.persistence and legacy and not scan.in_container:
        yield warns(DAEMON, "does not run: the mode is lost when the driver is loaded again")


@check("gpu-compute-mode", severity=Severity.HIGH)
def compute_mode(gpus: Gpus, want: GpuModesExpectations) -> Iterator[Finding]:
    """Every GPU is in a compute mode that the policy accepts.

    ## Why it matters
    In `prohibited` no CUDA program starts; in `exclusive-process` a second process on the GPU (a
    data loader, a profiler, MPS clients without the server) fails. It is a common leftover.

    ## Evidence
    nvmlDeviceGetComputeMode: 0 default, 2 prohibited, 3 exclusive process.

    ## How it is judged
    The mode must be one of `gpu_modes.compute_modes`.

    ## Exceptions
    Sites that run MPS on purpose want exclusive-process: say so in the site policy.

    ## What to do
    Run `nvidia-smi -i INDEX -c DEFAULT`, and look for the script or prolog that set it.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    - https://docs.nvidia.com/deploy/mps/index.html
    """
    for gpu in gpus.asked():
        mode = gpu.compute_mode
        shown = COMPUTE_MODES.get(mode, f"mode {mode}") if isinstance(mode, int) else mode
        yield expect(shown, want.compute_modes, of=gpu.subject, message=f"compute mode is {shown}")


@check("gpu-bar1-size", severity=Severity.MEDIUM)
def bar1_size(gpus: Gpus, want: GpuModesExpectations) -> Iterator[Finding]:
    """BAR1 covers the whole memory of every GPU.

    ## Why it matters
    GPUDirect RDMA and peer access over PCIe map GPU memory through BAR1. A BAR1 of 256 MiB can
    register 0.3 % of an 80 GB GPU; NCCL then falls back to copies through host memory.

    ## Evidence
    nvmlDeviceGetBAR1MemoryInfo bar1Total, nvmlDeviceGetMemoryInfo_v2 total.

    ## How it is judged
    bar1Total is at least the memory, where `gpu_modes.bar1_covers_memory` is true.

    ## Exceptions
    Products that ship with a small BAR1 (T4, workstation boards with displays) and coherent ones
    (GB200) have no expectation. With MIG on NVML tells the whole to root only, so that a
    smaller BAR1 proves nothing; in a guest with a virtual GPU (vGPU) it is the host's affair.

    ## What to do
    Turn on Above 4G Decoding and Resizable BAR in the BIOS and reboot; on workstation boards set
    the displayless mode with NVIDIA's displaymodeselector.

    ## References
    - https://docs.nvidia.com/cuda/gpudirect-rdma/
    """
    for gpu in gpus.asked():
        yield bar1(gpu, want)


def covers(gpu: Gpu) -> bool:
    """BAR1 is known to hold all memory."""
    if isinstance(gpu.bar1, Absent) or isinstance(gpu.memory, Absent):
        return False
    return gpu.bar1.total >= gpu.memory.total


def bar1(gpu: Gpu, want: GpuModesExpectations) -> Finding:
    """One GPU."""
    if not want.bar1_covers_memory and not isinstance(gpu.bar1, Absent):
        return not_applicable(gpu.subject, NO_EXPECTATION, f"{gpu.bar1.total >> 20} MiB")
    if gpu.mig_runs and not covers(gpu):
        return not_applicable(gpu.subject, "MIG is on: perhaps the share of an instance")
    if gpu.is_vgpu:
        return not_applicable(gpu.subject, "a virtual GPU: its BAR1 is the host's affair")
    if isinstance(gpu.bar1, Absent) or isinstance(gpu.memory, Absent):
        missing = gpu.bar1 if isinstance(gpu.bar1, Absent) else gpu.memory
        return expect(missing, None, of=gpu.subject)
    return expect_at_least(
        gpu.bar1.total >> 20,
        gpu.memory.total >> 20,
        of=gpu.subject,
        unit="MiB",
        message=f"BAR1 has {gpu.bar1.total >> 20} of {gpu.memory.total >> 20} MiB of its memory",
        cost="GPUDirect RDMA cannot map all GPU memory",
    )
