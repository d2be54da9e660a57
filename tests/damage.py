# SPDX-License-Identifier: Apache-2.0
"""Ways to damage a recording. All take a random.Random, so that a seed tells the whole story."""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Any

from fakenode import FakeNode
from trees import Link

TEXTS: Sequence[str | bytes] = (
    "",
    "garbage",
    "\0" * 4096,
    b"\xff\xfe\x80\x00\x01",
    "9" * 5000,
    "0x" + "f" * 5000,
    "-1",
    "-" + "9" * 30,
    "4294967296",
    "18446744073709551616",
    "1_000",
    "+5",
    "\u00fcn\u00efc\u00f6d\u00e9 \u00b2\u00b3 \u0663\u0663",
    "\u00b2",
    "x" * 70_000,
    "1e999",
    "nan",
    "0-",
    "0-16383",
    "0-99999999999",
    "ffffffff," * 300,
    "0-8191," * 5000,
    "[never]",
    "[]",
    "=",
    "\n\n=\n[",
    "{",
    "null",
    "\x1b[31mred",
    "%n%s{0}{{",
    " ",
)
VALUES: Sequence[Any] = (
    None,
    True,
    -1,
    0,
    7,
    2**63,
    10**30,
    -(2**63),
    1.5,
    1e300,
    "",
    "x",
    "\u00b2.\u0663",
    [],
    {},
    [[]],
    {"a": None},
    [None] * 3,
    [1, 2, 3, 4, 5, 6, 7],
)
CODES = (1, 2, 3, 4, 9, 12, 13, 15, 16, 18, 25, 26, 27, 28, 999, -1, -99999)
SUBJECTS = (
    "/sys/devices/system/node",
    "/sys/devices/system/cpu",
    "/sys/bus/pci",
    "/sys/devices/pci",
    "/sys/kernel",
    "/proc/irq",
    "/proc/",
    "/etc/",
    "config",
    "uevent",
    "link",
    "online",
    "list",
)


