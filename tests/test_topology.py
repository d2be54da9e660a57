# SPDX-License-Identifier: Apache-2.0
"""Paths, classes, what links carry, and the three ways to show it."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner
from pcitree import BARE_METAL, GPU, NIC, TWO_NODES, End, Files, function, port, switch
from trees import Source, make_host

from gpuaudit.cli.topology_command import command
from gpuaudit.engine import Facts
from gpuaudit.facts.base import Absent
from gpuaudit.facts.cpu import CpuSets
from gpuaudit.facts.numa import NumaNodes
from gpuaudit.facts.pcilink import LinkEnd
from gpuaudit.topology import Hop, Rate, Topology
from gpuaudit.topology.names import DeviceNames
from gpuaudit.topology.paths import hops_of, own_link
from gpuaudit.topology.picture import render as render_svg
from gpuaudit.topology.text import render as render_text
from gpuaudit.topology.view import View, view_of, view_without_pci

GEN5_X16 = LinkEnd(speed_gt_per_s=32.0, max_speed_gt_per_s=32.0, width=16, max_width=16)


def facts_of(folder: Path, files: Files, source: Source = "snapshot") -> Facts:
    return Facts(make_host(folder, {**TWO_NODES, **files}, source=source))


def topology(folder: Path, files: Files, source: Source = "snapshot") -> Topology:
    found: Topology = facts_of(folder, {**BARE_METAL, **files}, source).get(Topology)
    return found


def kind(tree: Topology, one: str, other: str) -> str:
    by_address = tree.devices.by_address
    return tree.locality(by_address[one], by_address[other]).kind


@pytest.mark.parametrize(
    ("speed", "width", "gb_per_s"),
    [
        (2.5, 1, 0.25),
        (5.0, 16, 8.0),
        (8.0, 16, 15.754),
        (16.0, 16, 31.508),
        (32.0, 16, 63.015),
        (64.0, 16, 121.0),
    ],
)
def test_what_a_link_carries(speed: float, width: int, gb_per_s: float) -> None:
    assert Rate(speed, width).gb_per_s == pytest.approx(gb_per_s, abs=0.001)


def hop(upper: LinkEnd | Absent, lower: LinkEnd | Absent) -> Hop:
    return Hop(upper="0000:00:01.0", lower="0000:01:00.0", upper_end=upper, lower_end=lower)


def test_a_link_can_what_both_ends_can() -> None:
    small = LinkEnd(speed_gt_per_s=16.0, max_speed_gt_per_s=16.0, width=8, max_width=8)
    wide = LinkEnd(speed_gt_per_s=16.0, max_speed_gt_per_s=32.0, width=8, max_width=16)
    found = hop(wide, small)
    assert (found.now, found.could) == (Rate(16.0, 8), Rate(16.0, 8))


def test_ends_that_disagree_prove_nothing() -> None:
    made_up = LinkEnd(speed_gt_per_s=5.0, max_speed_gt_per_s=5.0, width=16, max_width=16)
    found = hop(GEN5_X16, made_up)
    assert isinstance(found.now, Absent)
    assert "disagree" in found.now.reason


def test_one_visible_end_is_believed() -> None:
    found = hop(Absent("missing", "not recorded"), GEN5_X16)
    assert found.now == Rate(32.0, 16)
    assert not found.width.both


def test_an_end_that_does_not_answer_is_not_replaced_by_the_other() -> None:
    dead = LinkEnd(
        speed_gt_per_s=Absent("failed", "Unknown"),
        max_speed_gt_per_s=32.0,
        width=Absent("failed", "the link width reads '63'"),
        max_width=16,
    )
    assert isinstance(hop(GEN5_X16, dead).width.now, Absent)


def test_links_are_every_second_step(tmp_path: Path) -> None:
    tree = topology(tmp_path, switch("pci0000:15", 0x15))
    names = [h.name for h in hops_of(tree.devices, tree.devices.by_address["0000:18:00.0"])]
    assert names == ["0000:15:01.0 -> 0000:16:00.0", "0000:17:00.0 -> 0000:18:00.0"]


def test_function_0_speaks_for_the_slot(tmp_path: Path) -> None:
    base = "pci0000:15/0000:15:01.0/0000:16:00"
    files = {
        **port("pci0000:15/0000:15:01.0"),
        **function(f"{base}.0", NIC, vendor=0x15B3),
        **function(f"{base}.1", NIC, vendor=0x15B3, link=End(max_width="8")),
    }
    tree = topology(tmp_path, files)
    link = own_link(tree.devices, tree.devices.by_address["0000:16:00.1"])
    assert link is not None
    assert (link.lower, link.width.best) == ("0000:16:00.0", 16)


def nested(root: str) -> Files:
    """GPU behind two switches, NIC behind the outer one."""
    outer = f"{root}/0000:15:01.0/0000:16:00.0"
    inner = f"{outer}/0000:17:00.0/0000:18:00.0"
    ports = (
        f"{root}/0000:15:01.0",
        outer,
        f"{outer}/0000:17:00.0",
        inner,
        f"{inner}/0000:19:00.0",
        f"{outer}/0000:17:01.0",
    )
    return {
        **{k: v for place in ports for k, v in port(place).items()},
        **function(f"{inner}/0000:19:00.0/0000:1a:00.0", GPU),
        **function(f"{outer}/0000:17:01.0/0000:1b:00.0", NIC, vendor=0x15B3),
    }


def test_classes_inside_one_host_bridge(tmp_path: Path) -> None:
    direct = {
        **port("pci0000:15/0000:15:05.0"),
        **function("pci0000:15/0000:15:05.0/0000:2a:00.0", NIC, vendor=0x15B3),
    }
    tree = topology(tmp_path, {**nested("pci0000:15"), **direct})
    assert kind(tree, "0000:1a:00.0", "0000:1a:00.0") == "LOC"
    assert kind(tree, "0000:1a:00.0", "0000:1b:00.0") == "PXB"
    assert kind(tree, "0000:1a:00.0", "0000:2a:00.0") == "PHB"
    one_switch = topology(tmp_path / "b", switch("pci0000:15", 0x15))
    assert kind(one_switch, "0000:18:00.0", "0000:19:00.0") == "PIX"


@pytest.mark.parametrize(
    ("node", "cpus", "expected"),
    [("0", "0-3", "NODE"), ("1", "4-7", "SYS"), ("-1", "0-7", "?"), ("1", "0-3", "?")],
)
def test_classes_across_host_bridges(tmp_path: Path, node: str, cpus: str, expected: str) -> None:
    other = function("pci0000:40/0000:40:01.0", GPU, node=node, cpus=cpus)
    tree = topology(tmp_path, {**switch("pci0000:15", 0x15), **other})
    assert kind(tree, "0000:18:00.0", "0000:40:01.0") == expected


def test_one_node_needs_no_numa_node(tmp_path: Path) -> None:
    files: Files = {
        **BARE_METAL,
        "/sys/devices/system/cpu/online": "0-7\n",
        "/sys/devices/system/node/node0/cpulist": "0-7\n",
        **function("pci0000:00/0000:00:01.0", GPU, node="-1"),
        **function("pci0000:40/0000:40:01.0", GPU, node="-1"),
    }
    tree: Topology = Facts(make_host(tmp_path, files)).get(Topology)
    assert kind(tree, "0000:00:01.0", "0000:40:01.0") == "NODE"


def test_without_numa_tables_it_is_unknown_not_sys(tmp_path: Path) -> None:
    files = {
        **function("pci0000:00/0000:00:01.0", GPU),
        **function("pci0000:40/0000:40:01.0", GPU),
    }
    tree: Topology = Facts(make_host(tmp_path, files, source="plain")).get(Topology)
    assert isinstance(tree.numa, Absent)
    assert kind(tree, "0000:00:01.0", "0000:40:01.0") == "?"


def test_a_guest_is_in_doubt(tmp_path: Path) -> None:
    files: Files = {
        "/proc/cpuinfo": "flags\t\t: fpu hypervisor\n",
        **function("pci0000:00/0000:00:01.0", GPU),
        **function("pci0000:00/0000:00:02.0", NIC, vendor=0x15B3),
    }
    tree: Topology = facts_of(tmp_path, files).get(Topology)
    by_address = tree.devices.by_address
    found = tree.locality(by_address["0000:00:01.0"], by_address["0000:00:02.0"])
    assert found.kind == "PHB"
    assert "hypervisor" in found.doubt


def test_a_guest_shows_the_own_link_as_the_device_tells_it(tmp_path: Path) -> None:
    """The GPU's registers are the real ones; the port above, where there is one, is made up."""
    made_up = End(speed="2.5 GT/s PCIe", width="1", max_speed="2.5 GT/s PCIe", max_width="1")
    files: Files = {
        "/proc/cpuinfo": "flags\t\t: fpu hypervisor\n",
        **function("pci0000:00/0000:00:01.0", GPU, link=End(width="8")),
        **port("pci0000:00/0000:00:02.0", link=made_up),
        **function("pci0000:00/0000:00:02.0/0000:01:00.0", GPU),
        **function("pci0000:00/0000:00:03.0", NIC, vendor=0x1AF4, device=0x1041, link=None),
    }
    lines = render_text(view(tmp_path, files, {})).splitlines()
    rows = {line.split("  ")[0]: line for line in reversed(lines)}
    assert "Gen5 x8 of Gen5 x16" in rows["GPU0"]
    assert "Gen5 x16" in rows["GPU1"]
    assert "Gen1" not in rows["GPU1"].partition("0000:00:02.0 ->")[0]
    assert rows["NIC0"].split()[4] == "-"
    assert any(line.endswith("1af4:1041") and "Gen" not in line for line in lines)


