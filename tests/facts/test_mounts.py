# SPDX-License-Identifier: Apache-2.0
"""The table of mounts, room, and file systems that do not answer."""

import json
from pathlib import Path
from typing import Any

import pytest
from trees import Link, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.mounts import (
    Mount,
    Mounts,
    Space,
    configured_mounts,
    file_system_space,
    is_judged,
    mounts,
    network_mounts,
    space,
)
from gpuaudit.host import Host, NotApplicable, Unavailable

TABLE = r"""
24 1 9:0 / / rw,relatime shared:1 - ext4 /dev/md0 rw,errors=remount-ro
30 24 259:1 / /scratch rw,noatime shared:30 master:2 - xfs /dev/nvme0n1 rw,noquota
31 24 0:50 / /my\040data rw,relatime - nfs4 filer:/my\040data rw,vers=4.2,hard
32 24 0:51 / /auto rw,relatime - autofs systemd-1 rw,fd=39
33 24 0:52 / /more rw,relatime - nfs filer:/more rw,vers=3
34 24 0:53 / /far rw,relatime - nfs other:/far rw,vers=3
35 24 0:54 / /over rw,relatime - ext4 /dev/sdb rw
36 35 0:55 / /over ro,relatime - squashfs /dev/loop0 ro
damaged line
"""
ROOM = {"total_kib": 1000, "free_kib": 400, "inodes": 90, "free_inodes": 80}
HUNG = {"kind": "hung", "reason": "@statvfs /my data did not answer within 3 s"}


def said(folder: str, **answer: Any) -> dict[str, Any]:
    usual = {"output": {"returncode": 0, "stdout": json.dumps(ROOM)}}
    return {"argv": ["@statvfs", folder], **(answer or usual)}


def host(folder: Path, *answers: dict[str, Any], table: str = TABLE) -> Host:
    return make_host(folder, {"/proc/self/mountinfo": table}, commands=list(answers))


def test_the_topmost_mount_of_each_folder(tmp_path: Path) -> None:
    found = {one.folder: one for one in mounts(host(tmp_path)).mounts}
    assert found["/"] == Mount(
        "/", "ext4", "/dev/md0", ("rw", "relatime"), ("rw", "errors=remount-ro")
    )
    assert found["/my data"].source == "filer:/my data"
    assert found["/over"].type == "squashfs"
    assert len(found) == 7


@pytest.mark.parametrize(
    ("path", "folder"),
    [("/scratch/x", "/scratch"), ("/scratch", "/scratch"), ("/scratchy", "/"), ("/", "/")],
)
def test_the_mount_that_a_path_is_on(tmp_path: Path, path: str, folder: str) -> None:
    found = mounts(host(tmp_path)).over(path)
    assert found is not None
    assert found.folder == folder


@pytest.mark.parametrize("table", ["", "x", "24 1 9:0 / / rw - ext4"])
def test_a_table_without_mounts_is_garbled(tmp_path: Path, table: str) -> None:
    with pytest.raises(Unavailable) as caught:
        mounts(host(tmp_path, table=table))
    assert caught.value.kind == "garbled"


