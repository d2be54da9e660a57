# SPDX-License-Identifier: Apache-2.0
"""Machines as other tools record them: old kernels, odd architectures, missing and broken tables.

Made by hand after what hwloc's gatherer keeps: sys/ and proc/, no manifest, so that a missing file
proves nothing.
"""

import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from drawing import rendered
from pcitree import BRIDGE, FOLDER, GPU, NIC, End, Files, function, port
from trees import Link, make_host, write_tree

from gpuaudit import audit
from gpuaudit.cli.output import RENDERERS
from gpuaudit.cli.streams import encoded
from gpuaudit.engine import Facts
from gpuaudit.facts.base import Absent
from gpuaudit.facts.cpu import CpuSets
from gpuaudit.facts.cpusets import parse_list
from gpuaudit.facts.node import Machine
from gpuaudit.facts.numa import NumaNodes, locate
from gpuaudit.facts.pci import PciDevices
from gpuaudit.facts.pcilink import LinkEnd
from gpuaudit.host import Host, Unavailable
from gpuaudit.report import Result
from gpuaudit.topology import Topology

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"
REST_ON_NUMA = ("numa-node-known", "numa-gpu-nic-locality", "numa-local-cpus-online")


def nodes(lists: Mapping[int, str], rows: Mapping[int, str] | None = None) -> Files:
    """NUMA nodes by id with their CPU lists; distances 10 and 20 unless told otherwise."""
    files: Files = {}
    for node, cpus in lists.items():
        row = " ".join("10" if other == node else "20" for other in lists)
        files[f"{NODE}/node{node}/cpulist"] = f"{cpus}\n"
        files[f"{NODE}/node{node}/distance"] = (rows or {}).get(node, row) + "\n"
        files[f"{NODE}/node{node}/meminfo"] = f"Node {node} MemTotal:       1048576 kB\n"
    return files


def cpus(online: str, present: str) -> Files:
    return {f"{CPU}/online": f"{online}\n", f"{CPU}/present": f"{present}\n"}


def audited(host: Host) -> dict[str, Result]:
    """Every result by check. Whatever was recorded, nothing crashes and every renderer copes."""
    done = audit.run(host, audit.Request(profile="bringup"))
    assert all(rendered(done.report, name) for name in RENDERERS)
    found = {result.check: result for result in done.report.results}
    assert [c for c, r in found.items() if r.verdict.value == "error"] == []
    return found


def verdicts(host: Host) -> dict[str, str]:
    return {check: result.verdict.value for check, result in audited(host).items()}


def plain(folder: Path, tree: Files) -> Host:
    return make_host(folder, tree, source="plain")


# POWER9 with CPU-less nodes for GPU memory, and without vendor files


def power9(*, driver: str | None = "nvidia") -> Files:
    cpu_nodes = {0: "0-79", 8: "80-159"}
    memory_nodes = dict.fromkeys(range(250, 256), "")
    files = {**nodes(cpu_nodes | memory_nodes), **cpus("0-159", "0-159")}
    files["/proc/cpuinfo"] = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n"
    for domain, node in ((4, 0), (0x35, 8)):
        root = f"pci{domain:04x}:00/{domain:04x}:00:00.0"
        up = f"{root}/{domain:04x}:01:00.0"
        files |= bare(root, BRIDGE, node) | bare(up, BRIDGE, node)
        for n, bus in enumerate((3, 4, 5)):
            down = f"{up}/{domain:04x}:02:{n:02x}.0"
            files |= bare(down, BRIDGE, node)
            files |= bare(f"{down}/{domain:04x}:{bus:02x}:00.0", GPU, node, driver)
    return files


def bare(place: str, class_code: int, node: int, driver: str | None = None) -> Files:
    """A function that tells its class and place and nothing else."""
    path, address = f"/sys/devices/{place}", place.rpartition("/")[2]
    files: Files = {
        f"{FOLDER}/{address}": Link(f"../../../devices/{place}"),
        f"{path}/class": f"{class_code:#08x}\n",
        f"{path}/numa_node": f"{node}\n",
    }
    if driver:
        files[f"/sys/bus/pci/drivers/{driver}/bind"] = ""
        up = "../" * (place.count("/") + 2)
        files[f"{path}/driver"] = Link(f"{up}bus/pci/drivers/{driver}")
    return files


