# SPDX-License-Identifier: Apache-2.0
"""Identifiers that their form gives away, wherever they stand in a text: UUIDs and addresses.

A PCI address (0000:3b:00.0) and a version (570.124.06) are of another form and are left alone.
/home/kubernetes/bin names no user: Google's Container-Optimized OS keeps the driver there.
"""

import ipaddress
import re
from collections.abc import Callable

from gpuaudit.snapshot.disguise import Disguise

WELL_KNOWN = frozenset(
    {
        "8be4df61-93ca-11d2-aa0d-00e098032b8c",  # EFI_GLOBAL_VARIABLE, UEFI 2.10 section 3.3
        "d719b2cb-3d3a-4596-a3bc-dad00e67656f",  # EFI_IMAGE_SECURITY_DATABASE_GUID, section 32.6.1
    }
)
VERSION_BEFORE = re.compile(
    r"(?:version|firmware|release|driver|bios|inforom|rev(?:ision)?|fw)\W{0,12}$", re.IGNORECASE
)
FORMS = r"""
  (?P<uuid> (?<![0-9a-z]) [0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12} (?![0-9a-z]) )
| (?P<md> (?<![0-9a-z]) (?:[0-9a-f]{8}:){3}[0-9a-f]{8} (?![0-9a-z:]) )
| (?P<bytes> (?<![0-9a-z]) [0-9a-f]{2}(?P<sep>[:-])(?:[0-9a-f]{2}(?P=sep)){4,18}[0-9a-f]{2}
    (?! [0-9a-z] | [:-][0-9a-f]{2} ) )
| (?P<colons> (?<![0-9a-z_.]) (?:[0-9a-f]{0,4}:){2,7}(?:[0-9a-f]{1,4})? (?! [0-9a-z_:] | \.\d ) )
| (?P<ip4> (?<![0-9a-z_.+]) (?<![a-z_.]-) (?:\d{1,3}\.){3}\d{1,3} (?! [0-9a-z_] | \.[0-9a-z_] ) )
| (?P<named> (?<![0-9a-z]) (?:en|wl|ww|sl|ib|iw|roce|opa)x [0-9a-f]{12}(?:[0-9a-f]{4})?
    (?![0-9a-z]) )
| (?P<wwid> (?<![0-9a-z]) nvme\.[0-9a-f]{4}-[0-9a-f]{2,}- )
| (?P<eui> (?<![0-9a-z]) (?:eui|naa)\.[0-9a-f]{16} (?![0-9a-z]) )
| (?P<labelled> (?:guid|wwn|eui)\W{1,4}(?:0x)?[0-9a-f]{16} (?![0-9a-z]) )
| (?P<hex32> (?<![0-9a-z]) [0-9a-f]{32} (?![0-9a-z]) )
| (?P<part> partuuid=[0-9a-f]{8} (?=-[0-9a-f]{2}) )
| (?P<home> /home/ (?! kubernetes(?:/bin)? (?![^/\s"':,;=]) ) [^/\s"':,;=]+ )
"""
FLAGS = re.ASCII | re.IGNORECASE | re.VERBOSE
PATTERN = re.compile(FORMS, FLAGS)


def replacement(match: re.Match[str], disguise: Disguise, *, versions: bool = False) -> str:
    """What stands instead of a match of FORMS. In a text of `versions` no IPv4 address is seen."""
    text, form = match[0], match.lastgroup or ""
    if form == "ip4" and (versions or VERSION_BEFORE.search(match.string, 0, match.start())):
        return text
    new = REPLACE[form](text, disguise)
    return recased(new, text)


def recased(new: str, old: str) -> str:
    """Letters in the case of the original."""
    if old.isupper():
        return new.upper()
    pairs = zip(new, old.ljust(len(new)), strict=False)
    return "".join(one.upper() if before.isupper() else one for one, before in pairs)