def test_only_links_below_the_common_switch_count(tmp_path: Path) -> None:
    tree = topology(tmp_path, switch("pci0000:15", 0x15, uplink=End(width="8")))
    by_address = tree.devices.by_address
    gpu, nic = by_address["0000:18:00.0"], by_address["0000:19:00.0"]
    assert tree.gb_per_s(tree.between(gpu, nic)) == pytest.approx(63.015, abs=0.001)
    assert tree.gb_per_s(tree.hops(gpu)) == pytest.approx(31.508, abs=0.001)
    assert tree.gb_per_s(tree.hops(gpu), at_best=True) == pytest.approx(63.015, abs=0.001)


def test_a_slow_way_is_not_rounded_to_nothing(tmp_path: Path) -> None:
    slow = End("2.5 GT/s PCIe", "1", "2.5 GT/s PCIe", "1")
    text = render_text(view(tmp_path, switch("pci0000:15", 0x15, uplink=slow)))
    assert "PIX 63" in text
    other = {**switch("pci0000:15", 0x15, uplink=slow), **switch("pci0000:40", 0x40)}
    assert "NODE 0.2" in render_text(view(tmp_path / "two", other))


def test_local_cpus_tell_the_node_where_sysfs_does_not(tmp_path: Path) -> None:
    files = function("pci0000:40/0000:40:01.0", GPU, node="-1", cpus="4-7")
    shown = view(tmp_path, files)
    assert (shown.devices[0].numa_node, shown.devices[0].cpu_node) == (-1, 1)
    row = next(r for r in render_text(shown).splitlines() if r.startswith("GPU0"))
    assert row.split()[3] == "1"


