# SPDX-License-Identifier: Apache-2.0
"""The files from which NCCL reads its variables."""

import re
from collections.abc import Iterator

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.environment import CALLER, NCCL_CONF, Environment
from gpuaudit.facts.limits import absence
from gpuaudit.host import Host, NotApplicable, Unavailable

EVERYONE_READS = 0o004


class NcclConf(Fact, frozen=True, kw_only=True):
    """/etc/nccl.conf and the caller's own file, as they stand.

    NCCL opens NCCL_CONF_FILE, else ~/.nccl.conf, then /etc/nccl.conf. A line that begins with # is
    a comment; the name reaches to the first equals sign and the value to the end of the line,
    white space and quotes with them (NCCL src/misc/param.cc, setEnvFile).
    """

    texts: dict[str, str]
    everyone_reads: bool | None
    """Of /etc/nccl.conf; None when its mode is not known."""

    gaps: dict[str, Absent]
    system: str = NCCL_CONF

    @staticmethod
    def mistakes(text: str) -> Iterator[tuple[int, str]]:
        """(line number, what is wrong with it)."""
        for number, line in enumerate(text.split("\n"), 1):
            why = mistake(line)
            if why:
                yield number, why


def mistake(line: str) -> str | None:
    """Why NCCL does not take a line as it was meant, or None."""
    name, equals, value = line.rstrip("\r").partition("=")
    if line.startswith("#") or not line.strip():
        return None
    # strtoll() takes white space in front and anything behind: ncclLoadParam of the same file.
    odd = not re.match(r"\s*[-+]?\d+\s*(?:#|$)", value)
    wrongs = (
        ("a comment has to begin with the line", line.lstrip().startswith("#")),
        ("there is no =", not equals),
        ("`export` belongs to shells", name.startswith("export ")),
        (f"white space around {name.strip()[:30]}", name != name.strip()),
        ("it ends as lines of DOS do", odd and line.endswith("\r")),
        ("quotes become part of the value", value.strip()[:1] in {'"', "'"}),
        (
            "white space becomes part of the value",
            odd and (value != value.strip() or " #" in value),
        ),
    )
    return next((why for why, holds in wrongs if holds), None)


@probe
def nccl_conf(host: Host, environment: Environment) -> NcclConf:
    """Read the files that are there; never raises. The caller's own hang on its environment."""
    texts: dict[str, str] = {}
    gaps: dict[str, Absent] = {}
    if isinstance(environment.caller, Absent) and environment.caller.kind != "unsupported":
        gaps[CALLER] = Absent("failed", environment.caller.reason)
    named = environment.value("NCCL_CONF_FILE")
    home = environment.value("HOME")
    own = named or (f"{home}/.nccl.conf" if home else None)
    for path in (own, NCCL_CONF):
        try:
            if path:
                texts[path] = host.read_bytes(path).decode("utf-8", "replace")
        except (Unavailable, NotApplicable) as absent:
            if path == named or not is_missing(absent):
                gaps[str(path)] = absence(absent)
    reads = everyone_reads(host) if NCCL_CONF in texts else None
    return NcclConf(texts=texts, everyone_reads=reads, gaps=gaps)


def is_missing(absent: Unavailable | NotApplicable) -> bool:
    """True for a file that is known not to be there."""
    return isinstance(absent, Unavailable) and absent.kind == "missing"


def everyone_reads(host: Host) -> bool | None:
    """Whether others have read permission; None when the mode was not recorded."""
    try:
        return bool(host.status(NCCL_CONF).mode & EVERYONE_READS)
    except (Unavailable, NotApplicable):
        return None
