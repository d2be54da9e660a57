# SPDX-License-Identifier: Apache-2.0
"""Mounted file systems: options, room, answers."""

from typing import Any

import pytest
from judging import judge, verdicts
from netfacts import mount

from gpuaudit.check import NotApplicable
from gpuaudit.facts.base import Absent
from gpuaudit.facts.mounts import (
    FileSystemSpace,
    Mounts,
    NetworkMounts,
    Space,
)

ROOT = mount("/", "ext4")
HOME = mount("/home", "nfs4", inside="rw,vers=4.2")
HALF = Space(total_kib=1000, free_kib=500, inodes=100, free_inodes=50)
HUNG = Absent("failed", "@statvfs /home did not answer within 3 s")
STALE = Absent("failed", "/home answers: Stale file handle")
BEHIND = Absent("failed", "not asked, since /x does not answer")
UNRECORDED = Absent("failed", "the output of @statvfs was not recorded")


@pytest.mark.parametrize(
    ("one", "verdict"),
    [
        (ROOT, "pass"),
        (mount("/data", "xfs", "rw,noatime"), "pass"),
        (mount("/data", "xfs", "rw"), "warn"),
        (mount("/data", "xfs", "rw,relatime,sync"), "warn"),
        (mount("/data", "ext4", inside="rw,dirsync"), "warn"),
        (mount("/data", "lustre", "rw"), "pass"),
        (mount("/home", "nfs", "rw,sync,relatime"), "warn"),
    ],
)
def test_options(one: Any, verdict: str) -> None:
    found = judge("storage_mounts/storage-mount-options", Mounts(mounts=(one,)))
    assert verdicts(found) == [(one.folder, verdict)]


@pytest.mark.parametrize(("options", "verdict"), [("rw,relatime", "warn"), ("rw,noatime", "pass")])
def test_a_site_that_wants_noatime(options: str, verdict: str) -> None:
    table = Mounts(mounts=(mount("/data", "xfs", options),))
    found = judge("storage_mounts/storage-mount-options", table, access_times=["noatime"])
    assert verdicts(found) == [("/data", verdict)]


@pytest.mark.parametrize(
    "one",
    [
        mount("/proc", "proc"),
        mount("/mnt/iso", "iso9660"),
        mount("/data", "xfs", "ro"),
        mount("/data", "xfs", "rw", "ro"),
        mount("/boot/firmware", "ext4", "rw"),
        mount("/var/lib/docker/x", "ext4", "rw,sync"),
    ],
    ids=lambda one: one.folder,
)
def test_mounts_that_are_not_judged(one: Any) -> None:
    with pytest.raises(NotApplicable):
        judge("storage_mounts/storage-mount-options", Mounts(mounts=(one,)))


@pytest.mark.parametrize(
    ("room", "verdict"),
    [
        (HALF, "pass"),
        (HALF._replace(free_kib=50), "warn"),
        (HALF._replace(free_kib=9), "fail"),
        (HALF._replace(free_inodes=5), "warn"),
        (HALF._replace(free_inodes=0), "fail"),
        (HALF._replace(inodes=0, free_inodes=0), "pass"),
        (HALF._replace(total_kib=30 << 30, free_kib=2 << 30), "pass"),  # 2 of 30 TiB
        (HALF._replace(total_kib=30 << 30, free_kib=2 << 30, free_inodes=0), "fail"),
        (HALF._replace(total_kib=0, free_kib=0), "notapplicable"),
        (UNRECORDED, "unknown"),
    ],
)
def test_room(room: Any, verdict: str) -> None:
    found = judge("storage_mounts/storage-space", FileSystemSpace(by_mount={ROOT: room}))
    assert verdicts(found) == [("/", verdict)]


def test_room_where_nothing_is_writable() -> None:
    with pytest.raises(NotApplicable):
        judge("storage_mounts/storage-space", FileSystemSpace(by_mount={}))


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (HALF, "pass"),
        (HUNG, "fail"),
        (STALE, "fail"),
        (BEHIND, "unknown"),
        (UNRECORDED, "unknown"),
        (Absent("denied", "statvfs /home: Permission denied"), "unknown"),
    ],
)
def test_network_mounts(answer: Any, verdict: str) -> None:
    found = judge("storage_mounts/storage-network-mounts", NetworkMounts(answers={HOME: answer}))
    assert verdicts(found) == [("/home", verdict)]


@pytest.mark.parametrize("folder", ["/recorded", "/not asked", "/answers"])
def test_the_name_of_a_folder_decides_nothing(folder: str) -> None:
    stale = Absent("failed", f"{folder} answers: Stale file handle")
    lost = Absent("failed", f"the output of statvfs {folder} was not recorded")
    far = HOME._replace(folder=folder)
    for answer, verdict in ((stale, "fail"), (lost, "unknown")):
        found = judge("storage_mounts/storage-network-mounts", NetworkMounts(answers={far: answer}))
        assert verdicts(found) == [(folder, verdict)]
