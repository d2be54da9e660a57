# SPDX-License-Identifier: Apache-2.0
"""A made-up switch with a GPU and a NIC whose control words, counts and settings a test changes."""

import struct
from importlib import import_module
from pathlib import Path
from typing import Any

from judging import supply
from pcitree import BARE_METAL, ENDPOINT, EXPRESS_AT, Files, config_space, switch
from trees import Link, make_host

from gpuaudit.check import CHECKS, Expectations, Finding
from gpuaudit.engine import Facts, judged

ROOT, UP = "0000:15:01.0", "0000:16:00.0"
OVER_GPU, OVER_NIC = "0000:17:00.0", "0000:17:01.0"
GPU_AT, NIC_AT = "0000:18:00.0", "0000:19:00.0"
EVERYWHERE = (ROOT, UP, OVER_GPU, OVER_NIC, GPU_AT, NIC_AT)
WORDS = {
    "capability": (0x04, "<I"),
    "control": (0x08, "<H"),
    "link_capability": (0x0C, "<I"),
    "link_control": (0x10, "<H"),
    "capability_2": (0x24, "<I"),
    "control_2": (0x28, "<H"),
}
CONTROL = 0x593F
"""Reads of 4096, extended tags, payloads of 256, relaxed ordering, every error reported."""

AER = "/sys/bus/pci_express/drivers/aer"
NONE = "RxErr 0\nBadTLP 0\nTOTAL_ERR_COR 0\n"


def place(files: Files, address: str) -> str:
    """The folder of a function."""
    tail = f"/{address}/uevent"
    return next(k for k in files if k.endswith(tail)).removesuffix("/uevent")


def words(files: Files, address: str, **changed: int) -> Files:
    """The tree with other words in the PCI Express capability of one function."""
    where = f"{place(files, address)}/config"
    old = files.get(where) or config_space(ENDPOINT)
    assert isinstance(old, bytes)
    space = bytearray(old)
    for name, value in changed.items():
        offset, form = WORDS[name]
        struct.pack_into(form, space, EXPRESS_AT + offset, value)
    return {**files, where: bytes(space)}


def attribute(files: Files, address: str, **texts: str) -> Files:
    """The tree with other attributes; `power__control` is power/control."""
    folder = place(files, address)
    return {**files, **{f"{folder}/{n.replace('__', '/')}": t for n, t in texts.items()}}


def errors(files: Files, address: str, **counts: str) -> Files:
    """The tree with other error counts; every severity not named is zero."""
    texts = {f"aer_dev_{k}": counts.get(k, NONE) for k in ("correctable", "nonfatal", "fatal")}
    return attribute(files, address, **texts)


def healthy() -> Files:
    """Everything as it should be, and errors handled by the kernel."""
    files: Files = {**switch("pci0000:15", 0x15), f"{AER}/{ROOT}:pcie002": Link("../nowhere")}
    for address in EVERYWHERE:
        files = words(files, address, capability=0x21, control=CONTROL)
        files = attribute(errors(files, address), address, power__control="on\n")
    return files


TREE = healthy()


def findings(
    check: str, folder: Path, files: Files, platform: Files = BARE_METAL, **want: Any
) -> dict[str, Finding]:
    """What `module/check-id` finds here, by subject; `want` changes values of the base policy."""
    module, _, check_id = check.partition("/")
    import_module(f"gpuaudit.checks.{module}")
    facts, one = Facts(make_host(folder, {**platform, **files})), CHECKS[check_id]
    given = [
        supply(kind, {}, want) if issubclass(kind, Expectations) else facts.get(kind)
        for kind in one.needs
    ]
    return {f.subject: f for f in judged(one.function(*given)).findings}


def verdicts(found: dict[str, Finding]) -> dict[str, str]:
    """Subject -> verdict."""
    return {subject: finding.verdict.value for subject, finding in found.items()}
