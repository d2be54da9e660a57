# SPDX-License-Identifier: Apache-2.0
"""What fstab asks for, and whether it is there."""

from typing import Any

import pytest
from judging import judge, verdicts
from machines import machine
from msgspec.structs import replace
from netfacts import mount

from gpuaudit.check import NotApplicable
from gpuaudit.facts.fstab import Line
from gpuaudit.facts.mounts import ConfiguredMounts, Mounts

ROOT = mount("/", "ext4")


def line(folder: str, kind: str = "xfs", options: str = "defaults") -> Line:
    return Line("/dev/x", folder, kind, tuple(options.split(",")), "/etc/fstab:2")


def present(lines: tuple[Line, ...], *mounts: Any, container: bool = False, **want: Any) -> Any:
    facts = (
        ConfiguredMounts(lines=lines),
        Mounts(mounts=mounts),
        replace(machine(), container=container),
    )
    return verdicts(judge("storage_fstab/storage-mounts-present", *facts, **want))


@pytest.mark.parametrize(
    ("lines", "mounted", "verdict"),
    [
        (line("/data"), mount("/data", "xfs"), "pass"),
        (line("/data"), mount("/other", "xfs"), "fail"),
        (line("/data", options="defaults,nofail"), ROOT, "warn"),
        (line("/data"), mount("/data", "xfs", "ro"), "pass"),
        (line("/data"), mount("/data", "ext4", inside="ro"), "fail"),
        (line("/data", options="ro"), mount("/data", "xfs", "ro", "ro"), "pass"),
        (line("/data", "nfs"), mount("/data", "autofs"), "warn"),
    ],
)
def test_lines_of_fstab(lines: Line, mounted: Any, verdict: str) -> None:
    assert present((lines,), mounted) == [("/data", verdict)]


def test_a_folder_that_is_a_link_is_mounted_where_it_leads() -> None:
    facts = (
        ConfiguredMounts(lines=(line("/data"),), links={"/data": "/srv/data"}),
        Mounts(mounts=(ROOT, mount("/srv/data", "xfs"))),
        machine(),
    )
    assert verdicts(judge("storage_fstab/storage-mounts-present", *facts)) == [("/data", "pass")]


@pytest.mark.parametrize(
    "one",
    [
        line("none", "swap"),
        line("/data", options="noauto"),
        line("/data", "none", "bind"),
        line("/data", options="nofail,comment=cloudconfig"),
        line("/data", options="x-systemd.automount"),
    ],
)
def test_lines_that_ask_for_nothing(one: Line) -> None:
    with pytest.raises(NotApplicable):
        present((one,), ROOT)


def test_folders_of_the_policy() -> None:
    want: dict[str, Any] = {"required_mounts": ["/", "/scratch"]}
    assert present((), ROOT, **want) == [("/", "pass"), ("/scratch", "fail")]


def test_a_containers_fstab_is_nobodys() -> None:
    with pytest.raises(NotApplicable):
        present((line("/data"),), ROOT, container=True)
    found = present((line("/data"),), ROOT, container=True, required_mounts=["/data"])
    assert found == [("/data", "fail")]


def options(*lines: Line, container: bool = False) -> Any:
    facts = ConfiguredMounts(lines=lines), replace(machine(), container=container)
    return verdicts(judge("storage_fstab/storage-fstab-options", *facts))


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("defaults", "pass"),
        ("noatime,nofail", "pass"),
        ("defaults,sync", "warn"),
        ("dirsync", "warn"),
        ("rw,strictatime", "warn"),
        ("async", "pass"),
    ],
)
def test_options_of_lines(text: str, verdict: str) -> None:
    assert options(line("/data", options=text)) == [("/data", verdict)]


@pytest.mark.parametrize(
    "one",
    [
        line("none", "swap", "sync"),
        line("/boot/efi", "vfat", "sync"),
        line("/x", options="ro,sync"),
    ],
    ids=["swap", "boot", "read-only"],
)
def test_lines_that_no_job_writes_to(one: Line) -> None:
    with pytest.raises(NotApplicable):
        options(one)


def test_options_in_a_container() -> None:
    with pytest.raises(NotApplicable):
        options(line("/data", options="sync"), container=True)
