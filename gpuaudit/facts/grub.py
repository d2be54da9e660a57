# SPDX-License-Identifier: Apache-2.0
"""The texts of boot loaders: which entry is the default, and what it starts.

Sources: GNU GRUB manual (sections "Shell-like scripting", "default", "The GRUB environment
block"); grub-core/normal/menu.c takes the first entry where the default names none; Boot Loader
Specification (https://uapi-group.org/specifications/specs/boot_loader_specification/): GRUB's
blscfg sorts its entries by version, the newest first.
"""

import re
import shlex
from typing import NamedTuple

from gpuaudit.host import Unavailable

COMMANDS = frozenset({"linux", "linux16", "linuxefi"})
VARIABLE = r"\$(?:\{(\w+)\}|(\w+))"
FROM_ENVIRONMENT = ("saved_entry", "kernelopts")
"""grub.cfg sets these too, but only where the environment block has nothing."""
LONGEST = 65536
"""No kernel takes a longer command line; variables made of variables double with each line."""


class Item(NamedTuple):
    """A menu entry with its commands that start Linux, or a submenu with what is inside."""

    names: tuple[str, ...]
    starts: list[str]
    inside: "list[Item]"


def is_menu(text: str) -> bool:
    """False for the stubs on EFI partitions that only lead to another file."""
    return any(line.split()[:1] in (["menuentry"], ["blscfg"]) for line in text.splitlines())


def menu_of(text: str, listed: list[Item]) -> list[Item]:
    """The menu of a grub.cfg; `listed` are the entries that its command blscfg puts there."""
    top = Item((), [], [])
    blocks: list[bool] = []  # of each open brace: whether an item opened it
    items = [top]
    for line in map(str.strip, text.splitlines()):
        word, _, rest = line.partition("\t" if "\t" in line.partition(" ")[0] else " ")
        if word in {"menuentry", "submenu"}:
            item = Item(names_of(line), [], [])
            items[-1].inside.append(item)
            items += [item] if line.endswith("{") else []
            blocks += [True] if line.endswith("{") else []
        elif word == "blscfg":
            top.inside.extend(listed)
            listed = []
        elif word in COMMANDS:
            items[-1].starts.append(rest)
        elif line.endswith("{"):
            blocks.append(False)
        elif line == "}" and blocks and blocks.pop():
            items.pop()
    return top.inside


def names_of(line: str) -> tuple[str, ...]:
    """Title and id of an entry: menuentry 'Ubuntu' --class os $menuentry_id_option 'id' {."""
    words = shell_words(line)
    marks = [i for i, word in enumerate(words) if word in {"--id", "$menuentry_id_option"}]
    return (*words[1:2], *(words[i + 1] for i in marks[:1] if i + 1 < len(words)))


def chosen(menu: list[Item], wanted: str) -> Item | None:
    """The entry that `default` names by number, title or id, with > between the levels."""
    item = None
    while menu:
        here, _, wanted = wanted.partition(">")
        item = next((one for one in menu if here in one.names), None)
        if item is None:
            number = int(here) if here.isdecimal() and len(here) < 6 else 0
            item = menu[number] if number < len(menu) else menu[0]
        menu = item.inside
    return item


def variables_of(text: str, environment: str) -> dict[str, str]:
    """`set NAME=value` of grub.cfg, and NAME=value of the environment block (grubenv)."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        command, _, rest = line.strip().partition(" ")
        name, equals, value = rest.strip().partition("=")
        if command == "set" and equals and not (name == "default" and "next_entry" in value):
            found[name] = value.strip("\"' \t")
    kept = dict(
        line.partition("=")[::2] for line in environment.splitlines() if not line.startswith("#")
    )
    for name in FROM_ENVIRONMENT:
        found[name] = kept.get(name) or (found.get(name, "") if name == "kernelopts" else "")
    found["next_entry"] = kept.get("next_entry", "")
    return {name: value for name, value in kept.items() if name not in found} | found


def default_of(variables: dict[str, str]) -> str:
    """What the next boot takes: what `grub-reboot` asked for once, else the default."""
    return variables["next_entry"] or expanded(variables.get("default", "0"), variables) or "0"


def expanded(text: str, variables: dict[str, str]) -> str:
    """With the values of $name and ${name}; what has none is empty, as in GRUB.

    Raises Unavailable.
    """
    parts = re.split(VARIABLE, bounded(text))
    values = [variables.get(a or b, "") for a, b in zip(parts[1::3], parts[2::3], strict=True)]
    if sum(map(len, values)) > LONGEST:
        raise too_long()
    return "".join(one + value for one, value in zip(parts[::3], [*values, ""], strict=True))


def bounded(text: str) -> str:
    """The text. Raises Unavailable for what no boot loader would take."""
    if len(text) > LONGEST:
        raise too_long()
    return text


def too_long() -> Unavailable:
    """Of a setting that is none."""
    return Unavailable(f"a boot setting has more than {LONGEST >> 10} KiB", "garbled")


def shell_words(text: str) -> list[str]:
    """The words of a command as GRUB's shell splits it: an unquoted ; & or | ends it."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:
        return text.split()
    ends = (i for i, word in enumerate(words) if word and set(word) <= set(";&|"))
    return words[: next(ends, len(words))]


def kernel_words(text: str) -> list[str]:
    """The words of a command line as the kernel splits it (lib/cmdline.c, next_arg).

    What stands behind a lone -- is for init.
    """
    words = [word.replace('"', "") for word in re.findall(r'(?:[^\s"]|"[^"]*"?)+', text)]
    return words[: words.index("--")] if "--" in words else words


def listed_entry(name: str, text: str) -> dict[str, str]:
    """The keys of a file in loader/entries; `options` may stand there more than once.

    The entry goes by the name of its file: RHEL 8 writes a key `id` too, which no loader reads.
    """
    found: dict[str, str] = {"id": name.removesuffix(".conf")}
    for line in text.splitlines():
        key, _, value = line.strip().partition(" ")
        if key and key != "id" and not key.startswith("#"):
            known = found.get(key) if key == "options" else None
            found[key] = f"{known} {value.strip()}" if known else value.strip()
    return found


def release_of(path: str) -> str | None:
    """/boot/vmlinuz-6.1.0-13-amd64 -> 6.1.0-13-amd64; None for names such as vmlinuz-linux."""
    name, _, release = path.rpartition("/")[2].partition("-")
    named = name in {"vmlinuz", "vmlinux", "Image", "linux", "kernel"}
    return release if named and release[:1].isdigit() else None


def version_key(text: str) -> tuple[tuple[int, int, str], ...]:
    """For sorting releases: numbers as numbers, and above letters (rpmvercmp)."""
    parts = re.findall(r"[0-9]+|[A-Za-z]+", text)
    return tuple((1, int(p[:18]), "") if p[0].isdigit() else (0, 0, p) for p in parts)


def version_key_of_entry(name: str) -> tuple[tuple[int, int, str], ...]:
    """Of a file in loader/entries: what stands before the version is the machine's ID."""
    found = re.search(r"-([0-9]+[.-].*)", name)
    return version_key(found[1] if found else name)
