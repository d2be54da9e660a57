# SPDX-License-Identifier: Apache-2.0
"""Real nodes, recorded: what is known of them comes out, and nothing else is found wrong."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gpuaudit.cli import cli
from gpuaudit.host import Host

NODES = Path(__file__).with_name("nodes")
ALL = ("h200-x1-idle", "h200-x8-idle", "h200-x8-idle-as-user", "h200-x8-busy")
EIGHT = ALL[1:]
EXPECTED = yaml.safe_load((NODES / "expected.yaml").read_text())
"""Recording -> check -> verdict, and why it is right."""


def run(*arguments: str) -> Any:
    done = CliRunner().invoke(cli, [*arguments, "--format", "json"])
    assert done.exit_code in {0, 1}, done.output
    return json.loads(done.stdout)


def path(name: str) -> str:
    return str(NODES / f"{name}.tar.gz")


@cache
def report(name: str) -> Any:
    return run("run", "--snapshot", path(name), "--profile", "bringup")


def verdicts(name: str) -> dict[str, str]:
    return {r["check"]: r["verdict"] for r in report(name)["results"]}


def observed(name: str, check: str) -> set[str | None]:
    (result,) = (r for r in report(name)["results"] if r["check"] == check)
    return {finding.get("observed") for finding in result["findings"]}


def test_every_recording_is_named_here() -> None:
    assert {one.name for one in NODES.glob("*.tar.gz")} == {f"{name}.tar.gz" for name in ALL}


def expected(name: str) -> dict[str, str]:
    rows = {**EXPECTED["everywhere"], **EXPECTED[name]}
    assert all(row["why"].endswith(".") for row in rows.values())
    return {check: row["verdict"] for check, row in rows.items()}


@pytest.mark.parametrize("name", ALL)
def test_nothing_else_is_wrong(name: str) -> None:
    good = {"pass", "notapplicable"}
    assert {c: v for c, v in verdicts(name).items() if v not in good} == expected(name)


@pytest.mark.parametrize("name", ALL)
def test_the_node_is_named(name: str) -> None:
    node = report(name)["node"]
    assert (node["virtualization"], node["driver"], node["sku"]) == ("kvm", "580.159.04", "h200")
    assert node["gpus"] == ["NVIDIA H200"] * (1 if name == ALL[0] else 8)
    assert node["numa_nodes"] == [0]


@pytest.mark.parametrize("name", EIGHT)
def test_what_nvml_said_of_eight_gpus(name: str) -> None:
    assert observed(name, "gpu-count") == {"8"}
    assert observed(name, "fabric-state") == {"completed"}
    assert observed(name, "gpu-vbios-alike") == {"96.00.A5.00.1A"}
    assert observed(name, "gpu-memory-alike") == {"143771 MiB"}
    assert observed(name, "pcie-link-speed") >= {"32 GT/s"}
    assert observed(name, "power-limit-default") == {"700 W"}


def test_a_gpu_without_nvlink_has_no_fabric() -> None:
    assert verdicts(ALL[0])["fabric-state"] == "notapplicable"


def test_root_and_user_see_the_same_but_for_the_kernel_log() -> None:
    root, user = verdicts("h200-x8-idle"), verdicts("h200-x8-idle-as-user")
    differing = {check for check in root if root[check] != user[check]}
    assert differing == {c for c, v in expected("h200-x8-idle-as-user").items() if v == "unknown"}


def test_gpus_at_their_power_limit_are_well() -> None:
    assert observed("h200-x8-busy", "clocks-throttle-reasons") == {"power cap"}
    assert verdicts("h200-x8-busy")["clocks-locked"] == "notapplicable"
    assert observed("h200-x8-idle", "clocks-throttle-reasons") == {"idle"}


@pytest.mark.parametrize("name", ALL)
def test_the_topology_shows_every_link(name: str) -> None:
    shown = run("topology", "--snapshot", path(name))
    gpus = [device for device in shown["devices"] if device["role"] == "gpu"]
    assert len(gpus) == len(report(name)["node"]["gpus"])
    assert {(g["own_link"]["now"]["generation"], g["own_link"]["now"]["width"]) for g in gpus} == {
        (5, 16)
    }
    assert {gpu["cpu_node"] for gpu in gpus} == {0}
    assert {pair["path"] for pair in shown["pairs"]} == {"PHB"}
    assert all(pair["doubt"] for pair in shown["pairs"])


def test_a_policy_drafted_from_a_node_is_kept_by_it(tmp_path: Path) -> None:
    drafted = CliRunner().invoke(cli, ["policy", "from", path("h200-x8-idle")])
    assert drafted.exit_code == 0
    (tmp_path / "h200.yaml").write_text(drafted.stdout)
    policy = ("--policy", str(tmp_path / "h200.yaml"))
    found = run("run", "--snapshot", path("h200-x8-busy"), "--profile", "bringup", *policy)
    wrong = {r["check"] for r in found["results"] if r["verdict"] in {"fail", "warn", "unknown"}}
    assert wrong == set(expected("h200-x8-busy"))


@pytest.mark.parametrize("name", ALL)
def test_who_recorded_it(name: str) -> None:
    assert Host.snapshot(path(name)).is_root() is (name != "h200-x8-idle-as-user")
