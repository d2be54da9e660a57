# SPDX-License-Identifier: Apache-2.0
"""A tree of files that counts how often each is asked for."""

from collections import Counter

from gpuaudit.host.paths import Names, NodeKind, Tree


class CountingTree:
    """Passes every question on and counts it."""

    def __init__(self, tree: Tree) -> None:
        self.tree, self.label, self.seen = tree, tree.label, tree.seen
        self.reads: Counter[str] = Counter()
        self.lists: Counter[str] = Counter()

    def read(self, path: str, limit: int = 4 << 20) -> bytes:
        self.reads[path] += 1
        return self.tree.read(path, limit)

    def list(self, path: str) -> Names:
        self.lists[path] += 1
        return self.tree.list(path)

    def link(self, path: str) -> str | None:
        return self.tree.link(path)

    def kind(self, path: str) -> NodeKind | None:
        return self.tree.kind(path)

    def target(self, node: str) -> str | None:
        return self.tree.target(node)

    def below(self, prefix: str) -> Tree:
        return self.tree.below(prefix)
