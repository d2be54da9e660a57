# SPDX-License-Identifier: Apache-2.0
"""The real nvidia-ml-py client in a real process: fake driver library, fake live root."""

import copy
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fakenode import FakeNode, healthy_node
from fakenode.breaking import lose_gpu
from fakenvml import CRASH, SLEEP, build_shim, shim_env, write_document
from system import need

from gpuaudit import audit

DEADLINE_S = 2.0
GRACE_S = 8.0
"""Beyond the deadline: starting Python, importing, reading the fake root, on a busy worker."""

HUNG_CALL = "nvmlDeviceGetEccMode"
# Files come from the fake root and NVML from the fake library; processes and commands are those of
# the machine that runs the tests, so the recorded ones stand in for them, and so do device files.
DRIVER = f"""
import sys
from gpuaudit import audit
from gpuaudit.host import Host
from gpuaudit.host.live import LiveMachine
from gpuaudit.report import encode
recorded = Host.snapshot(sys.argv[2])
LiveMachine.processes = lambda self: recorded.processes()
LiveMachine.run = lambda self, argv: recorded.run(*argv)
host = Host.live(sys.argv[1], nvml_deadline_s={DEADLINE_S})
host.status = recorded.status
done = audit.run(host, audit.Request(profile="bringup"))
sys.stdout.write(encode(done.report).decode())
sys.stdout.flush()
host.close()
sys.exit(audit.exit_code(done.report))
"""


class Machine(NamedTuple):
    """A fake live root, the same machine recorded, and the folder of the fake library."""

    node: FakeNode
    root: Path
    recording: Path
    shim: Path


class Audited(NamedTuple):
    report: dict[str, Any]
    code: int
    wall_s: float

    def verdicts(self) -> dict[str, str]:
        return {r["check"]: r["verdict"] for r in self.report["results"]}

    def answers(self) -> dict[str, tuple[str, tuple[str | None, ...]]]:
        return {
            r["check"]: (r["verdict"], tuple(f.get("observed") for f in r["findings"]))
            for r in self.report["results"]
        }

    def text(self) -> str:
        return json.dumps(self.report)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    need("gcc", "gcc")
    folder = tmp_path_factory.mktemp("end-to-end")
    node = healthy_node()
    recording = node.archive(folder / "node.tar.gz")
    return Machine(node, node.live_root(folder / "root"), recording, build_shim(folder))


def audited(machine: Machine, document: dict[str, Any], folder: Path) -> Audited:
    """Audit the fake machine in a process of its own, and wait until its output ends."""
    env = shim_env(machine.shim, write_document(folder / "nvml.json", document))
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(machine.root), str(machine.recording)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    wall_s = time.monotonic() - began
    assert done.stderr == ""
    return Audited(json.loads(done.stdout), done.returncode, wall_s)


def document_of(machine: Machine) -> dict[str, Any]:
    return copy.deepcopy(machine.node.nvml)


def test_eight_healthy_gpus(machine: Machine, tmp_path: Path) -> None:
    found = audited(machine, document_of(machine), tmp_path)
    assert found.report["node"]["gpus"] == ["NVIDIA H100 80GB HBM3"] * 8
    assert set(found.verdicts().values()) <= {"pass", "notapplicable"}, wrong(found)
    assert found.code == 0


def test_live_answers_equal_recorded_ones(machine: Machine, tmp_path: Path) -> None:
    found = audited(machine, document_of(machine), tmp_path)
    recorded = audit.run(machine.node.host(), audit.Request(profile="bringup")).report
    assert found.answers() == {
        r.check: (r.verdict.value, tuple(f.observed for f in r.findings)) for r in recorded.results
    }


def test_a_lost_gpu_is_named(machine: Machine, tmp_path: Path) -> None:
    node = machine.node.copied()
    lose_gpu(node, 3)
    found = audited(machine, node.nvml, tmp_path)
    assert found.code == 1
    failed = [f for r in found.report["results"] for f in r["findings"] if f["verdict"] == "fail"]
    assert any("lost" in f["message"] and "3" in f["subject"] for f in failed)


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (4, "This user may not ask NVML"),
        (9, "The kernel driver is loaded but NVML cannot reach it"),
        (18, "The loaded kernel driver and the NVML library have different versions"),
        (999, "The driver failed for a reason that NVML does not name"),
    ],
    ids=["no-permission", "unreachable", "mismatch", "unknown"],
)
def test_nvml_does_not_start(machine: Machine, tmp_path: Path, code: int, word: str) -> None:
    document = document_of(machine)
    document["init"] = {"e": code}
    found = audited(machine, document, tmp_path)
    assert word in found.text()
    assert found.code in {1, 3}
    assert "error" not in found.verdicts().values(), wrong(found)


def test_a_sleeping_driver_costs_its_deadline(machine: Machine, tmp_path: Path) -> None:
    document = document_of(machine)
    document["devices"][5][HUNG_CALL] = SLEEP
    found = audited(machine, document, tmp_path)
    assert DEADLINE_S <= found.wall_s < DEADLINE_S + GRACE_S
    assert f"{HUNG_CALL} on GPU 5" in found.text()
    assert found.code != 0


def test_a_driver_that_never_starts_is_named(machine: Machine, tmp_path: Path) -> None:
    document = document_of(machine)
    document["init"] = SLEEP
    found = audited(machine, document, tmp_path)
    assert found.wall_s < DEADLINE_S + GRACE_S
    assert "hung in nvmlInit" in found.text() or "did not answer in time: nvmlInit" in found.text()


def test_a_crashing_library_is_named(machine: Machine, tmp_path: Path) -> None:
    document = document_of(machine)
    document["devices"][2][HUNG_CALL] = CRASH
    found = audited(machine, document, tmp_path)
    assert f"crashed in {HUNG_CALL} on GPU 2 (SIGSEGV)" in found.text()
    assert found.code != 0


def wrong(found: Audited) -> list[tuple[str, str, Any]]:
    """What is not a pass, for the message of a failing test."""
    results = found.report["results"]
    good = {"pass", "notapplicable"}
    return [(r["check"], r["reason"], r["findings"]) for r in results if r["verdict"] not in good]
