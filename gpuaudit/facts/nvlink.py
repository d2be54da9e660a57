# SPDX-License-Identifier: Apache-2.0
"""NVLink as NVML answers for it: links, their errors, and which GPUs reach each other.

Numbers of fields: nvml.h, NVML_FI_DEV_NVLINK_...; what is asked: gpuaudit/host/nvml_asked.py.
"""

import msgspec

from gpuaudit.facts.base import Absent, probe
from gpuaudit.facts.counters import Counted, Totals
from gpuaudit.facts.gpu import Gpu, Gpus
from gpuaudit.facts.gpuanswer import value_of
from gpuaudit.facts.gpurecord import Call
from gpuaudit.facts.gpuvalues import Count
from gpuaudit.facts.nvml import Nvml
from gpuaudit.host.answers import NvmlAnswers
from gpuaudit.host.nvml_problems import INVALID_ARGUMENT, NOT_SUPPORTED

ACTIVE, SLEEP = 1, 2
"""NVML_NVLINK_STATE_ACTIVE, _SLEEP: a link at rest sleeps and is not down."""
TO_GPU, TO_SWITCH = 0, 2
"""NVML_NVLINK_DEVICE_TYPE_GPU, _SWITCH."""
P2P_OK, P2P_DISABLED = 0, 4
"""NVML_P2P_STATUS_OK, _DISABLED_BY_REGKEY."""
STATUS = {
    0: "ok",
    1: "the chipset does not support it",
    2: "the GPU does not support it",
    3: "the path between the sockets does not support it",
    4: "disabled by a setting of the driver",
    5: "not supported",
    6: "not known",
}
"""nvmlGpuP2PStatus_t."""

CRC, SPEED, STATE = 163, 164, 165
ERRORS = {
    161: "replays",
    162: "recoveries",
    163: "crc-errors",
    206: "malformed-packets",
    208: "receive-errors",
    211: "integrity-errors",
    213: "recoveries",
    214: "failed-recoveries",
    219: "effective-errors",
}
"""161 to 163 until Hopper, the others from Blackwell on (NVML change log, release 560 and 570)."""
TOTALS = {38: "crc-errors", 45: "crc-data-errors", 52: "replays", 59: "recoveries"}
"""Of all links of a GPU, until Ampere."""
LINKS = range(36)
"""NVML_NVLINK_MAX_LINKS."""


class Link(msgspec.Struct, frozen=True):
    """One link: its number, whether it is up, MB/s in each direction, error totals by kind."""

    number: int
    up: bool
    mb_per_s: int | Absent
    errors: dict[str, int]


class GpuLinks(msgspec.Struct, frozen=True):
    """The links of one GPU. `absent` says why there are none; `to` what its first link leads to."""

    gpu: Gpu
    absent: Absent | None
    links: tuple[Link, ...] = ()
    to: int | None = None
    totals: tuple[tuple[str, int], ...] = ()
    silent: Absent | None = None
    """Why there are no error counters, where there are none."""

    broken: Absent | None = None
    """Why a link among them, and what was not asked behind it, does not tell its state."""

    @property
    def up(self) -> tuple[Link, ...]:
        """The links that are up."""
        return tuple(link for link in self.links if link.up)

    def errors(self) -> dict[str, int]:
        """Every total by name: replays-3 of link 3, replays of all links."""
        of_links = {f"{k}-{one.number}": v for one in self.links for k, v in one.errors.items()}
        return dict(self.totals) | of_links


class Pair(msgspec.Struct, frozen=True):
    """What NVML says of two GPUs: access over NVLink, and access at all where that is not ok."""

    nvlink: int | Absent
    read: int | Absent

    @property
    def joined(self) -> bool:
        """They reach each other over NVLink."""
        return self.nvlink == P2P_OK


class NvLinks(Counted, frozen=True, kw_only=True):
    """Links of every GPU: nvmlDeviceGetNvLinkState, nvmlDeviceGetFieldValues by link.

    `pairs` by indices, the lower first: nvmlDeviceGetP2PStatus.
    """

    gpus: tuple[GpuLinks, ...]
    pairs: dict[tuple[int, int], Pair]

    def counters(self) -> Totals:
        """By PCI address, names as GpuLinks.errors gives them."""
        told = ((one.gpu.address, one.errors()) for one in self.gpus)
        return {address: errors for address, errors in told if address and errors}

    def pair(self, one: int, other: int) -> Pair | None:
        """The answer for two GPUs, in either order."""
        return self.pairs.get((min(one, other), max(one, other)))


