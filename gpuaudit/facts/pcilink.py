# SPDX-License-Identifier: Apache-2.0
"""One end's view of a PCI Express link, from sysfs.

Attribute meaning: Linux Documentation/ABI/testing/sysfs-bus-pci and drivers/pci/pci-sysfs.c, which
prints the Link Capabilities and Link Status registers (PCI Express Base Specification 5.0,
sections 7.5.3.6 and 7.5.3.8).
"""

import re

from gpuaudit.facts.base import Absent, Fact, unread
from gpuaudit.host import Host, Unavailable

SPEED = re.compile(r"(\d+(?:\.\d+)?)\s*GT/s")
GENERATION_OF_GT_PER_S = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
WIDTHS = frozenset({1, 2, 4, 8, 12, 16, 32})
ZEROS = frozenset({"0", "", "Unknown", "Unknown speed", "unknown"})


class LinkEnd(Fact, frozen=True, kw_only=True):
    """One end's view of a link: /sys/bus/pci/devices/A/{current,max}_link_{speed,width}.

    Speeds are GT/s a lane, widths lanes. Unreadable or impossible values are Absent: "unsupported"
    where the register reads zero (virtual functions, emulated ports), "failed" where it reads
    nonsense, such as the 63 lanes of a device that no longer answers.
    """

    speed_gt_per_s: float | Absent
    max_speed_gt_per_s: float | Absent
    width: int | Absent
    max_width: int | Absent


def reading(host: Host, path: str) -> str | Absent:
    """A text, or why there is none."""
    try:
        return host.read(path)
    except Unavailable as absent:
        return unread(absent)


def read_link(host: Host, path: str) -> LinkEnd | Absent:
    """This function's view of its link. "unsupported" when the kernel is known to show none."""
    try:
        current = host.read(f"{path}/current_link_speed")
    except Unavailable as absent:
        if absent.kind == "missing":
            return Absent("unsupported", "it has no PCI Express link (sysfs shows none)")
        return unread(absent)
    return LinkEnd(
        speed_gt_per_s=parse_speed(current),
        max_speed_gt_per_s=parse_speed(reading(host, f"{path}/max_link_speed")),
        width=parse_width(reading(host, f"{path}/current_link_width")),
        max_width=parse_width(reading(host, f"{path}/max_link_width")),
    )


def parse_speed(text: str | Absent) -> float | Absent:
    """'16.0 GT/s PCIe', '8 GT/s', 'Unknown speed' -> GT/s a lane."""
    if isinstance(text, Absent):
        return text
    match = SPEED.match(text)
    speed = float(match[1]) if match else 0.0
    if speed in GENERATION_OF_GT_PER_S:
        return speed
    return no_value("speed", text)


def parse_width(text: str | Absent) -> int | Absent:
    """'16' -> lanes. 0: no link state; 63 and 255: the device did not answer."""
    if isinstance(text, Absent):
        return text
    digits = text.removeprefix("x")
    width = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 4 else -1
    if width in WIDTHS:
        return width
    return no_value("width", text)


def no_value(what: str, text: str) -> Absent:
    """Zero says that there is no link state; anything else is nonsense."""
    return Absent(
        "unsupported" if text in ZEROS else "failed", f"the link {what} reads {text[:40]!r}"
    )