def hexadecimal(text: str, convert: Callable[[str], str]) -> str:
    """Convert the hex digits of a text and put its separators back in their places."""
    new = iter(convert("".join(c for c in text if c in "0123456789abcdefABCDEF")))
    return "".join(next(new) if c in "0123456789abcdefABCDEF" else c for c in text)


def uuid(text: str, disguise: Disguise) -> str:
    """8-4-4-4-12, in groups of eight, or without separators."""
    return text if text.lower() in WELL_KNOWN else hexadecimal(text, disguise.uuid)


def guid(digits: str, disguise: Disguise) -> str:
    """16 hex digits."""
    return f"{disguise.guid(int(digits, 16)):016x}"


def byte_list(text: str, disguise: Disguise) -> str:
    """A MAC address, EUI-64, PXE's 01-MAC or the 20 bytes of IPoIB (RFC 4391, section 9.1.1)."""
    count = (len(text) + 1) // 3
    if count == 6:
        return hexadecimal(text, disguise.mac)
    if count == 7 and text.startswith("01-"):
        return text[:3] + hexadecimal(text[3:], disguise.mac)
    if count == 8:
        return hexadecimal(text, lambda digits: guid(digits, disguise))
    if count == 20:
        return text[:12] + hexadecimal(text[12:], lambda d: f"{disguise.ip6(int(d, 16)):032x}")
    return text


def colons(text: str, disguise: Disguise) -> str:
    """An IPv6 address or GID in any spelling, or a GUID as four groups; else untouched."""
    groups = text.split(":")
    if [len(group) for group in groups] == [4, 4, 4, 4]:
        return hexadecimal(text, lambda digits: guid(digits, disguise))
    try:
        value = int(ipaddress.IPv6Address(text))
    except ValueError:
        return text
    new = f"{disguise.ip6(value):032x}"
    gap = groups.index("") if "" in groups else 8
    places = (at if at <= gap else at + 8 - len(groups) for at in range(len(groups)))
    numbers = (new[at * 4 : at * 4 + 4].lstrip("0") for at in places)
    return ":".join(n.zfill(len(g)) if g else "" for n, g in zip(numbers, groups, strict=True))


def ip4(text: str, disguise: Disguise) -> str:
    """A dotted address; what is none (an octet above 255 or with a zero in front) is a version."""
    try:
        return disguise.ip4(text)
    except ValueError:
        return text


def named(text: str, disguise: Disguise) -> str:
    """A network interface named after its address (systemd.net-naming-scheme(7), x)."""
    head, _, digits = text.partition("x") if "x" in text else text.partition("X")
    new = disguise.mac(digits) if len(digits) == 12 else guid(digits, disguise)
    return f"{head}x{new}"


def wwid(text: str, disguise: Disguise) -> str:
    """nvme.VENDOR-SERIAL-...: the serial number as the hex of its characters (nvme wwid_show)."""
    head, middle, _ = text.split("-")
    try:
        serial = bytes.fromhex(middle).decode("ascii")
    except ValueError:
        return text
    bare = serial.strip()
    new = serial.replace(bare, disguise.word(bare)) if bare else serial
    return f"{head}-{new.encode().hex()}-"


def tail(text: str, disguise: Disguise) -> str:
    """A label and 16 hex digits."""
    return text[:-16] + guid(text[-16:], disguise)


def part(text: str, disguise: Disguise) -> str:
    """The disk signature in PARTUUID=1234abcd-01."""
    return text[:-8] + guid("00000000" + text[-8:], disguise)[8:]


def home(text: str, disguise: Disguise) -> str:
    """The name of a user."""
    return text[:6] + disguise.word(text[6:])


REPLACE: dict[str, Callable[[str, Disguise], str]] = {
    "uuid": uuid,
    "md": uuid,
    "hex32": uuid,
    "bytes": byte_list,
    "colons": colons,
    "ip4": ip4,
    "named": named,
    "wwid": wwid,
    "eui": tail,
    "labelled": tail,
    "part": part,
    "home": home,
}
