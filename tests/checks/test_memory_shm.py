# SPDX-License-Identifier: Apache-2.0
import importlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from trees import make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.memory import SharedMemory, TotalMemory
from gpuaudit.facts.node import Machine, machine

pack = importlib.import_module("gpuaudit.checks.memory_shm")
GONE = Absent("failed", "/proc/meminfo was not recorded")
MEMORY = TotalMemory(kib=64 << 20)
GIB = 1 << 20


@pytest.fixture
def node(tmp_path: Path) -> Machine:
    return machine(make_host(tmp_path, {}))


def shm(size_kib: Any, kind: str | None = "tmpfs") -> SharedMemory:
    return SharedMemory(type=kind, size_kib=size_kib, is_default=False)


def want(gib: float = 1, fraction: float = 0) -> Any:
    return pack.MemoryShmExpectations(min_gib=gib, min_fraction_of_memory=fraction)


@pytest.mark.parametrize(
    ("size_kib", "gib", "fraction", "expected"),
    [
        (32 * GIB, 1, 0, "pass"),
        (GIB, 1, 0, "pass"),
        (GIB - 4096, 1, 0, "fail"),
        (65536, 1, 0, "fail"),
        (16 * GIB, 1, 0.5, "fail"),
        (32 * GIB, 1, 0.5, "pass"),
        (32 * GIB, 40, 0.5, "fail"),
        (None, 1, 0.5, "pass"),
        (GONE, 1, 0, "unknown"),
    ],
)
def test_size(size_kib: Any, gib: float, fraction: float, expected: str, node: Machine) -> None:
    finding = pack.shm_size(shm(size_kib), MEMORY, node, want(gib, fraction))
    assert finding.verdict == expected
    assert bool(finding.cost) is (expected == "fail")


def test_a_fraction_of_an_unknown_memory_is_unknown(node: Machine) -> None:
    finding = pack.shm_size(shm(GIB), TotalMemory(kib=GONE), node, want(fraction=0.1))
    assert finding.verdict == "unknown"
    assert finding.message == GONE.reason


def test_nothing_mounted_fails(node: Machine) -> None:
    finding = pack.shm_size(shm(None, None), MEMORY, node, want())
    assert finding.verdict == "fail"


def test_the_message_says_what_to_do_in_a_container(node: Machine) -> None:
    inside = msgspec.structs.replace(node, container=True)
    assert "--ipc=host" in pack.shm_size(shm(65536), MEMORY, inside, want()).message
    assert "--ipc=host" not in pack.shm_size(shm(65536), MEMORY, node, want()).message
