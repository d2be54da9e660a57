# SPDX-License-Identifier: Apache-2.0
"""What a row of the fault table is."""

from collections.abc import Callable
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
