# SPDX-License-Identifier: Apache-2.0
"""GPUs that share a link to the CPU."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.node import Machine
from gpuaudit.facts.pci import PciDevices
from gpuaudit.topology import GUEST, Uplink, shared_uplinks


class PcieUplinkExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of links that GPUs share."""

    min_share_percent: Annotated[float, msgspec.Meta(ge=0, le=100)]


@check("pcie-shared-uplink", severity=Severity.LOW)
def shared_uplink(
    devices: PciDevices, machine: Machine, want: PcieUplinkExpectations
) -> Iterator[Finding]:
    """GPUs behind one uplink keep the share of their rate the policy wants.

    ## Why it matters
    Two Gen5 x16 GPUs behind one Gen5 x16 uplink reach 63 GB/s alone and 31.5 GB/s each when both
    copy to the host. A benchmark of one GPU at a time does not show it; data loading, checkpoints
    and offloading do.

    ## Evidence
    The PCI tree, and max_link_speed and max_link_width of both ends of every link above a GPU.

    ## How it is judged
    The rate of each link above two or more GPUs, divided by what the GPUs below could take
    together, is at least `pcie_uplink.min_share_percent`; else it warns. RDMA NICs and drives below
    the same link are named: their traffic with the host comes on top, that with GPUs below the
    same switch does not.

    ## Exceptions
    Boards are built so: two GPUs to an uplink on HGX, four on many 8-GPU PCIe servers. Ends that
    disagree are unknown. Not applicable in guests and where no two GPUs share a link. A link that
    lost lanes is the matter of pcie-path-narrowest.

    ## What to do
    Count on the rate given here for transfers of all GPUs at once. If it is too little, spread the
    GPUs over more root ports (cabling, risers, "balanced" mode of the switch board), or lower
    `pcie_uplink.min_share_percent` for this machine.

    ## References
    - https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html
    - https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci
    """
    if machine.is_vm:
        raise NotApplicable(GUEST)
    gpus = devices.of("gpu")
    if lost := next((gpu for gpu in gpus if not gpu.root), None):
        yield unknown(lost.address, "the recording does not hold the PCI tree")
        return
    uplinks = [one for one in shared_uplinks(devices) if len(one.gpus) > 1] if gpus else []
    if not uplinks:
        raise NotApplicable("no two GPUs share a link to the CPU")
    for one in uplinks:
        yield finding(one, want.min_share_percent)


def finding(one: Uplink, least: float) -> Finding:
    """Words for one link."""
    each, share = one.each_gb_per_s, one.share
    if isinstance(share, Absent) or isinstance(each, Absent):
        return unknown(one.hop.name, share.reason if isinstance(share, Absent) else "no rate")
    seen = f"{len(one.gpus)} GPUs behind {one.rate}: {each:.1f} GB/s each at once"
    wanted = f"at least {least:g} % of each GPU's own rate"
    below = tuple(d.address for d in (*one.gpus, *one.others))
    if 100 * share >= least:
        return passes(one.hop.name, seen, expected=wanted, evidence=below)
    alone = each / share
    rates = f"{each:.1f} instead of {alone:.1f} GB/s each way"
    cost = f"{rates} for each GPU when all copy to the host"
    message = f"{len(one.gpus)} GPUs share one uplink and keep {100 * share:.0f} % of their rate"
    return warns(one.hop.name, message, seen, expected=wanted, cost=cost, evidence=below)
