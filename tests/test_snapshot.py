# SPDX-License-Identifier: Apache-2.0
import importlib
import json
import os
import re
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakenode import healthy_node
from trees import Link, make_host

from gpuaudit import audit, cli
from gpuaudit.cli.record_command import progress
from gpuaudit.host import Host, SnapshotError, Unavailable
from gpuaudit.host.archive import open_archive
from gpuaudit.report import Report
from gpuaudit.snapshot import contents, gather, record

DEVICE = "/sys/devices/pci0000:15/0000:15:01.0"
TREE: dict[str, Any] = {
    "/proc/sys/kernel/hostname": "gpu-node-17\n",
    "/proc/sys/kernel/osrelease": "6.8.0-1\n",
    "/proc/cmdline": "root=UUID=6f9619ff-8b86-4d11-b42d-00cf4fc964ff quiet\n",
    "/proc/cpuinfo": "vendor_id : GenuineIntel\nflags : fpu\n",
    "/proc/mounts": "tmpfs /dev/shm tmpfs rw,size=1024k 0 0\n",
    "/proc/swaps": "Filename Type Size Used Priority\n",
    "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "/sys/kernel/mm/transparent_hugepage/defrag": "always defer [madvise] never\n",
    f"{DEVICE}/uevent": "PCI_CLASS=60400\nPCI_ID=8086:352A\nPCI_SLOT_NAME=0000:15:01.0\n",
    f"{DEVICE}/config": bytes(range(64)),
    f"{DEVICE}/current_link_speed": "32.0 GT/s PCIe\n",
    f"{DEVICE}/numa_node": "0\n",
    "/sys/bus/pci/devices/0000:15:01.0": Link("../../../devices/pci0000:15/0000:15:01.0"),
    "/sys/class/dmi/id": Link("/sys/devices/virtual/dmi/id"),
    "/sys/devices/virtual/dmi/id/sys_vendor": "ACME\n",
    "/sys/devices/virtual/dmi/id/product_name": "EX-8000\n",
    "/etc/os-release": Link("../../../../usr/lib/os-release"),
    "/usr/lib/os-release": 'PRETTY_NAME="Some Linux 1"\n',
    "/etc/odd": "x",
}
# What differs between two runs of one audit although nothing else does.
OF_THE_RUN = ("duration_ms",)


def live(tmp_path: Path) -> Host:
    return make_host(tmp_path / "machine", TREE, source="live")


def judged(report: Report) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = msgspec.to_builtins(report.results)
    return [{k: v for k, v in row.items() if k not in OF_THE_RUN} for row in rows]


def audited(host: Host) -> list[dict[str, Any]]:
    return judged(audit.run(host, audit.Request(profile="bringup")).report)


def verdicts(row: dict[str, Any]) -> list[Any]:
    """The verdicts alone: names of devices are replaced, and findings come in their order."""
    return sorted([row["verdict"], *(finding["verdict"] for finding in row["findings"])])


def outcome(ask: Any, *args: str) -> Any:
    try:
        return ask(*args)
    except Unavailable as absent:
        return absent.kind


@pytest.mark.parametrize("name", ["out", "out.tar.gz", "out.tar.zst"])
def test_a_replay_is_judged_as_the_machine_was(tmp_path: Path, name: str) -> None:
    host = live(tmp_path)
    record(host, str(tmp_path / name))
    assert audited(Host.snapshot(str(tmp_path / name))) == audited(host)


@pytest.mark.parametrize("scrub", [False, True])
def test_this_machine_is_judged_alike_live_and_recorded(tmp_path: Path, scrub: bool) -> None:
    host = Host.live(nvml_deadline_s=5)
    record(host, str(tmp_path / "out.tar.gz"), scrub=scrub)
    replayed = audited(Host.snapshot(str(tmp_path / "out.tar.gz")))
    if scrub:
        assert [(r["check"], verdicts(r)) for r in replayed] == [
            (r["check"], verdicts(r)) for r in audited(host)
        ]
    else:
        assert replayed == audited(host)


