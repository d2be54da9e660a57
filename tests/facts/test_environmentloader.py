# SPDX-License-Identifier: Apache-2.0
"""The loader's files and those of NCCL."""

from pathlib import Path

from trees import Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.environment import environment
from gpuaudit.facts.environmentloader import Loader, loader
from gpuaudit.facts.environmentnccl import NcclConf, nccl_conf

TREE: Tree = {
    "/etc/ld.so.preload": "/a.so:/b.so # why\n/c.so\n",
    "/etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n/opt/lib # mine\n",
    "/etc/ld.so.conf.d/1.conf": "# no\n/usr/local/cuda/compat\n",
    "/etc/ld.so.conf.d/README": "/never\n",
    "/usr/local/cuda/compat/libcuda.so.570.86.15": b"",
    "/usr/local/cuda/compat/libcuda.so.1": b"",
    "/etc/environment": "LD_LIBRARY_PATH=/x:relative::/y\n",
    "/proc/self/environ": b"HOME=/home/me\0",
}


def loaded(folder: Path, tree: Tree, source: str = "snapshot") -> Loader:
    host = make_host(folder, tree, source=source)  # type: ignore[arg-type]  # one of the four
    return loader(host, environment(host))


def conf(folder: Path, tree: Tree, source: str = "snapshot") -> NcclConf:
    host = make_host(folder, tree, source=source)  # type: ignore[arg-type]  # one of the four
    return nccl_conf(host, environment(host))


def test_the_loader(tmp_path: Path) -> None:
    found = loaded(tmp_path, TREE)
    assert found.preloaded == ("/a.so", "/b.so", "/c.so")
    assert [(one.path, one.where) for one in found.folders] == [
        ("/opt/lib", "/etc/ld.so.conf:2"),
        ("/usr/local/cuda/compat", "/etc/ld.so.conf.d/1.conf:2"),
        ("/x", "/etc/environment:1"),
        ("/y", "/etc/environment:1"),
    ]
    assert found.compat == {"/usr/local/cuda/compat": "570.86.15"}
    assert found.gaps == {}


def test_the_loader_of_an_image_and_of_what_was_not_recorded(tmp_path: Path) -> None:
    image = loaded(tmp_path / "image", TREE, "image")
    assert image.compat
    assert image.gaps == {}
    hidden = loaded(tmp_path / "plain", {"/proc/cpuinfo": ""}, "plain")
    assert isinstance(hidden.preloaded, Absent)
    assert {"/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/environment"} <= set(hidden.gaps)


def test_nccl_reads_the_users_file_and_the_systems(tmp_path: Path) -> None:
    files = {"/home/me/.nccl.conf": " A=1\n", "/etc/nccl.conf": "NCCL_DEBUG=WARN\n"}
    found = conf(tmp_path, {**TREE, **files})
    assert list(found.texts) == ["/home/me/.nccl.conf", "/etc/nccl.conf"]
    assert list(found.mistakes(found.texts["/home/me/.nccl.conf"])) == [(1, "white space around A")]
    assert found.everyone_reads is None
    assert found.gaps == {}


def test_a_named_file_that_is_not_there(tmp_path: Path) -> None:
    caller = b"HOME=/home/me\0NCCL_CONF_FILE=/etc/site.conf\0"
    found = conf(tmp_path, {"/proc/self/environ": caller})
    assert found.texts == {}
    assert found.gaps["/etc/site.conf"].kind == "missing"


def test_the_mode_of_nccl_conf(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/etc/nccl.conf": "A=1\n"}, source="image")
    assert nccl_conf(host, environment(host)).everyone_reads is True
    (tmp_path / "root/etc/nccl.conf").chmod(0o600)
    again = type(host).image(str(tmp_path / "root"))
    assert nccl_conf(again, environment(again)).everyone_reads is False


def test_a_caller_that_was_not_recorded_may_have_a_file_of_its_own(tmp_path: Path) -> None:
    found = conf(tmp_path / "a", {"/etc/nccl.conf": "A=1\n"}, "plain")
    assert [(path, gap.kind) for path, gap in found.gaps.items()] == [
        ("/proc/self/environ", "failed")
    ]
    assert conf(tmp_path / "b", {"/etc/nccl.conf": "A=1\n"}, "image").gaps == {}
