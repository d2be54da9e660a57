# SPDX-License-Identifier: Apache-2.0
"""Interrupts: which CPUs serve the NICs, and who decides that."""

from collections.abc import Callable, Iterator
from typing import Literal

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.cpu import named
from gpuaudit.facts.irq import IrqPinning, NicInterrupts, NicVectors
from gpuaudit.facts.node import Machine
from gpuaudit.facts.numa import NumaNodes, locate, require_consistent
from gpuaudit.facts.pci import PciDevices
from gpuaudit.facts.services import Irqbalance
from gpuaudit.topology import is_provided

REMOTE = "each remote interrupt fetches descriptors and data from another NUMA node"


class IrqExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of interrupts."""

    irqbalance: Literal["any", "running", "absent"]


@check("irq-nic-affinity", severity=Severity.MEDIUM)
def nic_affinity(
    interrupts: NicInterrupts, numa: NumaNodes, pci: PciDevices, machine: Machine
) -> Iterator[Finding]:
    """The interrupts of every NIC are served by CPUs of its own NUMA node.

    ## Why it matters
    An interrupt served on another NUMA node fetches the NIC's descriptors from there, for most
    machines across the link between the sockets, and threads it wakes start on the wrong side.

    ## Evidence
    The vectors below /sys/bus/pci/devices/A/msi_irqs; /proc/irq/N/effective_affinity_list, and
    where that is empty or missing smp_affinity_list or smp_affinity.

    ## How it is judged
    Every vector in use is served only by CPUs of the NIC's node. An RDMA-capable NIC with half of
    its vectors or more on other nodes fails. The rest warns: fewer vectors (mlx5 has one for events
    beside those for traffic), vectors that may run here or there, a driver with a vector on every
    local CPU and the rest elsewhere, other NICs, and several vectors all on one CPU.

    ## Exceptions
    One NUMA node, and virtual NICs of a guest. NVMe and other vectors that the kernel itself
    manages are not looked at. A new affinity takes effect with the next interrupt, so a quiet NIC
    may still show the old CPU.

    ## What to do
    Write the CPUs of the NIC's local_cpulist to /proc/irq/N/smp_affinity_list of each vector, or
    run `set_irq_affinity_bynode.sh NODE INTERFACE` of mlnx-tools, or start irqbalance.

    ## References
    - https://docs.kernel.org/core-api/irq/irq-affinity.html
    - https://docs.kernel.org/PCI/msi-howto.html
    """
    require_consistent(numa)
    if len(numa.cpu_nodes) <= 1:
        raise NotApplicable("one NUMA node has all CPUs: every CPU is local")
    for nic in interrupts.nics:
        device = pci.by_address[nic.address]
        place = locate(device, numa)
        if is_provided(device, is_vm=machine.is_vm):
            yield not_applicable(
                nic.address, "the hypervisor provides this NIC: it is near nothing"
            )
        elif isinstance(place, Absent):
            yield unknown(nic.address, place.reason)
        elif nic.unread is not None:
            yield unknown(nic.address, nic.unread)
        elif not nic.cpus:
            yield not_applicable(nic.address, "no interrupt vector is in use")
        else:
            strict = device.rdma is not False
            yield vectors_of(nic, place, numa.cpus_of(place), fails if strict else warns)


def vectors_of(
    nic: NicVectors, node: int, local: frozenset[int], otherwise: Callable[..., Finding]
) -> Finding:
    """The finding for one NIC: counts, not vectors."""
    near = [cpus for cpus in nic.cpus.values() if cpus <= local]
    away = [cpus for cpus in nic.cpus.values() if not cpus & local]
    seen, wanted = f"{len(near)} of {len(nic.cpus)} vectors on node {node}", "all"
    if len(near) < len(nic.cpus):
        many = 2 * len(away) >= len(nic.cpus) and not local <= frozenset[int]().union(*near)
        blame = otherwise if many else warns
        how = "served" if away else "may be served"
        far = len(away) or len(nic.cpus) - len(near)
        message = f"{far} of {len(nic.cpus)} vectors {how} by other nodes than {node}"
        return blame(nic.address, message, seen, expected=wanted, cost=REMOTE)
    used = frozenset[int]().union(*near)
    if len(near) > 1 and len(used) == 1:
        message = f"all {len(near)} vectors are on {named(used)}"
        return warns(nic.address, message, seen, cost="one CPU serves the whole NIC")
    return passes(nic.address, seen, expected=wanted)


@check("irq-balance-policy", severity=Severity.LOW)
def balance_policy(
    balance: Irqbalance, pinning: IrqPinning, numa: NumaNodes, want: IrqExpectations
) -> Finding:
    """Interrupts are placed by irqbalance or pinning, not both or neither.

    ## Why it matters
    irqbalance undoes what a script has pinned within ten seconds. With neither, vectors stay where
    the kernel put them at boot.

    ## Evidence
    The process table; /etc/default/irqbalance or /etc/sysconfig/irqbalance;
    RUN_AFFINITY_TUNER in /etc/infiniband/openib.conf; `irqaffinity=` in /proc/cmdline; the
    affinity of the vectors of each NIC. Drivers such as mlx5 place their vectors themselves.

    ## How it is judged
    `irq.irqbalance: running` and `absent` want just that. With `any`, a running irqbalance beside
    RUN_AFFINITY_TUNER fails; beside `irqaffinity=`, which only says where vectors start, it warns.
    Having neither warns on a machine with several NUMA nodes.

    ## Exceptions
    One-shot mode: irqbalance has run and ended. A configuration that bans interrupts from
    irqbalance may share the work with a script, which passes.

    ## What to do
    Keep one of them: `systemctl enable --now irqbalance`, or `systemctl disable --now irqbalance`
    and a script that pins after the driver has loaded.

    ## References
    - https://github.com/Irqbalance/irqbalance/blob/master/irqbalance.1
    - https://docs.kernel.org/core-api/irq/irq-affinity.html
    """
    if isinstance(balance.running, Absent):
        return unknown("irqbalance", balance.running.reason)
    seen = "running" if balance.running else "not running"
    if want.irqbalance != "any":
        good = balance.running is (want.irqbalance == "running")
        judge = passes("irqbalance", seen, expected=want.irqbalance)
        wrong = fails("irqbalance", f"irqbalance is {seen}", seen, expected=want.irqbalance)
        return judge if good else wrong
    if balance.running:
        return beside_pinning(balance, pinning)
    if balance.one_shot:
        return passes("irqbalance", f"one-shot ({balance.config})")
    if pinning.configured or not pinning.free or len(numa.cpu_nodes) <= 1:
        return passes("irqbalance", seen, evidence=pinning.configured)
    message = f"nobody places the interrupts of {', '.join(pinning.free)}"
    return warns("irqbalance", message, seen, cost=REMOTE)


def beside_pinning(balance: Irqbalance, pinning: IrqPinning) -> Finding:
    """A running irqbalance: alone, sharing by bans, or against a script."""
    if not pinning.configured or balance.bans:
        return passes("irqbalance", "running", evidence=balance.bans)
    message = f"irqbalance runs beside {', '.join(pinning.configured)}"
    only_default = all(how.startswith("irqaffinity=") for how in pinning.configured)
    blame = warns if only_default else fails
    return blame("irqbalance", message, "running", cost="pinned vectors are moved away again")
