# SPDX-License-Identifier: Apache-2.0
"""gpuaudit explain generation."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from fakenode import healthy_node
from fakenode.breaking import write
from fakenode.layout import gpu_addresses
from trees import write_tree

from gpuaudit.cli import cli


def explain(*words: str) -> Result:
    return CliRunner().invoke(cli, ["explain", "generation", *words])


@pytest.fixture
def recording(tmp_path: Path) -> str:
    return str(healthy_node().write(tmp_path / "node"))


def test_the_levers_of_a_recorded_node(recording: str) -> None:
    told = explain("--snapshot", recording)
    assert told.exit_code == 0
    lines = told.output.splitlines()
    assert lines[0] == "8 x NVIDIA H100 80GB HBM3 (Hopper, 9.0)"
    assert "  FP8 on tensor cores     yes" in lines
    assert "  FP4 on tensor cores     no        Hopper GPUs have no FP4 on tensor cores" in lines
    assert "do not apply" not in told.output


def test_the_same_as_data(recording: str) -> None:
    told = json.loads(explain("--snapshot", recording, "--format", "json").output)
    assert [gpu["generation"] for gpu in told["gpus"]] == ["Hopper"] * 8
    levers = told["gpus"][0]["levers"]
    assert levers["fp4"]["there"] is False
    assert levers["gpudirect-rdma"]["there"] is True
    assert levers["mig"]["source"].startswith("https://")
    assert told["not_applicable"] == {}


def test_checks_about_a_lever_that_no_gpu_has(tmp_path: Path) -> None:
    node = healthy_node()
    for address in gpu_addresses():
        path = f"/proc/driver/nvidia/gpus/{address}/information"
        write(node, path, "Model: \t NVIDIA GeForce RTX 4090")
    told = explain("--root", str(node.write(tmp_path / "node")))
    assert "driver-gpudirect-rdma: GeForce GPUs do not support GPUDirect RDMA" in told.output


def test_what_it_refuses(tmp_path: Path, recording: str) -> None:
    empty = tmp_path / "empty"
    write_tree(empty, {"/sys/bus/pci/devices/.keep": "", "/proc/cpuinfo": ""})
    assert explain("--snapshot", str(empty)).exit_code == 3
    both = explain("--snapshot", recording, "--root", recording)
    assert both.exit_code == 2
    stray = CliRunner().invoke(cli, ["explain", "mps-daemon", "--snapshot", recording])
    assert stray.exit_code == 2