@pytest.mark.parametrize("scrub", [False, True])
def test_a_node_with_eight_gpus_is_judged_alike_before_and_after(
    tmp_path: Path, scrub: bool
) -> None:
    node = healthy_node()
    before = audited(node.host())
    done = record(node.host(), str(tmp_path / "out.tar.zst"), scrub=scrub)
    after = audited(Host.snapshot(done.path))
    assert [(r["check"], verdicts(r)) for r in after] == [(r["check"], verdicts(r)) for r in before]
    assert done.gpus == 8
    assert done.crashed == {}
    if not scrub:
        assert after == before


def test_recording_asks_everything_that_an_audit_asks(tmp_path: Path) -> None:
    host = live(tmp_path)
    record(host, str(tmp_path / "out"))
    asked = {*host.evidence.paths}, {*host.evidence.files}, {*host.evidence.commands}
    audited(host)
    assert ({*host.evidence.paths}, {*host.evidence.files}, {*host.evidence.commands}) == asked


def test_everything_asked_answers_the_same_in_a_replay(tmp_path: Path) -> None:
    host = live(tmp_path)
    for path in ("/etc/odd/below", "/etc/none", "/proc", "/sys/class/dmi/id/none", "/etc/odd"):
        outcome(host.read, path)
        outcome(host.list, path)
        outcome(host.exists, path)
    record(host, str(tmp_path / "out.tar.gz"))
    replay = Host.snapshot(str(tmp_path / "out.tar.gz"))
    for path in [*host.evidence.paths]:
        assert outcome(replay.resolve, path) == outcome(host.resolve, path), path
    for path in [*host.evidence.files]:
        assert outcome(replay.read_bytes, path) == outcome(host.read_bytes, path), path
    for path in [*host.evidence.listings]:
        assert outcome(replay.list, path) == outcome(host.list, path), path
    for argv in [*host.evidence.commands]:
        assert outcome(replay.run, *argv) == outcome(host.run, *argv), argv


@pytest.mark.parametrize("kind", ["denied", "hung", "garbled", "unsupported", "missing"])
def test_evidence_keeps_the_kind_of_its_absence(tmp_path: Path, kind: Any) -> None:
    host = live(tmp_path)
    path = f"{DEVICE}/config"
    host.resolve(path)
    host.evidence.files[path] = Unavailable(f"{path}: because", kind)
    host.evidence.listings["/etc"] = Unavailable("/etc: because", kind)
    host.evidence.commands["lspci",] = Unavailable("lspci: because", kind)
    host._answers["processes"] = Unavailable("no table", kind)
    record(host, str(tmp_path / "out"))
    replay = Host.snapshot(str(tmp_path / "out"))
    with pytest.raises(Unavailable, match="config: because") as read:
        replay.read(f"/sys/bus/pci/devices/0000:15:01.0/{path.rpartition('/')[2]}")
    with pytest.raises(Unavailable, match="/etc: because") as listed:
        replay.list("/etc")
    with pytest.raises(Unavailable, match="lspci: because") as ran:
        replay.run("lspci")
    with pytest.raises(Unavailable, match="no table") as table:
        replay.processes()
    assert {one.value.kind for one in (read, listed, ran, table)} == {kind}
    assert replay.exists(path)


def test_what_was_never_asked_is_not_recorded_and_proves_nothing(tmp_path: Path) -> None:
    record(live(tmp_path), str(tmp_path / "out"))
    replay = Host.snapshot(str(tmp_path / "out"))
    assert outcome(replay.read, "/opt/thing") == "not-recorded"
    assert outcome(replay.list, "/usr/lib") == "not-recorded"
    assert outcome(replay.run, "true") == "not-recorded"
    assert outcome(replay.udev, "sound") == "not-recorded"
    assert outcome(replay.exists, "/sys/devices/system/node/node9") is False


