# SPDX-License-Identifier: Apache-2.0
"""What an audit may spend: files read, reads repeated, processes started, modules imported.

Counted, not timed: timings are in tests/bench, where a busy worker fails nobody's change.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from counting import CountingTree
from fakenode import FakeNode, healthy_node
from fakenode.cpus import CPUS

from gpuaudit import audit
from gpuaudit.host import Host

MAX_READS = 2500
"""On 192 CPUs, 60 PCI functions and 300 interrupts; one costs 0.05 ms on a live node."""

MAX_READS_A_CPU = 8
MAX_PROCESSES_LIVE = 6
"""The NVML child, the patient reader, and a command that no file can stand for."""

NEVER_ON_A_SNAPSHOT = {
    "asyncio",
    "importlib.metadata",
    "jinja2",
    "psutil",
    "pynvml",
    "pyudev",
    "rich",
    "subprocess",
}
STARTS = ("os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.system", "subprocess.Popen")


@pytest.fixture(scope="module")
def node() -> FakeNode:
    return healthy_node()


@pytest.fixture(scope="module")
def counted(node: FakeNode) -> CountingTree:
    """Every question that all checks together ask."""
    host = node.host()
    host.tree = counting = CountingTree(host.tree)
    audit.run(host, audit.Request(profile="bringup"))
    return counting


@pytest.fixture(scope="module")
def archive(node: FakeNode, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return node.archive(tmp_path_factory.mktemp("budget") / "node.tar.gz")


@pytest.fixture(scope="module")
def root(node: FakeNode, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return node.live_root(tmp_path_factory.mktemp("budget-live") / "root")


def test_nothing_is_read_twice(counted: CountingTree) -> None:
    assert counted.reads
    assert [path for path, times in counted.reads.items() if times > 1] == []
    assert [path for path, times in counted.lists.items() if times > 1] == []


def test_the_number_of_reads_is_bounded(counted: CountingTree) -> None:
    by_cpu = sum("/system/cpu/" in path for path in counted.reads)
    assert counted.reads.total() <= MAX_READS
    assert by_cpu <= MAX_READS_A_CPU * CPUS


def test_one_path_by_two_names_is_read_once(node: FakeNode) -> None:
    host = node.host()
    host.tree = counting = CountingTree(host.tree)
    names = ("/sys/bus/pci/devices/0000:18:00.0", host.resolve("/sys/bus/pci/devices/0000:18:00.0"))
    assert {host.read(f"{name}/vendor") for name in names} == {"0x10de"}
    assert counting.reads.total() == 1


def test_a_snapshot_starts_no_process(archive: Path) -> None:
    assert started(f"Host.snapshot({str(archive)!r})") == {}


def test_a_live_node_starts_few_processes(root: Path) -> None:
    found = started(f"Host.live({str(root)!r}, nvml_deadline_s=5)")
    assert sum(found.values()) <= MAX_PROCESSES_LIVE, found


def started(host: str) -> dict[str, int]:
    """Ways in which an audit of `host` started processes, as Python's audit events name them."""
    program = (
        "import json, sys, collections\n"
        "seen = collections.Counter()\n"
        f"sys.addaudithook(lambda name, args: seen.update([name]) if name in {STARTS} else None)\n"
        "from gpuaudit import audit\n"
        "from gpuaudit.host import Host\n"
        f"host = {host}\n"
        "audit.run(host, audit.Request(profile='bringup'))\n"
        "host.close()\n"
        "print(json.dumps(seen))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_the_json_path_imports_nothing_slow(archive: Path) -> None:
    command = ["-m", "gpuaudit", "run", "--format", "json", "--snapshot", str(archive)]
    found = imported(*command)
    assert "gpuaudit.engine" in found
    assert (found - of_msgspec()) & NEVER_ON_A_SNAPSHOT == set()


def of_msgspec() -> set[str]:
    """What the record library itself brings: on Python 3.10 uuid, platform and so subprocess."""
    return imported("-c", "import msgspec")


def test_the_version_imports_no_part_of_the_audit() -> None:
    found = imported("-m", "gpuaudit", "--version")
    assert not {name for name in found if name.startswith(("gpuaudit.facts", "gpuaudit.checks"))}
    never = NEVER_ON_A_SNAPSHOT | {"gpuaudit.engine", "gpuaudit.policy", "yaml"}
    assert (found - of_msgspec()) & never == set()


def imported(*arguments: str) -> set[str]:
    """Modules that a command imports beyond those of an empty start, by `-X importtime`."""
    return modules(*arguments) - modules("-c", "pass")


def modules(*arguments: str) -> set[str]:
    command = [sys.executable, "-X", "importtime", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1, 3}, done.stderr
    lines = (line for line in done.stderr.splitlines() if line.startswith("import time:"))
    return {line.rpartition("|")[2].strip() for line in lines}


def test_live_and_snapshot_read_the_same_files(node: FakeNode, root: Path) -> None:
    live = Host.live(str(root), nvml_deadline_s=5)
    recorded = node.host()
    for host in (live, recorded):
        audit.run(host, audit.Request(profile="bringup", select=("pcie-*", "acs-*", "numa-*")))
    live.close()
    assert live.evidence.files.keys() == recorded.evidence.files.keys()
