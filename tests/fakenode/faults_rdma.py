# SPDX-License-Identifier: Apache-2.0
"""Single faults of RDMA ports, their adapters and the software below them."""

from fakenode import FakeNode
from fakenode.breaking import attribute, remove, retrain, write
from fakenode.fault import Fault
from fakenode.pci import path_of
from fakenode.rdma import ADAPTERS

PLACES = {name: f"{path_of(address)}/infiniband/{name}" for address, name in ADAPTERS.items()}


def port(node: FakeNode, name: str, file: str, text: str) -> None:
    write(node, f"{PLACES[name]}/ports/1/{file}", text)


def cable_out_of_a_rail(node: FakeNode) -> None:
    port(node, "mlx5_2", "state", "1: DOWN")
    port(node, "mlx5_2", "phys_state", "2: Polling")


def no_cable_anywhere(node: FakeNode) -> None:
    """A node that stands alone, and whose jobs need no choice of ports."""
    select(node, "")
    for number in range(8):
        port(node, f"mlx5_{number}", "state", "1: DOWN")
        port(node, f"mlx5_{number}", "phys_state", "2: Polling")


def the_fabric_is_down(node: FakeNode) -> None:
    no_cable_anywhere(node)
    port(node, "mlx5_6", "counters/link_downed", "1")


def storage_adapter_lost_its_link(node: FakeNode) -> None:
    storage_adapter_without_a_cable(node)
    parent = PLACES["mlx5_9"].partition("/infiniband/")[0]
    node.files[f"{parent}/net/ens3f1np1/carrier_up_count"] = "1\n"


def no_subnet_manager(node: FakeNode) -> None:
    for number in range(8):
        port(node, f"mlx5_{number}", "state", "2: INIT")


def rail_at_half_rate(node: FakeNode) -> None:
    port(node, "mlx5_5", "rate", "200 Gb/sec (2X NDR)")


def rail_on_one_lane(node: FakeNode) -> None:
    port(node, "mlx5_5", "rate", "100 Gb/sec (1X NDR)")


def storage_adapter_without_a_cable(node: FakeNode) -> None:
    port(node, "mlx5_9", "state", "1: DOWN")
    port(node, "mlx5_9", "phys_state", "3: Disabled")


def state_of_a_rail_is_garbled(node: FakeNode) -> None:
    port(node, "mlx5_7", "state", "?")


def rail_turned_into_ethernet(node: FakeNode) -> None:
    port(node, "mlx5_3", "link_layer", "Ethernet")
    write(node, "/sys/class/net/ibp3/mtu", "9000")


def selection_of_ports_by_old_names(node: FakeNode) -> None:
    select(node, "ibp")


def select(node: FakeNode, value: str) -> None:
    """The rails of the cluster, wherever the node names them."""
    for path, content in node.files.items():
        if isinstance(content, str) and "NCCL_IB_HCA=mlx5" in content:
            node.files[path] = content.replace("NCCL_IB_HCA=mlx5", f"NCCL_IB_HCA={value}")


def firmware_left_behind(node: FakeNode) -> None:
    write(node, f"{PLACES['mlx5_4']}/fw_ver", "28.39.1002")


def adapter_of_another_vendor(node: FakeNode) -> None:
    write(node, f"{PLACES['mlx5_4']}/board_id", "DEL0000000042")


def symbol_errors(node: FakeNode) -> None:
    port(node, "mlx5_6", "counters/symbol_error", "4711")


def link_downs_at_the_end_of_their_counter(node: FakeNode) -> None:
    port(node, "mlx5_6", "counters/link_downed", "255")


def timeouts_of_acknowledgements(node: FakeNode) -> None:
    port(node, "mlx5_0", "hw_counters/local_ack_timeout_err", "4711")


def verbs_not_loaded(node: FakeNode) -> None:
    remove(node, "/sys/class/infiniband_verbs", "/dev/infiniband")


def device_file_of_one_adapter_missing(node: FakeNode) -> None:
    remove(node, "/dev/infiniband/uverbs3")


def rdma_modules_of_two_makes(node: FakeNode) -> None:
    write(node, "/sys/module/ib_core/taint", "")


def adapter_without_its_rdma_driver(node: FakeNode) -> None:
    remove(node, PLACES["mlx5_1"], "/sys/class/infiniband/mlx5_1")
    remove(node, "/sys/class/infiniband_verbs/uverbs1", "/dev/infiniband/uverbs1")


