# SPDX-License-Identifier: Apache-2.0
"""Single faults of Ethernet and TCP."""

from typing import Any

from fakenode import FakeNode
from fakenode.breaking import read_earlier, sysctl, text, write
from fakenode.fault import Fault
from fakenode.faults_host import FAULTS as HOST_FAULTS
from fakenode.faults_host import virtual_machine
from fakenode.layout import STORAGE_ADDRESSES
from fakenode.network import RAILS, dev_line, driver_answer, ethtool, snmp
from fakenode.pci import link, path_of

RAIL = f"{path_of(STORAGE_ADDRESSES[1])}/net/{RAILS[1]}"
GUEST = next(one.changes for one in HOST_FAULTS if one.breaks is virtual_machine)
SMALL_BUFFER = "4096\t131072\t1048576"


def answers(node: FakeNode, **changes: Any) -> None:
    """The driver of the second rail answers otherwise."""
    said = ethtool(RAILS[1], driver_answer(**changes))
    node.commands = [said if one["argv"] == said["argv"] else one for one in node.commands]


def both_rails(node: FakeNode, key: str, value: int) -> None:
    sysctl(node, f"net.ipv4.conf.all.{key}", str(value))


def becomes(node: FakeNode, device: str, vendor: int, number: int, driver: str | None) -> None:
    """A PCI function is another device, of the same class."""
    path = path_of(device)
    lines = text(node, f"{path}/uevent").splitlines()
    kept = [line for line in lines if not line.startswith(("PCI_ID=", "DRIVER="))]
    bound = [f"DRIVER={driver}"] if driver else []
    ident = f"PCI_ID={vendor:04X}:{number:04X}"
    write(node, f"{path}/uevent", "\n".join([*bound, ident, *kept]))
    write(node, f"{path}/vendor", f"0x{vendor:04x}")
    write(node, f"{path}/device", f"0x{number:04x}")


def rail_with_small_frames(node: FakeNode) -> None:
    write(node, f"{RAIL}/mtu", "1500")


def rail_at_half_speed(node: FakeNode) -> None:
    write(node, f"{RAIL}/speed", "50000")


def rail_at_a_tenth_of_the_speed(node: FakeNode) -> None:
    """Too slow for data by itself: its sibling tells what it is."""
    write(node, f"{RAIL}/speed", "10000")


def rail_flapped(node: FakeNode) -> None:
    """When, since the boot, nobody knows."""
    write(node, f"{RAIL}/carrier_changes", "112")


def rail_flaps(node: FakeNode) -> None:
    write(node, f"{RAIL}/carrier_changes", "112")
    read_earlier(node, {RAILS[1]: {"carrier-changes": 98}})


def rail_set_up_in_many_steps(node: FakeNode) -> None:
    write(node, f"{RAIL}/carrier_changes", "9")


def rail_with_errors(node: FakeNode) -> None:
    table = text(node, "/proc/net/dev").replace(dev_line(RAILS[1]), dev_line(RAILS[1], 999_999))
    node.files["/proc/net/dev"] = table


def rail_misses_frames(node: FakeNode) -> None:
    write(node, f"{RAIL}/statistics/rx_missed_errors", "999999")


def management_in_small_frames_with_errors(node: FakeNode) -> None:
    """Nobody's concern: no data goes there."""
    table = text(node, "/proc/net/dev").replace(dev_line("eno1"), dev_line("eno1", 999_999))
    node.files["/proc/net/dev"] = table


def ring_cut_down(node: FakeNode) -> None:
    answers(node, rings={"rx": 64, "rx_max": 8192, "tx": 1024, "tx_max": 8192})


def gro_turned_off(node: FakeNode) -> None:
    answers(node, features=driver_answer()["features"] | {"rx-gro": "off"})


def gro_off_and_fixed(node: FakeNode) -> None:
    answers(node, features=driver_answer()["features"] | {"rx-gro": "off fixed"})


def rail_without_flow_control(node: FakeNode) -> None:
    answers(node, bridging={"pfc": [], "dscp": 0})


def rail_with_pause_frames(node: FakeNode) -> None:
    answers(node, bridging=None, pause={"rx": True, "tx": True})


def rail_deaf_to_marks(node: FakeNode) -> None:
    write(node, f"{RAIL}/ecn/roce_rp/enable/3", "0")


def drivers_hang(node: FakeNode) -> None:
    why = {"kind": "hung", "reason": "@ethtool did not answer within 3 s"}
    for one in node.commands:
        if one["argv"][0] == "@ethtool":
            one["output"], one["gap"] = None, why


