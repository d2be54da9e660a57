# SPDX-License-Identifier: Apache-2.0
"""What a row of the fault table is, and which checks rest on which evidence."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from fakenode import FakeNode


class Fault(NamedTuple):
    """A way to break the node, and the verdict of every check that then changes its mind."""

    breaks: Callable[[FakeNode], None]
    changes: dict[str, str]

    @property
    def name(self) -> str:
        """For the test's ID."""
        return self.breaks.__name__.replace("_", "-")


PER_GPU = frozenset(
    {
        "clocks-application-default",
        "clocks-locked",
        "clocks-throttle-reasons",
        "ecc-aggregate-uncorrected",
        "ecc-mode-enabled",
        "ecc-mode-settled",
        "ecc-retired-pages",
        "ecc-row-remap-banks",
        "ecc-row-remap-failed",
        "ecc-row-remap-pending",
        "ecc-volatile-uncorrected",
        "fabric-health",
        "fabric-state",
        "gpu-bar1-size",
        "gpu-compute-mode",
        "gpu-persistence",
        "gpu-recovery-action",
        "mig-mode-alike",
        "mig-mode-expected",
        "mig-mode-settled",
        "power-limit-default",
        "thermal-margin",
    }
)
"""Judge each GPU by what NVML answers for it."""

NAMES = frozenset({"gpu-models-alike"})
"""Rests on what is asked of all GPUs before the rest is asked of any."""

ALIKE = NAMES | {"gpu-memory-alike", "gpu-vbios-alike"}
NVML = PER_GPU | ALIKE | {"gpu-alive", "gpu-count"}
"""Know nothing when NVML does not start."""


def unknown(checks: Iterable[str]) -> dict[str, str]:
    """All of these become unknown."""
    return dict.fromkeys(checks, "unknown")