def rail_built_for_gen4(node: FakeNode) -> None:
    """Adapter and slot can do no more: no link runs below its best."""
    retrain(node, "0000:19:00.0", 4, 16)
    for address in ("0000:19:00.0", "0000:17:01.0"):
        attribute(node, address, "max_link_speed", "16.0 GT/s PCIe")


def roce_rails_without_addresses(node: FakeNode) -> None:
    """The cluster computes over its Ethernet ports, which have only link-local addresses."""
    select(node, "=mlx5_8,mlx5_9")
    for name in ("mlx5_8", "mlx5_9"):
        for place in (2, 3):
            port(node, name, f"gids/{place}", ":".join(["0000"] * 8))


def roce_rails_with_a_small_mtu(node: FakeNode) -> None:
    select(node, "=mlx5_8,mlx5_9")
    for place in (0, 1):
        write(node, f"/sys/class/net/ens3f{place}np{place}/mtu", "1500")


def roce_rails_with_a_wrong_gid_index(node: FakeNode) -> None:
    select(node, "=mlx5_8,mlx5_9\nNCCL_IB_GID_INDEX=2")


NOT_UP = (
    "rdma-link-downs",
    "rdma-link-errors",
    "rdma-port-bandwidth",
    "rdma-port-rate",
    "rdma-port-width",
)
"""Judge ports that are active."""

ALONE = {**dict.fromkeys(NOT_UP, "notapplicable"), "rdma-hca-selection": "notapplicable"}
"""What else changes where no rail is up and nothing names one."""

ON_ETHERNET = {
    "rdma-gid-roce-v2": "pass",
    "rdma-mtu": "pass",
    "rdma-rail-pairing": "notapplicable",
}
"""What changes on the node when its Ethernet ports are the compute ports."""

FAULTS = (
    Fault(cable_out_of_a_rail, {"rdma-port-state": "fail"}),
    Fault(no_subnet_manager, {"rdma-port-state": "fail", **dict.fromkeys(NOT_UP, "notapplicable")}),
    Fault(no_cable_anywhere, {"rdma-port-state": "warn", **ALONE}),
    Fault(the_fabric_is_down, {"rdma-port-state": "fail", **ALONE}),
    Fault(storage_adapter_lost_its_link, {"rdma-port-state": "warn"}),
    Fault(rail_at_half_rate, {"rdma-port-rate": "fail"}),
    Fault(rail_on_one_lane, {"rdma-port-rate": "fail", "rdma-port-width": "fail"}),
    Fault(storage_adapter_without_a_cable, {}),
    Fault(state_of_a_rail_is_garbled, {"rdma-port-state": "unknown"}),
    Fault(
        rail_turned_into_ethernet,
        {"rdma-gid-roce-v2": "unknown", "rdma-mtu": "pass", "rdma-ports-alike": "warn"},
    ),
    Fault(selection_of_ports_by_old_names, {"rdma-hca-selection": "fail"}),
    Fault(firmware_left_behind, {"rdma-firmware-alike": "warn"}),
    Fault(adapter_of_another_vendor, {"rdma-board-alike": "warn"}),
    Fault(symbol_errors, {"rdma-link-errors": "unknown"}),
    Fault(link_downs_at_the_end_of_their_counter, {"rdma-link-downs": "unknown"}),
    Fault(timeouts_of_acknowledgements, {"rdma-retransmissions": "unknown"}),
    Fault(verbs_not_loaded, {"rdma-device-files": "fail"}),
    Fault(device_file_of_one_adapter_missing, {"rdma-device-files": "fail"}),
    Fault(rdma_modules_of_two_makes, {"rdma-driver-flavour": "warn"}),
    Fault(
        adapter_without_its_rdma_driver,
        {"rdma-adapter-driver": "fail", "rdma-rail-pairing": "fail"},
    ),
    Fault(rail_built_for_gen4, {"rdma-port-bandwidth": "warn"}),
    Fault(roce_rails_without_addresses, {**ON_ETHERNET, "rdma-gid-roce-v2": "fail"}),
    Fault(roce_rails_with_a_small_mtu, {**ON_ETHERNET, "network-mtu": "warn", "rdma-mtu": "warn"}),
    Fault(roce_rails_with_a_wrong_gid_index, {**ON_ETHERNET, "rdma-gid-index": "fail"}),
)
