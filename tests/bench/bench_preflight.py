# SPDX-License-Identifier: Apache-2.0
"""What a pre-flight costs on the recorded 8-GPU node. Run as described in README.md.

Wall time is given as a ratio to an empty Python start with the same interpreter on the same
machine, so that numbers from different machines compare.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

GPUAUDIT = (sys.executable, "-m", "gpuaudit")
SCAN = """
import time
from gpuaudit import packs
began = time.perf_counter()
list(packs.entry_points())
print((time.perf_counter() - began) * 1000)
"""
MOST_SCAN_MS = 10
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
"""As on a node: with byte code on disk. Without, each start would compile every module."""
EMPTY = (sys.executable, "-c", "pass")


class Case(NamedTuple):
    """A command, and the most it may cost: times an empty start, and megabytes."""

    name: str
    argv: tuple[str, ...]
    most_times: float | None = None
    most_mb: float | None = None


class Cost(NamedTuple):
    """What one command cost: median, fastest (seconds), and peak memory."""

    case: Case
    median_s: float
    fastest_s: float
    peak_mb: float
    code: int


class Once(NamedTuple):
    """One start of a command."""

    wall_s: float
    peak_mb: float
    code: int


RECORDINGS = ("recorded.tar.gz", "node.tar.gz", "node.tar.zst", "node")
"""What `gpuaudit record` keeps of the machine, then the whole machine in three forms."""


def cases(folder: Path) -> tuple[Case, ...]:
    """The commands that are measured."""
    runs = (
        Case(
            f"gpuaudit run {name}",
            (*GPUAUDIT, "run", "--snapshot", str(folder / name), "--format", "json"),
            most_times=20,
            most_mb=60,
        )
        for name in RECORDINGS
    )
    version = Case("gpuaudit --version", (*GPUAUDIT, "--version"), most_times=8)
    return (Case("python -c pass", EMPTY), version, *runs)


def write_recordings(folder: Path) -> None:
    """The healthy node, recorded by the tool itself, as archives and as a folder."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from fakenode import healthy_node

    from gpuaudit.snapshot import record

    node = healthy_node()
    record(node.host(), str(folder / RECORDINGS[0]))
    node.archive(folder / RECORDINGS[1])
    node.archive(folder / RECORDINGS[2])
    node.write(folder / RECORDINGS[3])


def run_once(argv: tuple[str, ...]) -> Once:
    """Start a command and wait. ru_maxrss is in KiB.

    The peak is never less than that of this script, whose memory the child shares until it starts
    its program (Linux fs/exec.c, exec_mmap); the recordings are therefore written elsewhere.
    """
    null = os.open(os.devnull, os.O_RDWR)
    began = time.perf_counter()
    streams = [(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)]
    pid = os.posix_spawn(argv[0], argv, ENVIRONMENT, file_actions=streams)
    _, status, usage = os.wait4(pid, 0)
    wall_s = time.perf_counter() - began
    os.close(null)
    return Once(wall_s, usage.ru_maxrss / 1024, os.waitstatus_to_exitcode(status))


def measure(found: Sequence[Case], rounds: int) -> list[Cost]:
    """Every command `rounds` times, in turn: a busy moment of the machine then hits all alike."""
    for case in found:
        run_once(case.argv)  # byte code and page cache
    runs = [[run_once(case.argv) for case in found] for _ in range(rounds)]
    return [cost_of(case, [one[place] for one in runs]) for place, case in enumerate(found)]


def cost_of(case: Case, runs: Sequence[Once]) -> Cost:
    """The numbers of one command."""
    walls = [one.wall_s for one in runs]
    return Cost(
        case=case,
        median_s=statistics.median(walls),
        fastest_s=min(walls),
        peak_mb=max(one.peak_mb for one in runs),
        code=runs[-1].code,
    )


def judged(costs: Sequence[Cost]) -> list[dict[str, Any]]:
    """One row a command, with the ratio and whether it keeps to its budget."""
    base = costs[0].median_s
    rows = []
    for cost in costs:
        times = cost.median_s / base
        case = cost.case
        good = (case.most_times is None or times <= case.most_times) and (
            case.most_mb is None or cost.peak_mb <= case.most_mb
        )
        row = {"command": case.name, "median_ms": round(cost.median_s * 1000, 1)}
        row |= {"fastest_ms": round(cost.fastest_s * 1000, 1), "times": round(times, 2)}
        row |= {"most_times": case.most_times, "peak_mb": round(cost.peak_mb, 1)}
        rows.append(row | {"most_mb": case.most_mb, "exit": cost.code, "good": good})
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows for people."""
    head = f"{'command':<28}{'median':>10}{'ratio':>8}{'most':>6}{'peak':>10}{'exit':>6}  budget"
    return "\n".join([head, *(shown(row) for row in rows)])


def shown(row: dict[str, Any]) -> str:
    """One row."""
    verdict = "kept" if row["good"] else "EXCEEDED"
    return (
        f"{row['command']:<28}{row['median_ms']:>7.1f} ms{row['times']:>8.2f}"
        f"{row['most_times'] or '-':>6}{row['peak_mb']:>7.1f} MB{row['exit']:>6}  {verdict}"
    )


def plugin_scan_ms(rounds: int) -> float:
    """Median time of looking for plug-ins, each in a process of its own: nothing is cached."""
    command = [sys.executable, "-c", SCAN]
    runs = (subprocess.run(command, capture_output=True, check=True) for _ in range(rounds))
    return statistics.median(float(run.stdout) for run in runs)


def main() -> int:
    """Measure, print, and end with 1 when a budget is exceeded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--write", type=Path, help="only write the recordings into this folder")
    options = parser.parse_args()
    if options.write:
        write_recordings(options.write)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, __file__, "--write", folder], check=True)
        rows = judged(measure(cases(Path(folder)), options.rounds))
    scan_ms = plugin_scan_ms(options.rounds)
    print(table(rows))  # noqa: T201 - a script's output
    print(f"plug-in entry points: {scan_ms:.1f} ms of {MOST_SCAN_MS}")  # noqa: T201 - the same
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if scan_ms <= MOST_SCAN_MS and all(row["good"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
