# SPDX-License-Identifier: Apache-2.0
"""System calls that no file stands for: statvfs(2), adjtimex(2), what a network driver says.

Each may sleep for ever in a driver or for a file server, so the patient child makes them. They are
asked and recorded like commands, and their names begin with @. All of them only read.
Numbers and structures: Linux include/uapi/linux/{sockios,ethtool,dcbnl,rtnetlink}.h.
"""

import errno
import json
import os
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from gpuaudit.host.clock import adjtimex
from gpuaudit.host.errors import Unavailable

if TYPE_CHECKING:
    import socket

STATVFS, ETHTOOL, ADJTIMEX = "@statvfs", "@ethtool", "@adjtimex"
SIOCETHTOOL = 0x8946
DRVINFO, RINGS, PAUSE, STRINGS, SET_INFO, FEATURES, CHANNELS = 3, 0x10, 0x12, 0x1B, 0x37, 0x3A, 0x3C
FEATURE_SET, NAME_BYTES = 4, 32
IFNAMSIZ = 16
NETLINK_ROUTE, RTM_GETDCB, NLM_F_REQUEST, NLMSG_ERROR = 0, 78, 1, 2
DCB_IEEE_GET, ATTR_IFNAME, ATTR_IEEE, IEEE_PFC, IEEE_APPS, SELECTS_DSCP = 21, 1, 13, 2, 3, 5
Answer = dict[str, Any]


def answers(question: str) -> bytes:
    """In the child: what `@name argument` answers, as the JSON of an Output. Raises Unavailable."""
    name, _, argument = question.partition(" ")
    if name not in CALLS:
        raise Unavailable(f"there is no call {name}", "unsupported")
    try:
        code, out, why = 0, json.dumps(CALLS[name](argument)), ""
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENODEV}:
            raise Unavailable(f"{question[1:]}: {error.strerror}", "missing") from None
        if error.errno in {errno.EACCES, errno.EPERM}:
            raise Unavailable(f"{question[1:]}: {error.strerror}", "denied") from None
        code, out, why = error.errno or 1, "", str(error.strerror)
    return json.dumps({"returncode": code, "stdout": out, "stderr": why}).encode()


def statvfs(path: str) -> Answer:
    """Space and inodes of the file system at `path`; what is free is what a user may have."""
    found = os.statvfs(path)
    return {
        "total_kib": found.f_blocks * found.f_frsize // 1024,
        "free_kib": found.f_bavail * found.f_frsize // 1024,
        "inodes": found.f_files,
        "free_inodes": found.f_favail,
    }


def ethtool(name: str) -> Answer:
    """Everything one interface says; what its driver does not support is left out.

    In a container the names in sysfs may be those of the host. A name that is not in this network
    namespace is not asked for: the kernel would try to load a module for it (dev_load() of Linux
    net/core/dev_ioctl.c).
    """
    import socket

    if name not in {known for _, known in socket.if_nameindex()}:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
    found: Answer = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for what, ask in QUESTIONS.items():
            try:
                found[what] = ask(one, name)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    raise
                if error.errno != errno.EOPNOTSUPP:
                    found.setdefault("failed", {})[what] = str(error.strerror)
    return found


def call(one: "socket.socket", name: str, request: bytes) -> bytes:
    """One SIOCETHTOOL: struct ifreq with the address of the request, which is filled in place."""
    import array
    import fcntl

    buffer = array.array("B", request)
    interface = os.fsencode(name)[: IFNAMSIZ - 1]
    fcntl.ioctl(one, SIOCETHTOOL, struct.pack("16sP16x", interface, buffer.buffer_info()[0]))
    return buffer.tobytes()


def driver(one: "socket.socket", name: str) -> Answer:
    """The struct ethtool_drvinfo: the driver and the firmware's version."""
    words = struct.unpack_from("32s32s32s", call(one, name, struct.pack("=I192x", DRVINFO)), 4)
    texts = [word.partition(b"\0")[0].decode("utf-8", "replace") for word in words]
    return {"name": texts[0], "firmware": texts[2]}


def rings(one: "socket.socket", name: str) -> Answer:
    """The struct ethtool_ringparam: descriptors of the receive and the send ring, and the most."""
    got = struct.unpack_from("=9I", call(one, name, struct.pack("=I32x", RINGS)))
    return {"rx": got[5], "rx_max": got[1], "tx": got[8], "tx_max": got[4]}


