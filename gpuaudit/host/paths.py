# SPDX-License-Identifier: Apache-2.0
"""Paths inside a tree of files, and how links are followed without ever leaving it."""

from collections.abc import Callable
from typing import Literal, Protocol

from gpuaudit.host.errors import Unavailable

NodeKind = Literal["file", "dir", "link", "other"]
Names = list[str]  # by a name of its own: inside a Tree `list` is a method

READ_LIMIT = 4 << 20
MAX_LINKS = 40  # MAXSYMLINKS in the kernel's include/linux/namei.h


class Tree(Protocol):
    """A live machine, a folder taken as a root, or an archive held in memory.

    `read` and `list` follow links, always inside the tree. `link` and `kind` follow the links in
    front and speak of the very node. All raise Unavailable. Contents are raw: a tar of sysfs pads
    each attribute with NULs to its stat size, so who reads text has to strip trailing NULs.
    """

    label: str
    seen: dict[str, str]

    def read(self, path: str, limit: int = READ_LIMIT) -> bytes:
        """The bytes of a regular file; more than `limit` of them are refused."""
        ...

    def list(self, path: str) -> Names:
        """The sorted names in a folder."""
        ...

    def link(self, path: str) -> str | None:
        """The raw target of a link, None when there is none by that name."""
        ...

    def kind(self, path: str) -> NodeKind | None:
        """What stands at the path, None when nothing does."""
        ...

    def target(self, node: str) -> str | None:
        """The raw target of a link, None for anything else. No link stands in front of `node`."""
        ...

    def below(self, prefix: str) -> "Tree":
        """The folder at `prefix` as a tree of its own."""
        ...


def resolve(tree: Tree, path: str) -> str:
    """The path with every link followed; neither a link nor `..` ever leaves the tree.

    Raises Unavailable when something on the way is missing, not readable or a circle.
    """
    return node_of(tree, path) or "/"


def node_of(tree: Tree, path: str) -> str:
    """As `resolve`, with "" for the root. A folder is remembered apart: its files share it."""
    seen = tree.seen
    found = seen.get(path)
    if found is None:
        head, _, tail = path.rpartition("/")
        if head not in seen:
            seen[head] = _follow("", head, tree.target, path)
        found = seen[path] = _follow(seen[head], tail, tree.target, path)
    return found


def place_of(tree: Tree, path: str) -> str:
    """The node itself: links in front of it are followed, the node is not."""
    head, _, tail = path.rstrip("/").rpartition("/")
    if tail in {"", ".", ".."}:
        return node_of(tree, path)
    return f"{node_of(tree, head)}/{tail}"


def _follow(done: str, rest: str, target: Callable[[str], str | None], path: str) -> str:
    """Component by component, as path_resolution(7), with the root of the tree for the root."""
    todo, hops = rest.split("/")[::-1], 0
    while todo:
        part = todo.pop()
        if part == "..":
            done = done.rpartition("/")[0]
        elif part and part != ".":
            goal = target(f"{done}/{part}")
            if goal is None:
                done = f"{done}/{part}"
                continue
            hops += 1
            if hops > MAX_LINKS:
                raise Unavailable(f"{path}: too many links, or links in a circle", "garbled")
            done = "" if goal.startswith("/") else done
            todo.extend(reversed(goal.split("/")))
    return done


def missing(path: str) -> Unavailable:
    """Nothing stands there."""
    return Unavailable(f"{path or '/'} does not exist")


def too_large(path: str, limit: int) -> Unavailable:
    """There is more than anyone should read."""
    return Unavailable(f"{path}: larger than {limit} bytes", "garbled")


def not_a(what: str, path: str) -> Unavailable:
    """Something else stands there."""
    return Unavailable(f"{path}: not a {what}", "garbled")