def test_distance(tmp_path: Path) -> None:
    files = {
        **function("pci0000:00/0000:00:01.0", GPU),
        **function("pci0000:40/0000:40:01.0", GPU, node="1", cpus="4-7"),
    }
    tree = topology(tmp_path, files)
    one, other = tree.devices.of("gpu")
    assert (tree.distance(one, other), tree.distance(one, one)) == (21, 10)


def view(folder: Path, files: Files, machine: Files = BARE_METAL) -> View:
    facts = facts_of(folder, {**machine, **files})
    return view_of(facts.get(Topology), facts.get(DeviceNames), "node-1", facts.get(CpuSets))


def test_the_text_names_the_narrowest_link(tmp_path: Path) -> None:
    text = render_text(view(tmp_path, switch("pci0000:15", 0x15, uplink=End(width="8"))))
    line = next(line for line in text.splitlines() if line.startswith("GPU0"))
    assert "31.5 of 63.0" in line
    assert "0000:15:01.0 -> 0000:16:00.0" in line
    assert "PIX 63" in text
    assert "Gen5 x8 of Gen5 x16" in text
    assert "mlx5_0" in text


def test_the_picture_is_xml_whatever_the_names(tmp_path: Path) -> None:
    files = switch("pci0000:15", 0x15)
    nic = next(k for k in files if "infiniband" in k).replace("mlx5_0", "<&'\"\x07>")
    svg = render_svg(view(tmp_path, {**files, nic: "1: CA\n"}))
    root = ET.fromstring(svg)  # noqa: S314 - our own output
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme: dark" in svg
    assert "http://" not in svg.replace("http://www.w3.org/2000/svg", "")


