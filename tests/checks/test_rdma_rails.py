# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from judging import judge, verdicts
from machines import device, gpu, nic, pci
from msgspec.structs import replace
from rdmaparts import all_of, port, roce, several

from gpuaudit.check import Finding
from gpuaudit.facts.base import Absent
from gpuaudit.facts.environment import Environment
from gpuaudit.facts.environmentfiles import Assignment
from gpuaudit.facts.pcilink import LinkEnd
from gpuaudit.facts.rdma import InfinibandDevices
from gpuaudit.facts.rdmagids import Gid, RdmaGids, Roce
from gpuaudit.host import NotApplicable, Unavailable
from gpuaudit.topology import Topology

UNREAD = Absent("missing", "was not recorded")
GPUS = tuple(f"0000:1{n}:00.0" for n in range(4))
NICS = tuple(f"0000:2{n}:00.0" for n in range(4))


def below(switch: int) -> dict[str, Any]:
    return {"root": f"pci{switch}", "parents": (f"0000:0{switch}:01.0", f"0000:0{switch}:02.0")}


def board(nics: int = 4, *, nvswitch: bool = True, is_vm: bool = False) -> Topology:
    """Two switches, each with two GPUs and up to two NICs."""
    found = [gpu(address, **below(n // 2)) for n, address in enumerate(GPUS)]
    found += [nic(address, rdma=True, **below(n // 2)) for n, address in enumerate(NICS[:nics])]
    if nvswitch:
        found.append(device("0000:40:00.0", "nvswitch", root="pci4"))
    return Topology(devices=pci(*found), numa=UNREAD, is_vm=is_vm)


def pairing(
    topology: Topology, nics: tuple[str, ...] = NICS, *, exclusive: bool = False
) -> list[Finding]:
    ports = several(*(port(f"mlx5_{n}", place=place) for n, place in enumerate(nics)))
    devices = InfinibandDevices(names=(), exclusive=exclusive)
    return judge("rdma_rails/rdma-rail-pairing", ports, all_of(ports), topology, devices)


def test_rails_in_equal_parts() -> None:
    assert [f.verdict.value for f in pairing(board())] == ["pass"] * 4
    assert [f.verdict.value for f in pairing(board(nvswitch=False))] == ["pass"] * 4


@pytest.mark.parametrize(("nvswitch", "verdict"), [(True, "fail"), (False, "warn")])
def test_a_missing_adapter_is_missed(verdict: str, *, nvswitch: bool) -> None:
    findings = pairing(board(3, nvswitch=nvswitch))
    assert [f.verdict.value for f in findings] == ["pass", "pass", verdict, verdict]
    lent = pairing(board(3, nvswitch=nvswitch), exclusive=True)
    assert [f.verdict.value for f in lent] == ["pass", "pass", "warn", "warn"]
    assert findings[2].observed == "0.5 below its switch, 1 for the others"
    assert "mlx5_2 port 1" in findings[2].message


def test_a_missing_gpu_is_no_fault_of_the_others() -> None:
    whole = board().devices.by_address
    left = pci(*(found for address, found in whole.items() if address != GPUS[3]))
    findings = pairing(Topology(devices=left, numa=UNREAD, is_vm=False))
    assert [f.verdict.value for f in findings] == ["pass"] * 3


def test_gpus_without_any_rail() -> None:
    findings = pairing(board(2))
    assert [f.verdict.value for f in findings] == ["pass", "pass", "warn", "warn"]
    assert findings[3].message.endswith("none")


@pytest.mark.parametrize(
    ("ports", "verdicts"),
    [
        ((2, 2, 2, 1), {"fail"}),  # one is gone
        ((2, 2, 2, 0), {"fail"}),  # a switch without any
        ((2, 1, 2, 1), {"warn"}),  # six adapters for eight GPUs
        ((1, 1, 0, 0), {"warn"}),  # two
        ((1, 1, 1, 1), set()),
    ],
)
def test_boards_with_fewer_adapters_than_gpus(ports: tuple[int, ...], verdicts: set[str]) -> None:
    """Four switches with two GPUs each."""
    found = [gpu(f"0000:1{n}:00.0", **below(n // 2)) for n in range(8)]
    places = {f"0000:2{s}:0{n}.0": s for s, many in enumerate(ports) for n in range(many)}
    found += [nic(place, rdma=True, **below(switch)) for place, switch in places.items()]
    found.append(device("0000:40:00.0", "nvswitch", root="pci9"))
    topology = Topology(devices=pci(*found), numa=UNREAD, is_vm=False)
    seen = {f.verdict.value for f in pairing(topology, tuple(places))}
    assert seen - {"pass"} == verdicts
    if verdicts:
        found.append(nic("0000:29:00.0", rdma=False, **below(3)))
        idle = Topology(devices=pci(*found), numa=UNREAD, is_vm=False)
        assert "fail" in {f.verdict.value for f in pairing(idle, tuple(places))}


def test_where_rails_are_not_judged() -> None:
    with pytest.raises(NotApplicable, match="hypervisor made up"):
        pairing(board(is_vm=True))
    far = [gpu(GPUS[0], root="pci1"), nic(NICS[0], root="pci2")]
    with pytest.raises(NotApplicable, match="no compute port shares a PCIe switch"):
        pairing(Topology(devices=pci(*far), numa=UNREAD, is_vm=False))
    with pytest.raises(NotApplicable, match="of known place"):
        pairing(board(), ())


def link(gen: float, width: int) -> LinkEnd:
    return LinkEnd(speed_gt_per_s=gen, width=width, max_speed_gt_per_s=gen, max_width=width)


def bandwidth(end: Any, rate: str = "400 Gb/sec (4X NDR)", outer: Any = ()) -> Finding:
    """`outer`: both ends of a link further up."""
    places = ("0000:02:01.0", "0000:03:00.0", "0000:04:00.0")[: 3 if outer else 1]
    adapter = nic(NICS[0], root="pci2", parents=places, link=end)
    links = zip(places, (*outer, end), strict=True)
    above = [
        device(place, "bridge", root="pci2", parents=places[:n], link=one)
        for n, (place, one) in enumerate(links)
    ]
    ports = several(port(place=NICS[0], rate=rate))
    topology = Topology(devices=pci(adapter, *above), numa=UNREAD, is_vm=False)
    (finding,) = judge("rdma_rails/rdma-port-bandwidth", ports, all_of(ports), topology)
    return finding


def test_bandwidth() -> None:
    assert bandwidth(link(32.0, 16)).verdict.value == "pass"
    slow = bandwidth(link(16.0, 16))
    assert (slow.verdict.value, slow.cost) == ("warn", "31.5 instead of 50.0 GB/s each way")
    assert (
        slow.message
        == "0000:02:01.0 -> 0000:20:00.0 can carry less than the port's 400 Gb/s 4X NDR"
    )
    assert bandwidth(link(16.0, 16), "200 Gb/sec (4X HDR)").verdict.value == "pass"
    assert bandwidth(link(32.0, 16), "10 Gb/sec (4X)").verdict.value == "unknown"
    assert bandwidth(UNREAD).verdict.value == "unknown"
    fast, slow_end, made_up = link(32.0, 16), link(16.0, 16), link(5.0, 16)
    assert bandwidth(fast, outer=(fast, made_up)).verdict.value == "pass"
    assert bandwidth(fast, outer=(slow_end, slow_end)).verdict.value == "warn"
    none = Absent("unsupported", "it has no PCI Express link")
    assert bandwidth(none).verdict.value == "notapplicable"


LOCAL = (Gid(0, "link-local", "IB/RoCE v1"), Gid(1, "link-local", "RoCE v2"))
IPV4 = (Gid(2, "IPv4", "IB/RoCE v1"), Gid(3, "IPv4", "RoCE v2"))
IPV6 = (Gid(2, "IPv6", "IB/RoCE v1"), Gid(3, "IPv6", "RoCE v2"))


def settings(gids: Any = (*LOCAL, *IPV4), mtu: Any = 9000, *, warp: bool = False) -> RdmaGids:
    return RdmaGids(ports={"mlx5_0 port 1": Roce(gids=gids, mtu=mtu, warp=warp)})


def setting(*values: str, gaps: dict[str, Absent] | None = None) -> Environment:
    found = tuple(Assignment("NCCL_IB_GID_INDEX", v, f"/etc/{v}:1", "all") for v in values)
    return Environment(assignments=found, caller={}, gaps=gaps or {})


def address(gids: Any, *values: str, sure: bool = True, chosen: bool = True) -> str:
    """`chosen`: NCCL_IB_HCA says that jobs use it."""
    ports = several(roce())
    roles = replace(all_of(ports, sure=sure), selections=(("mlx5", "x"),) if chosen else ())
    (finding,) = judge("rdma_roce/rdma-gid-roce-v2", ports, roles, settings(gids), setting(*values))
    return finding.verdict.value


def test_a_port_without_an_address_beside_one_with() -> None:
    ports = several(roce("mlx5_0"), roce("mlx5_1"))
    tables = {"mlx5_0 port 1": (*LOCAL, *IPV4), "mlx5_1 port 1": LOCAL}
    gids = RdmaGids(ports={n: Roce(gids=t, mtu=9000, warp=False) for n, t in tables.items()})
    found = judge("rdma_roce/rdma-gid-roce-v2", ports, all_of(ports), gids, setting())
    assert [one.verdict.value for one in found] == ["pass", "fail"]


def test_gid_roce_v2() -> None:
    assert address((*LOCAL, *IPV4)) == address((*LOCAL, *IPV6)) == "pass"
    assert address(LOCAL) == address(()) == "fail"
    assert address(LOCAL, sure=False) == "warn"
    assert address(LOCAL, "1") == "pass"
    assert address(LOCAL, "0") == "fail"
    assert address((*LOCAL, Gid(2, "IPv4", "IB/RoCE v1"))) == "fail"
    assert address(LOCAL, chosen=False) == "warn"  # of virtual functions and pods, perhaps
    assert address((*LOCAL, Gid(3, "IPv4", UNREAD))) == "unknown"
    assert address(UNREAD) == "unknown"


@pytest.mark.parametrize("check", ["rdma-gid-roce-v2", "rdma-mtu", "rdma-gid-index"])
def test_other_link_layers_have_no_gid_to_judge(check: str) -> None:
    ports = several(port())
    for gids in (settings(warp=True), RdmaGids(ports={})):
        with pytest.raises(NotApplicable, match="no active compute port speaks RoCE"):
            judge(f"rdma_roce/{check}", ports, all_of(ports), gids, setting("3"))


def index(*values: str, gids: Any = (*LOCAL, *IPV4), **more: Any) -> list[tuple[str, str]]:
    ports = several(roce())
    facts = ports, all_of(ports), settings(gids), setting(*values, **more)
    return verdicts(judge("rdma_roce/rdma-gid-index", *facts))


def test_gid_index() -> None:
    name = "mlx5_0 port 1"
    assert index("3") == [(name, "pass")]
    assert index("2") == index("7") == [(name, "fail")]
    assert index("3", gids=UNREAD) == [(name, "unknown")]
    assert index("3", gids=(Gid(3, "IPv4", UNREAD),)) == [(name, "unknown")]
    assert index("2", "3") == [(name, "fail"), (name, "pass")]
    assert index("16") == [(name, "unknown")]
    with pytest.raises(Unavailable):
        index(gaps={"/etc/nccl.conf": UNREAD})
    for unset in ((), ("-1",)):
        with pytest.raises(NotApplicable, match="finds the GID by itself"):
            index(*unset)


@pytest.mark.parametrize(
    ("mtu", "verdict"),
    [(9000, "pass"), (4192, "pass"), (4191, "warn"), (1500, "warn"), (UNREAD, "unknown")],
)
def test_mtu(mtu: Any, verdict: str) -> None:
    ports = several(roce())
    (finding,) = judge("rdma_roce/rdma-mtu", ports, all_of(ports), settings(mtu=mtu))
    assert finding.verdict.value == verdict


def test_what_a_small_mtu_costs() -> None:
    ports = several(roce())
    (finding,) = judge("rdma_roce/rdma-mtu", ports, all_of(ports), settings(mtu=1500))
    assert finding.message == "interface eth0 has MTU 1500: 1024 bytes fit into a packet"
    assert finding.cost == "92.6 instead of 98.0 % of the wire is data"
