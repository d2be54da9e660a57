# SPDX-License-Identifier: Apache-2.0
import importlib
from typing import Any

import msgspec
import pytest

from gpuaudit.check import CHECKS, Finding, NotApplicable, Unavailable
from gpuaudit.facts.base import Absent
from gpuaudit.facts.daemons import JobDaemons
from gpuaudit.facts.docker import DockerLimits
from gpuaudit.facts.limits import Limit, ProcessLimits, RdmaNeed, Reading
from gpuaudit.facts.manager import DefaultLimits
from gpuaudit.facts.pam import LoginLimits
from gpuaudit.facts.slurm import SlurmLimits

pack = importlib.import_module("gpuaudit.checks.limits")
WANT = pack.LimitsExpectations(
    memlock_gib="unlimited",
    memlock_without_rdma="warn",
    memlock_systemd_default="warn",
    memlock_containers="fail",
)
MEMORY = 2 << 40
RDMA = RdmaNeed(devices=("mlx5_0",), memory_bytes=MEMORY, container=False, image=False)
NO_RDMA = msgspec.structs.replace(RDMA, devices=())
UNSEEN = msgspec.structs.replace(RDMA, devices=Absent("failed", "was not recorded"))
IMAGE = RdmaNeed(
    devices=Absent("unsupported", "no kernel"),
    memory_bytes=Absent("unsupported", "no kernel"),
    container=False,
    image=True,
)
BIG, SMALL = Limit(None, None), Limit(8 << 20, 8 << 20)
GONE = Absent("denied", "needs root")
NOT_HERE = Absent("unsupported", "slurmd is not part of this node")


def reading(memlock: Limit | Absent, *, now: bool = True, advisory: str = "") -> Reading:
    return Reading(
        subject="slurmd",
        memlock=memlock,
        nofile=Limit(1024, 4096),
        now=now,
        evidence=("/proc/9/limits",),
        advisory=advisory,
    )


def changed(**values: Any) -> Any:
    return msgspec.structs.replace(WANT, **values)


def process(memlock: Limit | Absent, need: RdmaNeed = RDMA, want: Any = WANT) -> Finding:
    found: Finding = pack.memlock_process(
        ProcessLimits(reading=reading(memlock), may_lock_anyway=False), need, want
    )
    return found


@pytest.mark.parametrize(
    ("memlock", "need", "expected"),
    [
        (BIG, RDMA, "pass"),
        (Limit(MEMORY, MEMORY), RDMA, "pass"),
        (Limit(MEMORY - 1, MEMORY), RDMA, "fail"),
        (SMALL, RDMA, "fail"),
        (Limit(8 << 20, None), RDMA, "fail"),
        (SMALL, NO_RDMA, "warn"),
        (SMALL, UNSEEN, "warn"),
        (BIG, UNSEEN, "pass"),
        (Limit(MEMORY, MEMORY), IMAGE, "warn"),
        (GONE, RDMA, "unknown"),
        (Absent("unsupported", "an image has no running kernel"), IMAGE, "notapplicable"),
    ],
)
def test_this_process(memlock: Limit | Absent, need: RdmaNeed, expected: str) -> None:
    assert process(memlock, need).verdict == expected


def test_a_finite_amount_of_the_policy() -> None:
    want = changed(memlock_gib=64)
    assert process(Limit(64 << 30, 64 << 30), RDMA, want).verdict == "pass"
    short = process(Limit(63 << 30, None), RDMA, want)
    assert (short.verdict, short.expected) == ("fail", "64 GiB")
    assert "the hard limit would do" in short.message


def test_a_policy_may_want_it_without_rdma() -> None:
    assert process(SMALL, NO_RDMA, changed(memlock_without_rdma="fail")).verdict == "fail"


def test_a_failure_says_what_it_costs_and_rests_on() -> None:
    finding = process(SMALL)
    assert finding.observed == "8 MiB"
    assert finding.expected == "unlimited"
    assert finding.cost == "a process cannot register more than 8 MiB for RDMA"
    assert finding.evidence[0] == "/proc/9/limits"


def test_cap_ipc_lock_exempts_the_audit_and_says_so() -> None:
    """Root in a shell, a timer or a privileged pod: its limit is 8 MiB and holds nothing back."""
    exempt = ProcessLimits(reading=reading(SMALL), may_lock_anyway=True)
    finding = pack.memlock_process(exempt, RDMA, WANT)
    assert finding.verdict == "warn"
    assert "CAP_IPC_LOCK" in finding.message


@pytest.mark.parametrize("context", ["containerd", "kubelet"])
def test_containers_may_be_exempt_too(context: str) -> None:
    """A stock containerd.service sets no limit; RDMA pods get IPC_LOCK."""
    daemons = JobDaemons(contexts={context: (reading(SMALL),)})
    check: Any = CHECKS[f"limits-memlock-{context}"].function
    (finding,) = check(daemons, RDMA, changed(memlock_containers="warn"))
    assert finding.verdict == "warn"
    assert "IPC_LOCK" in finding.message