def test_a_file_that_vanishes_is_a_gap(tmp_path: Path) -> None:
    host = live(tmp_path)
    host.resolve("/etc/odd")
    host.resolve("/etc/os-release")
    (tmp_path / "machine/root/etc/odd").unlink()
    (tmp_path / "machine/root/etc/os-release").unlink()
    done = record(host, str(tmp_path / "out"))
    replay = Host.snapshot(str(tmp_path / "out"))
    assert done.manifest.gaps["/etc/odd"].reason == "vanished while it was recorded"
    assert outcome(replay.read, "/etc/odd") == "not-recorded"
    assert outcome(replay.resolve, "/etc/os-release") == "not-recorded"


def test_links_stay_links_and_stay_inside(tmp_path: Path) -> None:
    record(live(tmp_path), str(tmp_path / "out"))
    root = tmp_path / "out/root"
    assert os.readlink(root / "etc/os-release") == "../usr/lib/os-release"
    assert os.readlink(root / "sys/class/dmi/id") == "../../../sys/devices/virtual/dmi/id"
    replay = Host.snapshot(str(tmp_path / "out"))
    assert replay.read("/sys/class/dmi/id/sys_vendor") == "ACME"


def test_specials_and_large_files_are_named_and_not_read(tmp_path: Path) -> None:
    host = live(tmp_path)
    folder = tmp_path / "machine/root/etc"
    os.mkfifo(folder / "pipe")
    (folder / "large").write_bytes(bytes(contents.PRESENCE_LIMIT_BYTES + 1))
    assert host.exists("/etc/pipe")
    assert host.exists("/etc/large")
    record(host, str(tmp_path / "out"))
    replay = Host.snapshot(str(tmp_path / "out"))
    assert replay.exists("/etc/pipe")
    assert replay.exists("/etc/large")
    assert outcome(replay.read, "/etc/pipe") == "garbled"
    assert outcome(replay.read, "/etc/large") == "not-recorded"
    assert (tmp_path / "out/root/etc/large").stat().st_size == 0


def test_a_recording_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "TOTAL_LIMIT_BYTES", 300)
    done = record(live(tmp_path), str(tmp_path / "out"))
    files = [p for p in (tmp_path / "out/root").rglob("*") if p.is_file() and not p.is_symlink()]
    assert sum(p.stat().st_size for p in files) <= 300
    assert contents.FULL in done.manifest.gaps.values()


def test_extra_evidence_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "EXTRA_LIMIT_FILES", 3)
    host = live(tmp_path)
    before = len(host.evidence.files)
    gather.ask_extra(host)
    assert len(host.evidence.files) - before <= 4


def test_names_that_are_not_utf_8_do_not_stop_a_recording(tmp_path: Path) -> None:
    host = live(tmp_path)
    odd = os.fsencode(tmp_path) + b"/machine/root/etc/sysctl.d"
    os.mkdir(odd)
    with open(odd + b"/\xff.conf", "wb") as file:
        file.write(b"vm.swappiness=1\n")
    record(host, str(tmp_path / "out.tar.gz"))
    replay = Host.snapshot(str(tmp_path / "out.tar.gz"))
    assert replay.list("/etc/sysctl.d") == ("\ufffd.conf",)


def test_nothing_is_written_outside_the_output(tmp_path: Path) -> None:
    host = live(tmp_path)
    before = sorted((tmp_path / "machine").rglob("*"))
    (tmp_path / "to").mkdir()
    record(host, str(tmp_path / "to/out.tar.gz"))
    assert sorted((tmp_path / "machine").rglob("*")) == before
    assert os.listdir(tmp_path / "to") == ["out.tar.gz"]
    assert os.stat(tmp_path / "to/out.tar.gz").st_mode & 0o077 == 0


def test_the_target_must_be_writable(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match=r"none/out\.tar\.gz: not written"):
        record(live(tmp_path), str(tmp_path / "none/out.tar.gz"))


