# SPDX-License-Identifier: Apache-2.0
"""NVMe and software RAID."""

from pathlib import Path

import pytest
from trees import Source, Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.blockdev import Array, Controller, Drive, arrays, nvme_drives
from gpuaudit.host import NotApplicable, Unavailable

NVME, BLOCK = "/sys/class/nvme/nvme0", "/sys/block/nvme0n1/queue"
DRIVE = {
    f"{NVME}/state": "live\n",
    f"{NVME}/nvme0n1": None,
    f"{BLOCK}/scheduler": "[none] mq-deadline kyber bfq\n",
    f"{BLOCK}/read_ahead_kb": "128\n",
}
HEAD = "Personalities : [raid1] [raid0]\n"
TAIL = "\nunused devices: <none>\n"
MIRROR = """md0 : active raid1 nvme3n1p2[1] nvme2n1p2[0](F)
      937560064 blocks super 1.2 [2/1] [_U]
      [==>..]  recovery = 12.6% (1/9) finish=7min speed=2K/sec
      bitmap: 2/7 pages [8KB], 65536KB chunk
"""
STRIPE = """md127 : active (auto-read-only) raid0 nvme1n1[1] nvme0n1[0]
      7501211648 blocks super 1.2 512k chunks
"""
DEAD = """md5 : inactive nvme9n1[0](S)
      937560064 blocks super 1.2
"""
VOLUME = """md126 : active raid1 nvme5n1[1] nvme4n1[0]
      890806272 blocks super external:/md127/0 [2/2] [UU]
"""
CONTAINER = """md127 : inactive nvme5n1[1](S) nvme4n1[0](S)
      10402 blocks super external:imsm
"""
BROKEN = """md6 : broken raid0 nvme8n1[0]
      937560064 blocks super 1.2 512k chunks
"""


def test_a_drive(tmp_path: Path) -> None:
    found = nvme_drives(make_host(tmp_path, DRIVE))
    assert found.controllers == (Controller("nvme0", "live", 1),)
    assert found.drives == (Drive("nvme0n1", "none", 128),)


@pytest.mark.parametrize(
    ("text", "chosen"),
    [("mq-deadline [kyber] none", "kyber"), ("none", "none"), ("[]", None), ("", None)],
)
def test_schedulers(tmp_path: Path, text: str, chosen: str | None) -> None:
    tree = DRIVE | {f"{BLOCK}/scheduler": text}
    (found,) = nvme_drives(make_host(tmp_path, tree)).drives
    assert found.scheduler == chosen or (chosen is None and isinstance(found.scheduler, Absent))


def test_with_multipath_the_path_counts(tmp_path: Path) -> None:
    """The controller has the hidden path nvme0c0n1, the block device is the subsystem's."""
    tree = {path.replace(f"{NVME}/nvme0n1", f"{NVME}/nvme0c0n1"): v for path, v in DRIVE.items()}
    found = nvme_drives(make_host(tmp_path, tree))
    assert found.controllers[0].namespaces == 1
    assert [one.name for one in found.drives] == ["nvme0n1"]


@pytest.mark.parametrize(("kind", "stores"), [("discovery", False), ("admin", False), ("io", True)])
def test_controllers_that_store_nothing(tmp_path: Path, kind: str, *, stores: bool) -> None:
    tree = {f"{NVME}/state": "live\n", f"{NVME}/cntrltype": f"{kind}\n", "/sys/block": None}
    (found,) = nvme_drives(make_host(tmp_path, tree)).controllers
    assert (found.namespaces, found.stores) == (0, stores)


def test_other_devices_are_left_out(tmp_path: Path) -> None:
    other = {"/sys/block/sda/queue/scheduler": "[bfq]", f"{NVME}/ng0n1": None}
    found = nvme_drives(make_host(tmp_path, DRIVE | other))
    assert len(found.drives) == 1
    assert found.controllers[0].namespaces == 1


def test_values_that_cannot_be_read(tmp_path: Path) -> None:
    tree = {NVME: None, f"{BLOCK}/read_ahead_kb": "many"}
    found = nvme_drives(make_host(tmp_path, tree))
    assert isinstance(found.controllers[0].state, Absent)
    assert isinstance(found.drives[0].scheduler, Absent)
    assert isinstance(found.drives[0].read_ahead_kib, Absent)


@pytest.mark.parametrize("tree", [{}, {"/sys/class/nvme": None}])
def test_no_nvme(tmp_path: Path, tree: Tree) -> None:
    with pytest.raises(NotApplicable):
        nvme_drives(make_host(tmp_path, tree))


def test_a_recording_without_it_proves_nothing(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        nvme_drives(make_host(tmp_path, {"/etc/hostname": "x"}, source="plain"))
    assert caught.value.kind == "not-recorded"


def test_arrays(tmp_path: Path) -> None:
    text = HEAD + MIRROR + "\n" + STRIPE + "\n" + DEAD + "\n" + BROKEN + TAIL
    found = arrays(make_host(tmp_path, {"/proc/mdstat": text}))
    assert found.arrays == (
        Array("md0", "active", "raid1", 2, 1, ("nvme2n1p2",), "recovery 12.6%"),
        Array("md127", "active", "raid0", None, 0, (), ""),
        Array("md5", "inactive", "", None, 0, (), ""),
        Array("md6", "broken", "raid0", None, 0, (), ""),
    )


def test_the_container_of_intels_raid_is_no_array(tmp_path: Path) -> None:
    text = HEAD + VOLUME + "\n" + CONTAINER + TAIL
    (found,) = arrays(make_host(tmp_path, {"/proc/mdstat": text})).arrays
    assert (found.name, found.state, found.missing) == ("md126", "active", 0)


@pytest.mark.parametrize(
    ("tree", "source"),
    [({}, "snapshot"), ({"/proc/mdstat": HEAD + TAIL}, "snapshot"), ({}, "image")],
    ids=["no-driver", "no-array", "image"],
)
def test_no_arrays(tmp_path: Path, tree: Tree, source: Source) -> None:
    with pytest.raises(NotApplicable):
        arrays(make_host(tmp_path, tree, source=source))


@pytest.mark.parametrize("text", ["garbage", "", HEAD + "md0 = what\n"])
def test_a_damaged_table(tmp_path: Path, text: str) -> None:
    with pytest.raises(Unavailable) as caught:
        arrays(make_host(tmp_path, {"/proc/mdstat": text}))
    assert caught.value.kind == "garbled"
