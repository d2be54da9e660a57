# SPDX-License-Identifier: Apache-2.0
"""System calls that are asked like commands, on this kernel and with answers made by hand."""

import errno
import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuaudit.host import Host, Unavailable, calls
from gpuaudit.host.live import LiveMachine

FEATURES = (b"tx-scatter-gather", b"rx-gro", b"rx-checksum", b"rx-lro")


@pytest.fixture
def host() -> Iterator[Host]:
    one = Host.live(nvml_deadline_s=1)
    yield one
    one.close()


def answer(host: Host, *question: str) -> Any:
    said = host.run(*question)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


def test_statvfs_agrees_with_the_library(host: Host, tmp_path: Path) -> None:
    known = os.statvfs(tmp_path)
    found = answer(host, "@statvfs", str(tmp_path))
    assert found["total_kib"] == known.f_blocks * known.f_frsize // 1024
    assert found["inodes"] == known.f_files
    assert 0 < found["free_kib"] <= found["total_kib"]


def test_a_folder_that_is_not_there_is_missing(host: Host, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No such file") as caught:
        host.run("@statvfs", str(tmp_path / "none"))
    assert caught.value.kind == "missing"


def test_a_folder_with_a_blank_in_its_name(host: Host, tmp_path: Path) -> None:
    (tmp_path / "two words").mkdir()
    assert answer(host, "@statvfs", str(tmp_path / "two words"))["total_kib"] > 0


def test_a_call_that_does_not_exist_is_no_command(host: Host) -> None:
    with pytest.raises(Unavailable, match="there is no call") as caught:
        host.run("@reboot", "now")
    assert caught.value.kind == "unsupported"


def test_the_loopback_has_features_and_no_rings(host: Host) -> None:
    found = answer(host, "@ethtool", "lo")
    assert found["features"]["tx-generic-segmentation"] in {"on", "off"}
    assert found["features"]["rx-checksum"].startswith("on")
    assert "rings" not in found
    assert "rings" not in found.get("failed", {})


def test_an_interface_that_is_not_there_is_missing(host: Host) -> None:
    with pytest.raises(Unavailable, match="No such device") as caught:
        host.run("@ethtool", "nope0")
    assert caught.value.kind == "missing"


def test_calls_are_asked_once_and_replayed_like_commands(host: Host, tmp_path: Path) -> None:
    assert host.run("@statvfs", str(tmp_path)) is host.run("@statvfs", str(tmp_path))
    assert ("@statvfs", str(tmp_path)) in host.evidence.commands


def test_calls_and_files_share_one_child(host: Host, tmp_path: Path) -> None:
    host.run("@statvfs", str(tmp_path))
    machine = host._machine
    assert isinstance(machine, LiveMachine)
    before = machine._reader
    host.read("/proc/net/dev")
    assert machine._reader is before


def test_a_file_system_that_hangs_costs_its_deadline(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("gpuaudit.host.live.DRIVER_DEADLINE_S", 0.4)
    real = os.statvfs

    def sleeps(path: str) -> os.statvfs_result:
        if path.endswith("dead"):
            time.sleep(3600)
        return real(path)

    monkeypatch.setattr(os, "statvfs", sleeps)
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"did not answer within 0.4 s") as caught:
        host.run("@statvfs", str(tmp_path / "dead"))
    assert caught.value.kind == "hung"
    assert answer(host, "@statvfs", str(tmp_path))["total_kib"] > 0
    assert time.monotonic() - began < 5


def test_a_driver_that_hangs_is_asked_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of ethtool waits for one lock (rtnl): the next interface would wait as long."""
    monkeypatch.setattr("gpuaudit.host.live.DRIVER_DEADLINE_S", 0.4)
    monkeypatch.setitem(calls.CALLS, "@ethtool", lambda _: time.sleep(3600))
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"^ethtool lo did not answer"):
        host.run("@ethtool", "lo")
    for name in ("eth0", "eth1", "eth2", "eth3"):
        with pytest.raises(Unavailable, match="an earlier read below ethtool hung"):
            host.run("@ethtool", name)
    assert answer(host, "@statvfs", "/")["total_kib"] > 0
    assert time.monotonic() - began < 5


def test_an_error_of_the_file_system_is_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(_: str) -> Any:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setitem(calls.CALLS, "@statvfs", stale)
    said = json.loads(calls.answers("@statvfs /home"))
    assert said == {"returncode": errno.ESTALE, "stdout": "", "stderr": "Stale file handle"}


def test_a_denied_call_is_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: str) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setitem(calls.CALLS, "@statvfs", denied)
    with pytest.raises(Unavailable) as caught:
        calls.answers("@statvfs /home")
    assert caught.value.kind == "denied"


def test_features_by_their_four_masks() -> None:
    names = b"".join(name.ljust(calls.NAME_BYTES, b"\0") for name in FEATURES)
    available, requested, active, never = 0b0111, 0, 0b0101, 0b0100
    masks = struct.pack("=4I", available, requested, active, never)
    assert dict(calls.named_features(names, masks, len(FEATURES))) == {
        "tx-scatter-gather": "on",
        "rx-gro": "off",
        "rx-checksum": "on fixed",
        "rx-lro": "off fixed",
    }


def attribute(kind: int, content: bytes) -> bytes:
    padding = bytes(-len(content) % 4)
    return struct.pack("=HH", 4 + len(content), kind) + content + padding


def dcb_message(pfc_enabled: int, selectors: tuple[int, ...]) -> bytes:
    """As `dcb pfc show` gets it; struct ieee_pfc is 136 bytes."""
    pfc = attribute(calls.IEEE_PFC, bytes([8, pfc_enabled]) + bytes(134))
    apps = b"".join(attribute(1, bytes([one, 3, 26, 0])) for one in selectors)
    ieee = attribute(calls.ATTR_IEEE | 0x8000, pfc + attribute(calls.IEEE_APPS, apps))
    body = struct.pack("=BBH", 0, calls.DCB_IEEE_GET, 0) + attribute(1, b"eth0\0") + ieee
    return struct.pack("=IHHII", 16 + len(body), calls.RTM_GETDCB, 0, 1, 0) + body


def test_priorities_and_dscp_values() -> None:
    found = calls.parsed_bridging(dcb_message(0b1000_1000, (1, 5, 5)))
    assert found == {"pfc": [3, 7], "dscp": 2}
    assert calls.parsed_bridging(dcb_message(0, ())) == {"pfc": [], "dscp": 0}


def test_a_refusal_of_the_kernel_keeps_its_code() -> None:
    refused = struct.pack("=IHHIIi", 36, calls.NLMSG_ERROR, 0, 1, 0, -errno.EOPNOTSUPP)
    with pytest.raises(OSError, match="not supported") as caught:
        calls.parsed_bridging(refused + bytes(16))
    assert caught.value.errno == errno.EOPNOTSUPP


@pytest.mark.parametrize("data", [b"", b"\1", b"\0\0\0\0", b"\xff\xff\1\0", b"\3\0\1\0abcd"])
def test_damaged_attributes_end_the_list(data: bytes) -> None:
    assert list(calls.attributes(data)) == []


def test_the_kernel_is_asked_for_priorities() -> None:
    """No driver here has them: the answer is a refusal, and not of the request's form."""
    with socket.socket() as unused, pytest.raises(OSError, match=r".") as caught:
        calls.data_center_bridging(unused, "lo")
    assert caught.value.errno in {errno.EOPNOTSUPP, errno.EPROTONOSUPPORT}


def test_a_name_of_another_namespace_is_not_asked_for(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel would look for a module of that name: checking changes nothing."""
    asked: list[str] = []
    monkeypatch.setattr(calls, "call", lambda _one, name, _request: asked.append(name))
    with pytest.raises(OSError, match="No such device"):
        calls.ethtool("not-here0")
    assert asked == []
    with pytest.raises(Unavailable) as caught:
        host.run("@ethtool", "not-here0")
    assert caught.value.kind == "missing"