def test_an_image_has_no_mounts(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        mounts(make_host(tmp_path, {"/etc/fstab": ""}, source="image"))


def test_network_mounts_that_answer(tmp_path: Path) -> None:
    one = host(tmp_path, said("/my data"), said("/more"), said("/far"))
    found = network_mounts(one, mounts(one)).answers
    assert {m.folder: answer for m, answer in found.items()} == dict.fromkeys(
        ("/my data", "/more", "/far"), Space(**ROOM)
    )


def test_one_silent_mount_ends_the_questions(tmp_path: Path) -> None:
    """Two waits would be longer than a check may take."""
    one = host(tmp_path, said("/my data"), said("/more", gap=HUNG), said("/far"))
    found = {m.folder: a for m, a in network_mounts(one, mounts(one)).answers.items()}
    assert found["/my data"] == Space(**ROOM)
    assert found["/more"] == Absent("failed", HUNG["reason"])
    assert found["/far"] == Absent("failed", "not asked, since /more does not answer")
    assert ("@statvfs", "/far") not in one.evidence.commands


def test_without_network_mounts(tmp_path: Path) -> None:
    local = Mounts(mounts=mounts(host(tmp_path)).mounts[:2])
    with pytest.raises(NotApplicable):
        network_mounts(host(tmp_path / "again"), local)


@pytest.mark.parametrize(
    ("kind", "network"),
    [
        ("nfs4", True),
        ("lustre", True),
        ("fuse.sshfs", True),
        ("fuse.mount-s3", True),
        ("fuse.ceph-fuse", True),
        ("fuse.blobfuse2", True),
        ("fuse.JuiceFS", True),
        ("fuse.lxcfs", False),
        ("ext4", False),
        ("autofs", False),
    ],
)
def test_network_file_systems(kind: str, network: bool) -> None:
    assert Mount("/x", kind, "x", ("rw",), ("rw",)).network is network


@pytest.mark.parametrize(
    ("options", "network"),
    [
        ("rw,user_id=0,group_id=0", True),
        ("rw,user_id=1000,group_id=1000,allow_other", True),
        ("rw,user_id=1000,group_id=1000", False),
    ],
)
def test_what_a_user_mounted_for_itself_is_its_own(options: str, *, network: bool) -> None:
    found = Mount("/home/x/far", "fuse.sshfs", "host:", ("rw",), tuple(options.split(",")))
    assert found.network is network


def test_fuse_without_a_subtype_is_told_by_its_source() -> None:
    assert Mount("/x", "fuse", "mountpoint-s3", ("rw",), ("rw",)).network
    assert not Mount("/x", "fuse", "portal", ("rw",), ("rw",)).network


@pytest.mark.parametrize(
    ("folder", "kind", "options", "judged"),
    [
        ("/", "ext4", "rw", True),
        ("/", "overlay", "rw", True),
        ("/tmp", "tmpfs", "rw", True),
        ("/run/user/0", "tmpfs", "rw", False),
        ("/data", "xfs", "ro", False),
        ("/snap/core/1", "squashfs", "ro", False),
        ("/var/lib/kubelet/pods/x", "ext4", "rw", False),
        ("/var/lib/docker", "ext4", "rw", True),  # a disk of its own
        ("/var/lib/docker/x", "ext4", "rw", False),
        ("/var/lib/docker2", "ext4", "rw", True),
        ("/auto", "autofs", "rw", False),
        ("/home", "nfs", "rw", False),
    ],
)
def test_file_systems_whose_room_counts(folder: str, kind: str, options: str, judged: bool) -> None:
    assert is_judged(Mount(folder, kind, "/dev/x", (options,), (options,))) is judged


def test_room_of_each_device_once(tmp_path: Path) -> None:
    twice = TABLE + "40 24 259:1 /sub /srv/again rw,noatime - xfs /dev/nvme0n1 rw\n"
    one = host(tmp_path, said("/"), said("/scratch"), table=twice)
    found = file_system_space(one, mounts(one)).by_mount
    assert {m.folder: room for m, room in found.items()} == {
        "/": Space(**ROOM),
        "/scratch": Space(**ROOM),
    }


@pytest.mark.parametrize(
    "answer",
    [
        {"output": {"returncode": 116, "stdout": "", "stderr": "Stale file handle"}},
        {"output": {"returncode": 0, "stdout": "{"}},
        {"output": {"returncode": 0, "stdout": "[]"}},
        {"output": {"returncode": 0, "stdout": '{"total_kib": 5}'}},
        {"output": {"returncode": 0, "stdout": json.dumps(ROOM | {"inodes": -1})}},
        {"output": {"returncode": 0, "stdout": json.dumps(ROOM | {"inodes": "many"})}},
        {"gap": {"kind": "denied", "reason": "Permission denied"}},
    ],
    ids=["stale", "cut", "list", "short", "negative", "text", "denied"],
)
def test_answers_that_are_none(tmp_path: Path, answer: dict[str, Any]) -> None:
    assert isinstance(space(host(tmp_path, said("/", **answer)), "/"), Absent)


def test_fstab_with_its_lines(tmp_path: Path) -> None:
    one = make_host(tmp_path, {"/etc/fstab": "# c\n/dev/md0 / ext4 defaults 0 1\n"})
    (line,) = configured_mounts(one).lines
    assert (line.folder, line.where) == ("/", "/etc/fstab:2")
    assert configured_mounts(make_host(tmp_path / "none", {})).lines == ()


def test_folders_of_fstab_as_the_kernel_shows_them(tmp_path: Path) -> None:
    """By links only where no file server has to be asked."""
    words = "/data/ //srv//x /way /near/way /lost none"
    lines = "".join(f"/dev/x {word} xfs defaults\n" for word in words.split())
    tree = {"/etc/fstab": lines, "/real": None, "/way": Link("real"), "/near/way": Link("../real")}
    tree |= {"/proc/self/mountinfo": TABLE}
    found = configured_mounts(make_host(tmp_path, tree))
    named = ["/data", "/srv/x", "/way", "/near/way", "/lost", "none"]
    assert [line.folder for line in found.lines] == named
    assert found.links == {"/way": "/real", "/near/way": "/real"}
    memory = TABLE + "50 24 0:61 / /near rw - tmpfs tmpfs rw\n"
    kept = configured_mounts(make_host(tmp_path / "3", tree | {"/proc/self/mountinfo": memory}))
    assert kept.links == found.links
    remote = TABLE + "50 24 0:61 / /near rw - nfs a:/near rw\n"
    again = configured_mounts(make_host(tmp_path / "2", tree | {"/proc/self/mountinfo": remote}))
    assert again.links == {"/way": "/real"}
