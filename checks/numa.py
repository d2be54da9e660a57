# SPDX-License-Identifier: Apache-2.0
"""NUMA: where devices, CPUs and memory are. See also numa_balancing."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
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
from gpuaudit.facts.pci import PciDevice, PciDevices
from gpuaudit.topology import Rate, is_provided, near_enough, nearest, own_link

NO_GPU = "no NVIDIA GPU on this machine"
WRONG_SOCKET = "processes and memory are placed on the wrong socket"
GUESS = "drivers and NCCL place its memory and threads on any socket"


class NumaExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of NUMA."""

    gpu_nic_farthest: Literal["PIX", "PXB", "PHB", "NODE"]
    gpu_nic_too_far: Literal["warn", "fail", "fail-with-nvswitch"]
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
    Other NUMA checks are unknown when this one fails.

    ## Exceptions
    Nodes without CPUs are memory (Grace and POWER9 GPUs, CXL, HBM); numbers may have gaps.

    ## What to do
    Update the BIOS, or take `numa=` off the kernel command line. See `dmesg | grep -i srat`.

    ## References
    - https://docs.kernel.org/admin-guide/mm/numaperf.html
    - https://uefi.org/specs/ACPI/6.5/05_ACPI_Software_Programming_Model.html
    """
    one = len(numa.nodes) == 1
    observed = f"{len(numa.nodes)} node{'' if one else 's'}, {len(numa.cpu_nodes)} with CPUs"
    if numa.problems:
        return fails("NUMA tables", numa.wrong, observed, cost=WRONG_SOCKET)
    if numa.unread:
        return unknown("NUMA tables", numa.unread, observed)
    return passes("NUMA tables", observed)


@check("numa-node-known", severity=Severity.HIGH)
def node_known(numa: NumaNodes, pci: PciDevices, machine: Machine) -> Iterator[Finding]:
    """Every GPU, NIC and NVMe drive names the NUMA node it belongs to.

    ## Why it matters
    Drivers, NCCL, Slurm and Kubernetes place memory and processes by it. Without it they guess.

    ## Evidence
    /sys/bus/pci/devices/*/{numa_node,local_cpulist} and the CPU lists of the nodes.

    ## How it is judged
    Where several nodes have CPUs, numa_node is an online node, and local_cpulist its CPUs. -1 fails
    on bare metal and warns in a guest. Two files that disagree warn.

    ## Exceptions
    Where one node has all CPUs -1 is normal. NICs without a driver are left out,
    and so are virtual NICs and drives of a guest.

    ## What to do
    Update the BIOS: _PXM of the host bridge is missing. In a guest set NCCL_TOPO_FILE.

    ## References
    - https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci
    """
    require_consistent(numa)
    if len(numa.cpu_nodes) <= 1:
        raise NotApplicable("one NUMA node has all CPUs: every device is local")
    found = (d for d in pci.of("gpu", "nic", "nvme") if d.role != "nic" or not d.unbound)
    devices = [d for d in found if not is_provided(d, is_vm=machine.is_vm)]
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
    """Every GPU has an RDMA-capable NIC nearby.

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
    Not applicable without an RDMA-capable NIC. In a guest only NUMA nodes count.

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
    strict = want.gpu_nic_too_far == "fail" or (
        want.gpu_nic_too_far == "fail-with-nvswitch" and bool(pci.of("nvswitch"))
    )
    too_far = fails if strict else warns
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
            cost = detour(pci, () if machine.is_vm else (gpu, nic))
            yield too_far(gpu.address, message, seen, expected=expected, cost=cost)


def detour(devices: PciDevices, ends: tuple[PciDevice, ...]) -> str:
    """How much: what the narrower PCIe link of the two carries, which a guest does not see."""
    links = [own_link(devices, one) for one in ends]
    rates = [link.could.gb_per_s for link in links if link and isinstance(link.could, Rate)]
    amount = f"up to {min(rates):.1f} GB/s each way (the narrower link)" if rates else "traffic"
    return f"{amount} crosses the CPU's own links: GPUDirect RDMA is off or slow"


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
    if not (gpus := pci.of("gpu")):
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
