# SPDX-License-Identifier: Apache-2.0
"""What a Host remembers."""

import msgspec

from gpuaudit.host.errors import Unavailable
from gpuaudit.host.live import Output
from gpuaudit.host.status import Status


class Evidence(msgspec.Struct):
    """Everything a Host was asked, with what came back. Paths are canonical, links included.

    `environments` are files that set variables, in which other people's secrets may stand.
    """

    files: dict[str, bytes | Unavailable] = {}
    listings: dict[str, tuple[str, ...] | Unavailable] = {}
    paths: dict[str, str | Unavailable] = {}
    commands: dict[tuple[str, ...], Output | Unavailable] = {}
    environments: set[str] = set()
    statuses: dict[str, Status | Unavailable] = {}
