# SPDX-License-Identifier: Apache-2.0
"""ACS on the ports between GPUs and NICs."""

from pathlib import Path
from typing import Any

import pytest
from pcitree import BARE_METAL, GPU, GUEST, Files, function, port, switch
from trees import make_host

from gpuaudit.check import CHECKS, Expectations, Finding, NotApplicable, Verdict
from gpuaudit.engine import Facts, judged
from gpuaudit.packs import load_checks

TWO_SWITCHES = {**switch("pci0000:15", 0x15), **switch("pci0000:37", 0x37)}
GRACE: Files = {"/proc/cpuinfo": "CPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"}
ARM: Files = {"/proc/cpuinfo": "CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"}
METAL_DMI: Files = {k: v for k, v in BARE_METAL.items() if "dmi" in k}


def findings(
    folder: Path, files: Files, platform: Files = BARE_METAL, **want: str
) -> dict[str, Finding]:
    check = load_checks()["acs-redirect-off"]
    assert check is CHECKS["acs-redirect-off"]
    facts = Facts(make_host(folder, {**platform, **files}))
    values = {"redirect": "fail", "gpu_gpu_reach": "anywhere", "gpu_nic_reach": "host-bridge"}

    def given(kind: Any) -> Any:
        return kind(**{**values, **want}) if issubclass(kind, Expectations) else facts.get(kind)

    answer = check.function(*[given(kind) for kind in check.needs])
    return {f.subject: f for f in judged(answer).findings}


def replaced(files: Files, address: str, other: Files) -> Files:
    """The config space of one port taken from another tree."""
    return {k: other[k] if k.endswith(f"{address}/config") else v for k, v in files.items()}


def test_all_off_passes(tmp_path: Path) -> None:
    found = findings(tmp_path, TWO_SWITCHES)
    assert {f.verdict for f in found.values()} == {Verdict.PASS}
    assert set(found) == {
        "0000:15:01.0",
        "0000:17:00.0",
        "0000:17:01.0",
        "0000:37:01.0",
        "0000:39:00.0",
        "0000:39:01.0",
    }


@pytest.mark.parametrize(
    ("control", "verdict"),
    [
        (0x1D, Verdict.FAIL),
        (0x04, Verdict.FAIL),
        (0x08, Verdict.FAIL),
        (0x20, Verdict.FAIL),
        (0x11, Verdict.PASS),
        (0x53, Verdict.PASS),
    ],
)
def test_only_redirect_bits_count(tmp_path: Path, control: int, verdict: Verdict) -> None:
    found = findings(tmp_path, switch("pci0000:15", 0x15, acs=control))
    assert {f.verdict for f in found.values()} == {verdict}
    assert set(found) == {"0000:17:00.0", "0000:17:01.0"}


def test_one_port_names_its_pairs_and_the_cost(tmp_path: Path) -> None:
    bad = switch("pci0000:15", 0x15, acs=0x1D)
    found = findings(tmp_path, replaced(TWO_SWITCHES, "0000:17:01.0", bad))
    assert [s for s, f in found.items() if f.verdict is Verdict.FAIL] == ["0000:17:01.0"]
    port_ = found["0000:17:01.0"]
    assert port_.observed == "0x001d (SV+RR+CR+UF)"
    assert "0000:18:00.0 <-> 0000:19:00.0" in port_.message
    assert port_.cost is not None
    assert "63.0 GB/s each way" in port_.cost


def test_a_root_port_hurts_pairs_across(tmp_path: Path) -> None:
    bad = switch("pci0000:15", 0x15, acs=0x1D)
    files = replaced(TWO_SWITCHES, "0000:15:01.0", bad)
    found = findings(tmp_path / "a", files)
    assert found["0000:15:01.0"].verdict is Verdict.WARN
    near = findings(tmp_path / "b", files, gpu_gpu_reach="switch")
    assert "0000:15:01.0" not in near


def test_gpus_on_root_ports_of_their_own_only_warn(tmp_path: Path) -> None:
    """Four L40S in a plain server: the kernel sets these bits, and there is no switch."""
    roots = [f"pci0000:{bus:02x}/0000:{bus:02x}:01.0" for bus in (0x15, 0x35, 0x95, 0xB5)]
    files: Files = {}
    for place in roots:
        bus = int(place[-7:-5], 16) + 1
        files |= port(place, acs=0x1D) | function(
            f"{place}/0000:{bus:02x}:00.0", GPU, device=0x26B9
        )
    found = findings(tmp_path, files)
    assert set(found) == {place.rpartition("/")[2] for place in roots}
    assert {f.verdict for f in found.values()} == {Verdict.WARN}