def test_in_a_container_the_runtime_is_named() -> None:
    inside = msgspec.structs.replace(RDMA, container=True)
    assert "runtime sets it" in process(SMALL, inside).message


def verdicts(findings: Any) -> list[str]:
    return [finding.verdict.value for finding in findings]


@pytest.mark.parametrize(
    ("running", "next_boot", "policy", "need", "expected"),
    [
        (BIG, BIG, "warn", RDMA, ["pass", "pass"]),
        (SMALL, SMALL, "warn", RDMA, ["warn", "warn"]),
        (SMALL, SMALL, "fail", RDMA, ["fail", "warn"]),
        (BIG, SMALL, "fail", RDMA, ["pass", "warn"]),
        (GONE, BIG, "warn", RDMA, ["unknown", "pass"]),
        (NOT_HERE, SMALL, "warn", IMAGE, ["notapplicable", "warn"]),
    ],
)
def test_systemd_defaults(
    running: Limit | Absent, next_boot: Limit, policy: str, need: RdmaNeed, expected: list[str]
) -> None:
    defaults = DefaultLimits(running=reading(running), next_boot=reading(next_boot, now=False))
    want = changed(memlock_systemd_default=policy)
    assert verdicts(pack.memlock_systemd(defaults, need, want)) == expected


def judge(check: str, readings: Any, need: RdmaNeed = RDMA) -> list[str]:
    """The verdicts on the readings of one context, without Slurm's propagation."""
    name = check.rpartition("-")[2]
    facts: dict[str, list[Any]] = {
        "docker": [DockerLimits(readings=readings)],
        "login": [LoginLimits(readings=readings)],
        "slurmd": [
            JobDaemons(contexts={"slurmd": readings}),
            SlurmLimits(propagates_memlock=False, where="slurm.conf:1"),
        ],
    }
    daemons = [JobDaemons(contexts={name: readings})]
    found = verdicts(CHECKS[check].function(*facts.get(name, daemons), need, WANT))
    return found[:-1] if name == "slurmd" else found


CONTEXTS = pytest.mark.parametrize(
    "check",
    [
        "limits-memlock-slurmd",
        "limits-memlock-containerd",
        "limits-memlock-docker",
        "limits-memlock-kubelet",
        "limits-memlock-login",
    ],
)


@CONTEXTS
@pytest.mark.parametrize(
    ("now", "later", "expected"),
    [
        (BIG, BIG, ["pass", "pass"]),
        (SMALL, BIG, ["fail", "pass"]),
        (BIG, SMALL, ["pass", "warn"]),
        (GONE, BIG, ["unknown", "pass"]),
        (BIG, GONE, ["pass", "unknown"]),
    ],
)
def test_contexts(
    check: str, now: Limit | Absent, later: Limit | Absent, expected: list[str]
) -> None:
    assert judge(check, (reading(now), reading(later, now=False))) == expected


@CONTEXTS
def test_a_context_of_an_image_is_judged_by_its_next_boot(check: str) -> None:
    strict = msgspec.structs.replace(IMAGE, devices=("mlx5_0",))
    assert judge(check, (reading(SMALL, now=False),), strict) == ["fail"]
    assert judge(check, (reading(SMALL, now=False),), IMAGE) == ["warn"]


@CONTEXTS
def test_a_context_that_is_not_part_of_the_node(check: str) -> None:
    with pytest.raises(NotApplicable, match="not part of this node"):
        judge(check, NOT_HERE)


@CONTEXTS
def test_a_context_that_cannot_be_seen(check: str) -> None:
    with pytest.raises(Unavailable, match="needs root"):
        judge(check, GONE)


def test_a_plain_kubelet_only_warns() -> None:
    assert judge(
        "limits-memlock-kubelet", (reading(SMALL, advisory="kubelet starts no container"),)
    ) == ["warn"]


@pytest.mark.parametrize(
    ("propagates", "expected"),
    [
        (False, "pass"),
        (True, "warn"),
        (Absent("missing", "no slurm.conf"), "unknown"),
        (Absent("unsupported", "no slurm.conf"), "notapplicable"),
    ],
)
def test_slurm_that_propagates_limits(propagates: Any, expected: str) -> None:
    daemons = JobDaemons(contexts={"slurmd": (reading(BIG),)})
    slurm = SlurmLimits(propagates_memlock=propagates, where="slurm.conf:7")
    *_, last = pack.memlock_slurmd(daemons, slurm, RDMA, WANT)
    assert (last.verdict, last.subject) == (expected, "slurm.conf:7")


def test_an_audit_without_the_capability_does_not_speak_of_it() -> None:
    assert process(SMALL).evidence == ("/proc/9/limits",)
