# SPDX-License-Identifier: Apache-2.0
"""kernel-cpus-isolated, kernel-cpus-nohz-full, kernel-version, -pending, and what safety costs."""

import msgspec
import pytest
from judging import judge, verdicts
from machines import gpu, machine, nic, numa, pci

from gpuaudit.check import NotApplicable, Unavailable
from gpuaudit.facts.base import Absent
from gpuaudit.facts.cpu import CpuSets
from gpuaudit.facts.cpusets import parse_list
from gpuaudit.facts.isolation import IsolatedCpus
from gpuaudit.facts.kernels import InstalledKernels
from gpuaudit.facts.kernelsafety import InitOnAlloc, Vulnerabilities
from gpuaudit.facts.nextboot import BootEntry, NextKernel
from gpuaudit.facts.node import Machine

APART = "kernel_cpus/kernel-cpus-isolated"
TICK = "kernel_cpus/kernel-cpus-nohz-full"
VERSION = "kernel_version/kernel-version"
PENDING = "kernel_version/kernel-version-pending"
FLAWS = "kernel_version/kernel-mitigations"
CLEARED = "kernel_version/kernel-init-on-alloc"
NODES = numa("0-7", "8-15")
A, B = "0000:18:00.0", "0000:98:00.0"
DEVICES = pci(gpu(A, 0, "0-7"), gpu(B, 1, "8-15"), nic("0000:99:00.0", 1, "8-15"))
GONE = Absent("missing", "was not recorded")
GRUB = "/boot/grub/grub.cfg"


def cpus(isolated: str | Absent, nohz_full: str | Absent = "") -> IsolatedCpus:
    both = (one if isinstance(one, Absent) else parse_list(one) for one in (isolated, nohz_full))
    first, second = both
    return IsolatedCpus(isolated=first, nohz_full=second)


@pytest.mark.parametrize(
    ("isolated", "expected"),
    [
        ("", [("isolated CPUs", "pass")]),
        ("2-7", [("NUMA node 0", "pass"), ("NUMA node 1", "pass")]),
        ("1-7", [("NUMA node 0", "warn"), ("NUMA node 1", "pass")]),
        ("8-15", [("NUMA node 0", "pass"), ("NUMA node 1", "warn"), (B, "fail")]),
    ],
)
def test_isolated(isolated: str, expected: list[tuple[str, str]]) -> None:
    assert verdicts(judge(APART, cpus(isolated), NODES, DEVICES)) == expected


def test_isolation_that_is_not_known() -> None:
    with pytest.raises(Unavailable):
        judge(APART, cpus(GONE), NODES, DEVICES)
    with pytest.raises(Unavailable, match="inconsistent"):
        judge(APART, cpus("1"), numa("0-7", "0-7", problems=("both claim 0-7",)), DEVICES)


def test_a_site_may_want_more_left() -> None:
    found = judge(APART, cpus("4-7"), NODES, DEVICES, min_housekeeping_per_node=6)
    assert verdicts(found)[0] == ("NUMA node 0", "warn")


def sets(online: str | Absent = "0-15") -> CpuSets:
    one = online if isinstance(online, Absent) else parse_list(online)
    return CpuSets(possible=one, present=one, online=one)


@pytest.mark.parametrize(
    ("isolated", "nohz_full", "expected"),
    [("2-7", "2-7", "pass"), ("2-9", "2-7", "pass"), ("", "2-7", "warn"), ("2-5", "2-7", "warn")],
)
def test_without_a_tick(isolated: str, nohz_full: str, expected: str) -> None:
    assert verdicts(judge(TICK, cpus(isolated, nohz_full), sets())) == [("nohz_full", expected)]


def test_somebody_has_to_keep_the_time() -> None:
    (found,) = judge(TICK, cpus("0-15", "0-15"), sets())
    assert (found.verdict, "no CPU is left" in found.message) == ("warn", True)


