# SPDX-License-Identifier: Apache-2.0
"""MPS, by facts made by hand."""

from typing import Any

import msgspec
import pytest
from gpufacts import findings, function, gpus, policy, section, verdicts

from gpuaudit.facts.base import Absent
from gpuaudit.facts.mps import Mps
from gpuaudit.host import NotApplicable

HIDDEN = Absent("missing", "a container does not see the processes of its host")
DENIED = Absent("denied", "needs root")


def mps(**changes: Any) -> Mps:
    fields: dict[str, Any] = {"daemons": {}, "servers": {}, "orphans": (), "hidden": None}
    return Mps(**fields | changes)


@pytest.mark.parametrize(
    ("found", "want", "expected"),
    [
        (mps(), "any", ["pass"]),
        (mps(), "absent", ["pass"]),
        (mps(), "running", ["fail"]),
        (mps(daemons={7: 0}), "running", ["pass"]),
        (mps(daemons={7: 0}), "absent", ["fail"]),
        (mps(hidden=HIDDEN), "absent", ["unknown"]),
        (mps(hidden=HIDDEN), "running", ["unknown"]),
        (mps(hidden=HIDDEN, daemons={7: 0}), "running", ["pass"]),
        (mps(daemons={7: 0}, servers={8: 1000, 9: 1000}), "any", ["pass"]),
        (mps(daemons={7: 0}, servers={8: 1000, 9: 1001}), "any", ["pass", "warn"]),
        (mps(orphans=(7,)), "any", ["pass", "warn"]),
    ],
)
def test_the_daemon(found: Mps, want: Any, expected: list[str]) -> None:
    wanted = policy(section("mps-daemon"), daemon=want)
    assert verdicts(function("mps-daemon")(found, wanted)) == expected


def test_a_container_is_not_judged_for_nothing() -> None:
    wanted = policy(section("mps-daemon"), daemon="any")
    with pytest.raises(NotApplicable):
        findings(function("mps-daemon")(mps(hidden=HIDDEN), wanted))


def with_mode(mode: Any) -> Any:
    healthy = gpus(count=2)
    one, two = (msgspec.structs.replace(gpu, compute_mode=3) for gpu in healthy.records)
    changed = msgspec.structs.replace(two, compute_mode=mode)
    return msgspec.structs.replace(healthy, records=(one, changed))


@pytest.mark.parametrize(
    ("mode", "verdict"), [(3, "pass"), (0, "warn"), (9, "warn"), (DENIED, "unknown")]
)
def test_the_compute_mode(mode: Any, verdict: str) -> None:
    answer = function("mps-compute-mode")(mps(daemons={7: 0}), with_mode(mode))
    assert verdicts(answer) == ["pass", verdict]


@pytest.mark.parametrize("daemons", [{}, {7: 1000}])
def test_the_compute_mode_is_not_always_judged(daemons: dict[int, int]) -> None:
    with pytest.raises(NotApplicable):
        findings(function("mps-compute-mode")(mps(daemons=daemons), with_mode(0)))
