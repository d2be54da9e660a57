# SPDX-License-Identifier: Apache-2.0
"""Bare copies of /sys/class/infiniband, as other people's machines give them."""

import tarfile
from pathlib import Path

import pytest
from trees import Tree, write_tree

from gpuaudit import audit
from gpuaudit.host import Host
from gpuaudit.report import Result

UP = {"state": "4: ACTIVE", "phys_state": "5: LinkUp"}
IB, ETHERNET = {"link_layer": "InfiniBand"}, {"link_layer": "Ethernet"}
ZERO = ":".join(["0000"] * 8)
DRIVERS: dict[str, dict[str, str]] = {
    "mlx4_0": {
        "fw_ver": "2.42.5000",
        "board_id": "MT_1090120019",
        "hca_type": "MT4099",
        **{f"ports/1/{k}": v for k, v in {**UP, **IB, "rate": "56 Gb/sec (4X FDR)"}.items()},
        "ports/2/state": "1: DOWN",
        "ports/2/phys_state": "2: Polling",
        "ports/2/rate": "10 Gb/sec (4X)",
        "ports/2/link_layer": "InfiniBand",
        "ports/1/counters/symbol_error": "0",
        "ports/1/counters/link_downed": "1",
    },
    "hfi1_0": {
        "fw_ver": "1.27.0",
        "board_id": "Intel Omni-Path HFI Silicon 100 Series [integrated]",
        **{f"ports/1/{k}": v for k, v in {**UP, **IB, "rate": "100 Gb/sec (4X EDR)"}.items()},
        "ports/1/hw_counters/lifespan": "10",
        "ports/1/hw_counters/RcvPkt": "12",
    },
    "bnxt_re0": {
        "fw_ver": "229.0.142.0",
        "hca_type": "Broadcom NetXtreme-C/E RoCE Driver",
        **{f"ports/1/{k}": v for k, v in {**UP, **ETHERNET, "rate": "200 Gb/sec (4X HDR)"}.items()},
        "ports/1/gids/0": "fe80:0000:0000:0000:0000:00ff:fe00:0001",
        "ports/1/gids/1": ZERO,
        "ports/1/gid_attrs/types/0": "IB/RoCE v1",
        "ports/1/hw_counters/to_retransmits": "0",
    },
    "irdma0": {
        "fw_ver": "1.71",
        "node_type": "1: CA",
        **{f"ports/1/{k}": v for k, v in {**UP, **ETHERNET, "rate": "100 Gb/sec (4X EDR)"}.items()},
        "ports/1/hw_counters/rxVlanErrors": "0",
    },
    "rdmap0s6": {
        "fw_ver": "0.0.0.0",  # noqa: S104 - what EFA says, no address
        "node_type": "7: <unknown>",
        "hw_counters/lifespan": "10",
        **{f"ports/1/{k}": v for k, v in {**UP, "rate": "100 Gb/sec (4X EDR)"}.items()},
        "ports/1/link_layer": "Unknown",
        "ports/1/hw_counters/retrans_timeout_events": "0",
    },
    "qib0": {
        "board_id": "InfiniPath_QLE7340",
        "hca_type": "InfiniPath_QLE7340",
        **{f"ports/1/{k}": v for k, v in {**UP, **IB, "rate": "40 Gb/sec (4X QDR)"}.items()},
        "ports/1/counters/symbol_error": "0",
    },
    "rxe0": {
        "fw_ver": "",
        "parent": "eth0",
        **{f"ports/1/{k}": v for k, v in {**UP, **ETHERNET, "rate": "2.5 Gb/sec (1X SDR)"}.items()},
    },
    "siw0": {
        "node_type": "4: RNIC",
        **{f"ports/1/{k}": v for k, v in {**UP, **ETHERNET, "rate": "2.5 Gb/sec (1X)"}.items()},
    },
    "vmw_pvrdma0": {
        "hca_type": "VMW_PVRDMA-1.0.1.0-k",
        "fw_ver": "0.0.0",
        "board_id": "0",
        **{f"ports/1/{k}": v for k, v in {**UP, **ETHERNET, "rate": "2.5 Gb/sec (1X SDR)"}.items()},
    },
}
HCA = {
    "fw_ver": "28.41.1000",
    "board_id": "MT_0000000838",
    "hca_type": "MT4129",
    **{f"ports/1/{k}": v for k, v in {**UP, **IB, "rate": "400 Gb/sec (4X NDR)"}.items()},
    "ports/1/counters/symbol_error": "0",
    "ports/1/counters/link_downed": "0",
    "ports/1/hw_counters/local_ack_timeout_err": "0",
}
RAILS = {f"mlx5_{number}": HCA for number in range(8)}


