# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trees import Link, Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.fstab import parse
from gpuaudit.facts.swap import swap

HEADER = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
GENERATOR = {"/usr/lib/systemd/system-generators/zram-generator": "elf"}


@pytest.mark.parametrize(
    ("text", "areas"),
    [
        (HEADER, ()),
        (f"{HEADER}/dev/sda2   partition 1 0 -2\n", ("/dev/sda2",)),
        (
            f"{HEADER}/my\\040swap file 1 0 -2\n/dev/zram0 partition 1 0 5\n",
            ("/my swap", "/dev/zram0"),
        ),
    ],
)
def test_running(tmp_path: Path, text: str, areas: tuple[str, ...]) -> None:
    assert swap(make_host(tmp_path, {"/proc/swaps": text})).running == areas


def test_a_kernel_without_swap(tmp_path: Path) -> None:
    assert swap(make_host(tmp_path, {})).running == ()


def test_a_garbled_table_is_unknown(tmp_path: Path) -> None:
    found = swap(make_host(tmp_path, {"/proc/swaps": "/dev/sda2\n"})).running
    assert isinstance(found, Absent)
    assert found.kind == "failed"


def test_not_recorded_is_unknown(tmp_path: Path) -> None:
    fact = swap(make_host(tmp_path, {}, source="plain"))
    assert isinstance(fact.running, Absent)
    assert isinstance(fact.next_boot, Absent)
    assert fact.running.kind == fact.next_boot.kind == "failed"


def test_an_image_has_a_next_boot_only(tmp_path: Path) -> None:
    fact = swap(make_host(tmp_path, {"/etc/fstab": "/swap none swap sw 0 0\n"}, source="image"))
    assert isinstance(fact.running, Absent)
    assert fact.running.kind == "unsupported"
    assert fact.next_boot == ("/etc/fstab:1",)


UNIT = "/etc/systemd/system/swap.target.wants/x.swap"
SWAP_UNIT = {"/usr/lib/systemd/system/x.swap": "[Swap]\nWhat=/x\n"}


@pytest.mark.parametrize(
    ("tree", "places"),
    [
        ({}, ()),
        ({"/etc/fstab": "# /a none swap\r\n\r\n/a none swap sw\r\n"}, ("/etc/fstab:3",)),
        ({"/etc/fstab": "/a none swap noauto,pri=1\n/b / ext4 rw\ngarbage\n"}, ()),
        ({UNIT: Link("/usr/lib/systemd/system/x.swap"), **SWAP_UNIT}, (UNIT,)),
        (SWAP_UNIT, ()),
        (
            {
                UNIT: Link("/usr/lib/systemd/system/x.swap"),
                **SWAP_UNIT,
                "/etc/systemd/system/x.swap": "",
            },
            (),
        ),
        (
            {
                "/etc/systemd/system/multi-user.target.wants/zramswap.service": "x",
                "/lib/systemd/system/zramswap.service": "[Service]\n",
            },
            ("/etc/systemd/system/multi-user.target.wants/zramswap.service",),
        ),
        ({"/usr/lib/systemd/zram-generator.conf": "[zram0]\n"}, ()),
        (
            {**GENERATOR, "/usr/lib/systemd/zram-generator.conf": "[zram0]\n"},
            ("zram-generator.conf [zram0]",),
        ),
        (
            {
                **GENERATOR,
                "/usr/lib/systemd/zram-generator.conf": "[zram0]\n",
                "/etc/systemd/zram-generator.conf": "",
            },
            (),
        ),
        (
            {
                **GENERATOR,
                "/usr/lib/systemd/zram-generator.conf": "[zram0]\nzram-size = ram / 2\n",
                "/etc/systemd/zram-generator.conf.d/off.conf": "[zram0]\nzram-size = 0\n",
            },
            (),
        ),
        (
            {**GENERATOR, "/etc/systemd/zram-generator.conf": "[zram1]\nmount-point = /var/tmp\n"},
            (),
        ),
        ({**GENERATOR, "/etc/systemd/zram-generator.conf": "[zram1]\nfs-type = ext4\n"}, ()),
        ({**GENERATOR, "/etc/systemd/zram-generator.conf": "[other]\nzram-size = 1\n"}, ()),
    ],
)
def test_next_boot(tmp_path: Path, tree: Tree, places: tuple[str, ...]) -> None:
    assert swap(make_host(tmp_path, tree)).next_boot == places


@given(st.text())
def test_no_text_breaks_fstab(text: str) -> None:
    assert all(len(line) == 5 for line in parse(text))


def test_fields_of_fstab() -> None:
    (line,) = parse("\n tmpfs\t/dev/shm  tmpfs  rw,size=1g 0 0\n")
    assert line == ("tmpfs", "/dev/shm", "tmpfs", ("rw", "size=1g"), "/etc/fstab:2")
