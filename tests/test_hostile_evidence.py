# SPDX-License-Identifier: Apache-2.0
"""Evidence that means harm: nested, doubling, endless, with control characters, or huge numbers.

Each of these once ended in a traceback, in the verdict `error`, or in minutes of work.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakenode import FakeNode, healthy_node
from trees import Tree, make_host

from gpuaudit import audit
from gpuaudit.check import Verdict
from gpuaudit.cli.topology_command import drawn, seen
from gpuaudit.facts.bootintent import boot_intent
from gpuaudit.facts.grub import LONGEST, expanded, version_key
from gpuaudit.facts.kernelfiles import boot_at
from gpuaudit.facts.kernelline import LONGEST_LINE, parsed
from gpuaudit.facts.tuned import tuned
from gpuaudit.host import Host, SnapshotError, Unavailable
from gpuaudit.host.answers import BadAnswers, decode_answers
from gpuaudit.report import ReportError, decode

DEEP = '{"a":' + "[" * 20_000


def test_lines_of_a_journal() -> None:
    assert parsed(DEEP.encode()) is None
    assert parsed(b'{"MESSAGE":"x","_SOURCE_MONOTONIC_TIMESTAMP":"%s"}' % (b"9" * 400)) is None
    bytes_of = list(b"NVRM: Xid \xff")
    line = parsed(json.dumps({"MESSAGE": bytes_of, "PRIORITY": "3"}).encode())
    assert line is not None
    assert line.text == "NVRM: Xid \ufffd"
    assert parsed(b'{"MESSAGE":[999,-1]}') is None


def test_a_line_without_end_costs_nothing() -> None:
    line = parsed(b"[    1.000000] " + b"changed from " * 100_000)
    assert line is not None
    assert len(line.text) <= LONGEST_LINE
    began = time.monotonic()
    assert boot_at(b"x Linux version " * 100_000) == -1
    assert time.monotonic() - began < 5


def test_variables_that_double(tmp_path: Path) -> None:
    text = 'GRUB_CMDLINE_LINUX="aaaaaaaa"\n' + 40 * (
        'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX"\n'
    )
    tree: Tree = {"/etc/default/grub": text}
    with pytest.raises(Unavailable, match="more than 64 KiB"):
        boot_intent(make_host(tmp_path, tree))
    with pytest.raises(Unavailable, match="more than 64 KiB"):
        expanded("$a" * 100, {"a": "x" * LONGEST})
    assert expanded("-$a-${b}-$none-", {"a": "1", "b": "2"}) == "-1-2--"
    assert version_key("9" * 5000)


def test_profiles_that_include_each_other(tmp_path: Path) -> None:
    tree: dict[str, str] = {
        f"/etc/tuned/p{n}/tuned.conf": f"[main]\ninclude=p{n + 1},p{n + 1}\n" for n in range(40)
    }
    tree |= {
        "/etc/tuned/active_profile": "p0\n",
        "/etc/systemd/system/multi-user.target.wants/tuned.service": "",
    }
    with pytest.raises(Unavailable, match="includes too many profiles"):
        tuned(make_host(tmp_path / "deep", {**tree}))
    tree["/etc/tuned/active_profile"] = "p0 " * 1000
    with pytest.raises(Unavailable, match="names 1000 profiles"):
        tuned(make_host(tmp_path / "many", {**tree}))


ANSWERS = (DEEP, f'{{"max_error_us":{"9" * 400}}}', '{"max_error_us":-1}', "null", "1e999")
SPACE = f'{{"total_kib":{"9" * 400},"free_kib":{"9" * 400},"inodes":1,"free_inodes":1}}'


@pytest.mark.parametrize("said", [*ANSWERS, SPACE], ids=range(6))
def test_answers_of_calls(said: str) -> None:
    node = healthy_node()
    for command in node.commands:
        command.pop("gap", None)
        command["output"] = {"returncode": 0, "stdout": said, "stderr": ""}
    report = audit.run(node.host(), audit.Request(profile="nightly")).report
    assert [r.reason for r in report.results if r.verdict is Verdict.ERROR] == []
    mine = {r.check: r.verdict for r in report.results}
    assert mine["time-synchronised"] is not Verdict.PASS
    assert mine["storage-space"] is not Verdict.PASS


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("commands.json", '[{"argv":' + "[" * 20_000),
        ("nvml.json", '{"schema":"gpuaudit.nvml/1","init":{"v":' + "[" * 20_000),
        ("manifest.json", '{"statuses":{"/dev/nvidia0":["c",' + "9" * 400 + "]}}"),
    ],
)
def test_side_files(tmp_path: Path, name: str, content: str) -> None:
    folder = healthy_node().write(tmp_path / "node")
    (folder / name).write_text(content)
    with pytest.raises(SnapshotError, match=name) as refused:
        audit.run(Host.snapshot(str(folder)), audit.Request(profile="bringup"))
    assert "\n" not in str(refused.value)


def test_documents_that_are_too_deep() -> None:
    with pytest.raises(BadAnswers):
        decode_answers('{"schema":"gpuaudit.nvml/1","init":{"v":' + "[" * 20_000)
    with pytest.raises(ReportError):
        decode(
            b'{"schema":"gpuaudit.report/1","results":[{"findings":[{"observed":' + b"[" * 20_000
        )


def test_the_state_file() -> None:
    node = healthy_node()
    node.files["/var/lib/gpuaudit/counters.json"] = DEEP
    report = audit.run(node.host(), audit.Request(profile="nightly")).report
    assert [r.reason for r in report.results if r.verdict is Verdict.ERROR] == []


def test_a_word_of_megabytes_is_not_told_in_full() -> None:
    node = healthy_node()
    node.files["/etc/ld.so.preload"] = "x" * (1 << 20)
    report = audit.run(node.host(), audit.Request(profile="bringup")).report
    texts = [t for r in report.results for f in r.findings for t in (f.message, f.observed) if t]
    assert 1000 < max(map(len, texts)) < 3000


def test_brackets_that_never_close() -> None:
    node = healthy_node()
    node.files["/sys/kernel/mm/transparent_hugepage/enabled"] = "[" * 200_000
    report = audit.run(node.host(), audit.Request(select=("memory-thp-enabled",))).report
    assert "not finished" not in (report.results[0].reason or "")


def test_numbers_without_end() -> None:
    node = healthy_node()
    for path in node.files:
        if path.startswith("/proc/sys/") or path.endswith(("cpu.max", "aer_dev_correctable")):
            node.files[path] = "9" * 5000
    node.files["/proc/cpuinfo"] = f"processor\t: {'9' * 5000}\nphysical id\t: 0\n"
    node.files["/etc/nccl.conf"] = f"NCCL_IB_GID_INDEX={'9' * 5000}\n"
    node.files["/etc/docker/daemon.json"] = f'{{"default-shm-size": "{"9" * 400}g"}}'
    node.files["/proc/stat"] = f"btime {'9' * 5000}\n"
    report = audit.run(node.host(), audit.Request(profile="bringup")).report
    assert [r.reason for r in report.results if r.verdict is Verdict.ERROR] == []


def test_names_that_a_terminal_would_obey() -> None:
    node: FakeNode = healthy_node()
    for path, content in node.files.items():
        if path.endswith(("/product_name", "/model", "/hostname")) and content is not None:
            node.files[path] = "\x1b]0;x\x07\u202e"
    for device in node.nvml["devices"]:
        device["nvmlDeviceGetName"] = {"v": "H100 \x1b[31m"}
    text = drawn(seen(node.host()), "text")
    assert "\x1b" not in text
    assert "\u202e" not in text


def xid(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "gpuaudit", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "PYTHONUTF8": "1"},
    )


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_a_device_is_no_log(device: str) -> None:
    done = xid("xid", device)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"gpuaudit: {device}: is a device; ")


def test_logs_of_another_encoding(tmp_path: Path) -> None:
    log = tmp_path / "d.txt"
    log.write_text("[ 1.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1\n", encoding="utf-16")
    done = xid("xid", str(log))
    assert done.returncode == 2
    assert "is in UTF-16; use: iconv -f UTF-16 -t UTF-8 FILE" in done.stderr


@pytest.mark.parametrize(
    "words", [("xid", "9" * 5000), ("xid", "79", "--snapshot", "x"), ("sxid", "\u00b2")]
)
def test_explain_takes_a_number_and_nothing_else(words: tuple[str, ...]) -> None:
    done = xid("explain", *words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "internal" not in done.stderr
