# SPDX-License-Identifier: Apache-2.0
"""Whatever a recording holds: no crash, no verdict `error`, and garbage never makes it green.

`GPUAUDIT_FUZZ=5000 pytest tests/test_fuzz.py` looks further than a test run has time for.
"""

import importlib
import os
import pkgutil
from collections import Counter
from functools import cache
from random import Random

import fakenode
import msgspec
import pytest
from damage import TEXTS, VALUES, damage
from drawing import rendered
from fakenode import FakeNode, entry_of, healthy_node
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pcitree import GPU, NIC, TWO_NODES, Files, function, switch
from trees import Link

from gpuaudit import audit, packs
from gpuaudit.check import Verdict, worst
from gpuaudit.cli.output import RENDERERS
from gpuaudit.cli.topology_command import drawn, seen
from gpuaudit.engine import Facts, gpu_ids, judge_one
from gpuaudit.facts.cpusets import CpuSetError, parse_list, parse_mask
from gpuaudit.facts.gpuanswer import value_of
from gpuaudit.facts.gpurecord import CALLS
from gpuaudit.host import Host, SnapshotError, Unavailable
from gpuaudit.host.answers import Answer
from gpuaudit.host.memory import Clash, MemoryTree
from gpuaudit.host.recording import Recording
from gpuaudit.policy import PolicySet, load_policies
from gpuaudit.report import Report, decode

SEEDS = range(int(os.environ.get("GPUAUDIT_FUZZ", "28")))
NAMES = [m.name for m in pkgutil.iter_modules(fakenode.__path__) if m.name.startswith("faults_")]
FAULTS = {
    fault.name: fault
    for name in NAMES
    for fault in importlib.import_module(f"fakenode.{name}").FAULTS
}
STEP = 6
GREEN = {"pass", "notapplicable"}


@cache
def policies() -> PolicySet:
    return load_policies(packs.sections(packs.load_checks()), site=False)


def check_report(report: Report) -> None:
    """No check crashed, the counts add up, and every renderer takes it."""
    crashed = [(r.check, r.reason) for r in report.results if r.verdict is Verdict.ERROR]
    assert crashed == []
    counts = Counter(r.verdict.value for r in report.results)
    assert report.summary.counts == {v.value: counts.get(v.value, 0) for v in Verdict}
    for result in report.results:
        assert not result.findings or result.verdict is worst(f.verdict for f in result.findings)
        assert result.findings or result.reason
    pages = {name: rendered(report, name) for name in RENDERERS}
    assert decode(pages["json"].encode()).results == report.results
    assert all(page.encode() for page in pages.values())


def look_at(host: Host) -> None:
    """The topology in every format."""
    view = seen(host)
    for name in ("text", "json", "svg"):
        assert drawn(view, name).encode()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_damaged_node(seed: int) -> None:
    node = healthy_node()
    damage(node, Random(seed))
    try:
        report = audit.run(node.host(), audit.Request(profile="bringup")).report
    except (SnapshotError, Clash):
        return
    check_report(report)
    look_at(node.host())


def small_machine() -> Files:
    """Two switches on two nodes, a GPU and a NIC beside them."""
    return {
        **TWO_NODES,
        **switch("pci0000:10", 0x15),
        **switch("pci10000:10", 0x15),
        **function("pci0000:20/0000:20:01.0", GPU, node="1", cpus="4-7"),
        **function("pci0000:20/0000:20:02.0", NIC, vendor=0x15B3, node="-1", cpus=None),
        "/sys/devices/system/cpu/present": "0-7\n",
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
        "/sys/devices/system/cpu/cpu0/cpuidle/state0/latency": "2\n",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "/proc/meminfo": "MemTotal:       1048576 kB\n",
        "/proc/cpuinfo": "vendor_id\t: GenuineIntel\nflags\t\t: fpu\n",
        "/proc/swaps": "Filename\tType\tSize\tUsed\tPriority\n",
        "/proc/self/mountinfo": "1 0 0:1 / /dev/shm rw - tmpfs tmpfs rw\n",
        "/etc/fstab": "/dev/sda1 none swap sw 0 0\n",
        "/etc/sysctl.d/a.conf": "vm.zone_reclaim_mode = 0\n",
    }


