# SPDX-License-Identifier: Apache-2.0
"""What a Host remembers."""

import msgspec

from gpuaudit.host.errors import Unavailable
from gpuaudit.host.live import Output


class Evidence(msgspec.Struct):
    """Everything a Host was asked, with what came back. Paths are canonical, links included."""

    files: dict[str, bytes | Unavailable] = {}
    listings: dict[str, tuple[str, ...] | Unavailable] = {}
    paths: dict[str, str | Unavailable] = {}
    commands: dict[tuple[str, ...], Output | Unavailable] = {}