def test_power9(tmp_path: Path) -> None:
    facts = Facts(plain(tmp_path, power9()))
    numa: NumaNodes = facts.get(NumaNodes)
    devices: PciDevices = facts.get(PciDevices)
    machine: Machine = facts.get(Machine)
    assert [node.id for node in numa.nodes] == [0, 8, 250, 251, 252, 253, 254, 255]
    assert (numa.cpu_nodes, numa.problems, numa.unread) == ((0, 8), (), "")
    assert numa.cpus_of(8) == parse_list("80-159")
    assert numa.distances[255] == (20,) * 7 + (10,)
    gpus = devices.of("gpu")
    assert [gpu.address for gpu in gpus] == [
        *(f"0004:0{n}:00.0" for n in (3, 4, 5)),
        *(f"0035:0{n}:00.0" for n in (3, 4, 5)),
    ]
    assert [locate(gpu, numa) for gpu in gpus] == [0, 0, 0, 8, 8, 8]
    assert gpus[0].parents == ("0004:00:00.0", "0004:01:00.0", "0004:02:00.0")
    assert gpus[0].root == "pci0004:00"
    assert (machine.architecture, machine.is_vm) == ("ppc64", None)


def test_power9_paths(tmp_path: Path) -> None:
    tree: Topology = Facts(plain(tmp_path, power9())).get(Topology)
    one, other, *_, far = tree.devices.of("gpu")
    assert tree.locality(one, other).kind == "PIX"
    assert tree.locality(one, far).kind == "SYS"
    assert tree.distance(one, far) == 20


def test_a_display_device_without_vendor_may_be_a_gpu(tmp_path: Path) -> None:
    """Neither vendor nor driver was recorded: that proves no absence of GPUs."""
    found = verdicts(plain(tmp_path, power9(driver=None)))
    judged = ("gpu-count", "gpu-alive", "driver-loaded", "numa-node-known", "pcie-link-width")
    assert {found[check] for check in judged} == {"unknown"}


def test_the_header_of_config_space_tells_the_vendor(tmp_path: Path) -> None:
    tree = power9(driver=None)
    head = bytes.fromhex("de10 b11d 4605 1000 a100 0203 0000 0000").ljust(64, b"\0")
    for path in [p for p in tree if p.endswith(":00.0/class") and tree[p] == f"{GPU:#08x}\n"]:
        tree[path.removesuffix("class") + "config"] = head
    devices: PciDevices = Facts(plain(tmp_path, tree)).get(PciDevices)
    assert [gpu.id for gpu in devices.of("gpu")] == ["10de:1db1"] * 6


# Tables


def test_cpu_0_and_node_0_are_offline(tmp_path: Path) -> None:
    tree = {**nodes({1: "4-7"}), **cpus("1-7", "0-7"), f"{CPU}/cpu0/online": "0\n"}
    host = plain(tmp_path, tree)
    facts = Facts(host)
    numa: NumaNodes = facts.get(NumaNodes)
    assert numa.cpu_nodes == (1,)
    assert numa.problems == ("CPUs 1-3 are online and on no node",)
    found = audited(host)
    assert found["cpu-all-online"].verdict.value == "fail"
    assert "CPU 0" in found["cpu-all-online"].findings[0].message


def test_node_ids_with_gaps(tmp_path: Path) -> None:
    tree = {**nodes({0: "0-3", 2: "4-7", 17: "8-11"}), **cpus("0-11", "0-11")}
    numa: NumaNodes = Facts(plain(tmp_path, tree)).get(NumaNodes)
    assert numa.problems == ()
    assert numa.distances == {0: (10, 20, 20), 2: (20, 10, 20), 17: (20, 20, 10)}


