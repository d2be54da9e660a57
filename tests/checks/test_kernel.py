# SPDX-License-Identifier: Apache-2.0
"""kernel-cmdline-next-boot, kernel-cmdline-generated, kernel-cmdline-conflicts."""

import pytest
from judging import judge, verdicts

from gpuaudit.check import NotApplicable
from gpuaudit.facts.bootintent import BootIntent
from gpuaudit.facts.nextboot import BootEntry, EffectiveLine

NEXT = "kernel/kernel-cmdline-next-boot"
MADE = "kernel/kernel-cmdline-generated"
ODD = "kernel/kernel-cmdline-conflicts"
OF = "kernel command line"
GRUB = "/boot/grub/grub.cfg"


def line(text: str, *, running: bool = True) -> EffectiveLine:
    file = "/proc/cmdline" if running else GRUB
    return EffectiveLine(words=tuple(text.split()), file=file, running=running)


def entry(text: str) -> BootEntry:
    return BootEntry(words=tuple(text.split()), file=GRUB, kernel="6.1.0-13-amd64")


def intent(text: str) -> BootIntent:
    return BootIntent(words=tuple(text.split()), file="/etc/default/grub")


@pytest.mark.parametrize(
    ("now", "later", "expected"),
    [
        ("root=a iommu=pt", "root=b ro quiet iommu=pt console=ttyS0", [(OF, "pass")]),
        ("iommu=pt", "iommu=pt init_on_alloc=0", [("init_on_alloc", "warn")]),
        ("iommu=pt nosmt", "iommu=pt", [("nosmt", "warn")]),
        ("iommu=pt", "iommu=off", [("iommu", "warn")]),
        ("iommu=pt iommu=pt", "iommu=pt", [(OF, "pass")]),
        ("pci=realloc pci=nomsi", "pci=nomsi,realloc", [(OF, "pass")]),
        ("hugepagesz=1G hugepages=4", "hugepages=4 hugepagesz=1G", [("hugepages", "warn")]),
        ("nvidia.NVreg_X=1", "", [("nvidia.NVreg_X", "warn")]),
        ("", "", [(OF, "pass")]),
    ],
)
def test_next_boot(now: str, later: str, expected: list[tuple[str, str]]) -> None:
    assert verdicts(judge(NEXT, line(now), entry(later))) == expected


def test_what_is_pending_and_what_is_lost_are_told_apart() -> None:
    found = judge(NEXT, line("nosmt iommu=pt"), entry("iommu=off isolcpus=1"))
    messages = {f.subject: f.message for f in found}
    assert "gone after the next boot" in messages["nosmt"]
    assert "does not hold yet" in messages["isolcpus"]
    assert "changes" in messages["iommu"]
    values = {f.subject: (f.observed, f.expected) for f in found}
    assert values["nosmt"] == ("set", "not set")
    assert values["iommu"] == ("pt", "off")


def test_an_image_runs_nothing() -> None:
    with pytest.raises(NotApplicable):
        judge(NEXT, line("iommu=pt", running=False), entry("iommu=pt"))


def test_the_policy_says_what_matters() -> None:
    facts = (line("quiet"), entry(""))
    assert verdicts(judge(NEXT, *facts)) == [(OF, "pass")]
    assert verdicts(judge(NEXT, *facts, parameters=["quiet"])) == [("quiet", "warn")]


@pytest.mark.parametrize(
    ("asked", "made", "expected"),
    [
        ("iommu=pt quiet", "root=a iommu=pt", [(OF, "pass")]),
        ("iommu=pt", "iommu=pt isolcpus=1", [(OF, "pass")]),
        ("iommu=pt", "root=a", [("iommu", "bad")]),
        ("pci=noaer", "pci=noaer,realloc", [(OF, "pass")]),
        ("isolcpus=1,2", "isolcpus=1,2,3", [("isolcpus", "bad")]),
        ("nosmt", "", [("nosmt", "bad")]),
    ],
)
@pytest.mark.parametrize("running", [True, False])
def test_generated(asked: str, made: str, expected: list[tuple[str, str]], running: bool) -> None:
    found = judge(MADE, intent(asked), entry(made), line(made, running=running))
    bad = "warn" if running else "fail"
    assert verdicts(found) == [(of, bad if v == "bad" else v) for of, v in expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("root=a ro iommu=pt intel_iommu=on", [(OF, "pass")]),
        ("amd_iommu=on iommu=pt", [(OF, "pass")]),
        ("intel_iommu=on,sm_on", [(OF, "pass")]),
        ("intel_iommu=pt", [("intel_iommu=pt", "warn")]),
        ("amd_iommu=pt", [("amd_iommu=pt", "warn")]),
        ("iommu=pt intel_iommu=off", [(OF, "pass")]),  # of the other maker's CPUs it says nothing
        ("iommu=pt amd_iommu=off", [(OF, "pass")]),
        ("iommu=pt,off", [("iommu=pt", "warn")]),
        ("iommu=off", [(OF, "pass")]),
        ("numa_balancing=0", [("numa_balancing=0", "warn")]),
        ("numa_balancing=disable", [(OF, "pass")]),
        ("transparent_hugepage=off", [("transparent_hugepage=off", "warn")]),
        ("isolcpus=1 isolcpus=2", [("isolcpus", "warn")]),
        ("isolcpus=1 isolcpus=1", [(OF, "pass")]),
        ("console=tty0 console=ttyS0", [(OF, "pass")]),
        ("hugepagesz=2M hugepages=1 hugepagesz=1G hugepages=2", [(OF, "pass")]),
        ("pci=nomsi", [("pci=nomsi", "fail")]),
        ("pci=realloc,noaer", [("pci=noaer", "warn")]),
        ("pci=nomsix", [(OF, "pass")]),
        ("acpi=off", [("acpi=off", "fail")]),
        ("maxcpus=8", [("maxcpus=", "warn")]),
        ("memory_x=1", [(OF, "pass")]),
        ("slub_debug", [("slub_debug", "warn")]),
        ("slab_debug=FZPU", [("slab_debug=", "warn")]),
        ("noapic", [("noapic", "warn")]),
    ],
)
def test_conflicts(text: str, expected: list[tuple[str, str]]) -> None:
    assert verdicts(judge(ODD, line(text))) == expected


def test_the_last_of_two_is_named() -> None:
    (found,) = judge(ODD, line("nohz_full=2 nohz-full=4"))
    assert found.message == "is given as 2 and then 4: the last one counts"
