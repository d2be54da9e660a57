# SPDX-License-Identifier: Apache-2.0
"""Options of NFS."""

from typing import Any

import pytest
from judging import judge, verdicts
from netfacts import mount

from gpuaudit.check import NotApplicable
from gpuaudit.facts.mounts import Mounts

GOOD = "rw,vers=4.2,rsize=1048576,wsize=1048576,hard,proto=tcp,nconnect=16"


@pytest.mark.parametrize(
    ("old", "new", "want", "verdict"),
    [
        ("", "", {}, "pass"),
        ("rsize=1048576", "rsize=65536", {}, "warn"),
        ("wsize=1048576", "wsize=32768", {}, "warn"),
        ("rsize=1048576", "rsize=65536", {"transfer_min_kib": 64}, "pass"),
        ("rsize=1048576,", "", {}, "pass"),
        ("hard", "soft", {}, "warn"),
        ("hard", "soft", {"soft": True}, "pass"),
        ("hard", "softerr", {}, "warn"),
        ("hard", "softreval", {}, "pass"),
        ("proto=tcp", "proto=udp", {}, "warn"),
        ("proto=tcp", "proto=rdma", {"connections_min": 16}, "pass"),
        ("nconnect=16", "nconnect=4", {}, "pass"),
        ("nconnect=16", "nconnect=4", {"connections_min": 8}, "warn"),
        (",nconnect=16", "", {"connections_min": 8}, "warn"),
        ("vers=4.2", "vers=2", {}, "warn"),
        ("vers=4.2", "vers=3", {"versions": ["4.2"]}, "warn"),
    ],
)
def test_options(old: str, new: str, want: dict[str, Any], verdict: str) -> None:
    one = mount("/home", "nfs4", inside=GOOD.replace(old, new))
    found = judge("storage_nfs/storage-nfs-options", Mounts(mounts=(one,)), **want)
    assert verdicts(found) == [("/home", verdict)]


def test_a_read_only_mount_may_be_soft() -> None:
    one = mount("/apps", "nfs", "ro,relatime", GOOD.replace("hard", "soft"))
    found = judge("storage_nfs/storage-nfs-options", Mounts(mounts=(one,)))
    assert verdicts(found) == [("/apps", "pass")]


def test_no_nfs_is_nothing_to_judge() -> None:
    with pytest.raises(NotApplicable):
        judge("storage_nfs/storage-nfs-options", Mounts(mounts=(mount("/", "ext4"),)))