def two_sockets() -> Files:
    gpu = function("pci0000:00/0000:00:01.0/0000:01:00.0", GPU, node="0", cpus="0-3")
    more: Files = {"infiniband/mlx5_0/node_type": "1: CA\n"}
    nic = function("pci0000:80/0000:80:01.0/0000:81:00.0", NIC, node="1", cpus="4-7", more=more)
    return {
        **cpus("0-7", "0-7"),
        **port("pci0000:00/0000:00:01.0"),
        **port("pci0000:80/0000:80:01.0"),
        **gpu,
        **nic,
    }


def test_sound_tables_are_judged(tmp_path: Path) -> None:
    found = verdicts(plain(tmp_path, {**two_sockets(), **nodes({0: "0-3", 1: "4-7"})}))
    assert found["numa-tables-consistent"] == "pass"
    assert found["numa-node-known"] == "pass"
    assert found["numa-gpu-nic-locality"] == "warn"


@pytest.mark.parametrize(
    ("lists", "rows", "problem"),
    [
        ({0: "0-7", 1: "0-7"}, None, "nodes 0-1 all claim CPUs 0-7"),
        ({0: "0-3", 1: ""}, None, "CPUs 4-7 are online and on no node"),
        ({0: "0-3", 1: "4-7"}, {0: "10 20 20"}, "node 0 has 3 distances for 2 nodes"),
        ({0: "0-3", 1: "4-7"}, {0: "21 10"}, "node 0 is nearer to another node than to itself"),
    ],
    ids=["broken-srat", "homeless", "long-row", "far-from-itself"],
)
def test_broken_tables(
    tmp_path: Path, lists: dict[int, str], rows: dict[int, str] | None, problem: str
) -> None:
    host = plain(tmp_path, {**two_sockets(), **nodes(lists, rows)})
    numa: NumaNodes = Facts(host).get(NumaNodes)
    assert numa.problems == (problem,)
    found = verdicts(host)
    assert found["numa-tables-consistent"] == "fail"
    assert {found[check] for check in (*REST_ON_NUMA, "irq-nic-affinity")} == {"unknown"}


@pytest.mark.parametrize("row", ["", "ten twenty", "10,20", "-10 20", "\0\0", None])
def test_distances_that_cannot_be_read_prove_nothing(tmp_path: Path, row: str | None) -> None:
    tree = {**two_sockets(), **nodes({0: "0-3", 1: "4-7"})}
    tree[f"{NODE}/node1/distance"] = row or ""
    if row is None:
        del tree[f"{NODE}/node1/distance"]
    assert verdicts(plain(tmp_path, tree))["numa-tables-consistent"] == "unknown"


@pytest.mark.parametrize("text", ["", "x", "9" * 5000, "0-99999", "\u0663", "0-3\0garbage"])
def test_cpu_lists_that_cannot_be_read_prove_nothing(tmp_path: Path, text: str) -> None:
    tree = {**two_sockets(), **nodes({0: "0-3", 1: "4-7"})}
    tree |= {f"{NODE}/node{n}/cpulist": text for n in (0, 1)} | {f"{CPU}/online": text}
    found = verdicts(plain(tmp_path, tree))
    checks = ("numa-tables-consistent", "cpu-all-online", *REST_ON_NUMA)
    assert {found[check] for check in checks} <= {"unknown", "fail"}


def test_masks_where_there_are_no_lists(tmp_path: Path) -> None:
    """128 groups of 32 CPUs, as a kernel built for 4096 CPUs prints them."""
    groups = ["00000000"] * 128
    groups[0] = "80000000"
    groups[-1] = "000000ff"
    tree: Files = {
        **nodes({0: "", 1: ""}),
        f"{NODE}/node0/cpumap": ",".join(groups) + "\n",
        f"{NODE}/node1/cpumap": "00000000,0000ff00\n",
        **cpus("0-15,4095", "0-15,4095"),
        **function("pci0000:00/0000:00:01.0/0000:01:00.0", GPU, node=None, cpus=None),
        "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/local_cpus": ",".join(groups) + "\n",
    }
    for node in (0, 1):
        del tree[f"{NODE}/node{node}/cpulist"]
    facts = Facts(plain(tmp_path, tree))
    numa: NumaNodes = facts.get(NumaNodes)
    devices: PciDevices = facts.get(PciDevices)
    assert numa.cpus_of(0) == parse_list("0-7,4095")
    assert numa.cpus_of(1) == parse_list("8-15")
    assert locate(devices.by_address["0000:01:00.0"], numa) == 0


