# SPDX-License-Identifier: Apache-2.0
"""What a row of the fault table is, and which checks rest on which evidence."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from fakenode import FakeNode


class Fault(NamedTuple):
    """A way to break the node, and the verdict of every check that then changes its mind.

    `policy` is what the site asks for beyond the base policy, before and after.
    """

    breaks: Callable[[FakeNode], None]
    changes: dict[str, str]
    policy: str = ""

    @property
    def name(self) -> str:
        """For the test's ID."""
        return self.breaks.__name__.replace("_", "-")


PER_GPU = frozenset(
    {
        "clocks-application-default",
        "clocks-auto-boost",
        "clocks-locked",
        "clocks-maximum",
        "clocks-throttle-history",
        "clocks-throttle-reasons",
        "ecc-aggregate-uncorrected",
        "ecc-mode-enabled",
        "ecc-mode-settled",
        "ecc-retired-pages",
        "ecc-row-remap-banks",
        "ecc-row-remap-failed",
        "ecc-row-remap-pending",
        "ecc-volatile-uncorrected",
        "fabric-cluster",
        "fabric-health",
        "fabric-state",
        "gpu-bar1-size",
        "gpu-compute-mode",
        "gpu-gsp-firmware",
        "gpu-memory-free",
        "gpu-persistence",
        "gpu-processes-left",
        "gpu-recovery-action",
        "gpu-repair-pending",
        "gpu-unrepairable-memory",
        "mig-mode-alike",
        "mig-mode-expected",
        "mig-mode-settled",
        "nvlink-crc-errors",
        "nvlink-link-speed",
        "nvlink-links-active",
        "nvlink-packet-errors",
        "nvlink-peers",
        "nvlink-recovery-errors",
        "nvlink-replays",
        "nvlink-sharp",
        "pcie-replay-rate",
        "power-limit-default",
        "thermal-margin",
    }
)
"""Judge each GPU by what NVML answers for it."""

PCI_WORDS = frozenset(
    {
        "pcie-aer-correctable",
        "pcie-aer-uncorrectable",
        "pcie-aspm-off",
        "pcie-bar-resizable",
        "pcie-max-payload",
        "pcie-read-tags",
        "pcie-relaxed-ordering",
    }
)
"""Rest on what stands in config space behind its first 64 bytes."""

PCI_OF_THE_HOST = dict.fromkeys(
    (PCI_WORDS - {"pcie-bar-resizable"})
    | {"pcie-aspm-policy", "pcie-max-read-request", "pcie-shared-uplink"},
    "notapplicable",
)
"""Say nothing in a guest. No window of these GPUs can be resized, there or elsewhere."""

NAMES = frozenset({"gpu-models-alike"})
"""Rests on what is asked of all GPUs before the rest is asked of any."""

ALIKE = NAMES | {"gpu-inforom-alike", "gpu-memory-alike", "gpu-vbios-alike"}
NVML = PER_GPU | ALIKE | {"memory-per-gpu", "gpu-alive", "gpu-count"}
"""Know nothing when NVML does not start."""


def unknown(checks: Iterable[str]) -> dict[str, str]:
    """All of these become unknown."""
    return dict.fromkeys(checks, "unknown")