SMALL = small_machine()
CONTENTS = st.one_of(
    st.sampled_from(TEXTS), st.binary(max_size=80), st.text(max_size=40), st.none()
)
LINKS = st.builds(Link, st.sampled_from(["/", ".", "..", "nowhere", "../../..", "loop", *SMALL]))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(st.sampled_from(sorted(SMALL)), st.one_of(CONTENTS, LINKS), max_size=12),
    st.sets(st.sampled_from(sorted(SMALL)), max_size=6),
)
def test_a_damaged_plain_recording(changed: Files, gone: set[str]) -> None:
    files = {path: node for path, node in (SMALL | changed).items() if path not in gone}
    tree = MemoryTree.of({path: entry_of(node) for path, node in files.items()})
    host = Host(tree, "snapshot", recording=Recording(tree, "/", "small"))
    facts = Facts(host)
    policy = policies().for_node(gpu_ids(facts))
    for check in packs.load_checks().values():
        assert judge_one(check, facts, policy, 20).trace is None, check.id
    look_at(host)


@cache
def broken(name: str) -> FakeNode:
    node = healthy_node()
    FAULTS[name].breaks(node)
    return node


def verdict_of(node: FakeNode, check: str) -> tuple[str, Host]:
    """What one check says of a node, and what it looked at."""
    host = node.host()
    facts = Facts(host)
    policy = policies().for_node(gpu_ids(facts))
    outcome = judge_one(packs.load_checks()[check], facts, policy, 20)
    return (outcome.verdict or worst(f.verdict for f in outcome.findings)).value, host


def spoil(node: FakeNode, path: str, how: str) -> FakeNode:
    """The node with one piece of evidence garbled, or not had for this reason."""
    other = node.copied()
    if how in {"not-recorded", "denied", "hung"}:
        other.gaps[path] = {"kind": how, "reason": f"{path}: {how}"}
        other.files.pop(path, None)
    elif path in other.files and not isinstance(other.files[path], Link):
        other.files[path] = NONSENSE[how]
    return other


NONSENSE = {"empty": b"", "words": b"?? ??", "bytes": b"\xff\xfe\0\x81"}
WAYS = (*NONSENSE, "not-recorded", "denied", "hung")
BY_OTHER_EVIDENCE = {"fabric-manager-version", "rdma-gid-index"}
"""The version of the package stands in where that of the program cannot be had; words in nccl.conf
that set nothing are a file like any other.
"""


@pytest.mark.parametrize("name", sorted(FAULTS)[:: STEP if len(SEEDS) < 100 else 1])
def test_less_evidence_never_makes_a_fault_good(name: str) -> None:
    """Every file the failing check read is spoilt in turn; a sample of them, by a fixed seed."""
    fault = FAULTS[name]
    random = Random(name)
    failing = sorted(c for c, v in fault.changes.items() if v in {"fail", "warn"})
    for check in random.sample(failing, min(len(failing), 1)):
        before, host = verdict_of(broken(name), check)
        if before in GREEN:  # the fault is one under a site policy only
            continue
        read = sorted({*host.evidence.files, *host.evidence.paths})
        for path in random.sample(read, min(len(read), max(2, len(SEEDS) // 16))):
            how = random.choice(WAYS)
            after, _ = verdict_of(spoil(broken(name), path, how), check)
            allowed = check in BY_OTHER_EVIDENCE or after not in GREEN
            assert allowed, f"{check} says {after} once {path} is {how}"


@given(
    st.one_of(
        st.text(),
        st.from_regex(r"[0-9,:/-]{1,40}"),
        st.sampled_from([t for t in TEXTS if isinstance(t, str)]),
    )
)
def test_cpu_sets(text: str) -> None:
    for parse in (parse_list, parse_mask):
        try:
            assert all(cpu >= 0 for cpu in parse(text))
        except CpuSetError:
            continue


@settings(suppress_health_check=list(HealthCheck))
@given(st.one_of(st.text(max_size=30), st.integers().map(str), st.sampled_from(TEXTS)))
def test_numbers(text: str | bytes) -> None:
    content = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    host = Host(MemoryTree.of({"/proc/n": content}), "snapshot")
    try:
        number = host.read_int("/proc/n")
    except Unavailable:
        return
    assert abs(number) < 10**20


JSON = st.recursive(
    st.one_of(st.sampled_from(VALUES), st.none(), st.booleans(), st.integers(), st.text()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from(sorted(CALLS)), JSON, st.one_of(st.none(), st.text()))
def test_nvml_values(field: str, value: object, driver: str | None) -> None:
    """A value is of the type its call promises, or it is Absent with a reason."""
    call = CALLS[field]
    found = value_of(Answer(v=value), call, driver)
    if not hasattr(found, "reason"):
        assert msgspec.convert(msgspec.to_builtins(found), call.kind) == found