def test_the_tick_that_is_not_known() -> None:
    with pytest.raises(NotApplicable):
        judge(TICK, cpus("2-3", ""), sets())
    for facts in (
        (cpus("2", GONE), sets()),
        (cpus(GONE, "2"), sets()),
        (cpus("2", "2"), sets(GONE)),
    ):
        with pytest.raises(Unavailable):
            judge(TICK, *facts)


def running(release: str | None) -> Machine:
    return msgspec.structs.replace(machine(), kernel=release)


BAD = {"first": "6.5.0", "below": "6.5.0-27", "only": "generic", "reason": "hangs under load"}
NO_ENTRY = NextKernel(release=GONE, source="")


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("6.5.0-26-generic", "fail"),
        ("\ufffd garbage", "unknown"),
        ("6.5.0-9-generic", "fail"),
        ("6.5.0-27-generic", "pass"),
        ("6.5.0-26-nvidia", "pass"),
        ("6.4.0-100-generic", "pass"),
        ("5.3.18", "fail"),
        ("5.15.0-100-generic", "pass"),
    ],
)
def test_version(release: str, expected: str) -> None:
    found = judge(VERSION, running(release), NO_ENTRY, bad=[BAD], minimum="5.4")
    assert verdicts(found) == [("kernel", expected)]
    if release == "6.5.0-26-generic":
        assert (found[0].message, found[0].expected) == ("hangs under load", "at least 6.5.0-27")


def test_the_kernel_of_an_image_is_that_of_its_boot_entry() -> None:
    later = NextKernel(release="2.6.32-754.el6", source=GRUB)
    assert verdicts(judge(VERSION, running(None), later)) == [("kernel", "fail")]
    assert verdicts(judge(VERSION, running(None), NO_ENTRY)) == [("kernel", "unknown")]
    outside = NextKernel(release=Absent("unsupported", "no boot loader"), source="")
    assert verdicts(judge(VERSION, running(None), outside)) == [("kernel", "notapplicable")]


def entry(kernel: str | None) -> BootEntry:
    return BootEntry(words=(), file=GRUB, kernel=kernel)


@pytest.mark.parametrize(
    ("kernel", "expected"), [("6.1.0-9", "pass"), ("6.1.0-13", "warn"), (None, "unknown")]
)
def test_pending(kernel: str | None, expected: str) -> None:
    kernels = InstalledKernels(releases=("6.1.0-9", "6.1.0-13"), running="6.1.0-9")
    assert verdicts(judge(PENDING, kernels, entry(kernel))) == [("kernel", expected)]


def test_nothing_is_pending_in_an_image() -> None:
    kernels = InstalledKernels(releases=("6.1.0-9",), running=None)
    with pytest.raises(NotApplicable):
        judge(PENDING, kernels, entry("6.1.0-9"))


def test_mitigations() -> None:
    flaws = Vulnerabilities(
        by_name={
            "mds": "Not affected",
            "retbleed": "Vulnerable",
            "itlb_multihit": "KVM: Vulnerable",
            "taa": "Mitigation: TSX disabled; SMT vulnerable",
        }
    )
    assert {v for _, v in verdicts(judge(FLAWS, flaws))} == {"notapplicable"}
    found = dict(verdicts(judge(FLAWS, flaws, mitigations="complete")))
    assert found == {"mds": "pass", "retbleed": "warn", "itlb_multihit": "warn", "taa": "pass"}


@pytest.mark.parametrize(
    ("enabled", "want", "expected"),
    [
        (True, "off", "warn"),
        (False, "off", "pass"),
        (False, "on", "warn"),
        (GONE, "off", "unknown"),
    ],
)
def test_init_on_alloc(enabled: bool | Absent, want: str, expected: str) -> None:
    fact = InitOnAlloc(enabled=enabled, source="/proc/cmdline")
    found = judge(CLEARED, fact, init_on_alloc=want)
    assert verdicts(found) == [("init_on_alloc", expected)]


def test_init_on_alloc_is_the_sites_choice() -> None:
    with pytest.raises(NotApplicable):
        judge(CLEARED, InitOnAlloc(enabled=True, source=""))
