# SPDX-License-Identifier: Apache-2.0
"""What NVML says of each GPU's link a moment after sysfs did: the GPU may have been at rest."""

from typing import ClassVar

import msgspec

from gpuaudit.facts.base import Fact, probe
from gpuaudit.facts.gpu import told_address
from gpuaudit.facts.gpuvalues import P0
from gpuaudit.host import Host, NotApplicable, Unavailable
from gpuaudit.host.answers import SECOND, NvmlAnswers

PERSISTENT = 1


class LinkNow(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU: link generation, and whether it is at its highest performance state for good.

    Without persistence opening a GPU wakes it for a moment, and its state then proves nothing. Both
    are asked twice: a GPU that wakes in between has one generation of the old state.
    """

    generation: int | None
    awake: bool


class GpuLinksNow(Fact, frozen=True, kw_only=True):
    """By PCI address: nvmlDeviceGetCurrPcieLinkGeneration, PerformanceState, PersistenceMode.

    Empty where NVML did not answer: then nothing tells a GPU at rest from a slow one.
    """

    asks_nvml: ClassVar[bool] = True
    by_address: dict[str, LinkNow]


@probe
def gpu_links_now(host: Host) -> GpuLinksNow:
    """Never raises: this evidence only sharpens what sysfs said."""
    try:
        answers = host.nvml()
    except (Unavailable, NotApplicable):
        return GpuLinksNow(by_address={})
    named = ((told_address(answers, i), i) for i in range(len(answers.devices)))
    return GpuLinksNow(by_address={a: link_now(answers, i) for a, i in named if a is not None})


def link_now(answers: NvmlAnswers, index: int) -> LinkNow:
    """The answers of one GPU; one that is missing proves nothing."""
    early, late = both(answers, index, "nvmlDeviceGetCurrPcieLinkGeneration")
    states = both(answers, index, "nvmlDeviceGetPerformanceState")
    persistent = number(answers, index, "nvmlDeviceGetPersistenceMode") == PERSISTENT
    return LinkNow(
        generation=max(early, late) if early is not None and late is not None else early,
        awake=persistent and states == (P0, P0),
    )


def both(answers: NvmlAnswers, index: int, call: str) -> tuple[int | None, int | None]:
    """The first answer and the one that was given after all other questions."""
    return number(answers, index, call), number(answers, index, f"{call}{SECOND}")


def number(answers: NvmlAnswers, index: int, call: str) -> int | None:
    """A whole number, or None for anything else."""
    answer = answers.of_device(index, call)
    return answer.v if answer.ok and isinstance(answer.v, int) else None
