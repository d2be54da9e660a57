# SPDX-License-Identifier: Apache-2.0
"""Replace what identifies the machine, its site and its users, in everything a snapshot holds.

The same value gets the same replacement in files, paths, links, listings, command output, udev
and NVML answers, of the same form and length: parsers and verdicts see no difference.
"""

import re
import struct
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from gpuaudit.host.answers import NvmlAnswers
from gpuaudit.host.memory import Entry
from gpuaudit.host.recording import Gap, RecordedCommand
from gpuaudit.snapshot import kernellogs, mounttables, smbios
from gpuaudit.snapshot.contents import Contents
from gpuaudit.snapshot.disguise import Disguise
from gpuaudit.snapshot.identifiers import (
    HOST_COMMANDS,
    HOST_FILES,
    SERIAL_CALL,
    SERIAL_FILES,
    identifiers,
    is_serial,
)
from gpuaudit.snapshot.patterns import guid
from gpuaudit.snapshot.scrubber import Scrubber

PCI_CONFIG = re.compile(r"/pci[0-9a-f]+:[0-9a-f]{2}/.*/config$")
DEVICE_SERIAL_NUMBER = 0x0003  # PCI Express Base Specification 6.0, section 7.9.3
EXTENDED_SPACE = range(0x100, 0x1000)
VERSION_FILE = re.compile(
    r"/(?:version|osrelease|fw_ver|firmware_rev|\w*_release|\w*version\w*|model\w*)$"
)
# "(user@host)" where the kernel or the driver was compiled: Linux init/version-timestamp.c; DKMS
# compiles the driver on the node itself or on its neighbour.
BUILT_FILES = frozenset({"/proc/version", "/proc/driver/nvidia/version"})
BUILDER = re.compile(rb"\(([^()\n]+)@([^()@\s]*)\)")
# What follows "--" goes to init (Linux Documentation/admin-guide/kernel-parameters.rst).
KERNEL_LINES = frozenset(
    {
        "/proc/cmdline",
        "/etc/kernel/cmdline",
        "/etc/default/grub",
        "/boot/grub/grub.cfg",
        "/boot/grub2/grub.cfg",
    }
)
INIT_ARGUMENTS = re.compile(rb"(?<=\s)(--\s+)([^\n\"\']*)")
# IPv4 addresses as eight hex digits, in the byte order of the machine: Linux net/ipv4/fib_trie.c.
ROUTES = "/net/route"
ROUTE_ADDRESS = re.compile(rb"(?<=\t)[0-9A-F]{8}(?=\t)")
T = TypeVar("T")


def scrubbed(contents: Contents) -> Contents:
    """The contents without identifiers. The table of replacements is forgotten on return."""
    scrubber = Scrubber(identifiers(contents))
    text = scrubber.text
    return Contents(
        entries={text(p): entry_of(scrubber, p, e) for p, e in contents.entries.items()},
        gaps={text(p): Gap(g.kind, text(g.reason)) for p, g in contents.gaps.items()},
        listings={
            text(p): tuple(sorted(map(text, names))) for p, names in contents.listings.items()
        },
        statuses={text(p): one for p, one in contents.statuses.items()},
        commands=tuple(command_of(scrubber, one) for one in contents.commands),
        processes=contents.processes and tuple(everywhere(one, text) for one in contents.processes),
        interfaces=contents.interfaces
        and {text(name): one for name, one in contents.interfaces.items()},
        udev={
            name: tuple(device_of(scrubber, one) for one in devices)
            for name, devices in contents.udev.items()
        },
        nvml=None if contents.nvml is None else nvml_of(scrubber, contents.nvml),
    )


def entry_of(scrubber: Scrubber, path: str, entry: Entry) -> Entry:
    """One file or link."""
    if not isinstance(entry, bytes):
        return None if entry is None else scrubber.text(entry)
    if (table := without_numbers(path, entry)) is not None:
        return table
    if path in HOST_FILES:
        return scrubber.host(entry.decode("latin-1")).encode("latin-1")
    if path.endswith("/eui"):
        return spaced_eui(entry, scrubber.disguise)
    entry = without_peculiar(entry, path, scrubber.disguise)
    if SERIAL_FILES.search(path):
        return scrubber.serial(entry.decode("latin-1"), path).encode("latin-1")
    return scrubber.bytes(entry, versions=bool(VERSION_FILE.search(path)))


def without_numbers(path: str, entry: bytes) -> bytes | None:
    """A table of the hardware without the serial numbers in it; None for what is no such table."""
    if path == smbios.TABLE:
        return smbios.without_identifiers(entry)
    return without_serial_number(entry) if PCI_CONFIG.search(path) else None


