# SPDX-License-Identifier: Apache-2.0
"""The part of TOML that container runtimes write (toml.io v1.0), since Python 3.10 reads none.

Tables, dotted and quoted keys, strings in one line, truth values, numbers and lists of them.
Anything else is passed over: a key that is asked for and not understood raises.
"""

import re
from typing import Any

from gpuaudit.host import Unavailable

Value = str | bool | int | tuple[Any, ...]
Table = dict[tuple[str, ...], Any]
PART = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|([A-Za-z0-9_-]+)")
COMMENT = re.compile(r"(\"(?:[^\"\\]|\\.)*\"|'[^']*')|#.*")
STRING = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'")
UNQUOTED = re.compile(r"[^\"'=]+")
ITEM = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s,\[\]]+")


def parse_toml(text: str, path: str) -> Table:
    """Every key with its tables in front. Raises Unavailable naming the line (garbled)."""
    found: Table = {}
    table: tuple[str, ...] = ()
    for number, line in whole_lines(text):
        if line.startswith("["):
            table = parts(line.strip("[]"))
            continue
        key, equals, value = split(line)
        if not equals or not key:
            raise Unavailable(f"{path}:{number} is no TOML: {line[:40]!r}", "garbled")
        found[table + parts(key)] = value_of(value.strip())
    return found


def whole_lines(text: str) -> list[tuple[int, str]]:
    """Lines without comments; a list over several lines is one."""
    found: list[tuple[int, str]] = []
    pieces: list[str] = []
    first = depth = 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = COMMENT.sub(lambda match: match[1] or "", raw).strip()
        first = first if pieces else number
        pieces += [line] if line else []
        plain = STRING.sub("", line)
        if "=" in plain or depth:
            depth += plain.count("[") - plain.count("]")
        if depth <= 0 and pieces:
            found.append((first, " ".join(pieces)))
            pieces, depth = [], 0
    return found + ([(first, " ".join(pieces))] if pieces else [])


def split(line: str) -> tuple[str, str, str]:
    """Key, equals sign and value; a quoted key may hold an equals sign."""
    at = 0
    while match := STRING.match(line, at) or UNQUOTED.match(line, at):
        at = match.end()
    return (line[:at].strip(), "=", line[at + 1 :]) if line[at : at + 1] == "=" else (line, "", "")


def parts(key: str) -> tuple[str, ...]:
    """plugins."io.containerd.cri".x -> its three parts."""
    return tuple(one or two or three for one, two, three in PART.findall(key))


def value_of(text: str) -> Value:
    """One value; what is not understood stays text."""
    if text.startswith("["):
        return tuple(value_of(item) for item in ITEM.findall(text[1:]))
    if match := STRING.fullmatch(text):
        return match[2] if match[1] is None else match[1].replace("\\\\", "\\").replace('\\"', '"')
    if text in {"true", "false"}:
        return text == "true"
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else text
