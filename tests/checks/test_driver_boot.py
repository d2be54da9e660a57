# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from judging import judge, verdicts

from gpuaudit.check import NotApplicable
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpupersistence import PersistenceAtBoot
from gpuaudit.facts.kernels import DriverModules, InstalledKernels
from gpuaudit.facts.nextboot import NextKernel

KERNEL = "driver_boot/driver-next-kernel"
PERSISTENCE = "driver_boot/driver-persistence-enabled"
OLD, NEW = "6.1.0-9", "6.1.0-13"
INSTALLED = InstalledKernels(releases=(OLD, NEW), running=OLD)
UNTOLD = Absent("missing", "the boot entries disagree")
UNREAD = Absent("denied", "needs root")


def modules(old: Any, new: Any, *, dkms: bool = False) -> DriverModules:
    return DriverModules(kernels={OLD: old, NEW: new}, built_at_boot=dkms)


def following(release: Any) -> NextKernel:
    return NextKernel(release=release, source="/boot/grub/grub.cfg")


@pytest.mark.parametrize(
    ("fact", "release", "expected"),
    [
        (modules(old=True, new=True), NEW, (NEW, "pass")),
        (modules(old=True, new=False), OLD, (OLD, "pass")),
        (modules(old=True, new=False), NEW, (NEW, "fail")),
        (modules(old=True, new=False, dkms=True), NEW, (NEW, "warn")),
        (modules(old=True, new=False), UNTOLD, (NEW, "warn")),
        (modules(old=False, new=True), UNTOLD, (NEW, "pass")),
        (modules(old=True, new=UNREAD), NEW, (NEW, "unknown")),
        (modules(old=True, new=True), "6.5", ("6.5", "unknown")),
    ],
)
def test_next_kernel(fact: DriverModules, release: Any, expected: tuple[str, str]) -> None:
    assert verdicts(judge(KERNEL, fact, INSTALLED, following(release))) == [expected]


def test_a_kernel_from_outside() -> None:
    outside = following(Absent("unsupported", "no boot loader"))
    with pytest.raises(NotApplicable, match="no boot loader"):
        judge(KERNEL, modules(old=True, new=False), INSTALLED, outside)
    nothing = InstalledKernels(releases=(), running=None)
    with pytest.raises(NotApplicable, match="from outside"):
        judge(KERNEL, modules(old=True, new=False), nothing, outside)


@pytest.mark.parametrize(("releases", "expected"), [((OLD, NEW), "warn"), ((NEW,), "fail")])
def test_an_image_for_network_boot(releases: tuple[str, ...], expected: str) -> None:
    image = InstalledKernels(releases=releases, running=None)
    outside = following(Absent("unsupported", "no boot loader"))
    found = judge(KERNEL, modules(old=True, new=False), image, outside)
    assert verdicts(found) == [(NEW, expected)]


@pytest.mark.parametrize(
    ("boot", "want", "expected"),
    [
        (PersistenceAtBoot(by="/a", but=""), "required", "pass"),
        (PersistenceAtBoot(by=None, but="it is not enabled"), "required", "warn"),
        (PersistenceAtBoot(by=None, but="it is not enabled"), "any", "notapplicable"),
    ],
)
def test_persistence(boot: PersistenceAtBoot, want: str, expected: str) -> None:
    found = judge(PERSISTENCE, boot, persistence=want)
    assert verdicts(found) == [("persistence at boot", expected)]
