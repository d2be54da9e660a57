# SPDX-License-Identifier: Apache-2.0
"""What an audit reads, and what it costs to have more checks. Run as described in README.md.

Counts every file that one audit of the made-up 8-GPU node asks for. Then the same audit
is timed in one process with every check registered twice: the second ones bring no evidence of
their own, so the difference is what a check costs beside what it reads.
"""

import argparse
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import msgspec
from counting import CountingTree
from fakenode import FakeNode, healthy_node

from gpuaudit import audit, packs
from gpuaudit.check import Check

DEPTH = 3


def counted(node: FakeNode, profile: str) -> CountingTree:
    """The questions of one audit."""
    host = node.host()
    host.tree = counting = CountingTree(host.tree)
    audit.run(host, audit.Request(profile=profile))
    return counting


def places(reads: Counter[str]) -> Counter[str]:
    """Reads by the first folders of their path."""
    found: Counter[str] = Counter()
    for path, times in reads.items():
        found["/".join(path.split("/")[: DEPTH + 1])] += times
    return found


def doubled(checks: dict[str, Check]) -> dict[str, Check]:
    """Every check under a second ID as well."""
    again = {f"{name}-again": one for name, one in checks.items()}
    return checks | {name: msgspec.structs.replace(one, id=name) for name, one in again.items()}


def median_ms(node: FakeNode, checks: dict[str, Check], rounds: int) -> float:
    """One audit in this process, without the start of Python and the imports."""
    loaded = packs.load_checks
    packs.load_checks = lambda **_: checks
    walls = []
    for _ in range(rounds + 1):
        host = node.host()
        began = time.perf_counter()
        audit.run(host, audit.Request(profile="preflight"))
        walls.append((time.perf_counter() - began) * 1000)
    packs.load_checks = loaded
    return statistics.median(walls[1:])


def main() -> int:
    """Count, time and print; end with 1 when a file was read twice."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    node = healthy_node()
    found = counted(node, "preflight")
    twice = [path for path, times in found.reads.items() if times > 1]
    checks = packs.load_checks(plugins=False)
    lines = [
        f"{len(checks)} checks read {found.reads.total()} files, {len(twice)} more than once",
        *(f"{times:>6}  {place}" for place, times in places(found.reads).most_common(12)),
    ]
    once, again = (median_ms(node, c, options.rounds) for c in (checks, doubled(checks)))
    lines.append(
        f"audit in one process: {once:.1f} ms; with every check twice: {again / once:.2f} x"
    )
    print("\n".join(lines))  # noqa: T201 - a script's output
    return 1 if twice else 0


if __name__ == "__main__":
    sys.exit(main())
