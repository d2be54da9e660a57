# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest
from trees import make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.callingcontext import OF_MONITOR, OF_SLURMD, STATUS, calling_context
from gpuaudit.facts.environment import Environment

LISTS = "Name:\tbash\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\nMems_allowed_list:\t0-1\n"
NO_CALLER = Environment(assignments=(), caller={}, gaps={})


def started_with(**variables: str) -> Environment:
    return Environment(assignments=(), caller=variables, gaps={})


def test_both_sets(tmp_path: Path) -> None:
    found = calling_context(make_host(tmp_path, {STATUS: LISTS}), NO_CALLER)
    assert (found.cpus, found.memory_nodes) == (frozenset({0, 1, 2, 3}), frozenset({0, 1}))
    assert found.gpus is None


@pytest.mark.parametrize(
    "text",
    [
        "Name:\tbash\n",
        LISTS.replace("0-3", "3-0").replace("0-1", "one"),
        LISTS.replace("0-3", "").replace("0-1", ""),
    ],
)
def test_a_status_that_tells_nothing(tmp_path: Path, text: str) -> None:
    found = calling_context(make_host(tmp_path, {STATUS: text}), NO_CALLER)
    assert isinstance(found.cpus, Absent)
    assert isinstance(found.memory_nodes, Absent)
    assert STATUS in found.cpus.reason


@pytest.mark.parametrize(("source", "kind"), [("plain", "failed"), ("image", "unsupported")])
def test_no_status(tmp_path: Path, source: Any, kind: str) -> None:
    found = calling_context(make_host(tmp_path, {}, source=source), NO_CALLER)
    assert isinstance(found.cpus, Absent)
    assert found.cpus.kind == kind


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({}, None),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2"}, 3),
        ({"CUDA_VISIBLE_DEVICES": "GPU-0a", "NVIDIA_VISIBLE_DEVICES": "all"}, 1),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, None),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-0a,GPU-0b"}, 2),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, None),
        ({"NVIDIA_VISIBLE_DEVICES": "none"}, 0),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 0),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0),
    ],
)
def test_visible_gpus(tmp_path: Path, variables: dict[str, str], gpus: int | None) -> None:
    host = make_host(tmp_path, {STATUS: LISTS})
    assert calling_context(host, started_with(**variables)).gpus == gpus


def test_an_unknown_environment_limits_nothing(tmp_path: Path) -> None:
    unread = Environment(assignments=(), caller=Absent("denied", "no"), gaps={})
    assert calling_context(make_host(tmp_path, {STATUS: LISTS}), unread).gpus is None


@pytest.mark.parametrize(
    ("group", "limits", "cpus"),
    [
        ("0::/\n", {"": "max 100000"}, None),
        ("0::/\n", {"": "400000 100000"}, 4.0),
        ("0::/\n", {}, None),
        ("0::/a/b\n", {"/a": "800000 100000", "/a/b": "max 100000"}, 8.0),
        ("0::/a/b\n", {"/a": "800000 100000", "/a/b": "50000 100000"}, 0.5),
        ("12:cpu:/a\n", {"/a": "800000 100000"}, None),
        ("0::/../x\n", {"": "100000 100000"}, None),
        ("0::/\n", {"": "4"}, None),
        ("0::/\n", {"": "400000 0"}, None),
    ],
)
def test_quota(tmp_path: Path, group: str, limits: dict[str, str], cpus: float | None) -> None:
    files = {f"/sys/fs/cgroup{path}/cpu.max": f"{text}\n" for path, text in limits.items()}
    host = make_host(tmp_path, {STATUS: LISTS, "/proc/self/cgroup": group, **files})
    assert calling_context(host, NO_CALLER).quota_cpus == cpus


SLURM = [
    {"pid": 1, "name": "systemd", "state": "sleeping", "parent": 0},
    {"pid": 2, "name": "kthreadd", "state": "sleeping", "parent": 0},
    {"pid": 30, "name": "slurmd", "state": "sleeping", "parent": 1},
    {"pid": 31, "name": "slurmstepd", "state": "sleeping", "parent": 1},
    {"pid": 32, "name": "slurmstepd", "state": "sleeping", "parent": 30},
    {"pid": 40, "name": "health.sh", "state": "sleeping", "parent": 30},
    {"pid": 41, "name": "bash", "state": "sleeping", "parent": 32},
]


@pytest.mark.parametrize(
    ("parent", "variables", "of_slurmd"),
    [
        (40, {}, True),
        (41, {}, False),
        (31, {"SLURM_SCRIPT_CONTEXT": "prolog_slurmd"}, True),
        (31, {"SLURM_SCRIPT_CONTEXT": "prolog_task"}, False),
        (1, {}, False),
    ],
)
def test_what_slurmd_itself_starts_is_no_job(
    tmp_path: Path, parent: int, variables: dict[str, str], *, of_slurmd: bool
) -> None:
    host = make_host(tmp_path, {STATUS: f"{LISTS}PPid:\t{parent}\n"}, processes=SLURM)
    found = calling_context(host, started_with(**variables))
    assert found.not_of_job == (OF_SLURMD if of_slurmd else "")


@pytest.mark.parametrize(
    ("variables", "monitor"),
    [
        ({}, True),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, True),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-0a"}, False),
        ({"NVIDIA_VISIBLE_DEVICES": "void", "CUDA_VISIBLE_DEVICES": "0"}, False),
    ],
)
def test_a_container_that_names_no_gpu_need_not_be_a_job(
    tmp_path: Path, variables: dict[str, str], *, monitor: bool
) -> None:
    tree = {STATUS: LISTS, "/.dockerenv": ""}
    found = calling_context(make_host(tmp_path, tree), started_with(**variables))
    assert found.not_of_job == (OF_MONITOR if monitor else "")
