# SPDX-License-Identifier: Apache-2.0
"""The GPUs as NVML answers for them."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.gpuanswer import value_of
from gpuaudit.facts.gpurecord import CALLS, Call, Gpu
from gpuaudit.facts.gpuscan import GpuScan
from gpuaudit.facts.gpuvalues import Pci
from gpuaudit.facts.nvml import Nvml
from gpuaudit.host import Host, Unavailable
from gpuaudit.host.answers import Answer, NvmlAnswers, Problem
from gpuaudit.host.nvml_problems import FUNCTION_NOT_FOUND

__all__ = ["Gpu", "Gpus", "gpus", "majority"]

PEER_CALL = "nvmlDeviceGetP2PStatus"
T = TypeVar("T")


class Gpus(Fact, frozen=True, kw_only=True):
    """Every GPU that NVML counts: nvmlDeviceGetCount_v2 and the calls in gpurecord.CALLS."""

    records: tuple[Gpu, ...]
    problem: Problem | None
    """Why NVML as a whole did not answer, or did not answer everything."""

    driver: str | None = None
    """nvmlSystemGetDriverVersion."""

    library: str | None = None
    """nvmlSystemGetNVMLVersion without its first number, which is the CUDA release."""

    def asked(self) -> tuple[Gpu, ...]:
        """The GPUs to judge. Raises Unavailable with NVML's own reason when there is none."""
        if self.records:
            return self.records
        if self.problem:
            raise Unavailable(self.problem.sentence, "unsupported")
        raise Unavailable("NVML lists none of the GPUs on the PCI bus", "unsupported")


@probe
def gpus(host: Host, scan: GpuScan, nvml: Nvml) -> Gpus:
    """Turn NVML's answers into records. The scan has ended the matter where there is no GPU."""
    answers = nvml.answers
    problem = answers.problem(driver_loaded=driver_loaded(host))
    driver = text(answers.of_system("nvmlSystemGetDriverVersion"))
    addresses = gpu_addresses(answers, scan)
    library = text(answers.of_system("nvmlSystemGetNVMLVersion"))
    return Gpus(
        records=tuple(record(answers, i, address, driver) for i, address in enumerate(addresses)),
        problem=problem,
        driver=driver,
        library=library.partition(".")[2] if library else None,
    )


def driver_loaded(host: Host) -> bool | None:
    """Whether the kernel driver is there; None when that was not recorded."""
    try:
        return host.exists("/proc/driver/nvidia/version")
    except Unavailable:
        return None


def text(answer: Answer) -> str | None:
    """A text, or None for anything else."""
    return answer.v if answer.ok and isinstance(answer.v, str) else None


def gpu_addresses(answers: NvmlAnswers, scan: GpuScan) -> list[str | None]:
    """The address of each GPU; a lost one that cannot say takes the one address left over."""
    told = [told_address(answers, index) for index in range(len(answers.devices))]
    left = [f.address for f in scan.functions or () if f.address not in told]
    if told.count(None) == 1 == len(left):
        return [address or left[0] for address in told]
    return told


def told_address(answers: NvmlAnswers, index: int) -> str | None:
    """What nvmlDeviceGetPciInfo says, written as sysfs does: 00000000:1A:00.0 -> 0000:1a:00.0."""
    pci = value_of(answers.of_device(index, "nvmlDeviceGetPciInfo"), CALLS["pci"], None)
    parts = re.fullmatch(r"([0-9a-f]+):(.+)", pci.bus_id.lower()) if isinstance(pci, Pci) else None
    return f"{int(parts[1], 16):04x}:{parts[2]}" if parts else None


def record(answers: NvmlAnswers, index: int, address: str | None, driver: str | None) -> Gpu:
    """One GPU. When it is lost, every field says so: what it still answers is not to be trusted."""
    lost = why_lost(answers.devices[index])
    fields = {
        field: lost or value_of(answer_to(answers, index, call), call, driver)
        for field, call in CALLS.items()
    }
    return Gpu(index=index, address=address, lost=lost, **fields)


def answer_to(answers: NvmlAnswers, index: int, call: Call) -> Answer:
    """The answer to a call, or to the older one that was asked in its place."""
    answer = answers.of_device(index, f"nvmlDeviceGet{call.name}")
    older = f"nvmlDeviceGet{call.older}"
    if answer.e == FUNCTION_NOT_FOUND and older in answers.devices[index]:
        return answers.of_device(index, older)
    return answer


def why_lost(device: dict[str, Answer]) -> Absent | None:
    """The first answer that says the GPU is gone. A peer call may mean the peer."""
    for call, answer in device.items():
        if answer.gone and not call.startswith(PEER_CALL):
            return Absent("failed", answer.reason)
    return None


def majority(values: Iterable[T]) -> T | None:
    """The most frequent value, the first of them when several are; None for nothing."""
    common = Counter(values).most_common(1)
    return common[0][0] if common else None
