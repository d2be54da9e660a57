# SPDX-License-Identifier: Apache-2.0
"""Where physics gives it, a finding says what is lost, as a number with its unit."""

from collections.abc import Callable

import pytest
from fakenode import (
    FakeNode,
    faults_gpu,
    faults_gpumore,
    faults_host,
    faults_hoststate,
    faults_machine,
    faults_nvlink,
    faults_pci,
    faults_pcie,
    faults_rdma,
    healthy_node,
)

from gpuaudit import audit

COSTS: list[tuple[Callable[[FakeNode], None], str, str]] = [
    # Eight lanes of 32 GT/s instead of sixteen, 128b/130b coding.
    (faults_pci.gpu_at_8_lanes, "pcie-link-width", "31.5 instead of 63.0 GB/s each way"),
    (faults_pci.drive_at_2_lanes, "pcie-link-width", "3.9 instead of 7.9 GB/s each way"),
    # Four GPUs of 63 GB/s behind sixteen lanes of 8 GT/s, two at each of them.
    (faults_pcie.uplinks_are_built_for_gen3, "pcie-shared-uplink", "7.9 instead of 63.0 GB/s"),
    (faults_pcie.payloads_of_128_behind_a_switch, "pcie-max-payload", "53.1 instead of 57.6 GB/s"),
    # No NIC below the GPU's own socket.
    (faults_machine.a_socket_without_rdma_drivers, "numa-gpu-nic-locality", "up to 63.0 GB/s"),
    # 16 of 18 NVLinks of 26.562 GB/s.
    (faults_nvlink.two_links_down, "nvlink-links-active", "425 instead of 478 GB/s each way"),
    # Eight ports of 400 and two of 100 Gb/s.
    (faults_rdma.selection_of_ports_by_old_names, "rdma-hca-selection", "up to 425.0 GB/s"),
    (faults_rdma.device_file_of_one_adapter_missing, "rdma-device-files", "up to 50.0 GB/s"),
    (faults_rdma.cable_out_of_a_rail, "rdma-port-state", "50.0 GB/s each way"),
    (faults_rdma.rail_at_half_rate, "rdma-port-rate", "25.0 instead of 50.0 GB/s each way"),
    (faults_rdma.roce_rails_with_a_small_mtu, "rdma-mtu", "92.6 instead of 98.0 %"),
    (faults_gpu.power_limit_lowered, "power-limit-default", "29 % of the GPU's power"),
    (faults_gpu.application_clocks_left_behind, "clocks-application-default", "29 % of a clock"),
    (faults_gpumore.lower_ceiling, "clocks-maximum", "12 % of a clock"),
    (faults_host.frequency_capped, "cpu-frequency-limits", "50% of its speed"),
    (faults_hoststate.one_module_slower, "memory-dimm-speed", "86% of the bandwidth"),
]


@pytest.mark.parametrize(
    ("breaks", "check", "cost"), COSTS, ids=[f"{c}-{b.__name__}" for b, c, _ in COSTS]
)
def test_a_cost_is_a_number(breaks: Callable[[FakeNode], None], check: str, cost: str) -> None:
    node = healthy_node()
    breaks(node)
    request = audit.Request(profile="bringup", select=(check,))
    (result,) = audit.run(node.host(), request).report.results
    told = [f.cost or "" for f in result.findings if f.verdict is result.verdict]
    assert any(cost in one for one in told), told
