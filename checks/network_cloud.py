# SPDX-License-Identifier: Apache-2.0
"""Network adapters of clouds."""

from collections.abc import Iterator

from gpuaudit.check import (
    Finding,
    NotApplicable,
    Severity,
    check,
    expect,
    fails,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.netcloud import CloudNic, Efa, GoogleNics
from gpuaudit.facts.node import Machine
from gpuaudit.facts.pci import PciDevices

Findings = Iterator[Finding]
TCP_ONLY = "NCCL falls back to TCP over the ENA adapter, a fraction of the bandwidth of EFA"


@check("network-efa", severity=Severity.HIGH)
def efa(found: Efa, machine: Machine) -> Findings:
    """AWS EFA adapters have their driver, libfabric and NCCL's plug-in.

    ## Why it matters
    NCCL reaches EFA through libfabric and the plug-in aws-ofi-nccl. Without any of the three it
    takes TCP and says so in one line of its log at most.

    ## Evidence
    PCI functions 1d0f:efa0 to efa4, their driver and InfiniBand device; libfabric.so.1 below
    /opt/amazon/efa, libnccl-net.so or libnccl-net-ofi.so below /opt/amazon/ofi-nccl.

    ## How it is judged
    Each function is bound to `efa` and has an InfiniBand device, or it fails. A library that is in
    none of the installer's folders is a warning: an image may have it elsewhere.

    ## Exceptions
    Not applicable without an EFA function. In a container the libraries are the container's own,
    which is what NCCL there uses. Huge pages, which EFA takes if there are some, and fork support,
    which current libfabric decides by itself, are not judged. The security group that has to allow
    all traffic to itself cannot be seen from a node.

    ## What to do
    Run AWS's `efa_installer.sh -y`, check with `fi_info -p efa -t FI_EP_RDM`, and start NCCL with
    NCCL_DEBUG=INFO to see "Selected provider is efa".

    ## References
    - https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start-nccl.html
    - https://github.com/aws/aws-ofi-nccl
    """
    for nic in found.nics:
        yield judge_efa(nic)
    here = "the container" if machine.container else "this node"
    for what, path in {"libfabric": found.libfabric, "aws-ofi-nccl": found.plugin}.items():
        if isinstance(path, Absent):
            yield expect(path, None, of=what)
        elif path is None:
            message = f"in none of the installer's folders of {here}"
            yield warns(what, message, "not found", cost=TCP_ONLY)
        else:
            yield passes(what, path)


def judge_efa(nic: CloudNic) -> Finding:
    """One function."""
    if nic.driver == "efa" and nic.rdma:
        return passes(nic.address, "driver efa, InfiniBand device")
    if not nic.driver_known or (nic.driver == "efa" and nic.rdma is None):
        return unknown(nic.address, "whether it has a driver and an RDMA device was not recorded")
    if nic.driver == "efa":
        message = "bound to efa, but no InfiniBand device came of it (see dmesg)"
    else:
        message = f"bound to {nic.driver or 'no driver'}, not to efa"
    return fails(nic.address, message, nic.driver or "no driver", expected="efa", cost=TCP_ONLY)


@check("network-gvnic", severity=Severity.MEDIUM)
def gvnic(found: GoogleNics, pci: PciDevices, machine: Machine) -> Findings:
    """A GPU machine in Google Cloud uses gVNIC.

    ## Why it matters
    Google gives the higher bandwidths of its GPU machines to gVNIC only, and GPUDirect-TCPX and
    TCPXO work with nothing else.

    ## Evidence
    PCI functions 1ae0:0042 (gVNIC) and 1af4:1000 or 1041 (virtio), and the driver of the former.

    ## How it is judged
    Each gVNIC is bound to `gve`, or it fails. A machine with GPUs whose network is virtio gets a
    warning.

    ## Exceptions
    Not applicable outside Google Cloud and without a GPU. ConnectX adapters of A3 Ultra and later
    are judged by rdma-*. What TCPX needs beside gve (receive daemon, NCCL plug-in, kernel with
    header split) is brought by Google's containers and cannot be told from the node.

    ## What to do
    Create the instance with `--network-interface=nic-type=GVNIC` from an image that carries the
    guest OS feature GVNIC; the type cannot be changed later.

    ## References
    - https://cloud.google.com/compute/docs/networking/using-gvnic
    - https://cloud.google.com/compute/docs/gpus/gpu-network-bandwidth
    """
    if machine.hypervisor != "google":
        raise NotApplicable("not a machine in Google Cloud")
    if not pci.of("gpu"):
        raise NotApplicable("no NVIDIA GPU on this machine")
    if not found.gvnic and not found.virtio:
        raise NotApplicable("neither gVNIC nor virtio")
    for nic in found.gvnic:
        if not nic.driver_known:
            yield unknown(nic.address, "whether it has a driver was not recorded")
        elif nic.driver == "gve":
            yield passes(nic.address, "gve")
        else:
            yield fails(
                nic.address, "gVNIC without its driver", nic.driver or "none", expected="gve"
            )
    for nic in found.virtio:
        yield warns(nic.address, "the network is virtio", "virtio", expected="gVNIC")
