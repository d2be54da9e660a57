# SPDX-License-Identifier: Apache-2.0
"""gpuaudit xid, and what gpuaudit explain tells of a code."""

import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import BinaryIO

import click

from gpuaudit.cli import parameters
from gpuaudit.cli.errors import refuse
from gpuaudit.cli.streams import printable, say
from gpuaudit.facts.kernelfiles import OF_KERNEL
from gpuaudit.facts.kernellog import KernelLog, lines_of
from gpuaudit.facts.xid import NEEDLES, Tally, Xid
from gpuaudit.facts.xidcatalogue import ACTIONS, GPU, SWITCH, Meaning, catalogue

CANNOT_TELL = 3
PIECE_BYTES = 1 << 20
LOOK_BYTES = 1 << 14
STANDARD_INPUT = "-"
HERE = "this machine"
ENCODED = {
    b"\x1f\x8b": ("compressed", "zcat"),
    b"\x28\xb5\x2f\xfd": ("compressed", "zstdcat"),
    b"\xfd7zXZ": ("compressed", "xzcat"),
    b"BZh": ("compressed", "bzcat"),
    b"\xff\xfe": ("in UTF-16", "iconv -f UTF-16 -t UTF-8"),
}
LONGEST_NUMBER = 9
FAMILIES = {"xid": GPU, "sxid": SWITCH}
NAMES = {"xid": "Xid", "sxid": "SXid"}
KINDS = {
    "fail": "the GPU or the fabric needs recovery",
    "warn": "worth watching",
    "application": "a program's error, the node is well",
    "information": "for information",
    "by-text": "the message itself says how grave it is",
    "unknown": "not in the catalogue of this release",
}


@click.command("xid")
@click.argument("logs", nargs=-1, metavar="[FILE|-]...", shell_complete=parameters.files)
@click.option("--format", "format_name", type=click.Choice(["text", "json"]), default="text")
def command(logs: tuple[str, ...], format_name: str) -> None:
    """Explain the Xids and SXids in a kernel log: each GPU and code once, with what to do.

    \b
    gpuaudit xid                          this machine since boot
    gpuaudit xid dmesg.txt /var/log/kern.log
    journalctl -k -b -1 | gpuaudit xid -

    Reads what dmesg, journalctl -k and syslog write, of any size. A file is taken as a whole, with
    all the boots in it.

    Exit codes: 0 read, with or without Xids, 2 wrong use, 3 no kernel log.
    """
    names = dict.fromkeys(logs)
    found = {name: of_file(name) for name in names} if logs else {HERE: of_this_machine()}
    if format_name == "json":
        click.echo(json.dumps([as_json(name, rows) for name, rows in found.items()], indent=2))
    else:
        say("\n".join(as_text(name, rows) for name, rows in found.items()), exact=False)
    if None in found.values():
        sys.exit(CANNOT_TELL)


def of_this_machine() -> list[Xid] | None:
    """The rows of the log since boot; None, with a line on standard error, when it is not read."""
    from gpuaudit.engine import Facts
    from gpuaudit.facts.xid import Xids
    from gpuaudit.host import Host, Unavailable

    try:
        xids: Xids = Facts(Host.live()).get(Xids)
    except Unavailable as absent:
        click.echo(f"gpuaudit: {absent.reason}", err=True)
        return None
    return [*xids.gpus, *xids.switches]


def of_file(name: str) -> list[Xid] | None:
    """The rows of a file; None, with a line on standard error, when it is no kernel log."""
    tally, is_log = Tally(), False
    with opened(name) as file:
        for piece in pieces(name, file):
            is_log = is_log or is_of_kernel(piece)
            log = KernelLog(data=piece, source=name, complete=None)
            tally.add(log.matching(*NEEDLES))
    if not is_log and not tally.seen:
        message = f"{shown(name)}: no line of it is of a kernel log, as dmesg prints it"
        click.echo(f"gpuaudit: {printable(message)}", err=True)
        return None
    return [*tally.of(GPU), *tally.of(SWITCH)]


def is_of_kernel(piece: bytes) -> bool:
    """Whether a line near the start, or the first that names the kernel, has a time in front."""
    at = piece.rfind(b"\n", 0, max(piece.find(OF_KERNEL), 0)) + 1
    near = (piece[:LOOK_BYTES], piece[at : at + LOOK_BYTES])
    return any(next(lines_of(part), None) is not None for part in near)


def opened(name: str) -> AbstractContextManager[BinaryIO]:
    """The file, or standard input. Most devices never end, and /dev/kmsg waits for more."""
    if name == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)
    if is_device(name):
        refuse(f"{name}: is a device; without a file gpuaudit xid reads this machine's log")
    return open(name, "rb")


def is_device(name: str) -> bool:
    """True for what is no file; a terminal is what people type into."""
    mode = os.stat(name).st_mode
    ends = os.path.realpath(name).startswith(("/dev/null", "/dev/pts/", "/dev/tty"))
    return stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not ends)


