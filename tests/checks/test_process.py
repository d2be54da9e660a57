# SPDX-License-Identifier: Apache-2.0
import pytest
from judging import judge

from gpuaudit.facts.base import Absent
from gpuaudit.facts.counters import Earlier, Reading
from gpuaudit.facts.load import Hanging, StuckProcesses, Zombies
from gpuaudit.facts.services import Processes
from gpuaudit.host import Process

UPTIME_S = 90_000.0
UNREAD = Absent("denied", "needs root")
WHOLE = Processes(
    processes=(Process(pid=2, name="kthreadd", state="sleeping"),),
)
PART = Processes(processes=(Process(pid=1, name="sh", state="sleeping"),))
CHECK = "process/process-uninterruptible"


def earlier(before: int | None = None, ago_s: float = 300.0) -> Earlier:
    reading = Reading(
        schema="gpuaudit.counters/1",
        boot_id="b",
        uptime_s=UPTIME_S - ago_s,
        written_at="",
        counters={} if before is None else {"process 42": {"context-switches": before}},
    )
    return Earlier(reading=reading, why="", uptime_s=UPTIME_S)


def stuck(
    switches: int | None = 70, reported: frozenset[int] | Absent = frozenset(), count: int = 1
) -> StuckProcesses:
    one = Hanging(42, "python", "os_acquire_mutex", switches)
    return StuckProcesses(hanging=(one,) * min(count, 1), count=count, reported=reported)


@pytest.mark.parametrize(
    ("fact", "before", "ago_s", "expected"),
    [
        (stuck(count=0), None, 300.0, ["pass"]),
        (stuck(), None, 300.0, ["pass"]),
        (stuck(reported=UNREAD), None, 300.0, ["unknown"]),
        (stuck(reported=UNREAD), 60, 300.0, ["pass"]),
        (stuck(None, UNREAD), None, 300.0, ["pass"]),
        (stuck(reported=UNREAD), 70, 30.0, ["unknown"]),
        (stuck(reported=UNREAD, count=90), 60, 300.0, ["unknown"]),
    ],
)
def test_nothing_hangs(
    fact: StuckProcesses, before: int | None, ago_s: float, expected: list[str]
) -> None:
    findings = judge(CHECK, fact, WHOLE, earlier(before, ago_s))
    assert [f.verdict.value for f in findings] == expected


@pytest.mark.parametrize(
    ("fact", "before"),
    [(stuck(), 70), (stuck(reported=UNREAD), 70), (stuck(reported=frozenset({42})), None)],
)
def test_a_process_hangs(fact: StuckProcesses, before: int | None) -> None:
    finding = judge(CHECK, fact, WHOLE, earlier(before))[0]
    assert (finding.subject, finding.verdict.value) == ("PID 42 (python)", "fail")
    assert finding.message.endswith(" in os_acquire_mutex")


def test_one_that_was_reported_and_ran_since_does_not_hang() -> None:
    findings = judge(CHECK, stuck(reported=frozenset({42})), WHOLE, earlier(60))
    assert [f.verdict.value for f in findings] == ["pass"]


def test_a_container_sees_too_little() -> None:
    (finding,) = judge(CHECK, stuck(count=0), PART, earlier())
    assert finding.verdict.value == "unknown"


def dead(number: int, *alive: int) -> Zombies:
    living = tuple(Process(pid=pid, name="python", state="zombie") for pid in alive)
    return Zombies(by_parent={"slurmstepd": number} if number else {}, alive=living)


@pytest.mark.parametrize(
    ("zombies", "table", "expected"),
    [
        (dead(0), WHOLE, ["pass"]),
        (dead(16), WHOLE, ["pass"]),
        (dead(17), WHOLE, ["warn"]),
        (dead(1, 51), WHOLE, ["warn", "pass"]),
        (dead(0), PART, ["unknown"]),
        (dead(30), PART, ["warn"]),
    ],
)
def test_zombies(zombies: Zombies, table: Processes, expected: list[str]) -> None:
    findings = judge("process/process-zombies", zombies, table)
    assert [f.verdict.value for f in findings] == expected


def test_the_parent_is_named() -> None:
    (finding,) = judge("process/process-zombies", dead(30), WHOLE)
    assert finding.message == "not buried: 30 of slurmstepd"
