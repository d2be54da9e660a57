# SPDX-License-Identifier: Apache-2.0
"""A tree held in memory: the contents of an archive, or a few files made up by a test.

One dict from path to content keeps thousands of small files cheap: no object of its own for
each, and a folder's names are collected while its files arrive.
"""

from collections.abc import Mapping

from gpuaudit.host.errors import Unavailable
from gpuaudit.host.paths import (
    READ_LIMIT,
    Names,
    NodeKind,
    missing,
    node_of,
    not_a,
    place_of,
    too_large,
)

Entry = bytes | str | None  # a file's content, a link's target, an empty folder
Node = bytes | str | Names  # a file's content, a link's target, a folder's names
Nodes = dict[str, Node]  # by absolute path; the root is ""


class Clash(ValueError):
    """A path stands for two things."""


class MemoryTree:
    """Nodes as a tree; `top` is the node taken as its root."""

    def __init__(self, nodes: Nodes, label: str = "memory", top: str = "") -> None:
        self.label = label
        self.seen: dict[str, str] = {"": ""}
        self._nodes = nodes
        self._top = top

    @classmethod
    def of(cls, entries: Mapping[str, Entry], label: str = "memory") -> "MemoryTree":
        """From absolute paths to contents: bytes are a file, a str is a link, None a folder."""
        nodes: Nodes = {"": []}
        for path, entry in entries.items():
            grow(nodes, path, entry)
        return cls(nodes, label)

    def read(self, path: str, limit: int = READ_LIMIT) -> bytes:
        """See Tree."""
        node = self._nodes[self._top + node_of(self, path)]
        if not isinstance(node, bytes):
            raise not_a("regular file", path)
        if len(node) > limit:
            raise too_large(path, limit)
        return node

    def list(self, path: str) -> Names:
        """See Tree."""
        node = self._nodes[self._top + node_of(self, path)]
        if not isinstance(node, list):
            raise not_a("folder", path)
        return sorted(node)

    def link(self, path: str) -> str | None:
        """See Tree."""
        node = self._at(path)
        return node if isinstance(node, str) else None

    def kind(self, path: str) -> NodeKind | None:
        """See Tree."""
        node = self._at(path)
        if node is None:
            return None
        return "file" if isinstance(node, bytes) else "link" if isinstance(node, str) else "dir"

    def target(self, node: str) -> str | None:
        """See Tree."""
        found = self._nodes.get(self._top + node)
        if found is None:
            raise missing(node)
        return found if isinstance(found, str) else None

    def below(self, prefix: str) -> "MemoryTree":
        """See Tree."""
        top = self._top + node_of(self, prefix)
        if not isinstance(self._nodes[top], list):
            raise not_a("folder", prefix)
        return MemoryTree(self._nodes, self.label, top)

    def _at(self, path: str) -> Node | None:
        try:
            return self._nodes.get(self._top + place_of(self, path))
        except Unavailable as gone:
            if gone.kind != "missing":
                raise
            return None


def grow(nodes: Nodes, path: str, entry: Entry) -> None:
    """Put an entry at a clean absolute path, with the folders above it. Raises Clash.

    A folder may be named again; a file or a link may not, since tools differ in which of two wins.
    """
    present = nodes.get(path)
    if present is not None:
        if entry is None and isinstance(present, list):
            return
        raise Clash("named twice")
    head, _, name = path.rpartition("/")
    folder = nodes.get(head)
    if folder is None:
        grow(nodes, head, None)
        folder = nodes[head]
    if not isinstance(folder, list):
        raise Clash("lies below something that is not a folder")
    folder.append(name)
    nodes[path] = [] if entry is None else entry
