# SPDX-License-Identifier: Apache-2.0
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trees import make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.memory import (
    SharedMemory,
    TotalMemory,
    last_mount,
    parse_size_kib,
    shared_memory,
    total_memory,
    transparent_hugepage,
    zone_reclaim,
)
from gpuaudit.host import NotApplicable, Unavailable

THP = "/sys/kernel/mm/transparent_hugepage"
HUGE = {f"{THP}/enabled": "always [madvise] never\n", f"{THP}/defrag": "[always] defer never\n"}
MOUNTS = "/proc/self/mountinfo"
ROOT = "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"
MEMORY = TotalMemory(kib=1000)
ZONE = "/proc/sys/vm/zone_reclaim_mode"


@pytest.mark.parametrize(
    ("cmdline", "boot"),
    [
        ("quiet", None),
        ("transparent_hugepage=never quiet transparent_hugepage=always", "always"),
        ("no_transparent_hugepage=never", None),
    ],
)
def test_huge_pages(tmp_path: Path, cmdline: str, boot: str | None) -> None:
    fact = transparent_hugepage(make_host(tmp_path, {**HUGE, "/proc/cmdline": cmdline}))
    assert (fact.enabled, fact.defrag, fact.boot) == ("madvise", "always", boot)


def test_a_command_line_that_is_missing_is_told(tmp_path: Path) -> None:
    assert isinstance(transparent_hugepage(make_host(tmp_path, HUGE)).boot, Absent)


def test_a_selector_without_brackets(tmp_path: Path) -> None:
    tree = {**HUGE, f"{THP}/enabled": "always madvise"}
    with pytest.raises(Unavailable, match="no word stands in brackets"):
        transparent_hugepage(make_host(tmp_path, tree))


def test_a_kernel_without_huge_pages(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match="no transparent huge pages"):
        transparent_hugepage(make_host(tmp_path, {}))


def test_huge_pages_that_were_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="was not recorded"):
        transparent_hugepage(make_host(tmp_path, {}, source="plain"))


@pytest.mark.parametrize(
    ("text", "kib"),
    [("MemTotal:       49368192 kB\nMemFree: 1 kB\n", 49368192), ("MemTotal: lots\n", None)],
)
def test_total_memory(tmp_path: Path, text: str, kib: int | None) -> None:
    found = total_memory(make_host(tmp_path, {"/proc/meminfo": text})).kib
    assert found == kib if kib else isinstance(found, Absent)


def test_total_memory_of_an_image(tmp_path: Path) -> None:
    found = total_memory(make_host(tmp_path, {}, source="image")).kib
    assert isinstance(found, Absent)
    assert found.kind == "unsupported"


@pytest.mark.parametrize(
    ("mounts", "fact"),
    [
        (ROOT, SharedMemory(type=None, size_kib=None, is_default=False)),
        (
            f"{ROOT}25 22 0:23 / /dev/shm rw shared:2 - tmpfs tmpfs rw,size=65536k,inode64\n",
            SharedMemory(type="tmpfs", size_kib=65536, is_default=False),
        ),
        (
            f"{ROOT}25 22 0:23 / /dev/shm rw - tmpfs tmpfs rw,inode64\n",
            SharedMemory(type="tmpfs", size_kib=500, is_default=True),
        ),
        (
            (
                "25 22 0:23 / /dev/shm rw - tmpfs a rw,size=1k\n"
                "26 25 0:24 / /dev/shm rw - tmpfs b rw,size=2k\n"
            ),
            SharedMemory(type="tmpfs", size_kib=2, is_default=False),
        ),
        (
            "25 22 0:23 / /dev/shm rw - tmpfs a rw,size=0k\n",
            SharedMemory(type="tmpfs", size_kib=None, is_default=False),
        ),
        (
            "25 22 8:1 /shm /dev/shm rw - ext4 /dev/sda1 rw\n",
            SharedMemory(
                type="ext4",
                size_kib=Absent("failed", "ext4 is mounted there, no tmpfs"),
                is_default=False,
            ),
        ),
    ],
)
def test_shared_memory(tmp_path: Path, mounts: str, fact: SharedMemory) -> None:
    assert shared_memory(make_host(tmp_path, {MOUNTS: mounts}), MEMORY) == fact


def test_half_of_an_unknown_memory_is_unknown(tmp_path: Path) -> None:
    why = Absent("failed", "gone")
    host = make_host(tmp_path, {MOUNTS: "25 22 0:23 / /dev/shm rw - tmpfs tmpfs rw\n"})
    assert shared_memory(host, TotalMemory(kib=why)).size_kib is why


def test_a_size_that_is_none(tmp_path: Path) -> None:
    host = make_host(tmp_path, {MOUNTS: "25 22 0:23 / /dev/shm rw - tmpfs tmpfs rw,size=big\n"})
    found = shared_memory(host, MEMORY).size_kib
    assert isinstance(found, Absent)
    assert "size=big" in found.reason


def test_no_mounts_at_all_prove_nothing(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="names no mount"):
        shared_memory(make_host(tmp_path, {MOUNTS: "\n"}), MEMORY)


@given(st.text(), st.text())
def test_no_text_breaks_the_parsers(text: str, size: str) -> None:
    with suppress(Unavailable):
        last_mount(text, "/dev/shm")
    parse_size_kib(size)


@pytest.mark.parametrize(
    ("text", "kib"), [("1g", 1 << 20), ("65536K", 65536), ("4096", 4), ("0", None), ("1t", 1 << 30)]
)
def test_sizes(text: str, kib: int | None) -> None:
    assert parse_size_kib(text) == kib


def test_zone_reclaim_now_and_at_the_next_boot(tmp_path: Path) -> None:
    tree = {ZONE: "0\n", "/etc/sysctl.d/9.conf": "vm.zone_reclaim_mode = 1\n"}
    fact = zone_reclaim(make_host(tmp_path, tree))
    assert fact.mode == 0
    assert fact.next_boot is not None
    assert not isinstance(fact.next_boot, Absent)
    assert (fact.next_boot.value, fact.next_boot.line) == ("1", 1)


def test_a_kernel_without_numa(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match="no NUMA support"):
        zone_reclaim(make_host(tmp_path, {}))


def test_a_garbled_mode_is_unknown(tmp_path: Path) -> None:
    assert isinstance(zone_reclaim(make_host(tmp_path, {ZONE: "off"})).mode, Absent)


def test_zone_reclaim_that_was_not_recorded(tmp_path: Path) -> None:
    fact = zone_reclaim(make_host(tmp_path, {}, source="plain"))
    assert isinstance(fact.mode, Absent)
    assert isinstance(fact.next_boot, Absent)


def test_zone_reclaim_of_an_image(tmp_path: Path) -> None:
    fact = zone_reclaim(make_host(tmp_path, {"/etc/sysctl.d": None}, source="image"))
    assert isinstance(fact.mode, Absent)
    assert fact.mode.kind == "unsupported"
    assert fact.next_boot is None
