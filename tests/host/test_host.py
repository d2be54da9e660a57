# SPDX-License-Identifier: Apache-2.0
"""The seam: three sources, what is missing told from what was not recorded, nothing read twice."""

import json
import os
from pathlib import Path

import pytest
from trees import Link, Tree, make_host, write_tree

from gpuaudit.host import Host, NotApplicable, SnapshotError, Unavailable

NEWER = {"schema": "gpuaudit.snapshot/9", "gpuaudit": "", "recorded_at": ""}
TREE: Tree = {
    "/proc/swaps": "Filename\n\0\0\0",
    "/etc/hostname": "n1\n",
    "/etc/release": Link("/etc/hostname"),
    "/etc/outside": Link("../../../../../../etc/passwd"),
    "/etc/number": "0x1f\n",
    "/sys/bus/pci/devices/0000:00:00.0": Link("../../../devices/pci0000:00/0000:00:00.0"),
    "/sys/devices/pci0000:00/0000:00:00.0/vendor": "0x10de\n",
}


@pytest.mark.parametrize("source", ["live", "snapshot", "plain"])
def test_files_links_and_folders_are_read_alike(tmp_path: Path, source: str) -> None:
    host = make_host(tmp_path, TREE, source=source)  # type: ignore[arg-type]  # parametrized
    assert host.read("/proc/swaps") == "Filename"
    assert host.read("/etc/release") == "n1"
    assert host.read_int("/etc/number") == 31
    assert host.list("/sys/bus/pci/devices") == ("0000:00:00.0",)
    where = host.resolve("/sys/bus/pci/devices/0000:00:00.0")
    assert where == "/sys/devices/pci0000:00/0000:00:00.0"
    assert host.read(f"{where}/vendor") == "0x10de"


def test_an_image_is_read_without_its_kernel_folders(tmp_path: Path) -> None:
    host = make_host(tmp_path, {**TREE, "/system/x": "1", "/devices/y": "2"}, source="image")
    assert host.read("/etc/hostname") == "n1"
    assert host.read("/system/x") + host.read("/devices/y") == "12"
    for path in ("/proc/swaps", "/sys/bus/pci/devices", "/run/x", "/dev/null", "/proc"):
        with pytest.raises(NotApplicable, match="an image has no running kernel"):
            host.read(path)
    for ask in (host.processes, host.nvml, host.interfaces, lambda: host.run("true")):
        with pytest.raises(NotApplicable):
            ask()


@pytest.mark.parametrize("source", ["image", "snapshot", "plain"])
def test_no_link_leads_out(tmp_path: Path, source: str) -> None:
    host = make_host(tmp_path, TREE, source=source)  # type: ignore[arg-type]  # parametrized
    with pytest.raises(Unavailable) as caught:
        host.read("/etc/outside")
    assert caught.value.kind in {"missing", "not-recorded"}


@pytest.mark.parametrize(
    ("source", "kind"), [("live", "missing"), ("snapshot", "missing"), ("plain", "not-recorded")]
)
def test_only_a_complete_recording_proves_absence(tmp_path: Path, source: str, kind: str) -> None:
    host = make_host(tmp_path, TREE, source=source)  # type: ignore[arg-type]  # parametrized
    for path in ("/proc/none", "/sys/none/below/it"):
        with pytest.raises(Unavailable) as caught:
            host.read(path)
        assert caught.value.kind == kind
    if kind == "missing":
        assert host.exists("/proc/none") is False
    else:
        with pytest.raises(Unavailable):
            host.exists("/proc/none")
    assert host.exists("/proc/swaps") is True


def test_nothing_is_read_twice(tmp_path: Path) -> None:
    host = make_host(tmp_path, TREE, source="live")
    assert host.read("/etc/hostname") == "n1"
    (tmp_path / "root/etc/hostname").write_text("n2\n")
    assert host.read("/etc/hostname") == "n1"
    assert host.read("/etc/release") == "n1"
    with pytest.raises(Unavailable):
        host.read("/etc/late")
    (tmp_path / "root/etc/late").write_text("now")
    with pytest.raises(Unavailable):
        host.read("/etc/late")


def test_a_number_that_is_none_is_garbled(tmp_path: Path) -> None:
    host = make_host(tmp_path, TREE)
    with pytest.raises(Unavailable, match="holds 'n1', not a number") as caught:
        host.read_int("/etc/hostname")
    assert caught.value.kind == "garbled"


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    host = make_host(tmp_path, TREE, source="live")
    os.mkfifo(tmp_path / "root/etc/fifo")
    with pytest.raises(Unavailable) as caught:
        host.read("/etc/fifo")
    assert caught.value.kind == "garbled"


def test_a_snapshot_without_answers_says_so(tmp_path: Path) -> None:
    host = make_host(tmp_path, TREE)
    for ask, what in (
        (host.processes, "the process table was not recorded"),
        (host.nvml, "NVML answers were not recorded"),
        (host.interfaces, "the interface table was not recorded"),
        (lambda: host.run("lspci"), "the output of lspci was not recorded"),
        (lambda: host.udev("pci"), "udev was not recorded"),
    ):
        with pytest.raises(Unavailable, match=what):
            ask()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("manifest.json", "{", "manifest.json: "),
        ("manifest.json", "[]", "manifest.json: Expected `object`"),
        ("manifest.json", json.dumps(NEWER), "schema is 'gpuaudit.snapshot/9'"),
        ("nvml.json", '{"schema": "gpuaudit.nvml/1"}', "nvml.json: "),
        ("processes.json", '[{"pid": "one"}]', r"Expected `int`, got `str` - at `\$\[0\].pid`"),
    ],
)
def test_a_wrong_side_file_is_one_line_with_its_place(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    make_host(tmp_path, TREE)
    (tmp_path / name).write_text(text)

    def ask() -> object:
        host = Host.snapshot(str(tmp_path))
        return host.nvml() if name == "nvml.json" else host.processes()

    with pytest.raises(SnapshotError, match=said) as caught:
        ask()
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_machine_is_refused(tmp_path: Path) -> None:
    write_tree(tmp_path, {"/a/b": "c"})
    with pytest.raises(
        SnapshotError, match=r"expected manifest.json beside root/, or sys/ or proc/"
    ):
        Host.snapshot(str(tmp_path))
