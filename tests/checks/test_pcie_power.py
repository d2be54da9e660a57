# SPDX-License-Identifier: Apache-2.0
"""Links and devices that may sleep."""

from pathlib import Path

import pytest
from judging import judge
from machines import machine
from pcitree import GUEST, Files
from pciwords import GPU_AT, NIC_AT, OVER_GPU, ROOT, TREE, UP, attribute, findings, words
from pciwords import verdicts as by_subject

from gpuaudit.check import NotApplicable
from gpuaudit.facts.base import Absent
from gpuaudit.facts.cmdline import BootLine, CommandLine
from gpuaudit.facts.pcipower import AspmPolicy

LINKS, POLICY = "pcie_power/pcie-aspm-off", "pcie_power/pcie-aspm-policy"
SLEEP = "pcie_power/pcie-runtime-pm"
L0S, L1 = 1, 2
WAKES_IN_16_US = 4 << 15 | 0x105


def asleep(upper: int, lower: int) -> Files:
    files = words(TREE, ROOT, link_control=upper, link_capability=WAKES_IN_16_US)
    return words(files, UP, link_control=lower, link_capability=WAKES_IN_16_US)


def test_links_that_stay_awake(tmp_path: Path) -> None:
    assert by_subject(findings(LINKS, tmp_path, TREE)) == {GPU_AT: "pass", NIC_AT: "pass"}


@pytest.mark.parametrize(
    ("upper", "lower", "states"),
    [(L1, L1, "L1"), (L0S, 0, "L0s"), (L1 | L0S, L1, "L0s and L1")],
)
def test_a_link_that_may_sleep(tmp_path: Path, upper: int, lower: int, states: str) -> None:
    found = findings(LINKS, tmp_path, asleep(upper, lower))
    assert by_subject(found) == {GPU_AT: "warn", NIC_AT: "warn"}
    assert f"{ROOT} -> {UP} {states}" in found[GPU_AT].message
    assert found[GPU_AT].cost == ("up to 16 us for the links to wake" if "L1" in states else None)


@pytest.mark.parametrize(("upper", "lower"), [(L1, 0), (0, L1)])
def test_l1_at_one_end_does_nothing(tmp_path: Path, upper: int, lower: int) -> None:
    found = findings(LINKS, tmp_path, asleep(upper, lower))
    assert by_subject(found) == {GPU_AT: "pass", NIC_AT: "pass"}


def test_links_without_root_in_guests_and_accepted(tmp_path: Path) -> None:
    cut: Files = {k: v[:64] if isinstance(v, bytes) else v for k, v in TREE.items()}
    found = findings(LINKS, tmp_path / "a", cut)
    assert by_subject(found) == {GPU_AT: "unknown", NIC_AT: "unknown"}
    with pytest.raises(NotApplicable):
        findings(LINKS, tmp_path / "b", TREE, GUEST)
    with pytest.raises(NotApplicable, match="accepts"):
        findings(LINKS, tmp_path / "c", asleep(L1, L1), aspm_on="accept")


def line(*words_: str) -> CommandLine:
    return CommandLine(lines=(BootLine(words=words_, file="/proc/cmdline"),))


def policy(now: str | Absent | None, *words_: str) -> str:
    (found,) = judge(POLICY, AspmPolicy(now=now), line(*words_), machine())
    return found.verdict.value


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        ("default", "pass"),
        ("performance", "pass"),
        ("powersave", "warn"),
        ("powersupersave", "warn"),
        (Absent("unsupported", "no ASPM"), "notapplicable"),
        (Absent("missing", "not recorded"), "unknown"),
    ],
)
def test_the_policy_of_the_kernel(now: str | Absent, verdict: str) -> None:
    assert policy(now) == verdict


def test_what_the_boot_entries_of_an_image_say() -> None:
    assert policy(None, "pcie_aspm.policy=powersave") == "warn"
    assert policy(None, "pcie_aspm.policy=performance") == "pass"
    with pytest.raises(NotApplicable):
        policy(None, "quiet")


def test_aspm_by_force_and_in_a_guest() -> None:
    assert policy("default", "pcie_aspm=force") == "warn"
    assert policy("default", "pcie_aspm=off") == "pass"
    with pytest.raises(NotApplicable):
        judge(POLICY, AspmPolicy(now="powersave"), line(), machine("kvm"))


def drowsy(address: str, status: str, rtd3: str | None = None) -> Files:
    files = attribute(TREE, address, power__control="auto\n", power__runtime_status=f"{status}\n")
    if rtd3 is None:
        return files
    text = f"Runtime D3 status:          {rtd3}\nVideo Memory:               Active\n"
    return {**files, f"/proc/driver/nvidia/gpus/{address}/power": text}


def test_devices_kept_awake(tmp_path: Path) -> None:
    assert by_subject(findings(SLEEP, tmp_path, TREE)) == {GPU_AT: "pass", NIC_AT: "pass"}


@pytest.mark.parametrize(
    ("status", "rtd3", "verdict"),
    [
        ("active", "Disabled by default", "pass"),
        ("active", "Not supported", "pass"),
        ("active", "Enabled (fine-grained)", "warn"),
        ("active", "?", "unknown"),
        ("active", None, "unknown"),
        ("suspended", "Enabled (fine-grained)", "warn"),
        ("suspending", None, "warn"),
    ],
)
def test_a_gpu_that_may_sleep(tmp_path: Path, status: str, rtd3: str | None, verdict: str) -> None:
    found = findings(SLEEP, tmp_path, drowsy(GPU_AT, status, rtd3))
    assert by_subject(found) == {GPU_AT: verdict, NIC_AT: "pass"}


@pytest.mark.parametrize(("status", "verdict"), [("active", "pass"), ("suspended", "warn")])
def test_a_nic_that_may_sleep(tmp_path: Path, status: str, verdict: str) -> None:
    found = findings(SLEEP, tmp_path, drowsy(NIC_AT, status))
    assert by_subject(found) == {GPU_AT: "pass", NIC_AT: verdict}


def test_a_gpu_handed_to_guests(tmp_path: Path) -> None:
    files: Files = {
        k: v.replace("DRIVER=nvidia", "DRIVER=vfio-pci") if isinstance(v, str) else v
        for k, v in drowsy(GPU_AT, "suspended").items()
    }
    found = findings(SLEEP, tmp_path, files)
    assert by_subject(found) == {GPU_AT: "notapplicable", NIC_AT: "pass"}


def test_ports_may_be_left_to_the_kernel(tmp_path: Path) -> None:
    files = attribute(TREE, OVER_GPU, power__control="auto\n", power__runtime_status="suspended\n")
    assert by_subject(findings(SLEEP, tmp_path, files)) == {GPU_AT: "pass", NIC_AT: "pass"}


def test_what_was_not_recorded(tmp_path: Path) -> None:
    bare = {k: v for k, v in TREE.items() if not k.endswith("power/control")}
    found = findings(SLEEP, tmp_path / "a", bare)
    assert by_subject(found) == {GPU_AT: "unknown", NIC_AT: "unknown"}
    halfway = attribute(TREE, GPU_AT, power__control="auto\n")
    assert by_subject(findings(SLEEP, tmp_path / "b", halfway))[GPU_AT] == "unknown"