def test_a_kernel_without_numa(tmp_path: Path) -> None:
    """Known to be missing it is one node; in a plain recording it may only be left out."""
    tree = {**two_sockets()}
    known = make_host(tmp_path / "known", tree)
    numa: NumaNodes = Facts(known).get(NumaNodes)
    assert (numa.cpu_nodes, numa.problems) == ((0,), ())
    with pytest.raises(Unavailable, match="not recorded"):
        Facts(plain(tmp_path / "plain", tree)).get(NumaNodes)
    found = verdicts(plain(tmp_path / "again", tree))
    assert {found[check] for check in REST_ON_NUMA} == {"unknown"}


def test_old_kernels_list_offline_cpus_too(tmp_path: Path) -> None:
    """2.6 without online and present: the folder of an offline CPU has no topology."""
    tree: Files = nodes({0: "0-1", 1: "2-3"})
    for cpu in range(3):
        tree[f"{CPU}/cpu{cpu}/topology/core_id"] = f"{cpu}\n"
    tree[f"{CPU}/cpu3/online"] = "0\n"
    facts = Facts(plain(tmp_path, tree))
    sets: CpuSets = facts.get(CpuSets)
    numa: NumaNodes = facts.get(NumaNodes)
    assert (sets.online, sets.present) == (frozenset({0, 1, 2}), frozenset({0, 1, 2, 3}))
    assert numa.cpus_of(1) == {2}


def test_a_cpu_that_says_nothing_is_not_taken_for_online(tmp_path: Path) -> None:
    tree: Files = {f"{CPU}/cpu0/topology/core_id": "0\n", f"{CPU}/cpu1/crash_notes": "0\n"}
    host = plain(tmp_path, tree)
    sets: CpuSets = Facts(host).get(CpuSets)
    assert isinstance(sets.online, Absent)
    assert verdicts(host)["cpu-all-online"] == "unknown"


# PCI


def test_an_old_kernel(tmp_path: Path) -> None:
    """3.10: '8 GT/s', no uevent was kept, a mask instead of a list, no NUMA node."""
    old = End("8 GT/s", "8", "8 GT/s", "16")
    place = "pci0000:80/0000:80:02.0/0000:81:00.0"
    path = f"/sys/devices/{place}"
    tree: Files = {
        **function(place, NIC, node=None, cpus=None, link=old),
        **port("pci0000:80/0000:80:02.0", link=old),
        f"{path}/vendor": "0x15b3\n",
        f"{path}/device": "0x1003\n",
        f"{path}/class": "0x028000\n",
        f"{path}/local_cpus": "0000ff00\n",
        f"{path}/driver": Link("../../../../bus/pci/drivers/mlx4_core"),
        "/sys/bus/pci/drivers/mlx4_core/bind": "",
        **nodes({0: "0-7", 1: "8-15"}),
        **cpus("0-15", "0-15"),
    }
    del tree[f"{path}/uevent"]
    host = plain(tmp_path, tree)
    facts = Facts(host)
    devices: PciDevices = facts.get(PciDevices)
    (nic,) = devices.of("nic")
    assert (nic.id, nic.driver, nic.parents) == ("15b3:1003", "mlx4_core", ("0000:80:02.0",))
    assert isinstance(nic.link, LinkEnd)
    assert (nic.link.speed_gt_per_s, nic.link.width, nic.link.max_width) == (8.0, 8, 16)
    assert locate(nic, facts.get(NumaNodes)) == 1
    found = audited(host)["pcie-link-width"]
    assert [(f.subject, f.verdict.value) for f in found.findings] == [("0000:81:00.0", "fail")]


