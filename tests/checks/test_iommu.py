# SPDX-License-Identifier: Apache-2.0
"""IOMMU mode by group type."""

from pathlib import Path
from typing import Any

import pytest
from pcitree import BARE_METAL, GPU, GUEST, Files, function, port
from trees import Link, make_host

from gpuaudit.check import Expectations, Finding, NotApplicable, Verdict
from gpuaudit.engine import Facts, judged
from gpuaudit.packs import load_checks

PLACE = "pci0000:00/0000:00:01.0/0000:01:00.0"
AT = "0000:01:00.0"
ARM: Files = {
    "/proc/cpuinfo": "CPU implementer\t: 0x41\n",
    "/sys/class/dmi/id/sys_vendor": "Example\n",
    "/sys/class/dmi/id/product_name": "EX-100\n",
}


def finding(
    folder: Path,
    kind: str | None,
    platform: Files = BARE_METAL,
    *,
    driver: str = "nvidia",
    otherwise: str = "fail",
) -> Finding:
    files: Files = {
        **platform,
        **port("pci0000:00/0000:00:01.0"),
        **function(PLACE, GPU, driver=driver),
    }
    if kind is not None:
        files[f"/sys/devices/{PLACE}/iommu_group"] = Link("../../../../kernel/iommu_groups/3")
        files["/sys/kernel/iommu_groups/3/devices/.keep"] = ""
    if kind:
        files["/sys/kernel/iommu_groups/3/type"] = f"{kind}\n"
    check = load_checks()["iommu-mode"]
    facts = Facts(make_host(folder, files))

    def given(need: Any) -> Any:
        if issubclass(need, Expectations):
            return need(accepted=("identity", "none"), otherwise=otherwise)
        return facts.get(need)

    (found,) = judged(check.function(*[given(need) for need in check.needs])).findings
    return found


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        ("identity", Verdict.PASS),
        (None, Verdict.PASS),
        ("DMA", Verdict.FAIL),
        ("unknown", Verdict.UNKNOWN),
        ("DMA-FQ", Verdict.FAIL),
        ("blocked", Verdict.FAIL),
        ("", Verdict.UNKNOWN),
    ],
)
def test_bare_metal(tmp_path: Path, kind: str | None, verdict: Verdict) -> None:
    found = finding(tmp_path, kind)
    assert (found.subject, found.verdict) == (AT, verdict)


def test_the_cost_is_what_the_link_carries(tmp_path: Path) -> None:
    found = finding(tmp_path, "DMA-FQ")
    assert found.cost is not None
    assert "63.0 GB/s" in found.cost
    assert found.observed == "DMA-FQ"


def test_the_policy_may_only_warn(tmp_path: Path) -> None:
    assert finding(tmp_path, "DMA-FQ", otherwise="warn").verdict is Verdict.WARN


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [("identity", Verdict.PASS), ("DMA", Verdict.WARN), (None, Verdict.WARN)],
)
def test_arm_needs_its_smmu(tmp_path: Path, kind: str | None, verdict: Verdict) -> None:
    assert finding(tmp_path, kind, ARM).verdict is verdict


def test_an_unknown_platform_only_warns(tmp_path: Path) -> None:
    assert finding(tmp_path, "DMA", {}).verdict is Verdict.WARN


def test_guests_are_not_judged(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        finding(tmp_path, "DMA", GUEST)


def test_hosts_of_guests_are_not_judged(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        finding(tmp_path, "DMA", driver="vfio-pci")


def test_nothing_on_the_bus(tmp_path: Path) -> None:
    check = load_checks()["iommu-mode"]
    facts = Facts(make_host(tmp_path, {**BARE_METAL, "/sys/bus/pci/devices": None}))
    needs = [k for k in check.needs if not issubclass(k, Expectations)]
    with pytest.raises(NotApplicable):
        judged(check.function(*[facts.get(k) for k in needs], None))
