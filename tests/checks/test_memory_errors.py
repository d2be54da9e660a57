# SPDX-License-Identifier: Apache-2.0
import pytest
from judging import judge

from gpuaudit.facts.base import Absent
from gpuaudit.facts.counters import Earlier, Reading
from gpuaudit.facts.edac import Controller, MemoryErrors

DAY_S = 86400.0
GONE = Absent("failed", "gone")


def errors(corrected: int | Absent, uncorrected: int | Absent = 0) -> MemoryErrors:
    return MemoryErrors(controllers=(Controller("mc0", corrected, uncorrected, ("DIMM_A1: 3",)),))


def earlier(before: int | None = None, days: float = 10.0) -> Earlier:
    """An earlier reading a day ago, or none."""
    if before is None:
        return Earlier(reading=None, why="there is no earlier reading", uptime_s=days * DAY_S)
    reading = Reading(
        schema="gpuaudit.counters/1",
        boot_id="b",
        uptime_s=(days - 1) * DAY_S,
        written_at="",
        counters={"mc0": {"ce-count": before}},
    )
    return Earlier(reading=reading, why="", uptime_s=days * DAY_S)


@pytest.mark.parametrize(
    ("now", "before", "verdict"),
    [
        (0, None, "pass"),
        (10, None, "pass"),
        (50, None, "unknown"),
        (5000, None, "warn"),
        (5000, 4995, "pass"),
        (5000, 4000, "warn"),
        (GONE, None, "unknown"),
    ],
)
def test_corrected(now: int | Absent, before: int | None, verdict: str) -> None:
    (finding,) = judge("memory_errors/memory-edac-corrected", errors(now), earlier(before))
    assert (finding.subject, finding.verdict.value) == ("mc0", verdict)


def test_the_module_is_evidence() -> None:
    (finding,) = judge("memory_errors/memory-edac-corrected", errors(9000), earlier())
    assert finding.evidence == ("DIMM_A1: 3",)


@pytest.mark.parametrize(("count", "verdict"), [(0, "pass"), (1, "fail"), (GONE, "unknown")])
def test_uncorrected(count: int | Absent, verdict: str) -> None:
    (finding,) = judge("memory_errors/memory-edac-uncorrected", errors(0, count))
    assert finding.verdict.value == verdict


def test_a_site_may_accept_some() -> None:
    (finding,) = judge("memory_errors/memory-edac-uncorrected", errors(0, 2), uncorrected_max=2)
    assert finding.verdict.value == "pass"