def small_tcp_buffers(node: FakeNode) -> None:
    write(node, "/proc/sys/net/ipv4/tcp_rmem", SMALL_BUFFER)


def small_tcp_buffers_after_boot(node: FakeNode) -> None:
    node.files["/etc/sysctl.d/95-tcp.conf"] = "net.ipv4.tcp_wmem = 4096 16384 1048576\n"


def congestion_control_refused(node: FakeNode) -> None:
    node.files["/etc/sysctl.d/95-tcp.conf"] = "net.ipv4.tcp_congestion_control = bbr\n"


def many_segments_sent_again(node: FakeNode) -> None:
    node.files["/proc/net/snmp"] = snmp(sent=9_000_000_000, again=270_000_000)


def backlog_overflows(node: FakeNode) -> None:
    table = text(node, "/proc/net/softnet_stat")
    node.files["/proc/net/softnet_stat"] = table.replace(" 00000000 ", " 00001000 ", 100)


def strict_reverse_path(node: FakeNode) -> None:
    both_rails(node, "rp_filter", 1)


def rails_answer_for_each_other(node: FakeNode) -> None:
    both_rails(node, "arp_ignore", 0)


def rails_filter_arp(node: FakeNode) -> None:
    both_rails(node, "arp_ignore", 0)
    both_rails(node, "arp_filter", 1)


def efa_without_driver(node: FakeNode) -> None:
    """One more adapter, of AWS's."""
    path = "/sys/devices/pci0000:59/0000:59:05.0"
    uevent = "PCI_CLASS=20000\nPCI_ID=1D0F:EFA2\nPCI_SLOT_NAME=0000:59:05.0\n"
    node.files |= {f"{path}/uevent": uevent, f"{path}/numa_node": "0\n"}
    node.files |= link("/sys/bus/pci/devices/0000:59:05.0", path)


def google_machine_on_virtio(node: FakeNode) -> None:
    write(node, "/sys/devices/virtual/dmi/id/product_name", "Google Compute Engine")
    cpuinfo = text(node, "/proc/cpuinfo")
    node.files["/proc/cpuinfo"] = cpuinfo.replace("flags\t: fpu", "flags\t: fpu hypervisor")
    becomes(node, "0000:02:00.0", 0x1AF4, 0x1041, "virtio-pci")


FAULTS: tuple[Fault, ...] = (
    Fault(rail_with_small_frames, {"network-mtu": "warn"}),
    Fault(rail_at_half_speed, {"network-link-speed": "warn"}),
    Fault(rail_at_a_tenth_of_the_speed, {"network-link-speed": "warn"}),
    Fault(rail_flapped, {"network-link-flaps": "warn"}),
    Fault(rail_flaps, {"network-link-flaps": "fail"}),
    Fault(rail_set_up_in_many_steps, {}),
    Fault(rail_with_errors, {"network-errors": "warn"}),
    Fault(rail_misses_frames, {"network-errors": "warn"}),
    Fault(management_in_small_frames_with_errors, {}),
    Fault(ring_cut_down, {"network-ring-size": "warn"}),
    Fault(gro_turned_off, {"network-offloads": "warn"}),
    Fault(gro_off_and_fixed, {}),
    Fault(rail_without_flow_control, {"network-roce-flow-control": "warn"}),
    Fault(rail_with_pause_frames, {}),
    Fault(rail_deaf_to_marks, {"network-roce-ecn": "warn"}),
    Fault(
        drivers_hang,
        {
            "network-ring-size": "unknown",
            "network-offloads": "unknown",
            "network-roce-flow-control": "unknown",
        },
    ),
    Fault(small_tcp_buffers, {"network-tcp-buffers": "warn"}),
    Fault(small_tcp_buffers_after_boot, {"network-tcp-buffers": "warn"}),
    Fault(congestion_control_refused, {"network-congestion-control": "warn"}),
    Fault(many_segments_sent_again, {"network-retransmits": "warn"}),
    Fault(backlog_overflows, {"network-backlog-drops": "warn"}),
    Fault(strict_reverse_path, {"network-reverse-path": "warn"}),
    Fault(rails_answer_for_each_other, {"network-arp": "warn"}),
    Fault(rails_filter_arp, {}),
    Fault(efa_without_driver, {"network-efa": "fail"}),
    Fault(google_machine_on_virtio, GUEST | {"network-gvnic": "warn"}),
)
