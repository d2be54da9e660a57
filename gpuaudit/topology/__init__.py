# SPDX-License-Identifier: Apache-2.0
"""The PCI tree as paths: who is how near to whom, and what each path can carry."""

from gpuaudit.topology.judged import (
    Judged,
    Linked,
    Slot,
    Way,
    is_provided,
    judge,
    judge_slot,
    judge_way,
    linked,
)
from gpuaudit.topology.links import Hop, Rate, loss, narrowest
from gpuaudit.topology.nearby import near_enough, nearest
from gpuaudit.topology.paths import GUEST, Locality, hops_of, own_link
from gpuaudit.topology.peers import PeerPorts, Peers, Platform, Reach, platform_of
from gpuaudit.topology.targets import LinkTargets
from gpuaudit.topology.uplinks import Uplink, at_once_gb_per_s, shared_uplinks
from gpuaudit.topology.whole import Topology

__all__ = [
    "GUEST",
    "Hop",
    "Judged",
    "LinkTargets",
    "Linked",
    "Locality",
    "PeerPorts",
    "Peers",
    "Platform",
    "Rate",
    "Reach",
    "Slot",
    "Topology",
    "Uplink",
    "Way",
    "at_once_gb_per_s",
    "hops_of",
    "is_provided",
    "judge",
    "judge_slot",
    "judge_way",
    "linked",
    "loss",
    "narrowest",
    "near_enough",
    "nearest",
    "own_link",
    "platform_of",
    "shared_uplinks",
]