def test_a_root_port_only_warns_where_nvlink_carries_that_traffic(tmp_path: Path) -> None:
    nvswitch = function("pci0000:00/0000:00:05.0", 0x068000, device=0x22A3)
    bad = switch("pci0000:15", 0x15, acs=0x1D)
    files = {**replaced(TWO_SWITCHES, "0000:15:01.0", bad), **nvswitch}
    assert findings(tmp_path / "a", files)["0000:15:01.0"].verdict is Verdict.WARN
    below = {**replaced(TWO_SWITCHES, "0000:17:00.0", bad), **nvswitch}
    assert findings(tmp_path / "b", below)["0000:17:00.0"].verdict is Verdict.FAIL


@pytest.mark.parametrize(("size", "word"), [(64, "root"), (256, "extended")])
def test_a_cut_config_space_is_unknown(tmp_path: Path, size: int, word: str) -> None:
    whole = switch("pci0000:15", 0x15)
    cut = {k: v[:size] if isinstance(v, bytes) else v for k, v in whole.items()}
    found = findings(tmp_path, cut)
    assert {f.verdict for f in found.values()} == {Verdict.UNKNOWN}
    assert word in found["0000:17:00.0"].message


def test_a_port_without_acs_cannot_redirect(tmp_path: Path) -> None:
    found = findings(tmp_path, switch("pci0000:15", 0x15, acs=None))
    assert {f.verdict for f in found.values()} == {Verdict.PASS}


def test_a_port_that_was_not_recorded_is_unknown(tmp_path: Path) -> None:
    files = {k: v for k, v in switch("pci0000:15", 0x15).items() if not k.endswith("/config")}
    assert {f.verdict for f in findings(tmp_path, files).values()} == {Verdict.UNKNOWN}


def test_guests_keep_redirection(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match="guest"):
        findings(tmp_path, switch("pci0000:15", 0x15, acs=0x1D), GUEST)


def test_hosts_of_guests_keep_redirection(tmp_path: Path) -> None:
    passed = function("pci0000:60/0000:60:00.0", GPU, driver="vfio-pci")
    with pytest.raises(NotApplicable, match="VFIO"):
        findings(tmp_path, {**switch("pci0000:15", 0x15, acs=0x1D), **passed})


def test_one_gpu_alone(tmp_path: Path) -> None:
    place = "pci0000:00/0000:00:01.0"
    with pytest.raises(NotApplicable):
        findings(tmp_path, {**port(place), **function(f"{place}/0000:01:00.0", GPU)})


def test_an_unknown_platform_only_warns(tmp_path: Path) -> None:
    found = findings(tmp_path, switch("pci0000:15", 0x15, acs=0x1D), {})
    assert {f.verdict for f in found.values()} == {Verdict.WARN}


def test_arm_only_warns(tmp_path: Path) -> None:
    found = findings(tmp_path, switch("pci0000:15", 0x15, acs=0x1D), {**METAL_DMI, **ARM})
    assert {f.verdict for f in found.values()} == {Verdict.WARN}


def test_grace_keeps_the_default(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable, match="Grace"):
        findings(tmp_path, switch("pci0000:15", 0x15, acs=0x1D), {**METAL_DMI, **GRACE})


def test_data_direct_is_unknown(tmp_path: Path) -> None:
    files = {
        k: v.replace("15B3:1021", "15B3:1023") if isinstance(v, str) else v
        for k, v in switch("pci0000:15", 0x15, acs=0x15).items()
    }
    found = findings(tmp_path, files, {**METAL_DMI, **GRACE})
    assert {f.verdict for f in found.values()} == {Verdict.UNKNOWN}
    assert "rdma_topo" in found["0000:17:00.0"].message


@pytest.mark.parametrize(
    ("device", "model", "judges"),
    [
        ("2684", "NVIDIA GeForce RTX 4090", False),
        ("2684", None, True),  # the model is not known: it may be a board for professionals
        ("1E07", "NVIDIA GeForce RTX 2080 Ti", True),  # Turing has peer-to-peer
        ("26B9", "NVIDIA L40S", True),
    ],
)
def test_what_a_geforce_cannot_do_is_not_hindered(
    tmp_path: Path, device: str, model: str | None, *, judges: bool
) -> None:
    files = switch("pci0000:15", 0x15, acs=0x1D)
    of_kind = {
        k: v.replace("10DE:2330", f"10DE:{device}") if isinstance(v, str) else v
        for k, v in files.items()
    }
    gpus = [
        k.split("/")[-2] for k, v in of_kind.items() if isinstance(v, str) and f"10DE:{device}" in v
    ]
    told: Files = {f"/proc/driver/nvidia/gpus/{g}/information": f"Model: {model}\n" for g in gpus}
    files = of_kind | (told if model else {})
    if judges:
        assert {f.verdict for f in findings(tmp_path, files).values()} == {Verdict.FAIL}
    else:
        with pytest.raises(NotApplicable, match="GeForce"):
            findings(tmp_path, files)
