# SPDX-License-Identifier: Apache-2.0
"""Memory management settings of the running kernel."""

import re

from gpuaudit.facts.base import Fact, probe
from gpuaudit.host import Host, Unavailable

THP = "/sys/kernel/mm/transparent_hugepage"


class TransparentHugepage(Fact, frozen=True, kw_only=True):
    """/sys/kernel/mm/transparent_hugepage/{enabled,defrag}: the word in brackets."""

    enabled: str
    defrag: str


@probe
def transparent_hugepage(host: Host) -> TransparentHugepage:
    """Read the two selectors."""
    return TransparentHugepage(
        enabled=selected(host, f"{THP}/enabled"), defrag=selected(host, f"{THP}/defrag")
    )


def selected(host: Host, path: str) -> str:
    """The chosen word of a selector file such as 'always [madvise] never'. Raises Unavailable."""
    text = host.read(path)
    match = re.search(r"\[([^\]]+)\]", text)
    if not match:
        raise Unavailable(f"{path} reads {text[:60]!r}, no word stands in brackets", "garbled")
    return match[1]
