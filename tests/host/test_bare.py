# SPDX-License-Identifier: Apache-2.0
import tarfile
from pathlib import Path

import pytest
from trees import Link, Tree, write_tree

from gpuaudit.host import Host, SnapshotError, Unavailable

DEVICES: Tree = {
    "/mlx5_0/ports/1/state": "4: ACTIVE\n",
    "/mlx5_0/fw_ver": "28.41.1000\n",
    "/mlx4_0/ports/2/state": "1: DOWN\n",
    "/scif0/uevent": "",
}


def below(prefix: str) -> Tree:
    return {f"{prefix}{path}": content for path, content in DEVICES.items()}


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "/sys-class-infiniband-h100.0",
        "/node17/infiniband",
        "/class/infiniband",
        "/sys/class/infiniband",
        "/node17/sys/class/infiniband",
        "/var/tmp/node17/sys/class/infiniband",
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_copy_of_the_folder_opens_at_its_place(
    tmp_path: Path, prefix: str, *, packed: bool
) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    write_tree(folder, below(prefix))
    path = folder
    if packed:
        path = tmp_path / "given.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            archive.add(folder, ".")
    host = Host.snapshot(str(path))
    assert host.list("/sys/class/infiniband") == ("mlx4_0", "mlx5_0", "scif0")
    assert host.read("/sys/class/infiniband/mlx5_0/ports/1/state") == "4: ACTIVE"
    assert host.is_root() is None


@pytest.mark.parametrize(
    "path",
    [
        "/sys/class/infiniband/mlx5_0/device",
        "/sys/class/net",
        "/sys/class/infiniband_verbs/x",
        "/proc/cmdline",
        "/etc/os-release",
    ],
)
def test_what_is_not_in_it_was_not_recorded(tmp_path: Path, path: str) -> None:
    write_tree(tmp_path, DEVICES)
    host = Host.snapshot(str(tmp_path))
    with pytest.raises(Unavailable) as caught:
        host.exists(path)
    assert caught.value.kind == "not-recorded"


def test_folders_above_hold_nothing_else(tmp_path: Path) -> None:
    write_tree(tmp_path, DEVICES)
    tree = Host.snapshot(str(tmp_path)).tree
    assert (tree.list("/"), tree.list("/sys"), tree.list("/sys/class")) == (
        ["sys"],
        ["class"],
        ["infiniband"],
    )
    assert (tree.kind("/sys"), tree.kind("/proc"), tree.link("/sys")) == ("dir", None, None)
    assert tree.kind("/sys/class/infiniband/mlx5_0/fw_ver") == "file"
    assert tree.below("/sys").list("/class/infiniband/mlx5_0") == ["fw_ver", "ports"]
    assert tree.below("/sys/class/infiniband/mlx5_0").read("/fw_ver") == b"28.41.1000\n"
    with pytest.raises(Unavailable, match="not a regular file"):
        tree.read("/sys/class")


def test_links_out_of_it_lead_nowhere(tmp_path: Path) -> None:
    write_tree(tmp_path, {**DEVICES, "/mlx5_0/device": Link("../../../etc"), "/x": Link("/etc")})
    host = Host.snapshot(str(tmp_path))
    assert host.tree.link("/sys/class/infiniband/x") == "/etc"
    for path in ("mlx5_0/device/passwd", "x/passwd"):
        with pytest.raises(Unavailable) as caught:
            host.read(f"/sys/class/infiniband/{path}")
        assert caught.value.kind == "not-recorded"


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({"/eth0/operstate": "up\n", "/eth0/mtu": "9000\n"}, "/sys/class/net/eth0/mtu"),
        (
            {f"/0000:18:00.0/{name}": b"1" for name in ("vendor", "class", "config")},
            "/sys/bus/pci/devices/0000:18:00.0/config",
        ),
    ],
)
def test_other_folders_are_known_too(tmp_path: Path, files: Tree, place: str) -> None:
    write_tree(tmp_path, files)
    assert Host.snapshot(str(tmp_path)).exists(place)


@pytest.mark.parametrize(
    "files",
    [
        {"/mlx5_0/fw_ver": "1"},
        {"/mlx5_0": Link("../../devices/pci0000:15/mlx5_0")},
        {"/mlx5_0/ports/1": "state"},
        {"/a/mlx5_0/ports/1/state": "", "/b/mlx5_0/ports/1/state": ""},
        {"/1/2/3/4/5/6/7/8/9/mlx5_0/ports/1/state": ""},
    ],
)
def test_anything_else_is_refused(tmp_path: Path, files: Tree) -> None:
    write_tree(tmp_path, files)
    with pytest.raises(SnapshotError, match="holds no recording, expected"):
        Host.snapshot(str(tmp_path))
