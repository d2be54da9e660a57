# SPDX-License-Identifier: Apache-2.0
"""What a machine, or a recording of one, can fail to tell."""

from typing import Literal

Kind = Literal["missing", "not-recorded", "denied", "hung", "garbled", "unsupported"]


class Unavailable(Exception):
    """The evidence could not be had; nothing may be concluded from it."""

    def __init__(self, reason: str, kind: Kind = "missing") -> None:
        super().__init__(reason)
        self.reason = reason
        self.kind: Kind = kind


class NotApplicable(Exception):
    """The question makes no sense on this machine, for the reason given."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SnapshotError(Exception):
    """A snapshot, archive or image cannot be used: one line naming the file and the place."""
