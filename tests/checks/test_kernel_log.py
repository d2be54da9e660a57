# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest
from judging import judge
from trees import Source, make_host

from gpuaudit.check import Finding, NotApplicable
from gpuaudit.facts.kernelhealth import KernelHealth, kernel_health
from gpuaudit.facts.node import Machine, machine

LOG = ("kernel-out-of-memory", "kernel-machine-checks", "kernel-hung-tasks")
EVERY = (*LOG, "kernel-oops")
GUEST = {"/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu hypervisor\n"}
METAL = {
    "/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu sse\n",
    "/sys/class/dmi/id/sys_vendor": "Example Systems\n",
}
SYSTEM = "Out of memory: Killed process 1650 (nv-fabricmanage) total-vm:2kB, anon-rss:1kB"
OLD = "Out of memory: Kill process 77 (train) score 9 or sacrifice child"
ALLOCATING = SYSTEM.replace(":", " (oom_kill_allocating_task):", 1)
OWN = "Memory cgroup out of memory: Killed process 77 (train) total-vm:2kB, anon-rss:1kB"
HARD = "[Hardware Error]: "
BANK = f"mce: {HARD}CPU 3: Machine Check: 0 Bank 7: "
TASK = "INFO: task python3:4711 blocked for more than 122 seconds."


