# SPDX-License-Identifier: Apache-2.0
"""GPUDirect Storage: its kernel module and the configuration of cuFile."""

import re
from typing import Any

import msgspec

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.limits import absence
from gpuaudit.facts.present import text_if_there
from gpuaudit.host import Host, NotApplicable, Unavailable

VERSION, CONFIG, MODULES = "/proc/driver/nvidia-fs/version", "/etc/cufile.json", "/proc/modules"
TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


class GpuDirectStorage(Fact, frozen=True, kw_only=True):
    """/proc/driver/nvidia-fs/version and /etc/cufile.json.

    `version`: None when the module is known not to be loaded. `config`: the values that matter, by
    "section.name", None without a file; a text that is no JSON is Absent. NVIDIA's own file has
    comments, which cuFile accepts.
    """

    version: str | Absent | None
    config: dict[str, bool] | Absent | None


@probe
def gpudirect_storage(host: Host) -> GpuDirectStorage:
    """Read both; never raises."""
    return GpuDirectStorage(version=version(host), config=config(host))


def version(host: Host) -> str | Absent | None:
    """The line of the module."""
    try:
        return text_if_there(host, VERSION)
    except (Unavailable, NotApplicable) as absent:
        return absence(absent)


def config(host: Host) -> dict[str, bool] | Absent | None:
    """The switches of cuFile."""
    try:
        text = text_if_there(host, CONFIG)
    except (Unavailable, NotApplicable) as absent:
        return absence(absent)
    if text is None:
        return None
    try:
        found: Any = msgspec.json.decode(without_comments(text))
        return {
            f"{section}.{name}": value
            for section, values in found.items()
            for name, value in (values.items() if isinstance(values, dict) else ())
            if isinstance(value, bool)
        }
    except (msgspec.DecodeError, AttributeError, RecursionError) as error:
        return Absent("failed", f"{CONFIG} is no JSON: {error}"[:120])


def without_comments(text: str) -> str:
    """JSON without // and /* */, strings left alone; a comma before a bracket goes too."""
    bare = TOKENS.sub(lambda match: match[0] if match[0].startswith('"') else " ", text)
    return re.sub(r",(\s*[}\]])", r"\1", bare)