def pieces(name: str, file: BinaryIO) -> Iterator[bytes]:
    """A file of any size in whole lines. A line that is longer than a piece is cut."""
    left, is_first = b"", True
    while data := file.read(PIECE_BYTES):
        if is_first:
            refuse_encoded(name, data)
        is_first = False
        whole, newline, rest = (left + data).rpartition(b"\n")
        left = rest if len(rest) <= PIECE_BYTES else b""
        yield whole + newline
    yield left


def refuse_encoded(name: str, data: bytes) -> None:
    """Rotated logs are compressed more often than not, and some editors write UTF-16."""
    for magic, (how, program) in ENCODED.items():
        if data.startswith(magic):
            refuse(f"{shown(name)}: is {how}; use: {program} FILE | gpuaudit xid -")


def shown(name: str) -> str:
    """What messages call it."""
    return "standard input" if name == STANDARD_INPUT else printable(name)


def as_text(name: str, rows: list[Xid] | None) -> str:
    """One paragraph a row."""
    if rows is None:
        return f"{shown(name)}: no kernel log\n"
    if not rows:
        return f"{shown(name)}: no Xid and no SXid\n"
    return "\n".join([f"{shown(name)}:", *(paragraph(one) for one in rows), ""])


def paragraph(one: Xid) -> str:
    """Which, how often and when; what it means; what to do."""
    times = "once" if one.times == 1 else f"{one.times} times"
    when = f"at {one.last.when}"
    if one.times > 1:
        when = f"from {one.first.when} to {one.last.when}"
    by = f"by {', '.join(one.processes)}" if one.processes else ""
    lines = [
        f"{one.device} {one.label} {times} {when}",
        f"  {one.meaning.meaning} [{one.meaning.fault}; {KINDS[one.kind]}]",
        f"  {by}",
        f"  {one.detail[:200]}",
        f"  past: {one.settled}" if one.settled else f"  do: {one.advice}",
    ]
    return "\n".join(filled(line) for line in lines if line.strip())


def filled(line: str) -> str:
    """Wrapped for a terminal, the rest of a line further in."""
    import textwrap

    return textwrap.fill(line, 100, subsequent_indent="    ", break_on_hyphens=False)


def as_json(name: str, rows: list[Xid] | None) -> dict[str, object]:
    """The same for programs; `xids` is null when the file is no kernel log."""
    return {"file": name, "xids": None if rows is None else [row_json(one) for one in rows]}


def row_json(one: Xid) -> dict[str, object]:
    """One row."""
    return {
        "device": one.device,
        "family": "sxid" if one.is_switch else "xid",
        "code": one.meaning.code,
        "kind": one.kind,
        "times": one.times,
        "first": one.first.when,
        "last": one.last.when,
        "processes": list(one.processes),
        "message": one.detail,
        "fault": one.meaning.fault,
        "meaning": one.meaning.meaning,
        "action": one.meaning.action,
        "advice": one.advice,
        "past": one.settled or None,
    }


def explained(family: str, words: tuple[str, ...], format_name: str) -> str:
    """What `gpuaudit explain xid [CODE]` prints."""
    known = {key: row for key, row in catalogue().items() if key.startswith(FAMILIES[family])}
    if not words:
        rows = list(known.values())
        return dumped(rows) if format_name == "json" else listed(family, rows)
    if len(words) > 1 or not words[0].isdecimal() or len(words[0]) > LONGEST_NUMBER:
        refuse(f"explain {family} takes one number, such as {79 if family == 'xid' else 20034}")
    code = f"{FAMILIES[family]}{int(words[0])}"
    if code not in known:
        refuse(f"{NAMES[family]} {words[0]} is not in the catalogue of this release")
    return dumped([known[code]]) if format_name == "json" else page(family, known[code])


def dumped(rows: list[Meaning]) -> str:
    """As JSON."""
    return json.dumps([row._asdict() | {"advice": ACTIONS[row.action]} for row in rows], indent=2)


def listed(family: str, rows: list[Meaning]) -> str:
    """One line a code, and what the words in the middle mean."""
    used = [kind for kind in KINDS if any(row.kind == kind for row in rows)]
    legend = "; ".join(f"{kind}: {KINDS[kind]}" for kind in used)
    more = f"gpuaudit explain {family} CODE tells whose fault it is and what to do."
    return "\n".join([*map(summary, rows), "", legend, more])


def summary(row: Meaning) -> str:
    """One line of the list."""
    return f"{row.code:>5}  {row.kind:<11}  {row.meaning}"


def page(family: str, row: Meaning) -> str:
    """Everything that is known of one code."""
    return "\n".join(
        [
            f"{NAMES[family]} {row.code}: {row.meaning}",
            f"  whose fault   {row.fault}",
            f"  how grave     {KINDS[row.kind]}",
            f"  what to do    {ACTIONS[row.action]}",
            f"  applies to    {row.applies}",
        ]
    )