def test_nothing_on_the_bus(tmp_path: Path) -> None:
    empty = view(tmp_path, {"/sys/bus/pci/devices": None})
    assert "no GPU" in render_text(empty)
    assert ET.fromstring(render_svg(empty)) is not None  # noqa: S314 - our own output


def recorded(folder: Path, files: Files) -> str:
    make_host(folder, {**TWO_NODES, **BARE_METAL, **files})
    return str(folder)


def test_the_command_writes_json(tmp_path: Path) -> None:
    where = recorded(tmp_path / "node", switch("pci0000:15", 0x15))
    done = CliRunner().invoke(command, ["--snapshot", where, "--format", "json"])
    assert done.exit_code == 0
    data = json.loads(done.output)
    assert data["schema"] == "gpuaudit.topology/1"
    assert data["devices"][0]["to_root"]["now_gb_per_s"] == 63.02
    assert [(p["one"], p["other"], p["path"]) for p in data["pairs"]] == [("GPU0", "NIC0", "PIX")]


def test_the_command_writes_a_file_by_suffix(tmp_path: Path) -> None:
    where = recorded(tmp_path / "node", switch("pci0000:15", 0x15))
    target = tmp_path / "topology.svg"
    done = CliRunner().invoke(command, ["--snapshot", where, "-o", str(target)])
    assert (done.exit_code, done.output) == (0, "")
    assert target.read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["-o", "x.png"], 2), (["--snapshot", "a", "--root", "b"], 2), (["--format", "png"], 2)],
)
def test_wrong_use(arguments: list[str], code: int) -> None:
    assert CliRunner().invoke(command, arguments).exit_code == code


def test_a_recording_without_pci_is_could_not_tell(tmp_path: Path) -> None:
    make_host(tmp_path, {}, source="plain")
    done = CliRunner().invoke(command, ["--snapshot", str(tmp_path / "root")])
    assert done.exit_code == 3
    assert "not recorded" in done.output


def test_a_node_in_doubt_is_shown_as_read_and_marked(tmp_path: Path) -> None:
    files = function("pci0000:00/0000:00:01.0", GPU, node="1", cpus="0-3")
    (device,) = view(tmp_path, files).devices
    assert (device.numa_node, device.local_cpus) == (1, "0-3")
    assert device.numa_doubt == "numa_node is 1, but local_cpulist is 0-3"
    unsaid = function("pci0000:00/0000:00:01.0", GPU, node="-1", cpus="0-7")
    (device,) = view(tmp_path / "b", unsaid).devices
    assert device.numa_node == -1
    assert device.numa_doubt is not None


def test_nodes_and_cpus_are_shown_without_pci_too(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, BARE_METAL)
    shown = view_without_pci("not recorded", None, facts.get(NumaNodes), facts.get(CpuSets))
    assert [(node.id, node.cpus, node.distances) for node in shown.numa] == [
        (0, "0-3", (10, 21)),
        (1, "4-7", (21, 10)),
    ]
    text = render_text(shown)
    assert "note: PCI: not recorded" in text
    assert "NUMA node 1  CPUs 4-7" in text
    assert "is on the PCI bus" not in text
