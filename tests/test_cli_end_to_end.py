# SPDX-License-Identifier: Apache-2.0
"""The real nvidia-ml-py client in a real process: fake driver library, fake live root."""

import copy
import json
import subprocess
import sys
import time
from collections.abc import Iterator
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
GPU_CHECKS = ("gpu-*", "ecc-*", "fabric-*", "driver-*")
DRIVER = f"""
import sys
from gpuaudit import audit
from gpuaudit.host import Host
from gpuaudit.packs import load_renderers
host = Host.live(sys.argv[1], nvml_deadline_s={DEADLINE_S})
done = audit.run(host, audit.Request(profile="bringup", select={GPU_CHECKS}))
sys.stdout.write(load_renderers()["json"](done.report))
sys.stdout.flush()
host.close()
sys.exit(audit.exit_code(done.report))
"""


class Machine(NamedTuple):
    """A fake live root, and the folder with the fake driver library."""

    node: FakeNode
    root: Path
    shim: Path


class Audited(NamedTuple):
    report: dict[str, Any]
    code: int
    wall_s: float

    def verdicts(self) -> dict[str, str]:
        return {r["check"]: r["verdict"] for r in self.report["results"]}

    def text(self) -> str:
        return json.dumps(self.report)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    need("gcc", "gcc")
    folder = tmp_path_factory.mktemp("end-to-end")
    node = healthy_node()
    yield Machine(node, node.live_root(folder / "root"), build_shim(folder))


def audited(machine: Machine, document: dict[str, Any], folder: Path) -> Audited:
    """Audit the fake machine in a process of its own, and wait until its output ends."""
    env = shim_env(machine.shim, write_document(folder / "nvml.json", document))
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(machine.root)],
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