def test_domains_of_any_length(tmp_path: Path) -> None:
    tree: Files = {}
    for domain in ("0000", "10000", "a0b1c2"):
        tree |= function(f"pci{domain}:00/{domain}:00:01.0/{domain}:01:00.0", GPU)
        tree |= port(f"pci{domain}:00/{domain}:00:01.0")
    devices: PciDevices = Facts(plain(tmp_path, tree)).get(PciDevices)
    gpus = devices.of("gpu")
    assert [gpu.address for gpu in gpus] == [f"{d}:01:00.0" for d in ("0000", "10000", "a0b1c2")]
    assert [gpu.root for gpu in gpus] == ["pci0000:00", "pci10000:00", "pcia0b1c2:00"]
    assert [gpu.parents for gpu in gpus] == [(f"{d}:00:01.0",) for d in ("0000", "10000", "a0b1c2")]


def test_folders_where_there_should_be_links(tmp_path: Path) -> None:
    """The tree was not recorded: how two devices are connected is not known, and not NA."""
    tree: Files = {**nodes({0: "0-7"}), **cpus("0-7", "0-7")}
    places = (("00", BRIDGE, 1), ("01", GPU, 0x10DE), ("02", GPU, 0x10DE), ("03", NIC, 0x15B3))
    for address, kind, vendor in places:
        path = f"{FOLDER}/0000:{address}:00.0"
        identity = f"PCI_CLASS={kind:X}\nPCI_ID={vendor:04X}:2330\nDRIVER=x\n"
        tree |= {f"{path}/uevent": identity, f"{path}/numa_node": "0\n"}
    host = plain(tmp_path, tree)
    tree_fact: Topology = Facts(host).get(Topology)
    one, other = tree_fact.devices.of("gpu")
    assert tree_fact.locality(one, other).kind == "?"
    found = verdicts(host)
    assert {found[c] for c in ("acs-redirect-off", "pcie-path-narrowest")} == {"unknown"}


def test_a_function_that_nothing_identifies_is_not_passed_over(tmp_path: Path) -> None:
    tree = {**two_sockets(), **nodes({0: "0-3", 1: "4-7"})}
    path = "/sys/devices/pci0000:00/0000:00:02.0"
    tree |= {f"{FOLDER}/0000:00:02.0": Link("../../../devices/pci0000:00/0000:00:02.0")}
    tree |= {f"{path}/uevent": "garbage", f"{path}/config": bytes(4096), f"{path}/class": "\0" * 9}
    host = plain(tmp_path, tree)
    devices: PciDevices = Facts(host).get(PciDevices)
    assert devices.untold == ("0000:00:02.0",)
    assert [gpu.address for gpu in devices.seen("gpu")] == ["0000:01:00.0"]
    found = verdicts(host)
    checks = ("pcie-link-width", "pcie-link-speed", "iommu-mode", "numa-node-known", "gpu-count")
    assert {found[check] for check in checks} == {"unknown"}


def test_garbage_in_uevent_does_not_unbind_a_driver(tmp_path: Path) -> None:
    tree = {**two_sockets(), **nodes({0: "0-3", 1: "4-7"})}
    path = "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0"
    tree |= {f"{path}/uevent": "a=b", f"{path}/vendor": "0x15b3", f"{path}/class": "0x020000"}
    devices: PciDevices = Facts(plain(tmp_path, tree)).get(PciDevices)
    (nic,) = devices.of("nic")
    assert not nic.driver_known
    assert not nic.unbound


# Little or nothing

WITHOUT_EVIDENCE = {
    "the policy asks for nothing",
    "the policy does not ask for GDRCopy",
    "x86 has pages of 4 KiB only",
}
"""Why a check does not apply, whatever was recorded."""
UNASKED_BY_POLICY = {"gpu-accounting-mode", "gpu-confidential-computing"}


