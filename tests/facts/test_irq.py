# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from typing import Any

import pytest
from machines import nic, pci
from trees import Tree, make_host

from gpuaudit.facts.cpu import cpu_sets
from gpuaudit.facts.irq import IrqPinning, NicVectors, irq_pinning, nic_interrupts
from gpuaudit.host import NotApplicable, Unavailable

NIC = nic("0000:01:00.0")
ONLINE = {"/sys/devices/system/cpu/online": "0-7\n"}


def vectors(folder: Path, tree: Tree, **more: Any) -> NicVectors:
    (only,) = nic_interrupts(make_host(folder, tree, **more), pci(NIC)).nics
    return only


def msi(*numbers: int) -> dict[str, str]:
    return {f"{NIC.path}/msi_irqs/{number}": "msix\n" for number in numbers}


def test_effective_affinity_goes_before_the_requested(tmp_path: Path) -> None:
    tree = {
        **msi(40, 41, 42),
        "/proc/irq/40/effective_affinity_list": "3\n",
        "/proc/irq/40/smp_affinity_list": "0-7\n",
        "/proc/irq/41/effective_affinity_list": "\n",
        "/proc/irq/41/smp_affinity_list": "4-5\n",
        "/proc/irq/42/smp_affinity": "00000000,000000c0\n",
    }
    found = vectors(tmp_path, tree)
    assert found.cpus == {40: {3}, 41: {4, 5}, 42: {6, 7}}
    assert found.unread is None


def test_a_vector_without_a_folder_is_not_in_use(tmp_path: Path) -> None:
    tree = {**msi(40, 41), "/proc/irq/40/smp_affinity_list": "1\n"}
    assert vectors(tmp_path, tree).cpus == {40: {1}}


def test_a_vector_that_was_not_recorded_is_unread(tmp_path: Path) -> None:
    tree = {**msi(40, 41), "/proc/irq/40/smp_affinity_list": "1\n"}
    assert "was not recorded" in (vectors(tmp_path, tree, source="plain").unread or "")


def test_a_garbled_vector_is_unread(tmp_path: Path) -> None:
    tree = {**msi(40), "/proc/irq/40/smp_affinity_list": "all of them\n"}
    assert "no CPU list" in (vectors(tmp_path, tree).unread or "")


def test_the_line_interrupt_of_a_function_without_msi(tmp_path: Path) -> None:
    tree = {f"{NIC.path}/irq": "11\n", "/proc/irq/11/smp_affinity_list": "0-3\n"}
    assert vectors(tmp_path, tree).cpus == {11: {0, 1, 2, 3}}


def test_line_0_is_no_interrupt(tmp_path: Path) -> None:
    assert vectors(tmp_path, {f"{NIC.path}/irq": "0\n"}).cpus == {}


def test_no_nic_has_a_driver(tmp_path: Path) -> None:
    with pytest.raises(NotApplicable):
        nic_interrupts(make_host(tmp_path, {}), pci(nic("0000:01:00.0", driver=None)))


def pinning(folder: Path, tree: Tree, **more: Any) -> IrqPinning:
    host = make_host(folder, {**ONLINE, **tree}, **more)
    return irq_pinning(host, pci(NIC), cpu_sets(host))


@pytest.mark.parametrize(("cpus", "free"), [("0-7", (NIC.address,)), ("0-3", ()), ("5", ())])
def test_who_may_run_anywhere(tmp_path: Path, cpus: str, free: tuple[str, ...]) -> None:
    tree = {**msi(40, 41), "/proc/irq/41/smp_affinity_list": cpus}
    assert pinning(tmp_path, tree) == IrqPinning(configured=(), free=free)


def test_a_driver_that_places_its_own_vectors(tmp_path: Path) -> None:
    """mlx5: the vector for events may run anywhere, those for traffic are spread."""
    tree = {
        **msi(40, 41),
        "/proc/irq/40/smp_affinity_list": "0-7",
        "/proc/irq/41/smp_affinity_list": "2",
    }
    assert pinning(tmp_path, tree).free == ()


def test_pinning_that_is_configured(tmp_path: Path) -> None:
    tree = {
        **msi(),
        "/etc/infiniband/openib.conf": "# tuning\nRUN_AFFINITY_TUNER=yes\n",
        "/proc/cmdline": "ro irqaffinity=0-3 quiet\n",
        f"{NIC.path}/irq": "0\n",
    }
    assert pinning(tmp_path, tree).configured == (
        "irqaffinity=0-3",
        "RUN_AFFINITY_TUNER=yes in /etc/infiniband/openib.conf",
    )


def test_pinning_that_was_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        pinning(tmp_path, msi(40), source="plain")
