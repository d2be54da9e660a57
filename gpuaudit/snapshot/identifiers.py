# SPDX-License-Identifier: Apache-2.0
"""Identifiers that only their place gives away: serial numbers, asset tags, host names.

They are collected first and then replaced wherever they stand. A value too plain for that (a host
called `vm`) is replaced only where it is the whole value of a field made for it.
"""

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from gpuaudit.host.answers import Answer
from gpuaudit.snapshot import mounttables
from gpuaudit.snapshot.contents import Contents
from gpuaudit.snapshot.mounttables import servers

Kind = Literal["word", "host", "mac", "guid"]
SERIAL_FILES = re.compile(
    r"/dmi/id/[a-z]+_(?:serial|asset_tag)$"
    r"|/(?:serial|serial_number|serialnumber|unique_id)$"
)
HOST_FILES = frozenset(
    {"/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname", "/etc/hostname", "/etc/mailname"}
)
HOST_COMMANDS = frozenset({("hostname",), ("hostname", "-f"), ("hostname", "-s"), ("uname", "-n")})
SERIAL_KEYS = re.compile(r"^(?:ID_SERIAL|ID_SERIAL_SHORT|ID_USB_SERIAL.*|.*SERIAL_NUMBER)$")
SERIAL_CALL = re.compile(r"^nvmlDeviceGet(?:Board)?Serial$")
SAID_SERIAL = re.compile(
    r"(?:serial(?:[ _-]?(?:number|no\.?))?|\[SN\][^:\n]*)[ \t]*[:=][ \t]*"
    r"[\"']?([A-Z0-9][\w./-]{3,})",
    re.IGNORECASE,
)
AZURE = "7783-7084-3265-9085-8269-3286-77"
"""The asset tag of every machine of that cloud, by which it is recognized."""
PLACEHOLDER = re.compile(
    r"(?:none|n/?a|unknown|default string|empty|null|invalid|not (?:specified|available|applicable)"
    rf"|to be filled by o\.e\.m\.|\w+ (?:board )?serial number|0?123456789\d?|(.)\1*|{AZURE})?",
    re.IGNORECASE,
)
"""What boards say instead of a number."""
NOBODY = frozenset({"localhost", "localhost.localdomain", "(none)", "none", ""})
VOCABULARY_FILES = ("/proc/cpuinfo", "/proc/modules", "/proc/devices", "/proc/filesystems")
GUID_FILES = re.compile(r"/(?:node_guid|sys_image_guid|eui)$")
WORD = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


class Identifiers(msgspec.Struct, kw_only=True):
    """`everywhere`: value in lower case -> what it is. `hosts`: names replaced only in fields."""

    everywhere: dict[str, Kind] = {}
    hosts: set[str] = set()


def identifiers(contents: Contents) -> Identifiers:
    """Collect from the fields that are made for identifiers."""
    found = Identifiers()
    for value in serials(contents):
        if distinctive(value):
            found.everywhere[value.lower()] = "word"
            if len(value) >= 8:
                found.everywhere[value.encode().hex()] = "word"
    for digits in numbers(contents):
        found.everywhere[digits] = "mac" if len(digits) == 12 else "guid"
    known = vocabulary(contents)
    for name in host_names(contents):
        if len(name) >= 4 and name not in known and re.search(r"[\d.-]|.{6}", name):
            found.everywhere[name] = "host"
        else:
            found.hosts.add(name)
    return found


def serials(contents: Contents) -> Iterator[str]:
    """Values of the fields for serial numbers."""
    for path, entry in contents.entries.items():
        if isinstance(entry, bytes) and SERIAL_FILES.search(path):
            yield identifying(entry.decode("latin-1"), path)
    for call, answer in nvml_answers(contents):
        if SERIAL_CALL.match(call) and answer.ok:
            yield identifying(str(answer.v))
    for command in contents.commands:
        said = SAID_SERIAL.findall(command.output.stdout if command.output else "")
        yield from map(identifying, said)
    yield from map(identifying, udev_serials(contents))


def nvml_answers(contents: Contents) -> Iterator[tuple[str, Answer]]:
    """Every answer of every GPU."""
    for device in contents.nvml.devices if contents.nvml else ():
        yield from device.items()


def udev_serials(contents: Contents) -> Iterator[str]:
    """The short forms, and the long ones (MODEL_SERIAL) that hold none of them."""
    devices = [one for several in contents.udev.values() for one in several]
    shorts = {one.get("ID_SERIAL_SHORT", "") for one in devices} - {""}
    yield from shorts
    for device in devices:
        for key, value in device.items():
            if SERIAL_KEYS.match(key) and not any(short in value for short in shorts):
                yield value


def identifying(text: str, path: str = "") -> str:
    """The value without what surrounds it; nothing for words that boards put where a number is due.

    Clouds put a name into the asset tag (OracleCloud.com), by which they are recognized.
    """
    value = text.strip("\0 \t\r\n")
    named = path.endswith("_asset_tag") and not any(c.isdigit() for c in value)
    return "" if named or PLACEHOLDER.fullmatch(value) else value


def distinctive(value: str) -> bool:
    """True for what nothing else is called by chance."""
    if value.isdigit():
        return len(value) >= 8
    return len(value) >= 5 and any(c.isdigit() for c in value)


def numbers(contents: Contents) -> Iterator[str]:
    """Hex digits of addresses and GUIDs that also stand somewhere without separators."""
    for path, entry in contents.entries.items():
        if not isinstance(entry, bytes):
            continue
        digits = re.sub(r"[\s:]", "", entry.decode("latin-1").strip("\0")).lower()
        if path.endswith("/address") and "/net/" in path and is_number(digits, 12):
            yield digits
        if GUID_FILES.search(path) and is_number(digits, 16):
            yield digits
    for device in (one for several in contents.udev.values() for one in several):
        for key, value in device.items():
            digits = value.lower().removeprefix("0x")
            if key.startswith("ID_WWN") and is_number(digits, 16):
                yield digits


def is_number(digits: str, length: int) -> bool:
    """True for an address that is somebody's."""
    return re.fullmatch(rf"[0-9a-f]{{{length}}}", digits) is not None and len(set(digits)) > 2


def host_names(contents: Contents) -> set[str]:
    """Full names, short names and domains, in lower case."""
    texts = [contents.text(path) or "" for path in HOST_FILES]
    named = (one.output for one in contents.commands if one.argv in HOST_COMMANDS)
    texts += [output.stdout for output in named if output is not None]
    names = {text.strip().lower() for text in texts}
    tables = (e for p, e in contents.entries.items() if mounttables.is_table(p))
    names |= {name.lower() for e in tables if isinstance(e, bytes) for name in servers(e)}
    for name in list(names):
        short, _, domain = name.partition(".")
        names |= {short, domain} if "." in domain else {short}
    return {name for name in names if re.fullmatch(r"[a-z0-9._-]+", name)} - NOBODY


def vocabulary(contents: Contents) -> set[str]:
    """Words that the kernel and the distribution use themselves."""
    texts: list[str] = [*contents.entries, *contents.listings]
    texts += [name for names in contents.listings.values() for name in names]
    texts += [contents.text(path) or "" for path in VOCABULARY_FILES]
    words: set[str] = set()
    for text in texts:
        words.update(WORD.findall(text.lower()))
        words.update(re.findall(r"[a-z0-9]+", text.lower()))
    return words


def is_serial(key: str, value: Any) -> bool:
    """True for a udev property that is a serial number as a whole."""
    return bool(SERIAL_KEYS.match(key)) and bool(identifying(str(value)))
