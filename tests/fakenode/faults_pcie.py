# SPDX-License-Identifier: Apache-2.0
"""Single faults of PCIe errors, control words, windows, sleep and shared links."""

import struct

from fakenode import FakeNode
from fakenode.breaking import answer, attribute, read_earlier, remove, text, write
from fakenode.fault import Fault
from fakenode.faults_pci import GPU, GPU_PORT, NIC, NIC_PORT, ROOT_PORT, UPSTREAM_PORT
from fakenode.layout import SWITCH_BUSES
from fakenode.pci import path_of
from fakenode.pciextra import (
    AER,
    ASPM_POLICY,
    BARS,
    CONTROL,
    DEVCTL,
    DEVCTL2,
    LNKCTL,
    NO_BAR,
    error_counts,
    windows,
)
from fakenode.registers import patched

UNSET = 0x20000000
SWITCH = (ROOT_PORT, UPSTREAM_PORT, *(f"0000:17:{i:02x}.0" for i in range(5)))
BELOW = tuple(f"0000:{0x18 + i:02x}:00.0" for i in range(5))


def word(node: FakeNode, address: str, offset: int, value: int) -> None:
    path = f"{path_of(address)}/config"
    space = node.files[path]
    assert isinstance(space, bytes)
    node.files[path] = patched(space, offset, value)


def count(node: FakeNode, address: str, severity: str, **kinds: int) -> None:
    name = f"aer_dev_{severity}"
    attribute(node, address, name, error_counts(**kinds)[name].strip())


def gpu_port_corrects_many_errors(node: FakeNode) -> None:
    count(node, GPU_PORT, "correctable", BadTLP=40_000_000, RxErr=12)


def gpu_port_corrected_a_few_errors(node: FakeNode) -> None:
    count(node, GPU_PORT, "correctable", BadTLP=3)


def nic_had_a_fatal_error(node: FakeNode) -> None:
    count(node, NIC, "fatal", MalfTLP=1)


def gpu_lost_a_transfer(node: FakeNode) -> None:
    count(node, GPU, "nonfatal", CmpltTO=2)


def gpu_was_asked_for_nothing(node: FakeNode) -> None:
    count(node, GPU, "nonfatal", UnsupReq=4)


def firmware_handles_pcie_errors(node: FakeNode) -> None:
    remove(node, AER)


def gpu_replays_many_packets(node: FakeNode) -> None:
    answer(node, 0, "PcieReplayCounter", 1_000_000)


def gpu_replays_many_packets_since_last_night(node: FakeNode) -> None:
    gpu_replays_many_packets(node)
    read_earlier(node, {GPU: {"pcie-replays": 12}}, 86400)


def gpu_sends_more_than_its_port_takes(node: FakeNode) -> None:
    word(node, GPU, DEVCTL, CONTROL & ~0xE0 | 0x40)


def payloads_of_128_behind_a_switch(node: FakeNode) -> None:
    for address in (*SWITCH, *BELOW):
        word(node, address, DEVCTL, CONTROL & ~0xE0)


def nic_reads_512_bytes_at_once(node: FakeNode) -> None:
    word(node, NIC, DEVCTL, CONTROL & ~0x7000 | 0x2000)


def nic_orders_strictly(node: FakeNode) -> None:
    word(node, NIC, DEVCTL, CONTROL & ~0x0010)


def gpu_has_five_bit_tags_and_small_reads(node: FakeNode) -> None:
    word(node, GPU, DEVCTL, CONTROL & ~0x7100 | 0x2000)
    word(node, GPU, DEVCTL2, 0)


def gpu_link_may_sleep(node: FakeNode) -> None:
    for address in (GPU, GPU_PORT):
        word(node, address, LNKCTL, 0x0042)


def nic_port_alone_offers_sleep(node: FakeNode) -> None:
    word(node, NIC_PORT, LNKCTL, 0x0042)


def kernel_saves_link_power(node: FakeNode) -> None:
    write(node, ASPM_POLICY, "default performance [powersave] powersupersave")


def gpu_may_be_suspended(node: FakeNode) -> None:
    attribute(node, GPU, "power/control", "auto")
    power = f"/proc/driver/nvidia/gpus/{GPU}/power"
    node.files[power] = "Runtime D3 status:          Enabled (fine-grained)\n"


