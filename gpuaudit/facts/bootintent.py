# SPDX-License-Identifier: Apache-2.0
"""What the settings ask of the kernel command line, before anything is made of them.

Sources: GNU GRUB manual, "Simple configuration handling"; Debian's grub-mkconfig, which also reads
grub.d; kernel-install(8).
"""

import re

from gpuaudit.facts import grub
from gpuaudit.facts.base import Fact, probe
from gpuaudit.facts.nextboot import SETTINGS, require_own_boot
from gpuaudit.facts.present import text_if_there
from gpuaudit.facts.services import unquoted
from gpuaudit.facts.sysctl import is_there, names_in
from gpuaudit.host import Host, NotApplicable, Unavailable

KERNEL_INSTALL = "/etc/kernel/cmdline"
ASSIGNED = r"(?m)^[ \t]*(?:export )?(GRUB_CMDLINE_LINUX(?:_DEFAULT)?)(\+?=)(.*)$"
WHEN_SET = r"\$\{(GRUB_CMDLINE_LINUX(?:_DEFAULT)?):\+([^}]*)\}"
AT_BOOT = "\1"
"""Stands for a dollar that the shell leaves to GRUB: tuned writes \\$tuned_params into the file."""

BRANCHES = r"(?m)^[ \t]*(?:if|case|for|while)\b"


class BootIntent(Fact, frozen=True, kw_only=True):
    """What /etc/default/grub (with grub.d on Debian) or /etc/kernel/cmdline asks for."""

    words: tuple[str, ...]
    file: str


@probe
def boot_intent(host: Host) -> BootIntent:
    """Read the settings. Raises NotApplicable where there are none."""
    require_own_boot(host)
    text = text_if_there(host, SETTINGS)
    if text is None:
        words = text_if_there(host, KERNEL_INSTALL)
        if words is None:
            raise NotApplicable(f"neither {SETTINGS} nor {KERNEL_INSTALL} is there")
        return BootIntent(words=tuple(grub.kernel_words(words)), file=KERNEL_INSTALL)
    values: dict[str, str] = {}
    for path, more in ((SETTINGS, text), *snippets(host)):
        take_assignments(values, path, more)
    line = f"{values.get('GRUB_CMDLINE_LINUX', '')} {values.get('GRUB_CMDLINE_LINUX_DEFAULT', '')}"
    return BootIntent(words=tuple(intended_words(line)), file=SETTINGS)


def intended_words(line: str) -> list[str]:
    """grub-mkconfig writes the line into grub.cfg as it is, where GRUB's shell splits it."""
    return [word for word in grub.shell_words(line) if word != "--" and AT_BOOT not in word]


def snippets(host: Host) -> list[tuple[str, str]]:
    """Debian's grub-mkconfig also reads /etc/default/grub.d/*.cfg; others do not."""
    folder = f"{SETTINGS}.d"
    names = names_in(host, folder) if is_there(host, "/etc/debian_version") else ()
    paths = [f"{folder}/{name}" for name in names if name.endswith(".cfg")]
    return [(path, host.read(path)) for path in paths]


def take_assignments(values: dict[str, str], path: str, text: str) -> None:
    """Add the assignments of a file. Raises Unavailable where only a shell could tell them."""
    branches = re.search(BRANCHES, text) is not None
    for name, sign, raw in re.findall(ASSIGNED, text.replace("\\\n", "")):
        value = grub.expanded(unquoted(with_conditions(grub.bounded(raw), values)), values)
        if "`" in raw or "$(" in raw or "$" in value or branches:
            raise Unavailable(f"{path} is a program: only a shell can tell what it sets", "garbled")
        values[name] = grub.bounded(
            f"{values[name]}{value}" if sign == "+=" and name in values else value
        )


def with_conditions(raw: str, values: dict[str, str]) -> str:
    """${NAME:+text} by whether NAME is set, and what is left to GRUB marked."""
    text = re.sub(WHEN_SET, lambda match: match[2] if values.get(match[1]) else "", raw)
    return text.replace("\\$", AT_BOOT)
