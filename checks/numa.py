# SPDX-License-Identifier: Apache-2.0
"""NUMA: where devices, CPUs and memory are, and whether the kernel moves pages about."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Verdict,
    check,
    expect,
    expect_at_least,
    fails,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.cpusets import format_list
from gpuaudit.facts.node import Machine
from gpuaudit.facts.numa import NumaNodes, contradiction, locate, require_consistent
from gpuaudit.facts.numabalancing import KEY, NumaBalancing
from gpuaudit.facts.pci import PciDevices
from gpuaudit.topology import near_enough, nearest

NO_GPU = "no NVIDIA GPU on this machine"
WRONG_SOCKET = "processes and memory are placed on the wrong socket"
GUESS = "drivers and NCCL place its memory and threads on any socket"
DETOUR = "GPUDirect RDMA is off or slow: traffic crosses the CPU's own links"
MOVES = "the kernel moves pages between nodes"
SCAN = "page faults while up to 256 MiB of each process is unmapped a scan"


class NumaExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of NUMA."""

    automatic_balancing: Literal["disabled", "any"]
    gpu_nic_farthest: Literal["PIX", "PXB", "PHB", "NODE"]
    min_local_cpus_per_gpu: Annotated[int, msgspec.Meta(ge=1, le=1024)]


@check("numa-tables-consistent", severity=Severity.HIGH)
def tables_consistent(numa: NumaNodes) -> Finding:
    """The NUMA tables agree with themselves and with the online CPUs.

    ## Why it matters
    NCCL, Slurm, Kubernetes and numactl all place processes by these tables, right or wrong.

    ## Evidence
    /sys/devices/system/node/nodeN/{cpulist,distance} and /sys/devices/system/cpu/online.

    ## How it is judged
    Each online CPU is on one node; each node has a distance to every node, none below its own.
    Every other NUMA check is unknown when this one fails.

    ## Exceptions
    Nodes without CPUs are memory (Grace and POWER9 GPUs, CXL, HBM); numbers may have gaps.

    ## What to do
    Update the BIOS, or take `numa=` off the kernel command line. See `dmesg | grep -i srat`.

    ## References
    - https://docs.kernel.org/admin-guide/mm/numaperf.html
    - https://uefi.org/specs/ACPI/6.5/05_ACPI_Software_Programming_Model.html
    """
    observed = f"{len(numa.nodes)} nodes, {len(numa.cpu_nodes)} with CPUs"
    if numa.problems:
        wrong = f"inconsistent NUMA tables: {'; '.join(numa.problems)}"
        return fails("NUMA tables", wrong, observed, cost=WRONG_SOCKET)
    return passes("NUMA tables", observed)


@check("numa-node-known", severity=Severity.HIGH)
def node_known(numa: NumaNodes, pci: PciDevices, machine: Machine) -> Iterator[Finding]:
    """Every GPU, NIC and NVMe drive names the NUMA node it hangs on.

    ## Why it matters
    Drivers, NCCL, Slurm and Kubernetes place memory and processes by it. Without it they guess.

    ## Evidence
    /sys/bus/pci/devices/*/{numa_node,local_cpulist} and the CPU lists of the nodes.

    ## How it is judged
    Where several nodes have CPUs, numa_node is an online node, and local_cpulist its CPUs. -1 fails
    on bare metal and warns in a guest. Two files that disagree warn.

    ## Exceptions
    Where one node has all CPUs -1 is normal. NICs without a driver are left out.

    ## What to do
    Update the BIOS: _PXM of the host bridge is missing or wrong. In a guest set NCCL_TOPO_FILE.

    ## References
    - https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci
    """
    require_consistent(numa)
    if len(numa.cpu_nodes) <= 1:
        raise NotApplicable("one NUMA node has all CPUs: every device is local")
    devices = [d for d in pci.of("gpu", "nic", "nvme") if d.role != "nic" or not d.unbound]
    if not devices:
        raise NotApplicable("no GPU, NIC or NVMe drive")
    for device in devices:
        node, place = device.numa_node, locate(device, numa)
        if node == -1:
            blame = fails if machine.is_vm is False else warns
            yield blame(device.address, "no NUMA node is known (-1)", node, cost=GUESS)
        elif wrong := contradiction(device, numa):
            yield warns(device.address, wrong, node)
        elif isinstance(place, Absent):
            yield unknown(device.address, place.reason)
        else:
            yield passes(device.address, f"node {place}")


