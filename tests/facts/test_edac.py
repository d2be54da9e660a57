# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import msgspec
import pytest
from machines import machine
from trees import make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.edac import FOLDER, memory_errors
from gpuaudit.host import NotApplicable, Unavailable


def controller(corrected: str, uncorrected: str = "0") -> dict[str, str]:
    dimm = f"{FOLDER}/mc0/dimm"
    return {
        f"{FOLDER}/mc0/ce_count": f"{corrected}\n",
        f"{FOLDER}/mc0/ue_count": f"{uncorrected}\n",
        f"{dimm}0/dimm_label": "CPU_SrcID#0_MC#0_Chan#0_DIMM#0\n",
        f"{dimm}0/dimm_ce_count": "3\n",
        f"{dimm}0/dimm_ue_count": "0\n",
        f"{dimm}1/dimm_label": "\n",
        f"{dimm}1/dimm_ce_count": "9\n",
        f"{dimm}1/dimm_ue_count": "1\n",
        f"{dimm}2/dimm_ce_count": "0\n",
        f"{FOLDER}/mc0/power/control": "auto\n",
        f"{FOLDER}/power/control": "auto\n",
    }


def test_counters_and_the_modules_with_errors(tmp_path: Path) -> None:
    found = memory_errors(make_host(tmp_path, controller("12", "1")), machine())
    assert found.counters() == {"mc0": {"ce-count": 12, "ue-count": 1}}
    assert found.controllers[0].modules == ("dimm1: 10", "CPU_SrcID#0_MC#0_Chan#0_DIMM#0: 3")


def test_modules_are_left_alone_without_errors(tmp_path: Path) -> None:
    host = make_host(tmp_path, controller("0"))
    assert memory_errors(host, machine()).controllers[0].modules == ()
    assert not [path for path in host.evidence.files if "dimm" in path]


def test_a_garbled_count(tmp_path: Path) -> None:
    found = memory_errors(make_host(tmp_path, controller("many")), machine())
    assert isinstance(found.controllers[0].corrected, Absent)
    assert found.counters() == {"mc0": {"ue-count": 0}}


@pytest.mark.parametrize(
    ("vendor", "advice"),
    [
        ("GenuineIntel", "i10nm_edac"),
        ("AuthenticAMD", "amd64_edac"),
        ("?", "management controller"),
    ],
)
@pytest.mark.parametrize("tree", [{}, {f"{FOLDER}/power/control": "auto"}])
def test_no_driver(tmp_path: Path, tree: dict[str, str], vendor: str, advice: str) -> None:
    cpuinfo = {"/proc/cpuinfo": f"processor\t: 0\nvendor_id\t: {vendor}\n"}
    with pytest.raises(Unavailable, match=advice):
        memory_errors(make_host(tmp_path, tree | cpuinfo), machine())


def test_a_guest(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match="guest"):
        memory_errors(make_host(tmp_path, {}), machine("kvm"))


@pytest.mark.parametrize("source", ["plain", "image"])
def test_not_recorded_and_image(tmp_path: Path, source: Any) -> None:
    wanted = NotApplicable if source == "image" else Unavailable
    with pytest.raises(wanted):
        memory_errors(make_host(tmp_path, {}, source=source), machine())


def test_arm_servers(tmp_path: Path) -> None:
    arm = msgspec.structs.replace(machine(), architecture="aarch64")
    with pytest.raises(NotApplicable, match="Grace"):
        memory_errors(make_host(tmp_path, {}), arm)
