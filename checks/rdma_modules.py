# SPDX-License-Identifier: Apache-2.0
"""The software below RDMA: drivers bound, modules of one make, device files, GDRCopy."""

from collections.abc import Iterator
from typing import Literal

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    expect,
    fails,
    not_applicable,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.environment import Environment
from gpuaudit.facts.gpuscan import PASSTHROUGH
from gpuaudit.facts.node import Machine
from gpuaudit.facts.pci import PciDevice, PciDevices
from gpuaudit.facts.rdma import InfinibandDevices
from gpuaudit.facts.rdmaports import RdmaPorts, tcp_instead
from gpuaudit.facts.rdmastack import GdrCopy, RdmaStack
from gpuaudit.topology.rdmaroles import VARIABLE, chosen

FABRIC_CLASSES = frozenset({0x0207, 0x0208, 0x0C06})
"""InfiniBand, host fabric (Omni-Path) and InfiniBand as a serial bus: PCI Code and ID Assignment
Specification 1.11."""


MELLANOX = 0x15B3


class RdmaModulesExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of RDMA software."""

    gdrcopy: Literal["required", "any"]


@check("rdma-adapter-driver", severity=Severity.HIGH)
def adapter_driver(
    pci: PciDevices, devices: InfinibandDevices, environment: Environment
) -> Iterator[Finding]:
    """Every RDMA adapter on the bus has its RDMA driver.

    ## Why it matters
    An adapter without it is not there for NCCL, which uses the others, or TCP, without a word.

    ## Evidence
    PCI class and driver of each function, and whether its folder in sysfs holds `infiniband`;
    NCCL_IB_HCA where the node sets it, and /sys/class/infiniband.

    ## How it is judged
    InfiniBand and Omni-Path adapters, and Ethernet ones of a model of which another is used with
    RDMA, have an RDMA device. Ethernet ones without any driver warn, and so do those of others than
    NVIDIA: their drivers take RDMA away from ports that are bonded. NCCL_IB_HCA on a node without
    any RDMA device warns.

    ## Exceptions
    Adapters that are handed to guests (vfio-pci) and virtual functions are left out. Ports of one
    card that are bonded share one RDMA device. Where RDMA devices belong to one network namespace
    (`rdma system`), a missing one may be a container's and is unknown. Ethernet adapters none of
    which has an RDMA device are ordinary network cards here.

    ## What to do
    Run `modprobe mlx5_ib` (or `dracut`/`update-initramfs` if only the initramfs lacks it), and
    read `dmesg | grep mlx5` for why the driver did not start.

    ## References
    - https://docs.kernel.org/networking/device_drivers/ethernet/mellanox/mlx5/index.html
    - https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband
    """
    nics = [nic for nic in pci.of("nic") if nic.driver not in PASSTHROUGH]
    models = {nic.id for nic in nics if nic.rdma}
    found = [nic for nic in nics if is_fabric(nic) or nic.id in models]
    if not found and devices.names == () and (named := chosen(environment, VARIABLE)):
        value, where = named[0]
        message = f"set in {where}, and the node has no RDMA device"
        yield warns(f"{VARIABLE}={value}", message, "none", evidence=(where,))
    elif not found:
        raise NotApplicable("no RDMA adapter is on the PCI bus")
    cards = {nic.slot for nic in nics if nic.rdma}
    for nic in found:
        if nic.rdma is None:
            yield unknown(nic.address, "whether it has an RDMA device was not recorded")
        elif nic.rdma:
            yield passes(nic.address, nic.driver)
        elif nic.slot in cards and nic.driver:
            yield not_applicable(nic.address, "the RDMA device of its card is on another function")
        elif devices.exclusive and nic.driver:
            yield unknown(nic.address, "no RDMA device here, but a container may have it")
        else:
            likely = is_fabric(nic) or (nic.vendor == MELLANOX and not nic.unbound)
            blame = fails if likely else warns
            why = f"driver {nic.driver} is bound without RDMA" if nic.driver else "no driver"
            yield blame(nic.address, f"no RDMA device: {why}", nic.driver or "none")


def is_fabric(nic: PciDevice) -> bool:
    """An adapter that is of no use without RDMA."""
    return nic.class_code >> 8 in FABRIC_CLASSES


@check("rdma-device-files", severity=Severity.HIGH)
def device_files(ports: RdmaPorts, stack: RdmaStack, machine: Machine) -> Iterator[Finding]:
    """Programs can open every RDMA adapter.

    ## Why it matters
    Without ib_uverbs and its device files libibverbs finds nothing and NCCL falls back to TCP.

    ## Evidence
    /sys/class/infiniband_verbs/uverbs*/ibdev and the names in /dev/infiniband.

    ## How it is judged
    Each adapter has a uverbs device, and /dev/infiniband has its file.

    ## Exceptions
    Inside a container a file that is missing may be given to others: not applicable. Modes are not
    judged: the kernel makes the files open to all.

    ## What to do
    Run `modprobe ib_uverbs` and install rdma-core, whose udev rules load it at boot. In a job's
    container: `--device=/dev/infiniband`, or the RDMA device plugin.

    ## References
    - https://www.kernel.org/doc/Documentation/infiniband/user_verbs.txt
    - https://github.com/linux-rdma/rdma-core/blob/master/Documentation/udev.md
    """
    if machine.container and stack.nodes == frozenset():
        raise NotApplicable("this container was given no RDMA device")
    adapters = [device.device for device in ports.devices if not device.virtual_function]
    if not adapters:
        raise NotApplicable("no RDMA adapter is on this machine")
    for name in adapters:
        cost = tcp_instead(p for p in ports.ports if p.device == name)
        yield openable(name, stack, cost, contained=machine.container is True)


def openable(device: str, stack: RdmaStack, cost: str, *, contained: bool) -> Finding:
    """One adapter."""
    if isinstance(stack.verbs, Absent):
        return expect(stack.verbs, "readable", of=device)
    if device not in stack.verbs:
        why = "ib_uverbs is not loaded" if not stack.verbs else "it has no uverbs device"
        return fails(device, f"programs cannot use it: {why}", "none", cost=cost)
    node = stack.verbs[device]
    if isinstance(stack.nodes, Absent):
        return expect(stack.nodes, "readable", of=device)
    if node not in stack.nodes:
        message = f"/dev/infiniband/{node} is missing"
        if contained:
            return not_applicable(device, "this container was not given it", message)
        return fails(device, message, node, cost=cost)
    return passes(device, f"/dev/infiniband/{node}")


@check("rdma-driver-flavour", severity=Severity.MEDIUM)
def driver_flavour(stack: RdmaStack) -> Finding:
    """The RDMA modules are all the kernel's own, or all from one package.

    ## Why it matters
    MLNX_OFED and DOCA-OFED replace ib_core and mlx5 together. A mixture, left over from an update
    of the kernel, loads in part or misses features such as peer memory.

    ## Evidence
    /sys/module/{ib_core,ib_uverbs,mlx5_core,mlx5_ib}/taint: O marks a module from outside of the
    kernel's tree.

    ## How it is judged
    All loaded ones are marked, or none is. A mixture warns. The flavour is shown.

    ## Exceptions
    Modules built into the kernel have no mark and are left out. Other vendors' packages replace
    only their own driver and are not judged: not applicable without mlx5.

    ## What to do
    Rebuild the package for the running kernel (`dkms status`, `mlnxofedinstall
    --add-kernel-support`), or remove it, and load all modules anew.

    ## References
    - https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-module
    - https://docs.kernel.org/admin-guide/tainted-kernels.html
    """
    if not stack.taints.keys() & {"mlx5_core", "mlx5_ib"}:
        raise NotApplicable("no mlx5 module tells where it comes from")
    told = {module: taint for module, taint in stack.taints.items() if isinstance(taint, str)}
    if lost := next((taint for taint in stack.taints.values() if isinstance(taint, Absent)), None):
        return expect(lost, "readable", of="RDMA modules")
    outside = sorted(module for module, taint in told.items() if "O" in taint)
    inside = sorted(told.keys() - set(outside))
    if outside and inside:
        message = f"{', '.join(outside)} from a package, {', '.join(inside)} from the kernel"
        return warns("RDMA modules", message, "mixed")
    flavour = "a package (MLNX_OFED, DOCA)" if outside else "the kernel's own"
    return passes("RDMA modules", f"{flavour}: {', '.join(sorted(stack.taints))}")


@check("rdma-gdrcopy", severity=Severity.LOW)
def gdrcopy(gdr: GdrCopy, want: RdmaModulesExpectations) -> Finding:
    """GDRCopy is ready where the policy asks for it.

    ## Why it matters
    UCX, NVSHMEM and NCCL copy small messages to a GPU with it in a microsecond instead of ten.

    ## Evidence
    /sys/module/gdrdrv and /dev/gdrdrv.

    ## How it is judged
    Both are there, where `rdma_modules.gdrcopy` is `required`. Not applicable while it is `any`.

    ## Exceptions
    Not of use on GeForce. In a container only the device file counts, which has to be handed in.

    ## What to do
    Install gdrdrv-dkms, run `modprobe gdrdrv`, and name it in /etc/modules-load.d.

    ## References
    - https://github.com/NVIDIA/gdrcopy
    """
    if want.gdrcopy == "any":
        raise NotApplicable("the policy does not ask for GDRCopy")
    if lost := next((v for v in (gdr.module, gdr.node) if isinstance(v, Absent)), None):
        return expect(lost, "readable", of="GDRCopy")
    if gdr.module and gdr.node:
        return passes("GDRCopy", "/dev/gdrdrv")
    message = "/dev/gdrdrv is missing" if gdr.module else "the module gdrdrv is not loaded"
    return fails("GDRCopy", message, "off")
