# SPDX-License-Identifier: Apache-2.0
"""The healthy node seen from a guest, a container, a user's shell or its image: nothing is wrong.

What cannot be seen from there does not apply or is unknown, and each check says why.
"""

from collections.abc import Callable
from functools import cache

import pytest
from fakenode import FakeNode, healthy_node
from fakenode.breaking import cut_config, overlay_root
from fakenode.faults_host import virtual_machine
from trees import write_tree

from gpuaudit import audit
from gpuaudit.check import Verdict
from gpuaudit.host import Host
from gpuaudit.report import Report

OF_THE_HOST = (
    "/boot/",
    "/dev/kmsg",
    "/etc/",
    "/run/",
    "/usr/lib/modules/",
    "/usr/lib/systemd/",
    "/usr/lib/sysctl.d/",
    "/usr/lib/tuned/",
    "/var/",
)
NOT_IN_AN_IMAGE = ("/dev/", "/proc/", "/run/", "/sys/")


def docker_container(node: FakeNode) -> None:
    """Another root, its own processes, config space without CAP_SYS_ADMIN."""
    inside(node)
    node.files["/.dockerenv"] = ""
    own_processes(node)


def docker_container_with_host_pid(node: FakeNode) -> None:
    inside(node)
    node.files["/.dockerenv"] = ""


def pod_of_kubernetes(node: FakeNode) -> None:
    inside(node)
    own_processes(node)
    node.files["/var/run/secrets/kubernetes.io/serviceaccount/namespace"] = "default\n"


def container_of_systemd(node: FakeNode) -> None:
    inside(node)
    own_processes(node)
    node.files["/run/systemd/container"] = "systemd-nspawn\n"
    node.files["/run/systemd/system"] = None


def inside(node: FakeNode) -> None:
    """Files and commands of the host are gone; /proc, /sys and the GPUs' files are the node's."""
    overlay_root(node)
    cut_config(node)
    node.euid = 0
    node.files["/proc/self/cgroup"] = "0::/\n"
    node.files = {p: c for p, c in node.files.items() if not p.startswith(OF_THE_HOST)}
    node.files["/etc/os-release"] = 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nID=ubuntu\n'
    node.commands = [one for one in node.commands if one["argv"][0].startswith("@")]


def own_processes(node: FakeNode) -> None:
    """A PID namespace with one process in it."""
    folders = tuple(f"/proc/{one['pid']}/" for one in node.processes)
    node.files = {p: c for p, c in node.files.items() if not p.startswith(folders)}
    node.files |= {"/proc/1/comm": "python3\n", "/proc/1/limits": node.files["/proc/self/limits"]}
    node.processes = [{"pid": 1, "name": "python3", "state": "sleeping", "parent": None}]


def users_shell(node: FakeNode) -> None:
    """No root: config space is cut, the kernel log and the table of memory modules are refused."""
    cut_config(node)
    for path in ("/dev/kmsg", "/sys/firmware/dmi/tables/DMI"):
        del node.files[path]
        node.gaps[path] = {"kind": "denied", "reason": f"{path}: needs root"}


PLACES: tuple[Callable[[FakeNode], None], ...] = (
    container_of_systemd,
    docker_container,
    docker_container_with_host_pid,
    pod_of_kubernetes,
    users_shell,
    virtual_machine,
)
ASKED_OF_EVERY_SYSTEM = {
    "driver-nouveau-absent",
    "environment-debug",
    "environment-injection",
    "environment-library-path",
    "environment-nccl-node-wide",
    "environment-visible-devices",
    "kernel-cmdline-conflicts",
    "kernel-version",
    "limits-memlock-containerd",
    "limits-memlock-login",
    "limits-memlock-slurmd",
    "limits-open-files",
    "memory-swap-off",
    "memory-zone-reclaim",
    "numa-balancing-off",
    "sysctl-values",
}
"""Files of an operating system answer these anywhere."""


@cache
def seen_from(moves: Callable[[FakeNode], None]) -> Report:
    node = healthy_node()
    moves(node)
    return audit.run(node.host(), audit.Request(profile="bringup")).report


@pytest.mark.parametrize("moves", PLACES)
def test_nothing_is_wrong_and_all_is_explained(moves: Callable[[FakeNode], None]) -> None:
    report = seen_from(moves)
    assert wrong(report) == {}
    assert unexplained(report) == []
    assert report.summary.counts["pass"] > 100


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Of the node's disk."""
    folder = tmp_path_factory.mktemp("image")
    files = healthy_node().files
    kept = {p: c for p, c in files.items() if not p.startswith(NOT_IN_AN_IMAGE)}
    write_tree(folder, kept | dict.fromkeys(NOT_IN_AN_IMAGE))
    return audit.run(Host.image(str(folder)), audit.Request(profile="image")).report


def test_the_image_of_a_healthy_node_is_good(image: Report) -> None:
    assert wrong(image) == {}
    assert unexplained(image) == []
    assert image.summary.counts["unknown"] == 0
    assert image.summary.counts["pass"] >= 30
    assert audit.exit_code(image) == 0


def test_every_check_knows_where_it_does_not_apply(image: Report) -> None:
    reports = [image, *map(seen_from, PLACES)]
    found = {r.check for one in reports for r in one.results if r.verdict is Verdict.NOT_APPLICABLE}
    every = {r.check for r in image.results}
    assert every - found <= ASKED_OF_EVERY_SYSTEM


def wrong(report: Report) -> dict[str, str]:
    """Verdicts that the healthy node itself does not get."""
    bad = {"fail", "warn", "error"}
    return {r.check: r.verdict.value for r in report.results if r.verdict.value in bad}


def unexplained(report: Report) -> list[str]:
    """Checks that are not told, or do not apply, without a word why."""
    silent = {"unknown", "notapplicable"}
    return [
        r.check
        for r in report.results
        if r.verdict.value in silent
        and not r.reason
        and not all(f.message for f in r.findings if f.verdict is r.verdict)
    ]
