# SPDX-License-Identifier: Apache-2.0
"""Small machines for tests: a dict of paths becomes a folder, and the folder a Host."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gpuaudit.host import Host

Source = Literal["live", "snapshot", "plain", "image"]


class Link(NamedTuple):
    """A symbolic link with this very target."""

    target: str


Tree = Mapping[str, "str | bytes | Link | None"]
"""Absolute path -> text, bytes, Link, or None for an empty folder."""


def write_tree(root: Path, tree: Tree) -> None:
    """Write every node of `tree` below `root`."""
    for path, content in tree.items():
        where = root / path.lstrip("/")
        folder = where if content is None else where.parent
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Link):
            where.symlink_to(content.target)
        elif content is not None:
            where.write_bytes(content if isinstance(content, bytes) else content.encode())


def make_host(
    folder: Path,
    tree: Tree,
    *,
    source: Source = "snapshot",
    euid: int = 0,
    nvml: Mapping[str, Any] | None = None,
    processes: list[dict[str, Any]] | None = None,
    commands: list[dict[str, Any]] | None = None,
) -> Host:
    """A Host over `tree`.

    snapshot: a recording with a manifest, in which everything not in `tree` is known to be
    missing. plain: no manifest, so that a missing file is "not-recorded". live and image: as named.
    """
    root = folder / "root"
    root.mkdir(parents=True)
    for name in ("proc", "sys"):
        (root / name).mkdir()
    write_tree(root, tree)
    if source == "live":
        return Host.live(str(root))
    if source == "image":
        return Host.image(str(root))
    if source == "plain":
        return Host.snapshot(str(root))
    side = {
        "manifest.json": manifest(root, euid),
        "nvml.json": nvml,
        "processes.json": processes,
        "commands.json": commands,
    }
    for name, value in side.items():
        if value is not None:
            (folder / name).write_text(json.dumps(value))
    return Host.snapshot(str(folder))


def manifest(root: Path, euid: int) -> dict[str, Any]:
    """A manifest that lists every folder, so that what is not there is known to be missing."""
    folders = [root, *(p for p in root.rglob("*") if p.is_dir() and not p.is_symlink())]
    return {
        "schema": "gpuaudit.snapshot/1",
        "gpuaudit": "test",
        "recorded_at": "2026-01-01T00:00:00Z",
        "euid": euid,
        "listings": {
            "/" + str(f.relative_to(root)).replace(".", "", 1).lstrip("/")
            if f == root
            else "/" + str(f.relative_to(root)): sorted(p.name for p in f.iterdir())
            for f in folders
        },
    }
