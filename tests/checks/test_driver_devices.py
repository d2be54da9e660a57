# SPDX-License-Identifier: Apache-2.0
"""Device files of the driver, by facts made by hand."""

from typing import Any

import pytest
from gpufacts import function, only, policy, section, verdicts

from gpuaudit.facts.base import Absent
from gpuaudit.facts.devicenodes import DeviceNodes, Wanted
from gpuaudit.host import Status

DENIED = Absent("denied", "needs root")
GONE = Absent("missing", "/dev/nvidiactl does not exist")
CHAR = Status("char", 0o666, 0, 0, 195, 0)
UVM = CHAR._replace(major=508)
VIDEO = Wanted(0o660, 0, 44, modify=True)
OPEN = Wanted(0o666, 0, 0, modify=True)
SITE = OPEN._replace(modify=False)


def judged(
    nodes: dict[str, Any],
    *,
    wanted: Any = OPEN,
    makes: Any = False,
    majors: Any = None,
    access: Any = "as-configured",
) -> Any:
    known = {"nvidiactl": 195, "nvidia-uvm": 508} if majors is None else majors
    found = DeviceNodes(nodes=nodes, wanted=wanted, majors=known, makes_them=makes)
    check = "driver-device-nodes"
    return function(check)(found, policy(section(check), access=access))


@pytest.mark.parametrize(
    ("node", "how", "verdict"),
    [
        (CHAR, {}, "pass"),
        (CHAR._replace(kind="file"), {}, "fail"),
        (CHAR._replace(mode=0o600), {}, "fail"),
        (CHAR._replace(mode=0o644), {}, "fail"),
        (CHAR._replace(mode=0o660, gid=44), {}, "warn"),
        (CHAR._replace(mode=0o660, gid=0), {}, "fail"),
        (CHAR._replace(major=194), {}, "fail"),
        (CHAR._replace(major=194), {"majors": DENIED}, "pass"),
        (CHAR, {"majors": {"nvidia-frontend": 195}}, "pass"),
        (CHAR, {"wanted": DENIED}, "unknown"),
        (CHAR, {"wanted": VIDEO}, "warn"),
        (CHAR._replace(mode=0o660, gid=44), {"wanted": VIDEO}, "pass"),
        (CHAR._replace(mode=0o660, gid=0), {"wanted": VIDEO}, "fail"),
        (CHAR._replace(mode=0o660, gid=44), {"access": "everyone"}, "fail"),
        (CHAR, {"access": "everyone", "wanted": DENIED}, "pass"),
        (CHAR._replace(mode=0o660, gid=44), {"wanted": SITE}, "pass"),
        (CHAR._replace(mode=0o660, gid=0), {"wanted": SITE}, "fail"),
        (CHAR._replace(mode=0o600), {"wanted": SITE}, "fail"),
        (DENIED, {}, "unknown"),
    ],
)
def test_a_device_file(node: Any, how: dict[str, Any], verdict: str) -> None:
    assert verdicts(judged({"nvidia0": node}, **how)) == [verdict]


@pytest.mark.parametrize(
    ("name", "makes", "expected"),
    [
        ("nvidiactl", False, ["fail"]),
        ("nvidia-uvm", True, ["pass"]),
        ("nvidia-uvm", DENIED, ["unknown"]),
        ("nvidia-uvm-tools", False, ["warn"]),
        ("nvidia5", False, []),
    ],
)
def test_a_missing_device_file(name: str, makes: Any, expected: list[str]) -> None:
    assert verdicts(judged({name: GONE}, makes=makes)) == expected


def test_a_container_has_what_it_was_given() -> None:
    """NVIDIA_DRIVER_CAPABILITIES=utility leaves nvidia-uvm out (nvc_mount.c)."""
    found = DeviceNodes(
        nodes={"nvidiactl": CHAR, "nvidia-uvm": GONE},
        wanted=OPEN,
        majors={},
        makes_them=False,
        in_container=True,
    )
    check = "driver-device-nodes"
    answer = function(check)(found, policy(section(check)))
    assert verdicts(answer) == ["pass", "notapplicable"]


def test_the_file_of_uvm_has_its_own_number() -> None:
    assert verdicts(judged({"nvidia-uvm": UVM, "nvidia-uvm-tools": UVM})) == ["pass", "pass"]
    assert "left over" in only(judged({"nvidia-uvm": CHAR})).message