@check("numa-gpu-nic-locality", severity=Severity.HIGH)
def gpu_nic_locality(
    numa: NumaNodes, pci: PciDevices, machine: Machine, want: NumaExpectations
) -> Iterator[Finding]:
    """Every GPU has an RDMA-capable NIC near by.

    ## Why it matters
    GPUDirect RDMA works at full rate below one switch (PIX, PXB). Between sockets (SYS) NCCL does
    not use it by default: data takes a detour through host memory.

    ## Evidence
    The PCI tree, numa_node and local_cpulist, and which NICs have a folder `infiniband` in sysfs.
    `gpuaudit topology` prints the whole matrix.

    ## How it is judged
    The nearest RDMA-capable NIC of each GPU is no farther than `numa.gpu_nic_farthest`, in the
    order PIX, PXB, PHB, NODE, SYS. Storage and management NICs may be anywhere.

    ## Exceptions
    No RDMA-capable NIC. In a guest only NUMA nodes count: its PCI tree is made up.

    ## What to do
    Load the RDMA driver of the NIC that is there (`modprobe mlx5_ib`), or move the NIC to the
    GPU's socket. In a guest ask for a NIC on the GPU's node.

    ## References
    - https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-net-gdr-level
    - https://docs.nvidia.com/cuda/gpudirect-rdma/index.html#supported-systems
    """
    require_consistent(numa)
    gpus, nics = pci.of("gpu"), pci.rdma_nics()
    if not gpus or not nics:
        raise NotApplicable("no RDMA-capable NIC has its driver" if gpus else NO_GPU)
    for gpu in gpus:
        nic, near = nearest(gpu, nics, numa, is_vm=machine.is_vm)
        good = near_enough(near, want.gpu_nic_farthest)
        seen, expected = f"{near.kind} to {nic.address}", f"{want.gpu_nic_farthest} or nearer"
        if good is None:
            yield unknown(gpu.address, near.doubt, seen, expected=expected)
        elif good:
            yield passes(gpu.address, seen, expected=expected)
        else:
            message = f"the nearest RDMA-capable NIC is {near.kind} away"
            yield fails(gpu.address, message, seen, expected=expected, cost=DETOUR)


@check("numa-local-cpus-online", severity=Severity.MEDIUM)
def local_cpus_online(
    numa: NumaNodes, pci: PciDevices, want: NumaExpectations
) -> Iterator[Finding]:
    """Each GPU has enough online CPUs on its own NUMA node.

    ## Why it matters
    Main thread, NCCL proxy threads and data loaders otherwise run on another socket.

    ## Evidence
    /sys/bus/pci/devices/*/numa_node of each GPU and the online CPUs of each node.

    ## How it is judged
    Online CPUs of its node, divided by the GPUs there, reach `numa.min_local_cpus_per_gpu`.

    ## Exceptions
    CPUs that a cpuset takes away are not visible here. Hyperthreads count as CPUs.

    ## What to do
    Run `echo 1 > /sys/devices/system/cpu/cpuN/online`, take `maxcpus=`, `nr_cpus=` and `nosmt` off
    the kernel command line, or give the VM more vCPUs.

    ## References
    - https://docs.kernel.org/core-api/cpu_hotplug.html
    """
    require_consistent(numa)
    gpus = pci.of("gpu")
    if not gpus:
        raise NotApplicable(NO_GPU)
    places = {gpu.address: locate(gpu, numa) for gpu in gpus}
    sharing = Counter(place for place in places.values() if isinstance(place, int))
    for address, place in places.items():
        if isinstance(place, Absent):
            yield unknown(address, place.reason)
            continue
        local = numa.cpus_of(place)
        yield expect_at_least(
            len(local) // sharing[place],
            want.min_local_cpus_per_gpu,
            of=address,
            unit="CPUs",
            message=f"node {place} has CPUs {format_list(local)} for {sharing[place]} GPUs",
            cost="its process runs on another socket or waits for a CPU",
        )


@check("numa-balancing-off", severity=Severity.MEDIUM)
def balancing_off(balancing: NumaBalancing, want: NumaExpectations) -> Iterator[Finding]:
    """Automatic NUMA balancing is off, now and after the next boot.

    ## Why it matters
    The kernel unmaps pages to see who touches them, 256 MiB a scan: page faults, and step jitter.

    ## Evidence
    /proc/sys/kernel/numa_balancing. For the next boot: sysctl.d in its order of precedence, the
    active tuned profile, `numa_balancing=` of the kernel command line, /boot/config-RELEASE.

    ## How it is judged
    0 passes, 1 and 3 fail, 2 (memory tiering) warns, a 0 that the next boot will not keep warns.
    In an image only the next boot is judged.

    ## Exceptions
    One NUMA node, or a kernel without the feature: nothing to balance.

    ## What to do
    Run `sysctl -w kernel.numa_balancing=0`, and make it last with a line
    `kernel.numa_balancing = 0` in /etc/sysctl.d/90-gpuaudit.conf.

    ## References
    - https://docs.kernel.org/admin-guide/sysctl/kernel.html#numa-balancing
    - https://www.freedesktop.org/software/systemd/man/latest/sysctl.d.html
    """
    if balancing.nodes == 1:
        raise NotApplicable("one NUMA node: nothing to balance")
    if want.automatic_balancing == "any":
        raise NotApplicable("the policy accepts any value")
    now, after = balancing.running, balancing.next_boot
    if now is not None:
        worst = Verdict.WARN if now == 2 else Verdict.FAIL
        yield expect(now, 0, of=KEY, message=MOVES, cost=SCAN, otherwise=worst)
    if not now:
        worst = Verdict.FAIL if now is None else Verdict.WARN
        sets = f"{after.source} sets it to {after.value}"
        yield expect(after.value, 0, of=f"{KEY} at boot", message=sets, otherwise=worst)