def without_peculiar(entry: bytes, path: str, disguise: Disguise) -> bytes:
    """The text of a file that holds identifiers in a form of its own."""
    if path in BUILT_FILES:
        return without_builder(entry, disguise)
    if path in KERNEL_LINES:
        return without_init_arguments(entry, disguise)
    if kernellogs.is_log(path):
        return kernellogs.harmless(entry)
    if mounttables.is_table(path):
        return mounttables.without_names(entry, disguise)
    return without_route_addresses(entry, disguise) if path.endswith(ROUTES) else entry


def without_route_addresses(entry: bytes, disguise: Disguise) -> bytes:
    """A routing table with other networks; masks and the default route stay."""

    def other(match: re.Match[bytes]) -> bytes:
        octets = bytes.fromhex(match[0].decode())[::-1]
        new = disguise.ip4(".".join(map(str, octets)))
        return bytes(int(octet) for octet in reversed(new.split("."))).hex().upper().encode()

    return ROUTE_ADDRESS.sub(other, entry)


def without_builder(entry: bytes, disguise: Disguise) -> bytes:
    """The text with other names for who compiled it and where."""

    def other(match: re.Match[bytes]) -> bytes:
        user, host = match[1].decode("latin-1"), match[2].decode("latin-1")
        kept = user if user == "root" else disguise.word(user)
        return f"({kept}@{disguise.domain(host)})".encode("latin-1")

    return BUILDER.sub(other, entry)


def without_init_arguments(entry: bytes, disguise: Disguise) -> bytes:
    """Kernel command lines in which nothing can be read behind "--"."""

    def other(match: re.Match[bytes]) -> bytes:
        return match[1] + disguise.word(match[2].decode("latin-1")).encode("latin-1")

    return INIT_ARGUMENTS.sub(other, entry)


def without_serial_number(config: bytes) -> bytes:
    """PCI configuration space with zeros in the Device Serial Number capability.

    Extended capabilities: bits 15:0 of the header are the ID, 31:20 the next offset (PCI Express
    Base Specification 6.0, section 7.6.3); the number is the two double words behind it.
    """
    data, at = bytearray(config), EXTENDED_SPACE.start
    for _ in range(len(EXTENDED_SPACE) // 4):
        if at not in EXTENDED_SPACE or at + 12 > len(data):
            break
        (header,) = struct.unpack_from("<I", data, at)
        if header & 0xFFFF == DEVICE_SERIAL_NUMBER:
            data[at + 4 : at + 12] = bytes(8)
        at = header >> 20
    return bytes(data)


def spaced_eui(entry: bytes, disguise: Disguise) -> bytes:
    """An NVMe namespace's EUI-64: eight bytes with spaces between (nvme eui_show)."""
    text = entry.decode("latin-1")
    digits = "".join(text.split()).strip("\0")
    if not re.fullmatch(r"[0-9a-fA-F]{16}", digits) or not int(digits, 16):
        return entry
    new = iter(guid(digits, disguise))
    return "".join(next(new) if c.isalnum() else c for c in text).encode("latin-1")


def command_of(scrubber: Scrubber, one: RecordedCommand) -> RecordedCommand:
    """One command with its output."""
    clean: RecordedCommand = everywhere(one, scrubber.text)
    if one.argv in HOST_COMMANDS and one.output is not None:
        said = msgspec.structs.replace(one.output, stdout=scrubber.host(one.output.stdout))
        return msgspec.structs.replace(clean, output=said)
    return clean


def device_of(scrubber: Scrubber, device: dict[str, str]) -> dict[str, str]:
    """One device as udev knows it."""
    return {
        key: scrubber.serial(value) if is_serial(key, value) else scrubber.text(value)
        for key, value in device.items()
    }


def nvml_of(scrubber: Scrubber, answers: NvmlAnswers) -> NvmlAnswers:
    """NVML's answers. None of them is an IP address; several are versions of four numbers."""
    clean = everywhere(answers, lambda text: scrubber.text(text, versions=True))
    devices = tuple(
        {
            call: msgspec.structs.replace(answer, v=scrubber.serial(str(before[call].v)))
            if SERIAL_CALL.match(call) and answer.ok
            else answer
            for call, answer in device.items()
        }
        for device, before in zip(clean.devices, answers.devices, strict=True)
    )
    return msgspec.structs.replace(clean, devices=devices)


def everywhere(value: T, change: Callable[[str], str]) -> T:
    """A record with every text inside changed."""
    plain = changed(msgspec.to_builtins(value), change)
    clean: T = msgspec.convert(plain, type=type(value))
    return clean


def changed(value: Any, change: Callable[[str], str]) -> Any:
    """Plain values with every text changed, keys of dicts too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (list, tuple)):
        return [changed(one, change) for one in value]
    if isinstance(value, dict):
        return {change(key): changed(inside, change) for key, inside in value.items()}
    return value