def kinds(node: FakeNode) -> list[list[str]]:
    """Paths grouped by what they are: CPU 3's file and CPU 90's are of one kind."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(node.files):
        groups[re.sub(r"[0-9a-f]*[0-9][0-9a-f]*", "#", path)].append(path)
    return list(groups.values())


def some_files(node: FakeNode, random: Random) -> None:
    """One file or a few: other content, gone, a link to nowhere, a folder, cut, longer."""
    groups = kinds(node)
    for _ in range(random.choice((1, 3, 10, 60))):
        path = random.choice(random.choice(groups))
        if path in node.files:
            random.choice((rewrite, rewrite, remove, relink, to_folder, flatten, scramble))(
                node, path, random
            )


def rewrite(node: FakeNode, path: str, random: Random) -> None:
    node.files[path] = random.choice(TEXTS)


def remove(node: FakeNode, path: str, random: Random) -> None:
    del node.files[path]
    if random.random() < 0.5:
        node.gaps[path] = {"kind": random.choice(("denied", "hung", "garbled")), "reason": "gap"}


def relink(node: FakeNode, path: str, random: Random) -> None:
    """Broken, circular, upwards, elsewhere."""
    elsewhere = random.choice(sorted(node.files))
    goals = ("nowhere", path.rpartition("/")[2], path, "../../../../..", ".", elsewhere)
    node.files[path] = Link(random.choice(goals))


def to_folder(node: FakeNode, path: str, random: Random) -> None:
    node.files[path] = None
    if random.random() < 0.5:
        node.files[f"{path}/inside"] = "1"


def flatten(node: FakeNode, path: str, random: Random) -> None:
    """The folder a file stands in becomes a file."""
    folder = path.rpartition("/")[0]
    if folder.count("/") > 2:
        for inside in [p for p in node.files if p.startswith(f"{folder}/")]:
            del node.files[inside]
        node.files[folder] = random.choice(TEXTS)


def scramble(node: FakeNode, path: str, random: Random) -> None:
    """Cut at a random place, a few bytes changed, padded as a tar of sysfs, or said three times."""
    content = node.files[path]
    if content is None or isinstance(content, Link):
        return
    data = bytearray(content.encode() if isinstance(content, str) else content)
    how = random.randrange(4)
    if how == 0:
        del data[random.randrange(len(data) + 1) :]
    elif how == 1 and data:
        for _ in range(random.randrange(1, 9)):
            data[random.randrange(len(data))] = random.randrange(256)
    elif how == 2:
        data = data.ljust(4096, b"\0")
    else:
        data *= 3
    node.files[path] = bytes(data)


def one_subject(node: FakeNode, random: Random) -> None:
    """The same nonsense in most files of one subject."""
    word, text = random.choice(SUBJECTS), random.choice(TEXTS)
    for path, content in list(node.files.items()):
        if word in path and not isinstance(content, Link) and random.random() < 0.7:
            node.files[path] = text


def padded(node: FakeNode, random: Random) -> None:
    """As tar keeps sysfs: every attribute as long as stat says, which is a page."""
    del random
    for path, content in node.files.items():
        if path.startswith("/sys") and isinstance(content, str):
            node.files[path] = content.encode().ljust(4096, b"\0")


def configs(node: FakeNode, random: Random) -> None:
    """Config space of any length, with lists of capabilities that go anywhere."""
    for path in [p for p in node.files if p.endswith("/config")]:
        content = node.files[path]
        if isinstance(content, bytes) and random.random() < 0.6:
            data = bytearray(content)
            for at in random.sample((0x06, 0x34, 0x41, 0x61, 0x100, 0x102, 0x103, 0x143), 3):
                if at < len(data):
                    data[at] = random.randrange(256)
            node.files[path] = bytes(data[: random.choice((len(data), random.randrange(4097)))])


def nvml(node: FakeNode, random: Random) -> None:
    """Other values, error codes, missing answers, missing and additional devices."""
    devices = node.nvml["devices"]
    for _ in range(random.choice((1, 3, 20, 200))):
        answers = random.choice(devices) if devices and random.random() < 0.9 else {}
        answers = answers or node.nvml["system"]
        call = random.choice(sorted(answers) or [""])
        other = {"v": random.choice(VALUES)}, {"e": random.choice(CODES)}
        answers[call] = random.choice((*other, damaged_answer(answers, call, random)))
    resize(devices, random)


def damaged_answer(answers: dict[str, Any], call: str, random: Random) -> dict[str, Any]:
    """The old value with one part replaced."""
    value = answers.get(call, {}).get("v")
    return {"v": damaged(json.loads(json.dumps(value)), random)}


def resize(devices: list[dict[str, Any]], random: Random) -> None:
    """Fewer devices, the same twice, or one that answers nothing."""
    how = random.randrange(6)
    if how == 0 and devices:
        devices.pop(random.randrange(len(devices)))
    elif how == 1 and devices:
        devices.append(dict(random.choice(devices)))
    elif how == 2:
        devices.append({})
    elif how == 3:
        devices.clear()


def damaged(value: Any, random: Random) -> Any:
    """A JSON value with something in it replaced."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = random.choice(sorted(value))
        return {**value, key: damaged(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.85:
        at = random.randrange(len(value))
        return [*value[:at], damaged(value[at], random), *value[at + 1 :]]
    return random.choice(VALUES)


def side_files(node: FakeNode, random: Random) -> None:
    """Odd processes and odd output of commands."""
    names = ("", "sshd", "slurmd", "nv-fabricmanage", "irqbalance", "\0", "kthreadd")
    node.processes = [
        {
            "pid": random.choice((1, 2, 0, -1, 2**40)),
            "name": random.choice(names),
            "parent": random.choice((1, None, -1, 7)),
            "state": random.choice(("zombie", "", "sleeping")),
        }
        for _ in range(random.randrange(20))
    ]
    for command in node.commands:
        if isinstance(command.get("output"), dict) and random.random() < 0.7:
            command["output"]["stdout"] = random.choice([t for t in TEXTS if isinstance(t, str)])
    if random.random() < 0.3:
        node.processes = damaged(node.processes, random)


WAYS = (some_files, one_subject, padded, configs, nvml, side_files)


def damage(node: FakeNode, random: Random) -> None:
    """One to three kinds of damage."""
    for way in random.sample(WAYS, random.choice((1, 1, 2, 3))):
        way(node, random)