class Node:
    """Facts of a machine whose kernel said these lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def facts(
        self,
        *texts: str,
        flags: str | None = "12288",
        first: int = 0,
        source: Source = "snapshot",
        hardware: dict[str, str] = METAL,
    ) -> tuple[KernelHealth, Machine]:
        lines = [f"3,{first + n},{n * 1000000},-;{text}\n" for n, text in enumerate(("a", *texts))]
        tree: dict[str, Any] = {"/dev/kmsg": "".join(lines), **hardware}
        if flags is not None:
            tree["/proc/sys/kernel/tainted"] = flags
        host = make_host(self.folder / str(len(list(self.folder.iterdir()))), tree, source=source)
        return kernel_health(host), machine(host)

    def judged(
        self, check: str, *texts: str, want: dict[str, Any] | None = None, **how: Any
    ) -> Finding:
        (finding,) = judge(f"kernel_log/{check}", *self.facts(*texts, **how), **(want or {}))
        return finding


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize("check", EVERY)
def test_silence_passes(node: Node, check: str) -> None:
    assert node.judged(check, "usb 1-1: new device").verdict == "pass"


@pytest.mark.parametrize("check", LOG)
def test_silence_of_a_log_that_was_overwritten_is_unknown(node: Node, check: str) -> None:
    finding = node.judged(check, "b", first=900)
    assert finding.verdict == "unknown"
    assert "24 h are asked for" in finding.message
    passed = node.judged(check, "b", first=900, want={"hours": 0})
    assert passed.verdict == "pass"
    assert (passed.observed or "").endswith("in the last 0 h")


@pytest.mark.parametrize("check", LOG)
def test_a_log_that_is_not_read_is_unknown(tmp_path: Path, check: str) -> None:
    host = make_host(tmp_path, {**METAL, "/proc/sys/kernel/tainted": "0"}, source="plain")
    (finding,) = judge(f"kernel_log/{check}", kernel_health(host), machine(host))
    assert finding.verdict == "unknown"
    assert "/dev/kmsg" in finding.message
    (oops,) = judge("kernel_log/kernel-oops", kernel_health(host))
    assert oops.verdict == "pass"


def test_an_image_has_no_kernel(node: Node) -> None:
    with pytest.raises(NotApplicable):
        node.facts(source="image")


@pytest.mark.parametrize(
    "line", [SYSTEM, OLD, SYSTEM.replace(":", " (oom_kill_allocating_task):", 1)]
)
def test_a_node_out_of_memory_warns(node: Node, line: str) -> None:
    finding = node.judged("kernel-out-of-memory", line, OWN)
    assert finding.verdict == "warn"
    assert finding.observed == "1 of the node, 1 of jobs at their own limit"
    fail = {"system_out_of_memory": "fail"}
    assert node.judged("kernel-out-of-memory", line, want=fail).verdict == "fail"


def test_a_job_at_its_own_limit_passes(node: Node) -> None:
    finding = node.judged("kernel-out-of-memory", OWN, OWN)
    assert finding.verdict == "pass"
    assert finding.observed == "0 of the node, 2 of jobs at their own limit since boot"


def test_a_process_whose_name_speaks_of_memory_is_no_kill(node: Node) -> None:
    line = "traps: Out of memory: Kill[7] general protection fault"
    assert node.judged("kernel-out-of-memory", line).verdict == "pass"


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        ((f"{BANK}be00000000800400",), "fail"),
        ((f"{BANK}8c00004000010091",), "pass"),
        ((f"{BANK}8c00004000010091",) * 11, "warn"),
        ((f"{HARD}Corrected error, no action required.",) * 11, "warn"),
        ((f"{HARD}Deferred error, no action required.",), "fail"),
        ((f"{HARD}Uncorrected, software restartable error.",), "fail"),
        ((f"{HARD}System Fatal error.",), "fail"),
        ((f"{{1}}{HARD}event severity: recoverable",), "fail"),
        ((f"{{1}}{HARD}event severity: corrected",), "pass"),
        ((f"{{1}}{HARD}event severity: info",) * 20, "pass"),
        ((f"{HARD}event severity: fatal",), "warn"),
        ((f"{HARD}event severity: corrected",) * 20, "pass"),
        (("MCE: Killing train:77 due to hardware memory corruption fault at 7f00",), "fail"),
        (("Memory failure: 0x12345: recovery action for dirty LRU page: Recovered",), "fail"),
        ((f"mce: {HARD}Machine check events logged",) * 20, "pass"),
    ],
)
def test_machine_checks(node: Node, lines: tuple[str, ...], verdict: str) -> None:
    assert node.judged("kernel-machine-checks", *lines).verdict == verdict


def test_errors_of_pcie_devices_are_left_to_others(node: Node) -> None:
    event = (
        "event severity: recoverable",
        " Error 0, type: recoverable",
        "  section_type: PCIe error",
    )
    memory = ("event severity: recoverable", "  section_type: memory error")
    lines = [f"{{1}}{HARD}{line}" for line in event]
    assert node.judged("kernel-machine-checks", *lines).verdict == "pass"
    lines += [f"{{2}}{HARD}{line}" for line in memory]
    assert node.judged("kernel-machine-checks", *lines).observed == "1 uncorrected, 0 corrected"


@pytest.mark.parametrize("sections", [("PCIe", "memory"), ("memory", "PCIe")])
def test_an_event_of_a_pcie_device_and_of_memory(node: Node, sections: tuple[str, ...]) -> None:
    told = ["event severity: recoverable", *(f"  section_type: {s} error" for s in sections)]
    lines = [f"{{1}}{HARD}{line}" for line in told]
    assert node.judged("kernel-machine-checks", *lines).observed == "1 uncorrected, 0 corrected"


def test_what_firmware_tells_of_later_is_another_event(node: Node) -> None:
    mce = f"mce: {HARD}CPU 3: Machine Check: 0 Bank 7: be00000000800400"
    later = [
        f"{{1}}{HARD}{line}" for line in ("event severity: info", "  section_type: PCIe error")
    ]
    found = node.judged("kernel-machine-checks", mce, *later)
    assert found.observed == "1 uncorrected, 0 corrected"


def test_a_flag_that_the_log_says_nothing_of_warns(node: Node) -> None:
    assert node.judged("kernel-machine-checks", flags=str(1 << 4)).verdict == "warn"
    assert node.judged("kernel-hung-tasks", flags=str(1 << 14)).verdict == "warn"


def test_a_guest_sees_no_machine_checks_but_its_own(node: Node) -> None:
    with pytest.raises(NotApplicable):
        node.judged("kernel-machine-checks", hardware=GUEST)
    line = f"{BANK}be00000000800400"
    assert node.judged("kernel-machine-checks", line, hardware=GUEST).verdict == "fail"


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        (TASK, "blocked task x 1"),
        ("INFO: task kworker/u8:2:77 blocked for more than 120 seconds.", "blocked task x 1"),
        ("INFO: task x:7 blocked in I/O wait for more than 120 seconds.", "blocked task x 1"),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [train:77]", "soft lockup x 1"),
        ("watchdog: Watchdog detected hard LOCKUP on cpu 3", "hard lockup x 1"),
        ("rcu: INFO: rcu_sched self-detected stall on CPU", "RCU stall x 1"),
        ("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", "RCU stall x 1"),
        (
            "rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 3 }",
            "RCU stall x 1",
        ),
    ],
)
def test_hung_tasks(node: Node, line: str, seen: str) -> None:
    finding = node.judged("kernel-hung-tasks", line)
    assert (finding.verdict, finding.observed) == ("warn", seen)


def test_who_hung_is_named(node: Node) -> None:
    finding = node.judged("kernel-hung-tasks", TASK, "more", TASK.replace("4711", "4712"))
    assert finding.observed == "blocked task x 2"
    assert finding.message == "something hung, last 3 s after boot: python3:4711, python3:4712"


@pytest.mark.parametrize(("bit", "word"), [(7, "an oops"), (5, "a bad page")])
def test_oops(node: Node, bit: int, word: str) -> None:
    finding = node.judged("kernel-oops", "Oops: 0002 [#1] SMP", flags=str(1 << bit | 12288))
    assert finding.verdict == "fail"
    assert word in finding.message
    assert finding.evidence == ("1 s after boot: Oops: 0002 [#1] SMP",)


@pytest.mark.parametrize("flags", [None, "garbled"])
def test_without_the_flags_nothing_is_known_of_an_oops(node: Node, flags: str | None) -> None:
    assert node.judged("kernel-oops", flags=flags).verdict == "unknown"


@pytest.mark.parametrize(
    ("more", "bits", "verdict"),
    [((), 1 << 5, "warn"), (("BUG: Bad page state in x",), 1 << 5, "fail"), ((), 0xA0, "fail")],
)
def test_what_kfence_caught_did_no_harm(
    node: Node, more: tuple[str, ...], bits: int, verdict: str
) -> None:
    """mm/kfence/report.c sets TAINT_BAD_PAGE."""
    said = ("BUG: KFENCE: use-after-free read in mlx5e_poll+0x1/0x2", *more)
    assert node.judged("kernel-oops", *said, flags=str(bits | 12288)).verdict == verdict