@pytest.mark.parametrize(
    "tree",
    [
        {"/proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu\n"},
        {"/proc/cpuinfo": ""},
        {"/proc/cpuinfo": "vendor_id       : IBM/S390\n# processors    : 2\n"},
        {"/sys/devices/system/cpu/cpu0/topology/core_id": "0\n"},
        {"/proc/empty": None},
    ],
    ids=["x86", "empty", "s390", "one-cpu", "nothing"],
)
def test_what_was_not_recorded_is_unknown(tmp_path: Path, tree: Files) -> None:
    found = audited(plain(tmp_path, tree))
    told_by_one_cpu = {"cpu-all-online"} if "core_id" in str(tree) else set()
    judged = {c: r for c, r in found.items() if r.verdict.value != "unknown"}
    of_evidence = {c: r for c, r in judged.items() if r.reason not in WITHOUT_EVIDENCE}
    assert {c: r.reason for c, r in of_evidence.items() if c not in told_by_one_cpu} == {}
    assert {r.verdict.value for c, r in judged.items() if c not in told_by_one_cpu} <= {
        "notapplicable"
    }


def test_pci_devices_that_were_not_recorded_are_no_missing_gpus(tmp_path: Path) -> None:
    found = verdicts(plain(tmp_path, {**nodes({0: "0-7"}), **cpus("0-7", "0-7")}))
    checks = [
        c for c in found if c.startswith(("gpu-", "ecc-", "mig-", "fabric-", "pcie-", "acs-"))
    ]
    asked = [check for check in checks if check not in UNASKED_BY_POLICY]
    assert len(asked) > 40
    assert {check: found[check] for check in asked if found[check] != "unknown"} == {}


@pytest.mark.parametrize(
    ("cpuinfo", "architecture"),
    [
        ("vendor_id       : IBM/S390\n", "s390x"),
        ("vendor_id\t: GenuineIntel\n", "x86_64"),
        ("processor\t: 0\nCPU implementer\t: 0x41\n", "aarch64"),
        ("cpu\t\t: POWER9, altivec supported\n", "ppc64"),
        ("hart\t: 0\nisa\t: rv64imafdc\n", None),
    ],
)
def test_architectures(tmp_path: Path, cpuinfo: str, architecture: str | None) -> None:
    machine: Machine = Facts(plain(tmp_path, {"/proc/cpuinfo": cpuinfo})).get(Machine)
    assert machine.architecture == architecture


# Containers of recordings


@pytest.mark.parametrize(
    "name", ["2pa+pci", "256 nodes (1)", "node[0-3]", "n\u00f6de", "'\"$;*?", "-x"]
)
@pytest.mark.parametrize("mode", ["gz", "bz2", "xz", ""])
def test_every_kind_of_archive_with_any_folder_name(tmp_path: Path, name: str, mode: str) -> None:
    tree = {**two_sockets(), **nodes({0: "0-3", 1: "4-7"})}
    write_tree(tmp_path / name, tree)
    archive = tmp_path / "machine.tar"
    with tarfile.open(archive, f"w:{mode}") as file:  # type: ignore[call-overload]  # a mode of tarfile
        file.add(tmp_path / name, arcname=name)
    (tmp_path / name).rename(tmp_path / "moved")
    (tmp_path / "outer").mkdir()
    (tmp_path / "moved").rename(tmp_path / "outer" / name)
    packed, folder = (audited(Host.snapshot(str(where))) for where in (archive, tmp_path / "outer"))
    assert {c: (r.verdict, r.findings) for c, r in packed.items()} == {
        c: (r.verdict, r.findings) for c, r in folder.items()
    }
    assert packed["numa-gpu-nic-locality"].verdict.value == "warn"


def test_names_that_are_no_utf_8_reach_every_report(tmp_path: Path) -> None:
    files: Files = {"/etc/sysctl.d/x": "", "/proc/sys/vm/zone_reclaim_mode": "0\n"}
    write_tree(tmp_path, {**files, "/sys/a": None})
    odd = bytes(tmp_path) + b"/etc/sysctl.d/\xff\xfe.conf"
    Path(odd.decode("utf-8", "surrogateescape")).write_text("vm.zone_reclaim_mode = 1\n")
    host = Host.live(str(tmp_path))
    request = audit.Request(profile="bringup", select=("memory-zone-reclaim",))
    report = audit.run(host, request).report
    host.close()
    assert report.results[0].verdict.value == "warn"
    pages = {name: encoded(rendered(report, name)) for name in RENDERERS}
    assert b"??.conf:1" in pages["json"]
    assert all(b".conf" in page for name, page in pages.items() if name != "text")
