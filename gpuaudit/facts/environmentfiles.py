# SPDX-License-Identifier: Apache-2.0
"""Files that set variables for everyone: shell scripts, pam_env, environment.d, nccl.conf."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from gpuaudit.host import Host, Unavailable
from gpuaudit.host.environ import CLUES, matters


class Assignment(NamedTuple):
    """One variable that is set, with the file and line, and whom it reaches.

    `conditional`: a shell script sets it below an `if` or behind `&&`, or inside a function.
    """

    name: str
    value: str
    where: str
    reach: str
    conditional: bool = False


class Place(NamedTuple):
    """How a file is read, and whom it reaches."""

    syntax: str
    reach: str


NEARBY, MAX_QUOTED = 200, 8192  # how far a test is looked for, and what shlex can do in time
PLAIN, SHELL, PAM, NCCL, QUOTED = "plain", "shell", "pam", "nccl", "quoted"
FILES = {
    "/etc/environment": Place(PLAIN, "logins"),
    "/etc/security/pam_env.conf": Place(PAM, "logins"),
    "/etc/profile": Place(SHELL, "login shells"),
    "/etc/bash.bashrc": Place(SHELL, "interactive shells"),
    "/etc/bashrc": Place(SHELL, "interactive shells"),
    "/etc/csh.cshrc": Place(SHELL, "csh"),
    "/etc/zshenv": Place(SHELL, "zsh"),
    "/etc/zsh/zshenv": Place(SHELL, "zsh"),
    "/etc/containers/containers.conf": Place(QUOTED, "containers of Podman"),
}
NCCL_FILE = Place(NCCL, "every program with NCCL")

VALUE = r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|(?:[^\s;&|()<>\"'`\\]|\\.|\$\([^)]*\)|\"[^\"]*\"|'[^']*')*"
EXPORT = r"\b(?:export|declare|typeset|readonly)\s+((?:-\w+\s+)*)([^;&|#]*)"
PAM_WORD = r"(DEFAULT|OVERRIDE)=(\"[^\"]*\"|\S*)"


@cache
def set_pattern() -> re.Pattern[str]:
    """NAME=value, or `setenv NAME value` of csh. Compiling it takes a millisecond, so only here."""
    return re.compile(
        rf"(?<![\w$\"'./=-])(?P<name>[A-Za-z_]\w*)\+?=(?P<value>{VALUE})"
        rf"|\bsetenv\s+(?P<csh>[A-Za-z_]\w*)[ \t]*(?P<cshvalue>{VALUE})",
        re.ASCII,
    )


def file_of(host: Host, path: str, place: Place) -> Iterator[Assignment]:
    """The assignments of a file, none when it is known not to be there. Raises Unavailable."""
    try:
        text = host.read_environment(path)
    except Unavailable as absent:
        if absent.kind == "missing":
            return
        raise
    if not any(clue in text for clue in CLUES):
        return
    for name, value, line, conditional in PARSERS[place.syntax](text):
        if matters(name):
            yield Assignment(name, value, f"{path}:{line}", place.reach, conditional)


Found = Iterator[tuple[str, str, int, bool]]


def logical(text: str) -> Iterator[tuple[int, str]]:
    """Lines with the number of their first one; a backslash at the end joins the next."""
    pieces: list[str] = []
    first = 1
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.rstrip("\r")
        first = first if pieces else number
        if line.endswith("\\"):
            pieces.append(line[:-1])
            continue
        yield first, " ".join([*pieces, line])
        pieces = []
    if pieces:
        yield first, " ".join(pieces)


def plain(text: str) -> Found:
    """NAME=value, perhaps behind `export`: pam_env(8), systemd.exec(5), environment.d(5)."""
    for number, line in logical(text):
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not line.lstrip().startswith(("#", ";")):
            yield name.strip(), unquoted(value), number, False


def pam(text: str) -> Found:
    """NAME DEFAULT=value OVERRIDE=value; what overrides wins (pam_env.conf(5))."""
    for number, line in logical(text):
        name, _, rest = line.strip().partition(" ")
        words = dict(re.findall(PAM_WORD, rest.replace("\t", " ")))
        value = words.get("OVERRIDE") or words.get("DEFAULT")
        if value and not name.startswith("#"):
            yield name.strip(), value.strip('"'), number, False


def nccl(text: str) -> Found:
    """NAME=value as it stands: NCCL takes neither quotes nor spaces away (src/misc/param.cc)."""
    for number, line in enumerate(text.split("\n"), 1):
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            yield name, value, number, False


def quoted(text: str) -> Found:
    """The list `env` of containers.conf(5), on one line or several."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.lstrip().startswith("#"):
            for name, value in re.findall(r"\"([A-Za-z_]\w*)=([^\"]*)\"", line, re.ASCII):
                yield name, value, number, False


def shell(text: str) -> Found:
    """What a script of sh or csh exports.

    A script is not run, so whether a condition holds is not known. An assignment in front of a
    command, in quotes or in a comment sets nothing for later.
    """
    exported = exports(text)
    for number, raw in logical(text):
        line = without_comment(raw)
        for match in set_pattern().finditer(line) if "=" in line or "setenv" in line else ():
            name = match["name"] or match["csh"]
            if match["csh"] or name in exported:
                value = match["value"] if match["name"] else match["cshvalue"]
                yield (
                    name,
                    unquoted(value),
                    number,
                    depends(line[:1], line[max(0, match.start() - NEARBY) : match.start()]),
                )


def exports(text: str) -> frozenset[str]:
    """The names that a script exports anywhere; with `set -a` every name it sets."""
    if re.search(r"^\s*set\s+(?:-a|-o\s+allexport)\b", text, re.MULTILINE):
        return frozenset(match["name"] for match in set_pattern().finditer(text) if match["name"])
    names: set[str] = set()
    for _, raw in logical(text):
        for flags, words in re.findall(EXPORT, without_comment(raw), re.ASCII):
            if "-n" not in flags:
                names.update(re.findall(r"(?<![\w$.=/-])([A-Za-z_]\w*)(?=[\s=+]|$)", words))
    return frozenset(names)


def without_comment(line: str) -> str:
    """The line up to a # at its beginning or behind white space."""
    if "#" not in line:
        return line
    if line.lstrip().startswith("#"):
        return ""
    front, mark, _ = line.partition(" #")
    quoted = front.count('"') % 2 or front.count("'") % 2
    return line if mark and quoted else front


def depends(first: str, before: str) -> bool:
    """True below an `if` or in a function (indented) and behind a test on the same line."""
    return first.isspace() or any(word in before for word in ("&&", "||", "then", "if ", "do "))


def unquoted(value: str) -> str:
    """A value without its quotes."""
    text = value.strip()
    if not any(mark in text for mark in "\"'\\"):
        return text
    if len(text) > MAX_QUOTED:
        return text.strip("\"'")
    try:
        return "".join(shlex.split(text)) if " " not in text else " ".join(shlex.split(text))
    except ValueError:
        return text.strip("\"'")


PARSERS = {PLAIN: plain, PAM: pam, NCCL: nccl, QUOTED: quoted, SHELL: shell}
