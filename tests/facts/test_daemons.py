# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest
from trees import Link, Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.daemons import JobDaemons, job_daemons
from gpuaudit.facts.limits import Limit, Reading

BIG = "Max locked memory unlimited unlimited bytes\nMax open files 1024 524288 files\n"
SMALL = "Max locked memory 8388608 8388608 bytes\nMax open files 1024 524288 files\n"
KERNEL = {"pid": 2, "name": "kthreadd", "state": "sleeping", "parent": 0}
INIT = {"pid": 1, "name": "systemd", "state": "sleeping", "parent": 0}
SLURMD_UNIT = {"/usr/lib/systemd/system/slurmd.service": "[Service]\nLimitMEMLOCK=infinity\n"}


def process(pid: int, name: str, parent: int = 1, state: str = "sleeping") -> dict[str, Any]:
    return {"pid": pid, "name": name, "state": state, "parent": parent}


def read(folder: Path, tree: Tree, *processes: dict[str, Any], **more: Any) -> JobDaemons:
    more = {"processes": [INIT, KERNEL, *processes], **more}
    return job_daemons(make_host(folder, tree, **more))


def readings(fact: JobDaemons, context: str) -> tuple[Reading, ...]:
    found = fact.contexts[context]
    assert isinstance(found, tuple), found
    return found


def test_a_daemon_and_its_unit(tmp_path: Path) -> None:
    fact = read(tmp_path, {"/proc/9/limits": SMALL, **SLURMD_UNIT}, process(9, "slurmd"))
    now, later = readings(fact, "slurmd")
    assert (now.subject, now.memlock, now.now) == ("slurmd", Limit(8 << 20, 8 << 20), True)
    assert (later.subject, later.memlock) == ("slurmd.service at the next boot", Limit(None, None))
    assert not later.now
    assert now.evidence == ("/proc/9/limits",)
    assert "/usr/lib/systemd/system/slurmd.service:2" in later.evidence


def test_a_unit_without_limits_gets_the_default(tmp_path: Path) -> None:
    tree: Tree = {
        "/usr/lib/systemd/system/slurmd.service": "[Service]\n",
        "/etc/systemd/system.conf": "[Manager]\nDefaultLimitMEMLOCK=1G\n",
    }
    (later,) = readings(read(tmp_path, tree), "slurmd")
    assert later.memlock == Limit(1 << 30, 1 << 30)
    assert later.nofile == Limit(1024, 524288)


def test_a_garbled_limit_is_unknown(tmp_path: Path) -> None:
    tree = {"/lib/systemd/system/slurmd.service": "[Service]\nLimitMEMLOCK=unlimited\n"}
    (later,) = readings(read(tmp_path, tree), "slurmd")
    assert isinstance(later.memlock, Absent)
    assert "slurmd.service:2" in later.memlock.reason


def test_a_container_sees_neither_the_daemons_nor_the_units_of_its_node(tmp_path: Path) -> None:
    fact = read(tmp_path, {"/.dockerenv": "", **SLURMD_UNIT})
    slurmd = fact.contexts["slurmd"]
    assert isinstance(slurmd, Absent)
    assert (slurmd.kind, "processes of its host" in slurmd.reason) == ("missing", True)


def test_a_daemon_inside_a_container_is_judged_by_what_runs(tmp_path: Path) -> None:
    """Slurm in Kubernetes: slurmd runs in a pod."""
    tree = {"/run/.containerenv": "", "/proc/9/limits": SMALL, **SLURMD_UNIT}
    (now,) = readings(read(tmp_path, tree, process(9, "slurmd")), "slurmd")
    assert now.now


def test_neither_process_nor_unit_is_known_absence(tmp_path: Path) -> None:
    fact = read(tmp_path, {})
    assert set(fact.contexts) == {"slurmd", "containerd", "docker", "kubelet", "sshd"}
    assert all(
        isinstance(one, Absent) and one.kind == "unsupported" for one in fact.contexts.values()
    )


def test_a_masked_unit_is_no_unit(tmp_path: Path) -> None:
    fact = read(tmp_path, {"/etc/systemd/system/slurmd.service": ""})
    assert fact.contexts["slurmd"] == Absent("unsupported", "slurmd is not part of this node")


def test_not_recorded_is_never_absence(tmp_path: Path) -> None:
    fact = job_daemons(make_host(tmp_path, {}, source="plain"))
    assert fact.contexts["docker"] == Absent("failed", "the process table was not recorded")


