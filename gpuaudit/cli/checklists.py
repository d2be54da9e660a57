# SPDX-License-Identifier: Apache-2.0
"""docs/checklists.md: what published checklists ask for, and which check answers it."""

import fnmatch
import os
from collections.abc import Iterable, Iterator
from typing import Any

from gpuaudit.cli.errors import refuse

SOURCE = os.path.join("docs", "checklists.yaml")
TARGET = "docs/checklists.md"
HEAD = """\
# Published checklists, and what answers them

Generated from `docs/checklists.yaml` by `gpuaudit docs --write`; do not edit.

Every item of two public checklists for GPU nodes (a performance handbook's page on host tuning, a
book's appendix of 175 items) and of common practice, in our own words.

| | item | judged by | what no check can judge, and why |
|---|---|---|---|
"""


def page(folder: str, ids: Iterable[str]) -> str:
    """The table. Refuses an entry that names no check, or that nothing answers."""
    import yaml

    with open(os.path.join(folder, SOURCE), encoding="utf-8") as file:
        entries: dict[str, dict[str, Any]] = yaml.safe_load(file)
    known = sorted(ids)
    return HEAD + "".join(f"{row(key, entry, known)}\n" for key, entry in entries.items())


def row(key: str, entry: dict[str, Any], known: list[str]) -> str:
    """One line of the table."""
    answers = [f"[`{one}`](checks.md#{one})" for one in named(key, entry, known)]
    if "command" in entry:
        answers.append(f"`{entry['command']}`")
    if not answers and "not_here" not in entry:
        refuse(f"{SOURCE}: nothing answers {key}")
    return f"| {key} | {entry['item']} | {', '.join(answers)} | {entry.get('not_here', '')} |"


def named(key: str, entry: dict[str, Any], known: list[str]) -> Iterator[str]:
    """The checks of an entry, globs spelled out."""
    for word in entry.get("checks", ()):
        found = fnmatch.filter(known, word)
        if not found:
            refuse(f"{SOURCE}: {key} names {word}, which is no check")
        yield from found