def nic_is_suspended(node: FakeNode) -> None:
    attribute(node, NIC, "power/control", "auto")
    attribute(node, NIC, "power/runtime_status", "suspended")


def gpu_memory_window_has_no_room(node: FakeNode) -> None:
    lost = (0, 0x1FFFFFFFFF, 0x14220C | UNSET)
    attribute(node, GPU, "resource", windows(BARS[0], NO_BAR, lost, *BARS[3:]).strip())


def gpu_window_is_smaller_than_on_offer(node: FakeNode) -> None:
    """256 MiB of up to 128 GiB, in a capability that takes the place of the one behind AER."""
    path = f"{path_of(GPU)}/config"
    space = bytearray(node.files[path] or b"")  # type: ignore[arg-type]  # config is bytes
    struct.pack_into("<III", space, 0x148, 1 << 16 | 0x15, 1 << 4 + 8 | 1 << 4 + 17, 8 << 8 | 0x21)
    node.files[path] = bytes(space)


def gpu_link_went_down(node: FakeNode) -> None:
    log_line(node, f"pcieport {GPU_PORT}: pciehp: Slot(21): Link Down")


def drive_link_went_down(node: FakeNode) -> None:
    log_line(node, "pcieport 0000:17:04.0: pciehp: Slot(25): Card not present")


def log_line(node: FakeNode, line: str) -> None:
    """The last record of the ring, after all others."""
    records = text(node, "/dev/kmsg")
    seconds = float(text(node, "/proc/uptime").split()[0]) - 60
    node.files["/dev/kmsg"] = f"{records.rstrip()}\n4,99999,{int(seconds * 1e6)},-;{line}\n"


def uplinks_are_built_for_gen3(node: FakeNode) -> None:
    for bus in SWITCH_BUSES:
        for address in (f"0000:{bus:02x}:01.0", f"0000:{bus + 1:02x}:00.0"):
            for name in ("current_link_speed", "max_link_speed"):
                attribute(node, address, name, "8.0 GT/s PCIe")


FAULTS: tuple[Fault, ...] = (
    Fault(gpu_port_corrects_many_errors, {"pcie-aer-correctable": "warn"}),
    Fault(gpu_port_corrected_a_few_errors, {}),
    Fault(nic_had_a_fatal_error, {"pcie-aer-uncorrectable": "fail"}),
    Fault(gpu_lost_a_transfer, {"pcie-aer-uncorrectable": "warn"}),
    Fault(gpu_was_asked_for_nothing, {}),
    Fault(
        firmware_handles_pcie_errors,
        {"pcie-aer-correctable": "notapplicable", "pcie-aer-uncorrectable": "notapplicable"},
    ),
    Fault(gpu_replays_many_packets, {"pcie-replay-rate": "unknown"}),
    Fault(gpu_replays_many_packets_since_last_night, {"pcie-replay-rate": "warn"}),
    Fault(gpu_sends_more_than_its_port_takes, {"pcie-max-payload": "fail"}),
    Fault(payloads_of_128_behind_a_switch, {"pcie-max-payload": "warn"}),
    Fault(nic_reads_512_bytes_at_once, {"pcie-max-read-request": "warn"}),
    Fault(nic_orders_strictly, {"pcie-relaxed-ordering": "warn"}),
    Fault(gpu_has_five_bit_tags_and_small_reads, {"pcie-read-tags": "warn"}),
    Fault(gpu_link_may_sleep, {"pcie-aspm-off": "warn"}),
    Fault(nic_port_alone_offers_sleep, {}),
    Fault(kernel_saves_link_power, {"pcie-aspm-policy": "warn"}),
    Fault(gpu_may_be_suspended, {"pcie-runtime-pm": "warn"}),
    Fault(nic_is_suspended, {"pcie-runtime-pm": "warn"}),
    Fault(gpu_memory_window_has_no_room, {"pcie-bar-assigned": "fail"}),
    Fault(gpu_window_is_smaller_than_on_offer, {"pcie-bar-resizable": "warn"}),
    Fault(gpu_link_went_down, {"pcie-hotplug-events": "fail"}),
    Fault(drive_link_went_down, {"pcie-hotplug-events": "warn"}),
    Fault(
        uplinks_are_built_for_gen3,
        {
            "pcie-path-narrowest": "warn",
            "pcie-shared-uplink": "warn",
            "rdma-port-bandwidth": "warn",
        },
    ),
)
