# SPDX-License-Identifier: Apache-2.0
"""Which levers each generation has."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from gpufacts import scan
from trees import make_host

from gpuaudit.facts.generation import (
    FAMILIES,
    NAMES,
    SOURCES,
    Generation,
    GpuKind,
    chip,
    generation,
    lever,
)
from gpuaudit.host import NotApplicable, Unavailable


@pytest.mark.parametrize(
    ("device", "name", "expected"),
    [
        ("1db4", "Volta", "GV100"),
        ("1eb8", "T4", "TU10x"),
        ("2237", "A10G", "GA10x"),
        ("20b0", "A100", "GA100"),
        ("2204", "RTX 3090", "GA10x"),
        ("25b6", "A2", "GA10x"),
        ("26b9", "L40S", "AD10x"),
        ("27b8", "L4", "AD10x"),
        ("2330", "H100", "GH100"),
        ("2342", "GH200", "GH100"),
        ("2901", "B200", "GB100"),
        ("2941", "GB200", "GB100"),
        ("3182", "B300", "GB110"),
        ("2b85", "RTX 5090", "GB20x"),
        ("2bb5", "RTX PRO 6000", "GB20x"),
        ("2e12", "GB10", "GB10"),
        ("ffff", "unknown", None),
    ],
)
def test_chips(device: str, name: str, expected: str | None) -> None:
    assert chip(f"10de:{device}") == expected, name
    assert chip(f"1002:{device}") is None


def gpu(device: str, model: str | None = None) -> GpuKind:
    return GpuKind("0000:19:00.0", f"10de:{device}", model, chip(f"10de:{device}"))


@pytest.mark.parametrize(
    ("device", "model", "name", "there"),
    [
        ("1db4", None, "bf16", False),
        ("20b0", "NVIDIA A100-SXM4-40GB", "tf32", True),
        ("20b0", "NVIDIA A100-SXM4-40GB", "fp8", False),
        ("20b0", "NVIDIA A100-SXM4-40GB", "nvlink", True),
        ("20f1", "NVIDIA A100-PCIE-40GB", "nvlink", None),
        ("2329", "NVIDIA H20", "nvlink", True),
        ("2335", "NVIDIA H200", "fp8", True),
        ("2335", "NVIDIA H200", "fp4", False),
        ("2335", "NVIDIA H200", "nvls", None),
        ("26b9", "NVIDIA L40S", "nvlink", False),
        ("26b9", "NVIDIA L40S", "gpudirect-rdma", True),
        ("2684", "NVIDIA GeForce RTX 4090", "gpudirect-rdma", False),
        ("2684", "NVIDIA GeForce RTX 4090", "pcie-p2p", False),
        ("1e04", "NVIDIA GeForce RTX 2080 Ti", "pcie-p2p", None),
        ("2901", "NVIDIA B200", "fp4", True),
        ("2bb5", "NVIDIA RTX PRO 6000", "mig", None),
        ("2b85", "NVIDIA GeForce RTX 5090", "mig", False),
        ("2e12", "NVIDIA GB10", "gpudirect-rdma", False),
        ("ffff", None, "fp8", None),
        ("ffff", "NVIDIA GeForce RTX 9090", "gpudirect-rdma", False),
    ],
)
def test_levers(device: str, model: str | None, name: str, there: bool | None) -> None:
    found = lever(gpu(device, model), name)
    assert found.there is there
    assert found.why


def test_every_lever_has_a_name_and_a_source() -> None:
    known = set().union(*(f.levers | f.varies for f in FAMILIES.values()))
    assert known <= set(NAMES)
    assert set(NAMES) == set(SOURCES)
    assert all(source.startswith("https://") for source in SOURCES.values())


def test_a_node_lacks_what_none_of_its_gpus_has() -> None:
    l40s, h200, odd = gpu("26b9"), gpu("2335"), gpu("ffff")
    assert Generation(gpus=(l40s,)).lacks("nvlink") == "Ada Lovelace GPUs have no NVLink"
    assert Generation(gpus=(l40s, h200)).lacks("nvlink") is None
    assert Generation(gpus=(l40s, odd)).lacks("nvlink") is None
    assert Generation(gpus=()).lacks("nvlink") is None


def test_the_probe(tmp_path: Path) -> None:
    information = "/proc/driver/nvidia/gpus/0000:19:00.0/information"
    host = make_host(tmp_path, {information: "Model: \t NVIDIA GeForce RTX 4090\n"})
    found = generation(host, scan(["0000:19:00.0", "0000:3b:00.0"]))
    assert [one.model for one in found.gpus] == ["NVIDIA GeForce RTX 4090", None]
    assert found.any_geforce
    assert "Hopper" in found.gpus[1].title


@pytest.mark.parametrize(
    ("changes", "error"), [({"image": True}, NotApplicable), ({"functions": None}, Unavailable)]
)
def test_where_there_is_no_bus(tmp_path: Path, changes: Any, error: type[Exception]) -> None:
    bus = msgspec.structs.replace(scan(["0000:19:00.0"]), **changes)
    with pytest.raises(error):
        generation(make_host(tmp_path, {}), bus)
