# SPDX-License-Identifier: Apache-2.0
"""Options of NFS mounts."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import Expectations, Finding, NotApplicable, Severity, check, passes, warns
from gpuaudit.facts.mounts import Mount, Mounts

Findings = Iterator[Finding]


class StorageNfsExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of NFS mounts."""

    transfer_min_kib: Annotated[int, msgspec.Meta(ge=1, le=4096)]
    versions: tuple[str, ...]
    connections_min: Annotated[int, msgspec.Meta(ge=1, le=16)] | None
    soft: bool


@check("storage-nfs-options", severity=Severity.MEDIUM)
def nfs_options(table: Mounts, want: StorageNfsExpectations) -> Findings:
    """NFS is mounted with large transfers, over TCP or RDMA, and hard.

    ## Why it matters
    The size of a transfer bounds what one request moves. With `soft` a server that is slow for a
    minute turns into read errors and, says nfs(5), silent corruption of data.

    ## Evidence
    The effective options in /proc/self/mountinfo, after the server had its say.

    ## How it is judged
    rsize and wsize are at least `storage_nfs.transfer_min_kib`, vers is one of
    `storage_nfs.versions`, proto is not udp, and soft is off unless the policy allows it. nconnect
    is judged where `storage_nfs.connections_min` is set. Each is a warning.

    ## Exceptions
    Not applicable without NFS. Read-only mounts may be soft: nothing is written. nconnect does not
    count with proto=rdma. The server may allow no larger transfers (NetApp: 64 KiB by default):
    then the value has to change there.

    ## What to do
    Mount with `hard,proto=tcp,vers=4.2,rsize=1048576,wsize=1048576,nconnect=16`, or proto=rdma
    where the server has it. A new size needs umount and mount, also of other mounts of the server.

    ## References
    - https://man7.org/linux/man-pages/man5/nfs.5.html
    """
    found = [mount for mount in table.mounts if mount.type in {"nfs", "nfs4"}]
    if not found:
        raise NotApplicable("no NFS is mounted")
    for mount in found:
        wrong = list(problems(mount, want))
        if wrong:
            yield warns(mount.folder, "; ".join(wrong), ", ".join(wrong))
        else:
            yield passes(mount.folder, f"{mount.type}, as the policy wants it")


def problems(mount: Mount, want: StorageNfsExpectations) -> Iterator[str]:
    """What is wrong with one mount, in words. An option that is not shown is not judged."""
    pairs = (option.partition("=") for option in mount.super_options)
    options = {name: value for name, _, value in pairs}
    for name in ("rsize", "wsize"):
        value = options.get(name, "")
        if value.isdecimal() and len(value) < 20 and int(value) < want.transfer_min_kib * 1024:
            yield f"{name} is {int(value) // 1024} KiB, less than {want.transfer_min_kib} KiB"
    if options.get("vers", want.versions[0]) not in want.versions:
        yield f"vers is {options['vers']}"
    if options.get("proto", "tcp") in {"udp", "udp6"}:
        yield "proto is udp"
    if {"soft", "softerr"} & options.keys() and not want.soft and "ro" not in mount.options:
        yield "soft: an error instead of a wait"
    least = want.connections_min
    over_tcp = options.get("proto", "tcp") in {"tcp", "tcp6"}
    if least is not None and over_tcp and int_of(options.get("nconnect", "1")) < least:
        yield f"nconnect is {options.get('nconnect', '1')}, less than {least}"


def int_of(text: str) -> int:
    """The number, 0 for none."""
    return int(text[:18]) if text.isdecimal() else 0
