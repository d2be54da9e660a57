# SPDX-License-Identifier: Apache-2.0
"""What is left of a kernel log in a recording that goes to others."""

import pytest
from fakenode import healthy_node
from fakenode.faults_kernellog import GPU, logged

from gpuaudit.facts.kernelfiles import Kept
from gpuaudit.facts.kernellog import WATCHED, KernelLog, log_of
from gpuaudit.snapshot.contents import Contents
from gpuaudit.snapshot.kernellogs import harmless, is_log
from gpuaudit.snapshot.scrub import scrubbed

SECRETS = ("rosalind", "node7", "10.20.1.2", "e8:eb:d3:a1:b2:c3", "S5GXNX0T123456", "hunter2")
XID = f"NVRM: Xid ({GPU}): 79, pid=77, name=train, GPU has fallen off the bus."
MESSAGES = (
    "Linux version 6.8.0-60-generic (rosalind@node7) #1",
    "Command line: BOOT_IMAGE=/vmlinuz root=/dev/md0 token=hunter2",
    "NVRM: GPU Board Serial Number: S5GXNX0T123456",
    XID,
    "mlx5_core 0000:18:00.0: mac e8:eb:d3:a1:b2:c3",
    "mce: [Hardware Error]: TSC 0 PPIN: 6f9619ff8b86d011",
    "nfs: server 10.20.1.2 not responding",
)
RING = "".join(f"6,{n},{n * 1000000},-;{text}\n" for n, text in enumerate(MESSAGES))
SYSLOG = "".join(f"Nov  2 10:11:1{n} node7 kernel: {text}\n" for n, text in enumerate(MESSAGES))
TIMED = "".join(f"[{n:12.6f}] node7 kernel: {text}\n" for n, text in enumerate(MESSAGES))


def log(data: bytes) -> KernelLog:
    return log_of(Kept(data, "x", complete=True))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/dev/kmsg", RING),
        ("/var/log/kern.log", SYSLOG),
        ("/var/log/messages.1", SYSLOG),
        ("/dmesg", TIMED),
    ],
)
def test_only_what_checks_look_at_is_left(path: str, text: str) -> None:
    before = Contents(entries={path: text.encode()})
    after = scrubbed(before).entries[path]
    assert isinstance(after, bytes)
    for secret in (*SECRETS, "PPIN: 6"):
        assert secret.encode() not in after
    assert log(after).matching("NVRM: Xid") == log(text.encode()).matching("NVRM: Xid")
    assert log(after).span == log(text.encode()).span
    assert b"Linux version 6.8.0-60-generic\n" in after
    assert after.count(b"\n") == 4


def test_a_log_without_anything_to_look_at_still_tells_how_far_it_goes() -> None:
    data = b"6,900,7200000000,-;eth0: up\n6,901,7300000000,-;eth0: down\n6,902,7400000000,-;x\n"
    assert harmless(data) == b"6,900,7200000000,-;(left out)\n6,902,7400000000,-;(left out)\n"
    assert harmless(b"hello\n") == b""
    assert harmless(b"") == b""


def test_every_needle_is_kept() -> None:
    lines = "".join(f"6,{n},{n},-;a {needle} b\n" for n, needle in enumerate(sorted(WATCHED)))
    assert log(harmless(lines.encode())).matching(*WATCHED) == log(lines.encode()).matching(
        *WATCHED
    )


def test_other_files_are_no_logs() -> None:
    assert is_log("/dev/kmsg")
    assert not is_log("/var/log/auth.log")


def test_the_healthy_node_says_the_same_when_scrubbed() -> None:
    node = healthy_node()
    logged(node, XID)
    data = node.files["/dev/kmsg"]
    assert isinstance(data, str)
    after = harmless(data.encode())
    assert log(after).matching(*WATCHED) == log(data.encode()).matching(*WATCHED)
    assert log(after).span == log(data.encode()).span
