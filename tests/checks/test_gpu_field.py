# SPDX-License-Identifier: Apache-2.0
"""Situations of the field in which a check once lied."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakenode import FakeNode, breaking, healthy_node
from fakenode.layout import gpu_addresses
from fakenode.pci import path_of
from gpufacts import (
    FAILED,
    POLICIES,
    UNSUPPORTED,
    changed,
    function,
    gpus,
    only,
    policy,
    scan,
    section,
    silent,
    verdicts,
)
from trees import Link, make_host

from gpuaudit.check import CHECKS
from gpuaudit.engine import Facts, judge
from gpuaudit.facts.driver import DriverLibraries, KernelDriver, Nouveau
from gpuaudit.facts.fabric import ELSEWHERE, FabricUnit
from gpuaudit.facts.gpu import Gpus
from gpuaudit.facts.gpupersistence import PersistenceDaemon
from gpuaudit.facts.gpuscan import GpuScan
from gpuaudit.facts.gpuvalues import Bar1, RemappedRows, Setting, Sram
from gpuaudit.host import NotApplicable

ADDRESSES = gpu_addresses()
MIB = 1 << 20


@pytest.fixture
def node() -> FakeNode:
    return healthy_node()


def results(node: FakeNode, *ids: str) -> dict[str, str]:
    done = judge(
        Facts(node.host()),
        [CHECKS[one] for one in ids],
        POLICIES,
        timeout_s=60,
        check_timeout_s=30,
    )
    assert done.traces == {}
    return {one.check: one.verdict.value for one in done.results}


def bind(node: FakeNode, address: str, driver: str | None) -> None:
    path = path_of(address)
    text = str(node.files[f"{path}/uevent"])
    now = text.replace("DRIVER=nvidia\n", f"DRIVER={driver}\n" if driver else "")
    assert now != text
    breaking.remove(node, f"{path}/driver")
    node.files[f"{path}/uevent"] = now
    if driver:
        node.files[f"{path}/driver"] = Link(f"/sys/bus/pci/drivers/{driver}")
        node.files[f"/sys/bus/pci/drivers/{driver}"] = None


def test_a_board_is_whole_with_a_gpu_that_a_guest_has(node: FakeNode) -> None:
    bind(node, ADDRESSES[5], "vfio-pci")
    breaking.remove(node, f"/proc/driver/nvidia/gpus/{ADDRESSES[5]}")
    breaking.forget_gpu(node, 5)
    assert results(node, "gpu-count", "gpu-alive") == {"gpu-count": "pass", "gpu-alive": "pass"}


def test_a_count_that_guests_explain_says_so() -> None:
    bus = scan(ADDRESSES[:7], handed_out=ADDRESSES[7:])
    want = policy(section("gpu-count"), expected_count=8)
    found = function("gpu-count")(bus, gpus(count=7), None, want)
    assert next(iter(found)).message == "7 on the PCI bus, 1 more handed to guests"


def test_a_gpu_that_left_the_bus_is_missed_without_nvml_too(node: FakeNode) -> None:
    address = ADDRESSES[5]
    breaking.remove(node, path_of(address), f"/sys/bus/pci/devices/{address}")
    breaking.no_nvml(node, 9)
    assert results(node, "gpu-count") == {"gpu-count": "fail"}


def see_two(node: FakeNode) -> None:
    for index in range(7, 1, -1):
        breaking.forget_gpu(node, index)


def test_a_container_with_two_device_nodes(node: FakeNode) -> None:
    """Containerd leaves no mark: no /.dockerenv, cgroup 0::/, no service account."""
    see_two(node)
    assert results(node, "gpu-count") == {"gpu-count": "fail"}
    node.processes = [{"pid": 1, "name": "python", "state": "running"}]
    assert Facts(node.host()).get(GpuScan).in_container
    found = results(node, "gpu-count", "gpu-alive", "fabric-manager-running")
    assert set(found.values()) <= {"pass", "notapplicable"}


@pytest.mark.parametrize(
    ("group", "what"),
    [
        ("0::/system.slice/slurmstepd.scope/job_7/step_0", "a Slurm job"),
        ("4:devices:/pbs_jobs.service/jobid/7.head", "a PBS job"),
        ("4:devices:/lsf/cluster/job.7.1", "an LSF job"),
    ],
)
def test_a_job_is_given_some_gpus(node: FakeNode, group: str, what: str) -> None:
    see_two(node)
    node.files["/proc/self/cgroup"] = f"{group}\n"
    bus = Facts(node.host()).get(GpuScan)
    assert (bus.confined, bus.in_container) == (what, False)
    assert results(node, "gpu-count") == {"gpu-count": "notapplicable"}


@pytest.mark.parametrize("driver", [None, "nouveau"])
def test_a_job_does_not_excuse_a_gpu_without_its_driver(node: FakeNode, driver: str | None) -> None:
    node.files["/proc/self/cgroup"] = "0::/system.slice/slurmstepd.scope/job_7\n"
    bind(node, ADDRESSES[5], driver)
    breaking.forget_gpu(node, 5)
    assert results(node, "gpu-count") == {"gpu-count": "fail"}


def test_a_job_does_not_excuse_a_gpu_that_the_driver_did_not_bring_up(node: FakeNode) -> None:
    node.files["/proc/self/cgroup"] = "0::/system.slice/slurmstepd.scope/job_7\n"
    breaking.remove(node, f"/proc/driver/nvidia/gpus/{ADDRESSES[5]}")
    breaking.forget_gpu(node, 5)
    assert results(node, "gpu-count") == {"gpu-count": "fail"}
    node.files["/.dockerenv"] = ""
    breaking.overlay_root(node)
    assert results(node, "gpu-count") == {"gpu-count": "notapplicable"}


def test_the_display_card_of_a_dgx_station_is_no_odd_gpu() -> None:
    alike = function("gpu-models-alike")
    odd = changed(name="NVIDIA DGX Display")
    assert verdicts(alike(odd)).count("notapplicable") == 1
    screen = changed(index=0, count=2, name="NVIDIA T400", display_active=1)
    assert verdicts(alike(screen)) == ["notapplicable", "pass"]
    assert only(alike(changed(name="NVIDIA T400"))).observed == "NVIDIA T400"
    assert verdicts(alike(changed(display_active=1))) == ["pass"] * 8


@pytest.mark.parametrize(
    ("display", "verdict"), [(1, "notapplicable"), (0, "fail"), (FAILED, "fail")]
)
def test_a_display_keeps_the_driver_on_its_gpu(display: Any, verdict: str) -> None:
    found = function("gpu-persistence")(
        scan(ADDRESSES),
        changed(persistence=0, display_active=display),
        PersistenceDaemon(running=True),
        policy(section("gpu-persistence")),
    )
    assert verdicts(found)[3] == verdict


def test_a_daemon_that_does_not_run_loses_no_mode_that_is_off() -> None:
    persistence = function("gpu-persistence")
    want = policy(section("gpu-persistence"))
    found = changed(index=0, count=1, persistence=0, display_active=1)
    stopped = PersistenceDaemon(running=False)
    assert verdicts(persistence(scan(ADDRESSES[:1]), found, stopped, want)) == ["notapplicable"]


def test_a_job_on_a_node_without_the_library_is_no_container() -> None:
    match = function("driver-library-match")
    driver = KernelDriver(loaded=True, version="570.1.2", flavour="open")
    job = scan(ADDRESSES, confined="a Slurm job")
    missing = silent("library-missing", "libnvidia-ml.so.1 is not found.")
    assert verdicts(match(driver, DriverLibraries(versions={}), job, missing)) == ["fail"]


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"virtualization": 2}, "notapplicable"),
        ({"virtualization": 1}, "fail"),
        ({"mig": Setting(current=1, pending=1)}, "notapplicable"),
    ],
)
def test_a_small_bar1_of_shares(fields: dict[str, Any], verdict: str) -> None:
    size = function("gpu-bar1-size")
    found = changed(bar1=Bar1(total=4096 * MIB), **fields)
    assert verdicts(size(found, policy(section("gpu-bar1-size"))))[3] == verdict


def test_a_whole_bar1_passes_with_mig_too() -> None:
    size = function("gpu-bar1-size")
    sliced = changed(mig=Setting(current=1, pending=1))
    assert verdicts(size(sliced, policy(section("gpu-bar1-size")))) == ["pass"] * 8


@pytest.mark.parametrize(
    ("sram", "verdict"),
    [
        (FAILED, "unknown"),
        (UNSUPPORTED, "pass"),
        (Sram(threshold_exceeded=0), "pass"),
        (Sram(threshold_exceeded=1), "fail"),
    ],
)
def test_an_unread_sram_flag_is_no_pass(sram: Any, verdict: str) -> None:
    check = function("ecc-aggregate-uncorrected")
    want = policy(section("ecc-aggregate-uncorrected"))
    assert verdicts(check(changed(sram=sram), want))[3] == verdict
    both = changed(sram=FAILED, aggregate_uncorrected=600)
    assert verdicts(check(both, want))[3] == "fail", "the count fails by itself"


@pytest.mark.parametrize(
    ("pci_id", "verdict"), [("10de:2330", "warn"), ("10de:26b9", "fail"), ("10de:26b5", "fail")]
)
def test_a_waiting_repair_hurts_where_pages_are_not_taken_out(pci_id: str, verdict: str) -> None:
    check = function("ecc-row-remap-pending")
    waits = changed(remapped=RemappedRows(correctable=0, uncorrectable=1, pending=1, failed=0))
    assert verdicts(check(waits, policy(section("ecc-row-remap-pending"), pci_id)))[3] == verdict


def test_nouveau_beside_the_nvidia_driver_warns(node: FakeNode) -> None:
    node.files["/sys/module/nouveau/refcnt"] = "0\n"
    assert Facts(node.host()).get(Nouveau).idle
    bind(node, ADDRESSES[5], "nouveau")
    assert not Facts(node.host()).get(Nouveau).idle
    absent = function("driver-nouveau-absent")
    assert verdicts(absent(Nouveau(loaded=("nouveau",), kept_out=None))) == ["fail"]
    assert verdicts(absent(Nouveau(loaded=("nouveau",), kept_out=None, idle=True))) == ["warn"]


@pytest.mark.parametrize(
    "folder",
    [
        "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
        "/run/nvidia/driver/usr/lib64",
        "/home/kubernetes/bin/nvidia/lib64",
        "/run/opengl-driver/lib",
    ],
)
def test_libraries_of_a_driver_container_are_installed(node: FakeNode, folder: str) -> None:
    old = "/usr/lib/x86_64-linux-gnu"
    names = [p for p in node.files if p.startswith(f"{old}/lib") and "nvidia-ml" in p]
    assert names
    for path in names:
        node.files[path.replace(old, folder)] = node.files.pop(path)
    breaking.no_nvml(node, 12)
    assert any(p.startswith(folder) for p in Facts(node.host()).get(DriverLibraries).versions)
    assert results(node, "driver-library-match") == {"driver-library-match": "pass"}


def test_fabric_manager_of_a_driver_container_needs_no_unit(node: FakeNode) -> None:
    for path in [p for p in node.files if p.endswith("nvidia-fabricmanager.service")]:
        del node.files[path]
    assert Facts(node.host()).get(FabricUnit).state == ELSEWHERE
    node.commands = [one for one in node.commands if one["argv"][0] != "nv-fabricmanager"]
    node.files.pop("/var/lib/dpkg/status", None)
    ids = [f"fabric-manager-{what}" for what in ("running", "enabled", "version")]
    assert list(results(node, *ids).values()) == ["pass", "notapplicable", "notapplicable"]
    node.processes = [one for one in node.processes if "fabric" not in one["name"]]
    assert results(node, "fabric-manager-enabled") == {"fabric-manager-enabled": "fail"}


def test_wsl_has_its_driver_outside(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/sys/devices/x": ""}, nvml=gpus_document())
    with pytest.raises(NotApplicable, match="WSL"):
        Facts(host).get(KernelDriver)


def gpus_document() -> Any:
    return msgspec.to_builtins(healthy_node().nvml)


def test_the_first_opening_of_eight_gpus_may_take_24_seconds() -> None:
    """1 to 3 s a GPU without persistence: docs.nvidia.com/deploy/driver-persistence/overview."""
    document = gpus_document() | {"hung": {"call": "nvmlInit", "device": None, "after_s": 20.0}}
    node = healthy_node()
    node.nvml = document
    problem = Facts(node.host()).get(Gpus).problem
    assert problem is not None
    assert problem.kind == "hung"
    assert "--timeout" in problem.sentence
    assert "reboot" not in problem.sentence
