# SPDX-License-Identifier: Apache-2.0
"""The kernel command line: of the running kernel, in an image of the boot entries.

Sources: Linux Documentation/admin-guide/kernel-parameters.rst; the Boot Loader Specification
(https://uapi-group.org/specifications/specs/boot_loader_specification/).
"""

import re

from gpuaudit.facts.base import Fact, probe
from gpuaudit.host import Host, NotApplicable, Unavailable

GRUB = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
ENTRIES = "/boot/loader/entries"
GRUB_LINE = re.compile(r"^[ \t]*linux(?:16|efi)?[ \t]+\S+[ \t]*(.*)$", re.MULTILINE)
BLS_LINE = re.compile(r"^options[ \t]+(.*)$", re.MULTILINE)
RESCUE = re.compile(
    r"(?:^|\s)(?:single|recovery|rescue|emergency|systemd\.unit=(?:rescue|emergency)\S*)(?:\s|$)"
)


class BootLine(Fact, frozen=True, kw_only=True):
    """One command line and the file it stands in."""

    words: tuple[str, ...]
    file: str


class CommandLine(Fact, frozen=True, kw_only=True):
    """/proc/cmdline, or in an image the lines of every boot entry that is no rescue entry."""

    lines: tuple[BootLine, ...]

    def value(self, name: str) -> str | None:
        """The last `name=value`, None when there is none. Raises Unavailable on disagreement."""
        found = {last_value(line.words, name) for line in self.lines}
        if len(found) > 1:
            raise Unavailable(f"the boot entries disagree about {name}=", "garbled")
        return next(iter(found), None)

    def has(self, word: str) -> bool:
        """True when every line holds this word."""
        return bool(self.lines) and all(word in line.words for line in self.lines)


@probe
def command_line(host: Host) -> CommandLine:
    """Read what the kernel was, or will be, told. Raises Unavailable."""
    try:
        words = tuple(host.read("/proc/cmdline").split())
    except NotApplicable:
        return CommandLine(lines=boot_lines(host))
    return CommandLine(lines=(BootLine(words=words, file="/proc/cmdline"),))


def boot_lines(host: Host) -> tuple[BootLine, ...]:
    """Lines that the boot loader of an image will use. Raises Unavailable when none is found."""
    names = (name for name in host.names(ENTRIES) if name.endswith(".conf"))
    sources = [(f"{ENTRIES}/{name}", BLS_LINE) for name in names]
    sources += [(path, GRUB_LINE) for path in GRUB]
    lines = tuple(
        BootLine(words=tuple(text.split()), file=path)
        for path, pattern in sources
        for text in pattern.findall(host.optional(path) or "")
        if not RESCUE.search(text)
    )
    if not lines:
        raise Unavailable("no boot entry was found below /boot", "missing")
    return lines


def last_value(words: tuple[str, ...], name: str) -> str | None:
    """The kernel takes the last of repeated parameters."""
    values = [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
    return values[-1] if values else None
