# SPDX-License-Identifier: Apache-2.0
"""GPU facts: what is on the bus, what NVML answers, and what its silence means."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakenode import FakeNode, Link, breaking, healthy_node
from fakenode.layout import NVSWITCH_ADDRESSES, gpu_addresses
from fakenode.pci import path_of
from fakenvml import DRIVER, healthy_h100
from gpufacts import answers, nowhere, scan
from trees import make_host

from gpuaudit.engine import Facts
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpus, majority, record
from gpuaudit.facts.gpu import gpu_addresses as told_addresses
from gpuaudit.facts.gpuanswer import value_of
from gpuaudit.facts.gpumissing import missing_gpus
from gpuaudit.facts.gpupersistence import PersistenceDaemon
from gpuaudit.facts.gpurecord import CALLS, Gpu
from gpuaudit.facts.gpuscan import ALL_HANDED_OUT, NO_GPU, GpuScan
from gpuaudit.facts.gpuvalues import Memory, Setting
from gpuaudit.host import NotApplicable, Unavailable
from gpuaudit.host.answers import Answer

ADDRESSES = gpu_addresses()


@pytest.fixture
def node() -> FakeNode:
    return healthy_node()


def scanned(node: FakeNode) -> GpuScan:
    return Facts(node.host()).get(GpuScan)  # type: ignore[no-any-return]  # facts are keyed by type


def asked(node: FakeNode) -> Gpus:
    return Facts(node.host()).get(Gpus)  # type: ignore[no-any-return]  # facts are keyed by type


def test_the_scan_finds_gpus_and_switches_apart(node: FakeNode) -> None:
    found = scanned(node)
    assert found.functions is not None
    assert [one.address for one in found.functions] == sorted(ADDRESSES)
    assert {one.id for one in found.functions} == {"10de:2330"}
    assert all(one.dead is False for one in found.functions)
    assert set(found.switches) == set(NVSWITCH_ADDRESSES)
    assert found.listed == dict.fromkeys(ADDRESSES, False)
    assert found.confined is None


def test_a_machine_without_gpus_says_so_in_one_sentence(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/sys/bus/pci/devices/0000:00:00.0/vendor": "0x8086"})
    for fact in (GpuScan, Gpus):
        with pytest.raises(NotApplicable) as stopped:
            Facts(host).get(fact)
        assert stopped.value.reason == NO_GPU


def test_gpus_that_only_nvml_shows_count(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/sys/devices/x": ""}, nvml=healthy_h100(2))
    assert len(Facts(host).get(Gpus).records) == 2


def test_an_unrecorded_bus_is_no_proof_of_absence(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/sys/devices/x": ""}, source="plain")
    assert Facts(host).get(GpuScan).functions is None
    with pytest.raises(Unavailable, match="not recorded"):
        Facts(host).get(Gpus)


def test_an_image_is_not_scanned(tmp_path: Path) -> None:
    host = make_host(tmp_path, {"/etc/hostname": "x"}, source="image")
    assert Facts(host).get(GpuScan).image
    with pytest.raises(NotApplicable):
        Facts(host).get(Gpus)


def hand_out(node: FakeNode, *addresses: str) -> None:
    for address in addresses:
        breaking.remove(node, f"{path_of(address)}/driver")
        node.files[f"{path_of(address)}/driver"] = Link("/sys/bus/pci/drivers/vfio-pci")
        uevent = f"{path_of(address)}/uevent"
        text = str(node.files[uevent]).replace("DRIVER=nvidia", "DRIVER=vfio-pci")
        node.files[uevent] = text
    node.files["/sys/bus/pci/drivers/vfio-pci"] = None


def test_gpus_of_guests_are_left_alone(node: FakeNode) -> None:
    hand_out(node, ADDRESSES[0])
    found = scanned(node)
    assert found.functions is not None
    assert found.handed_out == ADDRESSES[:1]
    assert len(found.functions) == 7


def test_a_host_that_hands_out_all_gpus_is_not_judged(node: FakeNode) -> None:
    hand_out(node, *ADDRESSES)
    with pytest.raises(NotApplicable) as stopped:
        scanned(node)
    assert stopped.value.reason == ALL_HANDED_OUT


def test_config_of_ones_is_a_dead_gpu(node: FakeNode) -> None:
    node.files[f"{path_of(ADDRESSES[2])}/config"] = b"\xff" * 64
    dead = [one.address for one in scanned(node).functions or () if one.dead is True]
    assert dead == [ADDRESSES[2]]


def test_a_sleeping_gpu_is_not_dead(node: FakeNode) -> None:
    node.files[f"{path_of(ADDRESSES[2])}/config"] = b"\xff" * 64
    node.files[f"{path_of(ADDRESSES[2])}/power/runtime_status"] = "suspended\n"
    one = next(o for o in scanned(node).functions or () if o.address == ADDRESSES[2])
    assert one.dead == Absent("failed", "the GPU sleeps (runtime power management)")


@pytest.mark.parametrize(
    ("path", "text", "what", "container"),
    [
        ("/.dockerenv", "", "a Docker container", True),
        ("/run/systemd/container", "lxc", "a container", True),
        ("/proc/self/cgroup", "0::/kubepods.slice/x", "a Kubernetes pod", True),
        ("/proc/self/cgroup", "0::/system.slice/slurmstepd.scope/job_7", "a Slurm job", False),
    ],
)
def test_confinement_is_seen(
    node: FakeNode, path: str, text: str, what: str, container: bool
) -> None:
    node.files[path] = text
    breaking.overlay_root(node)
    assert scanned(node).confined == what
    assert scanned(node).in_container is container


def test_a_machine_made_from_a_container_image_is_no_container(node: FakeNode) -> None:
    """It kept the mark, but sees the kernel's own processes and has a root of its own."""
    node.files["/.dockerenv"] = ""
    assert scanned(node).confined is None
    assert not scanned(node).in_container


