# SPDX-License-Identifier: Apache-2.0
"""Interrupts: which CPUs serve the NICs, and who decides that."""

from collections.abc import Iterator
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
from gpuaudit.facts.numa import NumaNodes, locate, require_consistent
from gpuaudit.facts.pci import PciDevices
from gpuaudit.facts.services import Irqbalance

REMOTE = "each remote interrupt fetches descriptors and data across the link between the sockets"


class IrqExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of interrupts."""

    irqbalance: Literal["any", "running", "absent"]


@check("irq-nic-affinity", severity=Severity.MEDIUM)
def nic_affinity(interrupts: NicInterrupts, numa: NumaNodes, pci: PciDevices) -> Iterator[Finding]:
    """The interrupts of every NIC are served by CPUs of its own NUMA node.

    ## Why it matters
    An interrupt served on another socket fetches the NIC's descriptors across the link between the
    sockets, and threads it wakes start on the wrong side of it.

    ## Evidence
    The vectors below /sys/bus/pci/devices/A/msi_irqs; /proc/irq/N/effective_affinity_list, and
    where that is empty or missing smp_affinity_list or smp_affinity.

    ## How it is judged
    Every vector in use is served only by CPUs of the NIC's node. A driver that has a vector on
    every local CPU and puts the rest elsewhere warns, and so do several vectors all on one CPU.

    ## Exceptions
    One NUMA node. NVMe and other vectors that the kernel itself manages are not looked at. A new
    affinity takes effect with the next interrupt, so a quiet NIC may still show the old CPU.

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
        place = locate(pci.by_address[nic.address], numa)
        if isinstance(place, Absent):
            yield unknown(nic.address, place.reason)
        elif nic.unread is not None:
            yield unknown(nic.address, nic.unread)
        elif not nic.cpus:
            yield not_applicable(nic.address, "no interrupt vector is in use")
        else:
            yield vectors_of(nic, place, numa.cpus_of(place))


def vectors_of(nic: NicVectors, node: int, local: frozenset[int]) -> Finding:
    """The finding for one NIC: counts, not vectors."""
    near = [cpus for cpus in nic.cpus.values() if cpus <= local]
    seen, wanted = f"{len(near)} of {len(nic.cpus)} vectors on node {node}", "all"
    if len(near) < len(nic.cpus):
        blame = warns if local <= frozenset[int]().union(*near) else fails
        far = len(nic.cpus) - len(near)
        message = f"{far} of {len(nic.cpus)} vectors served by other nodes than {node}"
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
    """Either irqbalance or pinning places interrupts, not both and not none.

    ## Why it matters
    irqbalance undoes what a script has pinned within ten seconds. With neither, vectors stay where
    the kernel put them at boot.

    ## Evidence
    The process table; /etc/default/irqbalance or /etc/sysconfig/irqbalance;
    RUN_AFFINITY_TUNER in /etc/infiniband/openib.conf; `irqaffinity=` in /proc/cmdline; the
    affinity of the first vector of each NIC.

    ## How it is judged
    `irq.irqbalance: running` and `absent` want just that. `any`: a running irqbalance beside
    configured pinning fails, and none of both warns on a machine with several NUMA nodes.

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
    return fails("irqbalance", message, "running", cost="pinned vectors are moved away again")
