# SPDX-License-Identifier: Apache-2.0
"""File systems mounted for the test: one that is nearly full, and one that never answers."""

import contextlib
import ctypes
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuaudit.facts.mounts import Mounts, Space, mounts, network_mounts, space
from gpuaudit.host import Host, Unavailable

LIBC = ctypes.CDLL(None, use_errno=True)
MNT_DETACH = 2


def mount(source: str, folder: Path, kind: str, options: str) -> None:
    """mount(2); skips where this process may not."""
    words = (source.encode(), str(folder).encode(), kind.encode(), 0, options.encode())
    if LIBC.mount(*words):
        pytest.skip(f"mounting {kind} here: {os.strerror(ctypes.get_errno())} (needs root)")


def unmount(folder: Path) -> None:
    LIBC.umount2(str(folder).encode(), MNT_DETACH)


@pytest.fixture
def host() -> Iterator[Host]:
    one = Host.live(nvml_deadline_s=1)
    yield one
    one.close()


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """1 MiB, of which one page in sixteen is free."""
    mount("full", tmp_path, "tmpfs", "size=1m,nr_inodes=64")
    (tmp_path / "filler").write_bytes(bytes(960 << 10))
    yield tmp_path
    unmount(tmp_path)


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Path]:
    """A FUSE file system whose daemon reads no request."""
    try:
        device = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"/dev/fuse: {error.strerror} (needs root and the module fuse)")
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, device)
        mount("filer:/x", tmp_path, "fuse.sshfs", options)
        stack.callback(unmount, tmp_path)
        yield tmp_path


def test_a_file_system_that_is_nearly_full(host: Host, full: Path) -> None:
    found = space(host, str(full))
    assert isinstance(found, Space)
    assert found.total_kib == 1024
    assert found.free_kib == 64
    assert found.inodes == 64


def test_the_table_shows_what_was_mounted(host: Host, full: Path) -> None:
    found = mounts(host).over(str(full / "filler"))
    assert found is not None
    assert (found.folder, found.type) == (str(full), "tmpfs")


def test_a_daemon_that_never_answers_does_not_hold_the_audit(
    host: Host, silent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuaudit.host.live.DRIVER_DEADLINE_S", 0.5)
    table = mounts(host)
    one = next(m for m in table.mounts if m.folder == str(silent))
    assert one.network
    began = time.monotonic()
    (answer,) = network_mounts(host, Mounts(mounts=(one,))).answers.values()
    assert time.monotonic() - began < 5
    assert "did not answer within 0.5 s" in getattr(answer, "reason", "")
    with pytest.raises(Unavailable) as caught:
        host.run("@statvfs", str(silent))
    assert caught.value.kind == "hung"