def test_the_healthy_node_answers_everything(node: FakeNode) -> None:
    found = asked(node)
    assert (found.problem, found.driver, found.library) == (None, DRIVER, DRIVER)
    assert [gpu.address for gpu in found.asked()] == list(ADDRESSES)
    gpu = found.records[3]
    assert gpu.subject == f"GPU 3 {ADDRESSES[3]}"
    assert gpu.pci_id == "10de:2330"
    assert gpu.mig == Setting(current=0, pending=0)
    unsupported = {f for f in CALLS if isinstance(getattr(gpu, f), Absent)}
    retired = {"retired_single", "retired_double", "retired_pending"}
    assert unsupported == retired | {"auto_boost"}


def test_a_lost_gpu_answers_nothing(node: FakeNode) -> None:
    breaking.lose_gpu(node, 3)
    gpu = asked(node).records[3]
    assert gpu.lost == Absent("failed", "GPU is lost (NVML error 15)")
    assert gpu.address == ADDRESSES[3], "the only address left over"
    assert {getattr(gpu, field) for field in CALLS} == {gpu.lost}
    assert asked(node).records[2].lost is None


def test_a_lost_peer_does_not_make_a_gpu_lost(node: FakeNode) -> None:
    breaking.error(node, 2, "P2PStatus(3,2)", 15)
    assert asked(node).records[2].lost is None


def test_two_nameless_gpus_are_not_guessed() -> None:
    document = healthy_h100(4)
    for index in (1, 2):
        document["devices"][index] = {"nvmlDeviceGetHandleByIndex_v2": {"e": 15}}
    told = answers(document)
    buses = ["0000:19:00.0", "0000:2d:00.0", "0000:3f:00.0", "0000:54:00.0"]
    assert told_addresses(told, scan(buses)) == [buses[0], None, None, buses[3]]
    gpu = record(told, 1, None, DRIVER)
    assert gpu.subject == "GPU 1"
    assert isinstance(gpu.pci_id, Absent)


def test_a_wide_domain_is_written_as_sysfs_does() -> None:
    document = healthy_h100(1)
    document["devices"][0]["nvmlDeviceGetPciInfo"]["v"]["busId"] = "00010000:1A:00.0"
    assert told_addresses(answers(document), nowhere()) == ["10000:1a:00.0"]


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (9, "kernel driver is loaded but NVML cannot reach it"),
        (12, "libnvidia-ml.so.1 is not found"),
        (18, "different versions"),
        (4, "may not ask NVML"),
        (15, "A GPU is lost"),
        (999, "does not name"),
    ],
)
def test_each_failure_of_nvml_has_its_own_sentence(
    node: FakeNode, code: int, sentence: str
) -> None:
    breaking.no_nvml(node, code)
    with pytest.raises(Unavailable, match=sentence):
        asked(node).asked()


def test_nvml_that_lists_no_gpu_says_so(node: FakeNode) -> None:
    node.nvml["devices"] = []
    with pytest.raises(Unavailable, match="lists none of the GPUs"):
        asked(node).asked()


def test_a_hang_keeps_what_was_answered_and_is_named(node: FakeNode) -> None:
    del node.nvml["devices"][5]["nvmlDeviceGetEccMode"]
    node.nvml["hung"] = {"call": "nvmlDeviceGetEccMode", "device": 5, "after_s": 10.0}
    found = asked(node)
    assert found.problem is not None
    assert found.problem.kind == "hung"
    assert found.records[4].ecc == Setting(current=1, pending=1)
    reason = "not answered: NVML hung in nvmlDeviceGetEccMode on GPU 5"
    assert found.records[5].ecc == Absent("failed", reason)


