# SPDX-License-Identifier: Apache-2.0
"""A bare copy of one folder of sysfs, such as /sys/class/infiniband, opened at its place.

People send what `cp -rL /sys/class/infiniband` or a tar of it gave them. What lies in the folders
tells which one it is; everything else of that machine was not recorded.
"""

from gpuaudit.host.errors import SnapshotError, Unavailable
from gpuaudit.host.paths import READ_LIMIT, Names, NodeKind, Tree, missing, node_of, not_a, place_of

MAX_DEPTH = 8
PLACES: dict[str, tuple[str, ...]] = {
    "/sys/class/infiniband": ("ports/*/state",),
    "/sys/class/net": ("operstate", "mtu"),
    "/sys/bus/pci/devices": ("vendor", "class", "config"),
}
"""Where a folder belongs, by the files that one of the folders in it has."""


class Mounted:
    """A tree that has another one at a folder, and nothing else."""

    def __init__(self, inner: Tree, place: str) -> None:
        """`place` is absolute and has no link in it."""
        self.label = inner.label
        self.seen: dict[str, str] = {"": ""}
        self._inner = inner
        self._place = place

    def read(self, path: str, limit: int = READ_LIMIT) -> bytes:
        """See Tree."""
        node = node_of(self, path)
        if self._above(node):
            raise not_a("regular file", path)
        return self._inner.read(self._inside(node), limit)

    def list(self, path: str) -> Names:
        """See Tree."""
        node = node_of(self, path)
        if self._above(node):
            return [self._place[len(node) + 1 :].partition("/")[0]]
        return self._inner.list(self._inside(node))

    def link(self, path: str) -> str | None:
        """See Tree."""
        try:
            return self.target(place_of(self, path))
        except Unavailable as gone:
            if gone.kind != "missing":
                raise
            return None

    def kind(self, path: str) -> NodeKind | None:
        """See Tree."""
        try:
            node = place_of(self, path)
            return "dir" if self._above(node) else self._inner.kind(self._inside(node))
        except Unavailable as gone:
            if gone.kind != "missing":
                raise
            return None

    def target(self, node: str) -> str | None:
        """See Tree."""
        if self._above(node) or node == self._place:
            return None
        return self._inner.target(self._inside(node))

    def below(self, prefix: str) -> Tree:
        """See Tree."""
        node = node_of(self, prefix)
        if self._above(node):
            return Mounted(self._inner, self._place[len(node) :])
        return self._inner.below(self._inside(node))

    def _above(self, node: str) -> bool:
        return self._place.startswith(f"{node}/")

    def _inside(self, node: str) -> str:
        if node != self._place and not node.startswith(f"{self._place}/"):
            raise missing(node)
        return node[len(self._place) :] or "/"


def mounted(tree: Tree, where: str) -> Mounted | None:
    """The tree at its place, or None when it is no bare copy. Raises SnapshotError.

    The copy may lie in folders that hold nothing else: `class/infiniband/...`, `node7/...`.
    """
    try:
        return found(tree)
    except Unavailable as gone:
        raise SnapshotError(f"{where}: {gone.reason}") from None


def found(tree: Tree) -> Mounted | None:
    """The first folder on the way down whose contents are known. Raises Unavailable."""
    base = ""
    for _ in range(MAX_DEPTH):
        folders = [n for n in tree.list(base or "/") if is_folder(tree, f"{base}/{n}")]
        for place, files in PLACES.items():
            if any(all(holds(tree, f"{base}/{n}", file) for file in files) for n in folders):
                return Mounted(tree.below(base) if base else tree, place)
        if len(folders) != 1:
            return None
        base = f"{base}/{folders[0]}"
    return None


def is_folder(tree: Tree, path: str) -> bool:
    """True for a folder itself, not for a link to one: that may lead anywhere."""
    return tree.kind(path) == "dir"


def holds(tree: Tree, folder: str, file: str) -> bool:
    """Whether the file is there; `*` stands for any one folder."""
    head, star, tail = file.partition("*/")
    if not star:
        return tree.kind(f"{folder}/{file}") == "file"
    middle = f"{folder}/{head}".rstrip("/")
    names = tree.list(middle) if is_folder(tree, middle) else []
    return any(holds(tree, f"{middle}/{name}", tail) for name in names)
