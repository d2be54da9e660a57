# SPDX-License-Identifier: Apache-2.0
"""Containers: whose files are at hand, and what is concluded from them."""

from pathlib import Path

import pytest
from trees import Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.boot import boots_elsewhere, in_container
from gpuaudit.facts.memory import zone_reclaim
from gpuaudit.facts.node import machine
from gpuaudit.facts.numabalancing import numa_balancing
from gpuaudit.facts.swap import swap

INIT = {"pid": 1, "name": "systemd", "state": "sleeping", "parent": 0}
KERNEL = {"pid": 2, "name": "kthreadd", "state": "sleeping", "parent": 0}
DOCKER: Tree = {"/.dockerenv": ""}


@pytest.mark.parametrize(
    "tree",
    [
        DOCKER,
        {"/run/.containerenv": ""},
        {"/var/run/secrets/kubernetes.io/serviceaccount/token": "x"},
        {"/proc/self/cgroup": "0::/kubepods.slice/pod1/cri-1.scope\n"},
        {"/proc/self/cgroup": "4:cpu:/docker/0123456789ab\n"},
        {"/proc/self/cgroup": f"0::/system.slice/docker-{'0af9' * 16}.scope\n"},
    ],
)
def test_a_container(tmp_path: Path, tree: Tree) -> None:
    host = make_host(tmp_path, tree, processes=[INIT, KERNEL])
    assert in_container(host)
    assert machine(host).container


def test_a_container_without_any_mark(tmp_path: Path) -> None:
    assert in_container(make_host(tmp_path, {}, processes=[INIT]))


@pytest.mark.parametrize(
    "group",
    [
        "0::/user.slice/session-1.scope\n",
        "0::/system.slice/job_7\n",
        "0::/system.slice/docker-audit.service\n",
    ],
)
def test_a_node_and_a_job_on_it(tmp_path: Path, group: str) -> None:
    host = make_host(tmp_path, {"/proc/self/cgroup": group}, processes=[INIT, KERNEL])
    assert not in_container(host)
    assert boots_elsewhere(host) is None


def test_an_image_is_no_container(tmp_path: Path) -> None:
    assert not in_container(make_host(tmp_path, DOCKER, source="image"))


def test_the_files_of_a_container_say_nothing_of_the_next_boot(tmp_path: Path) -> None:
    """Neither that swap comes on, nor that it does not."""
    tree: Tree = {
        **DOCKER,
        "/etc/fstab": "/swap.img none swap sw 0 0\n",
        "/etc/sysctl.d/a.conf": "vm.zone_reclaim_mode = 1\nkernel.numa_balancing = 1\n",
        "/proc/sys/vm/zone_reclaim_mode": "0\n",
        "/proc/sys/kernel/numa_balancing": "0\n",
    }
    host = make_host(tmp_path, tree)
    boots = (
        swap(host).next_boot,
        zone_reclaim(host).next_boot,
        numa_balancing(host).next_boot.value,
    )
    assert [b.kind if isinstance(b, Absent) else b for b in boots] == ["unsupported"] * 3


def test_bare_metal_of_ec2_without_a_cpuid_flag(tmp_path: Path) -> None:
    tree = {
        "/proc/cpuinfo": "CPU implementer\t: 0x41\n",
        "/sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
        "/sys/class/dmi/id/product_name": "g5g.metal\n",
    }
    assert machine(make_host(tmp_path, tree)).is_vm is False