@pytest.mark.parametrize(
    ("answer", "field", "driver", "kind", "words"),
    [
        (Answer(e=3), "ecc", DRIVER, "unsupported", "does not support"),
        (Answer(e=26), "sm_clock_applied", "590.48.01", "unsupported", "no longer"),
        (Answer(e=13), "thermal_margin", "550.90.07", "unsupported", "older than 570"),
        (Answer(e=2), "recovery_action", "535.54.03", "unsupported", "older than 570"),
        (Answer(e=13), "thermal_margin", "570.86.15", "failed", "not in this library"),
        (Answer(e=13), "thermal_margin", None, "failed", "not in this library"),
        (Answer(e=4), "ecc", DRIVER, "denied", "root"),
        (Answer(e=999), "ecc", DRIVER, "failed", "NVML error 999"),
        (Answer(v="x"), "ecc", DRIVER, "failed", "something else"),
        (Answer(v=[1]), "ecc", DRIVER, "failed", "something else"),
        (Answer(v={"state": 3}), "fabric", DRIVER, "failed", "something else"),
    ],
)
def test_absence_has_its_kind(
    answer: Answer, field: str, driver: str | None, kind: str, words: str
) -> None:
    value = value_of(answer, CALLS[field], driver)
    assert isinstance(value, Absent)
    assert (value.kind, words in value.reason) == (kind, True), value.reason


def test_older_drivers_answer_under_the_older_name() -> None:
    document = healthy_h100(1)
    gpu = document["devices"][0]
    gpu["nvmlDeviceGetCurrentClocksEventReasons"] = {"e": 13}
    gpu["nvmlDeviceGetCurrentClocksThrottleReasons"] = {"v": 4}
    gpu["nvmlDeviceGetGpuFabricInfoV"] = {"e": 13}
    gpu["nvmlDeviceGetGpuFabricInfo"] = {"v": {"state": 3, "status": 0, "cliqueId": 0}}
    gpu["nvmlDeviceGetMemoryInfo_v2"] = {"e": 13}
    gpu["nvmlDeviceGetMemoryInfo"] = {"v": {"total": 85_899_345_920, "free": 1, "used": 1}}
    read = record(answers(document), 0, None, "525.147.05")
    assert read.clock_reasons == 4
    assert read.memory == Memory(total=85_899_345_920, used=1)
    assert not isinstance(read.fabric, Absent)
    assert (read.fabric.state, read.fabric.health_mask) == (3, None)


def test_missing_gpus_are_explained(node: FakeNode) -> None:
    breaking.forget_gpu(node, 5)
    facts = Facts(node.host())
    (missing,) = missing_gpus(facts.get(GpuScan), facts.get(Gpus))
    assert missing.address == ADDRESSES[5]
    assert (
        missing.why == "the kernel driver has it, NVML does not list it: is its /dev/nvidiaN there?"
    )
    assert not missing.excluded
    assert not missing.withheld


@pytest.mark.parametrize(
    ("driver", "listed", "why"),
    [
        (None, {}, "no kernel driver is bound to it"),
        ("nouveau", {}, "the driver nouveau holds it"),
        ("nvidia", {}, "the kernel driver did not bring it up"),
        (
            "nvidia",
            None,
            "the kernel driver has it, NVML does not list it: is its /dev/nvidiaN there?",
        ),
    ],
)
def test_the_reason_follows_the_way_up(
    driver: str | None, listed: dict[str, bool] | None, why: str
) -> None:
    seen = scan(["0000:01:00.0"], listed=listed)
    one = msgspec.structs.replace((seen.functions or ())[0], driver=driver)
    seen = msgspec.structs.replace(seen, functions=(one,))
    (missing,) = missing_gpus(seen, Gpus(records=(), problem=None))
    assert missing.why == why


@pytest.mark.parametrize(
    ("processes", "running"),
    [
        ([{"pid": 7, "name": "nvidia-persiste", "state": "sleeping"}], True),
        ([{"pid": 1, "name": "systemd", "state": "sleeping"}], False),
        ([{"pid": 7, "name": "bash", "state": "sleeping"}], None),
        (None, None),
    ],
)
def test_the_persistence_daemon(
    tmp_path: Path, processes: list[dict[str, Any]] | None, running: bool | None
) -> None:
    host = make_host(tmp_path, {}, processes=processes)
    assert Facts(host).get(PersistenceDaemon) == PersistenceDaemon(running=running)


def test_majority() -> None:
    assert majority(["a", "b", "b"]) == "b"
    assert majority(["a", "b"]) == "a"
    assert majority([]) is None


def test_every_field_of_a_gpu_has_its_call() -> None:
    own = {"index", "address", "lost"}
    assert set(Gpu.__struct_fields__) - own == set(CALLS)