def test_the_manifest_says_what_was_recorded_with_what(tmp_path: Path) -> None:
    done = record(live(tmp_path), str(tmp_path / "out.tar.gz"))
    manifest = json.loads(open_archive(done.path).read("/manifest.json"))
    assert manifest["schema"] == "gpuaudit.snapshot/1"
    assert manifest["versions"]["kernel"] == "6.8.0-1"
    assert {"gpuaudit", "python", "nvidia-ml-py"} <= manifest["versions"].keys()
    assert manifest["recorded_at"].endswith("Z")
    assert manifest["euid"] == os.geteuid()
    assert done.files > 10
    assert done.size_bytes == os.path.getsize(done.path)


def test_a_probe_that_crashes_is_named_and_loses_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuaudit.facts.base import PROBES
    from gpuaudit.facts.memory import TransparentHugepage

    monkeypatch.setitem(PROBES, TransparentHugepage, broken)
    done = record(live(tmp_path), str(tmp_path / "out"))
    assert done.crashed == {"TransparentHugepage": "ValueError: no number"}
    assert Host.snapshot(done.path).read("/sys/devices/virtual/dmi/id/sys_vendor") == "ACME"


def broken(host: Host) -> None:
    raise ValueError(f"no {'number' if host.source == 'live' else 'machine'}")


def all_bytes(path: str) -> bytes:
    with tarfile.open(path) as tar:
        names = b"".join(f"{one.name} {one.linkname} ".encode() for one in tar)
        files = (tar.extractfile(one) for one in tar if one.isfile())
        return names + b"".join(file.read() for file in files if file is not None)


def test_no_original_identifier_is_in_the_bytes_of_a_scrubbed_archive(tmp_path: Path) -> None:
    done = record(live(tmp_path), str(tmp_path / "out.tar.gz"), scrub=True)
    raw = all_bytes(done.path)
    assert b"gpu-node-17" not in raw
    assert b"6f9619ff-8b86-4d11-b42d-00cf4fc964ff" not in raw
    assert b"0000:15:01.0" in raw


def call(*args: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(args))
    return int(ended.value.code or 0)


def test_the_command_says_what_it_wrote_and_what_to_do_before_sharing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tmp_path / "node.tar.zst")
    assert call("record", "-o", target) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{target}: ")
    assert "It names this machine. To share it, record it with --scrub." in out
    assert err == ""  # quiet in a pipe
    assert call("run", "--snapshot", target) in {0, 1, 3}


def test_the_default_name_of_a_scrubbed_recording_names_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("record", "--scrub") == 0
    (name,) = os.listdir(tmp_path)
    assert re.fullmatch(r"gpuaudit-scrubbed-\d{8}T\d{6}Z\.tar\.gz", name)
    assert "Identifiers were replaced" in capsys.readouterr().out
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:
        boot_id = file.read().strip()
    assert boot_id not in all_bytes(name)


def test_a_target_that_exists_as_a_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("record", "-o", str(tmp_path)) == 2
    assert capsys.readouterr().err == f"gpuaudit: {tmp_path}: exists already\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_user_records_what_a_user_may_read(capsys: pytest.CaptureFixture[str]) -> None:
    for needed in ("psutil", "pyudev", "gzip"):  # the interpreter may lie where only root reads
        importlib.import_module(needed)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chown(folder, 65534, 65534)
        target = f"{folder}/node.tar.gz"
        os.seteuid(65534)
        try:
            assert call("record", "-o", target) == 0
        finally:
            os.seteuid(0)
        replay = Host.snapshot(target)
        assert "needs root: " in capsys.readouterr().out
        assert replay.is_root() is False
        assert outcome(replay.read, "/proc/sys/net/core/bpf_jit_harden") == "denied"


def test_progress_is_one_line_of_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    progress("reading files")
    assert capsys.readouterr().err.endswith("reading files ...")
