# SPDX-License-Identifier: Apache-2.0
import importlib
from typing import Any

import pytest

from gpuaudit.facts.base import Absent
from gpuaudit.facts.daemons import JobDaemons
from gpuaudit.facts.docker import DockerLimits
from gpuaudit.facts.limits import Limit, ProcessLimits, RdmaNeed, Reading
from gpuaudit.facts.pam import LoginLimits

pack = importlib.import_module("gpuaudit.checks.limits_files")
WANT = pack.LimitsFilesExpectations(soft=65536, hard=65536)
NOT_HERE = Absent("unsupported", "not part of this node")
GONE = Absent("denied", "needs root")
GOOD = Limit(65536, None)


def reading(nofile: Limit | Absent, subject: str = "x", *, now: bool = True) -> Reading:
    return Reading(subject=subject, memlock=nofile, nofile=nofile, now=now)


def judge(
    process: Limit | Absent,
    slurmd: Any = NOT_HERE,
    docker: Any = NOT_HERE,
    login: Any = NOT_HERE,
    *,
    image: bool = False,
) -> list[tuple[str, str]]:
    need = RdmaNeed(devices=(), memory_bytes=1, container=False, image=image)
    findings = pack.open_files(
        ProcessLimits(reading=reading(process, "this process"), may_lock_anyway=None),
        JobDaemons(contexts={"slurmd": slurmd, "containerd": NOT_HERE}),
        DockerLimits(readings=docker),
        LoginLimits(readings=login),
        need,
        WANT,
    )
    return [(finding.subject, finding.verdict.value) for finding in findings]


@pytest.mark.parametrize(
    ("nofile", "expected"),
    [
        (GOOD, "pass"),
        (Limit(None, None), "pass"),
        (Limit(1024, 524288), "warn"),
        (Limit(1024, 4096), "fail"),
        (Limit(65536, 65535), "fail"),
        (GONE, "unknown"),
        (NOT_HERE, "notapplicable"),
    ],
)
def test_this_process(nofile: Limit | Absent, expected: str) -> None:
    assert judge(nofile) == [("this process", expected)]


def test_every_starter_is_judged() -> None:
    low = Limit(1024, 4096)
    found = judge(
        GOOD,
        (reading(low, "slurmd"), reading(low, "unit", now=False)),
        (reading(GOOD, "docker"),),
        (reading(Limit(1024, 524288), "SSH login"),),
    )
    assert found == [
        ("this process", "pass"),
        ("slurmd", "fail"),
        ("unit", "warn"),
        ("docker", "pass"),
        ("SSH login", "warn"),
    ]


def test_the_next_boot_of_an_image_fails() -> None:
    found = judge(NOT_HERE, (reading(Limit(1024, 4096), "unit", now=False),), image=True)
    assert found == [("this process", "notapplicable"), ("unit", "fail")]


def test_starters_that_cannot_be_seen_are_unknown_once() -> None:
    assert judge(GOOD, GONE, GONE, GONE) == [
        ("this process", "pass"),
        ("daemons that start jobs", "unknown"),
    ]
