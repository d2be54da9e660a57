# SPDX-License-Identifier: Apache-2.0
"""Made-up checks for tests of the frame, registered only for the length of a test."""

from collections.abc import Iterator
from contextlib import contextmanager

from gpuaudit import packs
from gpuaudit.check import CHECKS, Check
from gpuaudit.facts.base import PROBES


@contextmanager
def registry() -> Iterator[dict[str, Check]]:
    """The registry as it is, restored afterwards."""
    packs.load_checks(plugins=False)
    checks, probes = dict(CHECKS), dict(PROBES)
    try:
        yield CHECKS
    finally:
        CHECKS.clear()
        CHECKS.update(checks)
        PROBES.clear()
        PROBES.update(probes)