@probe
def nvlinks(nvml: Nvml, gpus: Gpus) -> NvLinks:
    """Read the answers. Raises Unavailable as every fact does that needs a GPU to ask."""
    asked, answers = gpus.asked(), nvml.answers
    return NvLinks(
        gpus=tuple(of_gpu(answers, gpu, gpus.driver) for gpu in asked),
        pairs={
            (one.index, other.index): of_pair(answers, one, other, gpus.driver)
            for one in asked
            for other in asked
            if one.index < other.index
        },
    )


def of_gpu(answers: NvmlAnswers, gpu: Gpu, driver: str | None) -> GpuLinks:
    """One GPU. Its first link says whether it has any."""
    if gpu.lost:
        return GpuLinks(gpu, gpu.lost)
    told = {n: number(answers, gpu, f"NvLinkState({n})", driver) for n in LINKS}
    states = {n: state for n, state in told.items() if isinstance(state, int)}
    if not states:
        return GpuLinks(gpu, told[0] if isinstance(told[0], Absent) else None)
    links = tuple(of_link(answers, gpu, n, state, driver) for n, state in states.items())
    remote = [f"NvLinkRemoteDeviceType({link.number})" for link in links]
    types = (number(answers, gpu, call, driver) for call in remote)
    totals = ((name, total(answers, gpu, field)) for field, name in TOTALS.items())
    first = next((link.number for link in links if link.up), links[0].number)
    crc = number(answers, gpu, f"FieldValues({CRC},{first})", driver)
    return GpuLinks(
        gpu,
        None,
        links,
        next((one for one in types if isinstance(one, int)), None),
        tuple((name, value) for name, value in totals if value is not None),
        crc if isinstance(crc, Absent) else None,
        first_broken(answers, gpu, told),
    )


def first_broken(answers: NvmlAnswers, gpu: Gpu, told: dict[int, int | Absent]) -> Absent | None:
    """The first link that does not tell its state; an invalid argument ends the list."""
    for n, state in told.items():
        answer = answers.of_device(gpu.index, f"nvmlDeviceGetNvLinkState({n})")
        if isinstance(state, Absent) and answer.e != NOT_SUPPORTED:
            return None if answer.e == INVALID_ARGUMENT else state
    return None


def of_link(answers: NvmlAnswers, gpu: Gpu, n: int, state: int, driver: str | None) -> Link:
    """One link. It is up where either of the two answers says so: one of them knows sleep."""
    errors: dict[str, int] = {}
    for field, name in ERRORS.items():
        found = total(answers, gpu, field, n)
        if found is not None:
            errors[name] = errors.get(name, 0) + found
    return Link(
        n,
        state in {ACTIVE, SLEEP} or total(answers, gpu, STATE, n) in {ACTIVE, SLEEP},
        number(answers, gpu, f"FieldValues({SPEED},{n})", driver),
        errors,
    )


def of_pair(answers: NvmlAnswers, one: Gpu, other: Gpu, driver: str | None) -> Pair:
    """Two GPUs; the way back is asked in recordings of the first releases only."""
    nvlink, read = (
        number(answers, one, f"P2PStatus({other.index},{caps})", driver) for caps in (2, 0)
    )
    return Pair(nvlink, P2P_OK if nvlink == P2P_OK else read)


def number(answers: NvmlAnswers, gpu: Gpu, name: str, driver: str | None) -> int | Absent:
    """The answer to a call as a number."""
    answer = answers.of_device(gpu.index, f"nvmlDeviceGet{name}")
    found: int | Absent = value_of(answer, Call(name, Count), driver)
    return found


def total(answers: NvmlAnswers, gpu: Gpu, *field: int) -> int | None:
    """The value of a field, of one link or of all; None for what is no number of things."""
    key = f"nvmlDeviceGetFieldValues({','.join(map(str, field))})"
    answer = answers.devices[gpu.index].get(key)
    value = answer.v if answer is not None and answer.ok else None
    return value if type(value) is int and value >= 0 else None