def channels(one: "socket.socket", name: str) -> Answer:
    """The struct ethtool_channels: queues, and the most."""
    got = struct.unpack_from("=9I", call(one, name, struct.pack("=I32x", CHANNELS)))
    return {"combined": got[8], "combined_max": got[4], "rx": got[5], "rx_max": got[1]}


def pause(one: "socket.socket", name: str) -> Answer:
    """The struct ethtool_pauseparam: global pause frames (IEEE 802.3x)."""
    got = struct.unpack_from("=4I", call(one, name, struct.pack("=I12x", PAUSE)))
    return {"rx": bool(got[2]), "tx": bool(got[3])}


def features(one: "socket.socket", name: str) -> dict[str, str]:
    """Offloads by name: on or off, and "fixed" behind it where nobody can change it."""
    info = call(one, name, struct.pack("=IIQI", SET_INFO, 0, 1 << FEATURE_SET, 0))
    (count,) = struct.unpack_from("=I", info, 16)
    blocks = (count + 31) // 32
    head = struct.pack("=III", STRINGS, FEATURE_SET, count)
    names = call(one, name, head + bytes(count * NAME_BYTES))[12:]
    masks = call(one, name, struct.pack("=II", FEATURES, blocks) + bytes(blocks * 16))[8:]
    return dict(named_features(names, masks, count))


def named_features(names: bytes, masks: bytes, count: int) -> Iterator[tuple[str, str]]:
    """Each block of 32 has the words available, requested, active and never changed."""
    for bit in range(count):
        text = names[bit * NAME_BYTES : (bit + 1) * NAME_BYTES].partition(b"\0")[0]
        words = struct.unpack_from("=4I", masks, bit // 32 * 16)
        available, active, never = (words[at] >> bit % 32 & 1 for at in (0, 2, 3))
        fixed = "" if available and not never else " fixed"
        yield text.decode("utf-8", "replace"), ("on" if active else "off") + fixed


def data_center_bridging(_: "socket.socket", name: str) -> Answer:
    """RTM_GETDCB with DCB_CMD_IEEE_GET: priorities with flow control, DSCP values with a priority.

    A driver that has DSCP values in its table classifies by DSCP, the others by VLAN priority.
    """
    import socket

    interface = os.fsencode(name)[: IFNAMSIZ - 1] + b"\0"
    attribute = struct.pack("=HH", 4 + len(interface), ATTR_IFNAME) + interface
    body = struct.pack("=BBH", 0, DCB_IEEE_GET, 0) + attribute + bytes(-len(attribute) % 4)
    head = struct.pack("=IHHII", 16 + len(body), RTM_GETDCB, NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ROUTE) as link:
        link.send(head + body)
        return parsed_bridging(link.recv(65536))


def parsed_bridging(message: bytes) -> Answer:
    """The answer to RTM_GETDCB. Raises OSError with the kernel's code."""
    length, kind = struct.unpack_from("=IH", message)
    if kind == NLMSG_ERROR:
        (code,) = struct.unpack_from("=i", message, 16)
        raise OSError(-code, os.strerror(-code))
    ieee = dict(attributes(message[20:length])).get(ATTR_IEEE)
    inside = dict(attributes(ieee)) if ieee else {}
    if IEEE_PFC not in inside:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    apps = attributes(inside.get(IEEE_APPS, b""))
    by_dscp = sum(app[:1] == bytes([SELECTS_DSCP]) for _, app in apps)
    return {"pfc": [bit for bit in range(8) if inside[IEEE_PFC][1] >> bit & 1], "dscp": by_dscp}


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Netlink attributes: length and type in 16 bits each, padded to 4 bytes."""
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if not 4 <= length <= len(data):
            return
        yield kind & 0x3FFF, data[4:length]
        data = data[(length + 3) & ~3 :]


Question = Callable[["socket.socket", str], Any]
QUESTIONS: dict[str, Question] = {
    "driver": driver,
    "rings": rings,
    "channels": channels,
    "pause": pause,
    "features": features,
    "bridging": data_center_bridging,
}
CALLS: dict[str, Callable[[str], Answer]] = {
    STATVFS: statvfs,
    ETHTOOL: ethtool,
    ADJTIMEX: adjtimex,
}
