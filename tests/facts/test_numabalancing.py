# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

from trees import Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.numabalancing import NextBoot, NumaBalancing, numa_balancing

RUNNING = "/proc/sys/kernel/numa_balancing"
RELEASE = "/proc/sys/kernel/osrelease"
NODES = {f"/sys/devices/system/node/node{n}": None for n in range(2)}
SYSCTL = {"/etc/sysctl.d/90-numa.conf": "# off\nkernel.numa_balancing = 0\n"}
TUNED: Tree = {
    "/etc/tuned/active_profile": "mine\n",
    "/etc/tuned/mine/tuned.conf": "[main]\ninclude=hpc\n[sysctl]\nvm.swappiness=1\n",
    "/usr/lib/tuned/hpc/tuned.conf": "[main]\ninclude=mine\n[sysctl]\nkernel.numa_balancing=0\n",
}
ENABLED = {"/etc/systemd/system/multi-user.target.wants/tuned.service": "[Unit]\n"}
CMDLINE = {"/proc/cmdline": "ro numa_balancing=enable numa_balancing=disable\n"}
DEFAULT = {
    RELEASE: "6.8.0\n",
    "/boot/config-6.8.0": "# x\nCONFIG_NUMA_BALANCING_DEFAULT_ENABLED=y\n",
}


def read(folder: Path, *trees: Tree, **more: Any) -> NumaBalancing:
    tree: dict[str, Any] = {"/etc": None, "/proc/cmdline": "ro\n"}
    for part in trees:
        tree |= part
    return numa_balancing(make_host(folder, tree, **more))


def test_the_running_value_and_the_nodes(tmp_path: Path) -> None:
    found = read(tmp_path, NODES, {RUNNING: "1\n"})
    assert (found.running, found.nodes) == (1, 2)


def test_a_kernel_known_to_have_neither(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert found.running == Absent("unsupported", f"{RUNNING} does not exist")
    assert found.nodes == 1


def test_sysctl_d_has_the_last_word(tmp_path: Path) -> None:
    found = read(tmp_path, SYSCTL, TUNED, ENABLED, CMDLINE, DEFAULT)
    assert found.next_boot == NextBoot(value=0, source="/etc/sysctl.d/90-numa.conf:2")


def test_then_tuned_with_what_it_includes(tmp_path: Path) -> None:
    found = read(tmp_path, TUNED, ENABLED, DEFAULT)
    assert found.next_boot == NextBoot(value=0, source="/usr/lib/tuned/hpc/tuned.conf")


def test_tuned_that_is_not_enabled_sets_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, TUNED, DEFAULT).next_boot.value == 1


def test_then_the_command_line(tmp_path: Path) -> None:
    found = read(tmp_path, CMDLINE, DEFAULT)
    assert found.next_boot == NextBoot(value=0, source="numa_balancing=disable in /proc/cmdline")


def test_then_the_default_of_the_kernel(tmp_path: Path) -> None:
    assert read(tmp_path, DEFAULT).next_boot == NextBoot(
        value=1, source="the kernel's default (/boot/config-6.8.0)"
    )


def test_without_any_of_them_it_is_not_known(tmp_path: Path) -> None:
    assert isinstance(read(tmp_path, {RELEASE: "6.8.0\n"}).next_boot.value, Absent)


def test_an_image_has_a_next_boot_only(tmp_path: Path) -> None:
    grub = "menuentry 'a' {\n\tlinux /vmlinuz root=x numa_balancing=disable\n}\n"
    rescue = "menuentry 'b' {\n\tlinux /vmlinuz root=x single\n}\n"
    tree = {"/boot/grub/grub.cfg": grub + rescue}
    found = numa_balancing(make_host(tmp_path, tree, source="image"))
    assert (found.running, found.nodes) == (None, None)
    assert found.next_boot == NextBoot(
        value=0, source="numa_balancing=disable in /boot/grub/grub.cfg"
    )


def test_boot_entries_that_disagree_are_not_known(tmp_path: Path) -> None:
    tree = {
        f"/boot/loader/entries/{name}.conf": f"title x\noptions ro {words}\n"
        for name, words in {"a": "numa_balancing=disable", "b": "quiet"}.items()
    }
    found = numa_balancing(make_host(tmp_path, {**DEFAULT, **tree}, source="image"))
    assert isinstance(found.next_boot.value, Absent)
    assert "disagree" in found.next_boot.value.reason