def audited(
    folder: Path, devices: dict[str, dict[str, str]], prefix: str = ""
) -> dict[str, Result]:
    tree: Tree = {
        f"/{prefix}{name}/{file}": f"{text}\n"
        for name, files in devices.items()
        for file, text in files.items()
    }
    write_tree(folder / "copy", tree)
    path = folder / "copy.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(folder / "copy", ".")
    request = audit.Request(profile="bringup", select=("rdma-*", "driver-gpudirect-rdma"))
    results = audit.run(Host.snapshot(str(path)), request).report.results
    return {result.check: result for result in results}


def told(results: dict[str, Result], check: str) -> dict[str, str]:
    return {f.subject: f.verdict.value for f in results[check].findings}


@pytest.mark.parametrize("prefix", ["", "node7/", "sys/class/infiniband/", "class/infiniband/"])
@pytest.mark.parametrize("name", DRIVERS)
def test_every_driver_is_understood_and_none_fails(tmp_path: Path, name: str, prefix: str) -> None:
    results = audited(tmp_path, {name: DRIVERS[name]}, prefix)
    assert [r for r in results.values() if r.verdict.value in {"fail", "error", "warn"}] == []
    if name in {"rxe0", "siw0"}:
        assert results["rdma-port-state"].verdict.value == "notapplicable"
    else:
        assert told(results, "rdma-port-state")[f"{name} port 1"] == "pass"


def test_all_drivers_together(tmp_path: Path) -> None:
    results = audited(tmp_path, DRIVERS)
    assert [r for r in results.values() if r.verdict.value in {"fail", "error", "warn"}] == []
    assert told(results, "rdma-port-width") == dict.fromkeys(
        ["hfi1_0 port 1", "mlx4_0 port 1", "qib0 port 1"], "pass"
    )


def test_eight_rails(tmp_path: Path) -> None:
    results = audited(tmp_path, RAILS)
    assert set(told(results, "rdma-port-rate").values()) == {"pass"}
    assert results["rdma-rail-pairing"].verdict.value == "unknown"
    assert results["rdma-device-files"].verdict.value == "unknown"


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"ports/1/counters/link_downed": "255"}, {"rdma-link-downs": "unknown"}),
        ({"ports/1/rate": "200 Gb/sec (2X NDR)"}, {"rdma-port-rate": "fail"}),
        (
            {"ports/1/rate": "100 Gb/sec (1X NDR)"},
            {"rdma-port-rate": "fail", "rdma-port-width": "fail"},
        ),
        ({"ports/1/phys_state": "2: Polling"}, {}),
        ({"fw_ver": "28.39.1002"}, {"rdma-firmware-alike": "warn"}),
        ({"ports/1/state": "2: INIT"}, {"rdma-port-state": "fail"}),
        (
            {"ports/1/state": "1: DOWN", "ports/1/phys_state": "2: Polling"},
            {"rdma-port-state": "fail"},
        ),
        ({"ports/1/state": "garbage"}, {"rdma-port-state": "unknown"}),
    ],
)
def test_one_odd_rail(tmp_path: Path, change: dict[str, str], wanted: dict[str, str]) -> None:
    before = audited(tmp_path / "1", RAILS)
    after = audited(tmp_path / "2", {**RAILS, "mlx5_1": {**HCA, **change}})
    changed = {c: r.verdict.value for c, r in after.items() if r.verdict != before[c].verdict}
    assert changed == wanted
