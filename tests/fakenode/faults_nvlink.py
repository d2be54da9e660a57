# SPDX-License-Identifier: Apache-2.0
"""Single faults of NVLink, its fabric and IMEX."""

from fakenvml import DRIVER

from fakenode import FakeNode
from fakenode.breaking import answer, error, everywhere, read_earlier, remove, start, text, write
from fakenode.fault import Fault
from fakenode.layout import gpu_addresses
from fakenode.pci import path_of

NVSWITCH = "0000:60:00.0"


def earlier(node: FakeNode, totals: dict[str, int], seconds: float = 3600) -> None:
    """A reading of GPU 2 that the nightly audit kept, an hour old."""
    read_earlier(node, {gpu_addresses()[2]: totals}, seconds)


def two_links_down(node: FakeNode) -> None:
    for link in (4, 5):
        answer(node, 2, f"NvLinkState({link})", 0)
        answer(node, 2, f"FieldValues(165,{link})", 0)


def a_link_sleeps(node: FakeNode) -> None:
    """No fault: the older call knows no sleep."""
    answer(node, 2, "NvLinkState(4)", 0)
    answer(node, 2, "FieldValues(165,4)", 2)


def a_link_is_slow(node: FakeNode) -> None:
    answer(node, 2, "FieldValues(164,7)", 13281)


def many_crc_errors(node: FakeNode) -> None:
    answer(node, 2, "FieldValues(163,7)", 9_000_000)
    earlier(node, {"crc-errors-7": 1000})


def old_crc_errors(node: FakeNode) -> None:
    """No fault: they came long ago."""
    answer(node, 2, "FieldValues(163,7)", 9_000_000)
    earlier(node, {"crc-errors-7": 9_000_000})


def many_replays(node: FakeNode) -> None:
    answer(node, 2, "FieldValues(161,7)", 1000)
    earlier(node, {"replays-7": 0})


def a_recovery_since_the_last_audit(node: FakeNode) -> None:
    answer(node, 2, "FieldValues(162,7)", 3)
    earlier(node, {"recoveries-7": 2}, seconds=2 * 86400)


def recoveries_of_an_unknown_time(node: FakeNode) -> None:
    answer(node, 2, "FieldValues(162,7)", 3)


def broken_packets(node: FakeNode) -> None:
    """What a Blackwell counts, on a node that has none of it."""
    answer(node, 2, "FieldValues(219,0)", 9)
    earlier(node, {"effective-errors-0": 1}, seconds=2 * 86400)


def a_pair_without_nvlink(node: FakeNode) -> None:
    answer(node, 2, "P2PStatus(5,2)", 5)


def peers_were_not_answered(node: FakeNode) -> None:
    error(node, 2, "P2PStatus(5,2)", 999)


def nvlink_unsupported(node: FakeNode) -> None:
    """No fault: boards without NVLink answer so."""
    for index in range(8):
        error(node, index, "NvLinkState(0)", 3)
        for link in range(1, 18):
            node.nvml["devices"][index].pop(f"nvmlDeviceGetNvLinkState({link})", None)


def nvlink_unsupported_on_one_gpu(node: FakeNode) -> None:
    error(node, 2, "NvLinkState(0)", 3)
    for link in range(1, 19):
        node.nvml["devices"][2].pop(f"nvmlDeviceGetNvLinkState({link})", None)


def nvlink_not_told_by_one_link(node: FakeNode) -> None:
    error(node, 2, "NvLinkState(5)", 999)
    error(node, 2, "FieldValues(165,5)", 999)


def another_clique(node: FakeNode) -> None:
    fabric = node.nvml["devices"][3]["nvmlDeviceGetGpuFabricInfoV"]["v"]
    answer(node, 3, "GpuFabricInfoV", fabric | {"cliqueId": 5})


def old_driver_on_hopper(node: FakeNode) -> None:
    """NVML says that it is older than what the kernel module says of itself."""
    for key in ("nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion"):
        old = node.nvml["system"][key]["v"].replace(DRIVER, "525.147.05")
        node.nvml["system"][key] = {"v": old}
    everywhere(node, "GspFirmwareVersion", "525.147.05")


def nvswitch_dead(node: FakeNode) -> None:
    node.files[f"{path_of(NVSWITCH)}/config"] = b"\xff" * 256


def nvswitch_without_a_driver(node: FakeNode) -> None:
    remove(node, f"{path_of(NVSWITCH)}/driver")
    uevent = text(node, f"{path_of(NVSWITCH)}/uevent").replace("DRIVER=nvidia-nvswitch\n", "")
    write(node, f"{path_of(NVSWITCH)}/uevent", uevent)


def nvswitch_missing(node: FakeNode) -> None:
    remove(node, path_of(NVSWITCH), f"/sys/bus/pci/devices/{NVSWITCH}")


def imex_on_a_single_node(node: FakeNode) -> None:
    start(node, 7777, "nvidia-imex", "")


LINK_CHECKS = (
    "nvlink-crc-errors",
    "nvlink-link-speed",
    "nvlink-links-active",
    "nvlink-recovery-errors",
    "nvlink-replays",
    "nvlink-sharp",
)

FAULTS: tuple[Fault, ...] = (
    Fault(two_links_down, {"nvlink-links-active": "fail"}),
    Fault(a_link_sleeps, {}),
    Fault(nvlink_unsupported_on_one_gpu, {"nvlink-links-active": "fail"}),
    Fault(nvlink_not_told_by_one_link, {"nvlink-links-active": "unknown"}),
    Fault(a_link_is_slow, {"nvlink-link-speed": "fail"}),
    Fault(many_crc_errors, {"nvlink-crc-errors": "warn"}),
    Fault(old_crc_errors, {}),
    Fault(many_replays, {"nvlink-replays": "warn"}),
    Fault(a_recovery_since_the_last_audit, {"nvlink-recovery-errors": "fail"}),
    Fault(recoveries_of_an_unknown_time, {"nvlink-recovery-errors": "unknown"}),
    Fault(broken_packets, {"nvlink-packet-errors": "warn"}),
    Fault(a_pair_without_nvlink, {"nvlink-peers": "fail"}),
    Fault(peers_were_not_answered, {"nvlink-peers": "unknown"}),
    Fault(another_clique, {"fabric-cluster": "fail"}),
    Fault(nvswitch_dead, {"fabric-switches": "fail"}),
    Fault(nvswitch_without_a_driver, {"fabric-switches": "fail"}),
    Fault(nvswitch_missing, {"fabric-switches": "fail"}),
    Fault(imex_on_a_single_node, {"fabric-imex": "warn"}),
    Fault(old_driver_on_hopper, {"driver-library-match": "fail", "nvlink-sharp": "warn"}),
    Fault(nvlink_unsupported, dict.fromkeys(LINK_CHECKS, "notapplicable")),
)