def test_units_without_a_process_table_are_not_enough(tmp_path: Path) -> None:
    now, later = readings(read(tmp_path, SLURMD_UNIT, processes=None), "slurmd")[::-1]
    assert now.subject == "slurmd"
    assert isinstance(now.memlock, Absent)
    assert later.memlock == Limit(None, None)


def test_a_process_without_known_units_is_not_enough(tmp_path: Path) -> None:
    tree = {"/proc/9/limits": BIG, "/proc/self/limits": BIG}
    table = [INIT, KERNEL, process(9, "slurmd")]
    host = make_host(tmp_path, tree, source="snapshot", processes=table)
    host._recording.manifest.listings.clear()  # type: ignore[union-attr]  # a recording has both
    now, later = readings(job_daemons(host), "slurmd")
    assert now.memlock == Limit(None, None)
    assert later.subject == "slurmd at the next boot"
    assert isinstance(later.memlock, Absent)


def test_hidden_processes_prove_nothing(tmp_path: Path) -> None:
    fact = read(tmp_path, {}, processes=[process(500, "python")])
    found = fact.contexts["slurmd"]
    assert isinstance(found, Absent)
    assert found.kind == "denied"
    assert "needs root" in found.reason


def test_limits_of_a_process_that_went_away(tmp_path: Path) -> None:
    (now,) = readings(read(tmp_path, {}, process(9, "crio")), "containerd")
    assert isinstance(now.memlock, Absent)
    assert now.memlock.kind == "missing"


def test_daemons_inside_containers_are_not_the_nodes(tmp_path: Path) -> None:
    fact = read(
        tmp_path,
        {},
        process(20, "containerd-shim"),
        process(21, "bash", 20),
        process(22, "sshd", 21),
    )
    assert isinstance(fact.contexts["sshd"], Absent)


def test_sessions_and_zombies_do_not_count(tmp_path: Path) -> None:
    fact = read(
        tmp_path,
        {"/proc/30/limits": BIG},
        process(30, "sshd"),
        process(31, "sshd", 30),
        process(32, "sshd", 31),
        process(33, "sshd", state="zombie"),
    )
    assert [r.evidence for r in readings(fact, "sshd")] == [("/proc/30/limits",)]


def test_a_circle_of_parents_ends(tmp_path: Path) -> None:
    fact = read(tmp_path, {"/proc/5/limits": BIG}, process(5, "slurmd", 6), process(6, "x", 5))
    assert isinstance(fact.contexts["slurmd"], Absent)


def test_docker_may_own_containerd(tmp_path: Path) -> None:
    tree = {"/proc/40/limits": BIG, "/proc/41/limits": BIG}
    fact = read(tmp_path, tree, process(40, "dockerd"), process(41, "containerd", 40))
    assert fact.docker_owns_containerd
    assert len(readings(fact, "containerd")) == 1


def test_kubelet_is_advice_and_k3s_is_not(tmp_path: Path) -> None:
    tree = {"/proc/50/limits": SMALL, "/etc/systemd/system/k3s-agent.service": "[Service]\n"}
    now, later = readings(read(tmp_path, tree, process(50, "kubelet")), "kubelet")
    assert now.advisory
    assert not later.advisory


def test_an_alias_counts_once(tmp_path: Path) -> None:
    tree: Tree = {
        "/usr/lib/systemd/system/ssh.service": "[Service]\n",
        "/etc/systemd/system/sshd.service": Link("/usr/lib/systemd/system/ssh.service"),
    }
    assert [r.subject for r in readings(read(tmp_path, tree), "sshd")] == [
        "ssh.service at the next boot"
    ]


def test_an_image_has_units_only(tmp_path: Path) -> None:
    fact = job_daemons(make_host(tmp_path, SLURMD_UNIT, source="image"))
    assert [r.memlock for r in readings(fact, "slurmd")] == [Limit(None, None)]
    assert fact.contexts["docker"] == Absent("unsupported", "dockerd is not part of this node")


@pytest.mark.parametrize("name", ["containerd", "crio"])
def test_both_container_runtimes_are_one_context(tmp_path: Path, name: str) -> None:
    fact = read(tmp_path, {"/proc/60/limits": BIG}, process(60, name))
    assert [r.subject for r in readings(fact, "containerd")] == [name]
