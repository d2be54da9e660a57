# SPDX-License-Identifier: Apache-2.0
"""Single faults that show only beside the reading of an hour ago."""

from fakenode import FakeNode
from fakenode.breaking import read_earlier
from fakenode.fault import Fault
from fakenode.faults_rdma import port


def link_errors_since_the_last_hour(node: FakeNode) -> None:
    port(node, "mlx5_6", "counters/symbol_error", "4711")
    read_earlier(node, {"mlx5_6 port 1": {"symbol_error": 4600}})


def link_errors_of_long_ago(node: FakeNode) -> None:
    """No fault: they are history."""
    port(node, "mlx5_6", "counters/symbol_error", "4711")
    read_earlier(node, {"mlx5_6 port 1": {"symbol_error": 4711}})


def link_down_twice_within_the_hour(node: FakeNode) -> None:
    port(node, "mlx5_6", "counters/link_downed", "19")
    read_earlier(node, {"mlx5_6 port 1": {"link_downed": 17}})


def rdma_timeouts_within_the_hour(node: FakeNode) -> None:
    port(node, "mlx5_0", "hw_counters/local_ack_timeout_err", "4711")
    read_earlier(node, {"mlx5_0 port 1": {"local_ack_timeout_err": 4000}})


def rdma_timeouts_after_a_reset(node: FakeNode) -> None:
    """The adapter was reset in between: what it counts now is too little to matter."""
    port(node, "mlx5_0", "hw_counters/local_ack_timeout_err", "9")
    read_earlier(node, {"mlx5_0 port 1": {"local_ack_timeout_err": 4000}})


FAULTS: tuple[Fault, ...] = (
    Fault(link_errors_since_the_last_hour, {"rdma-link-errors": "warn"}),
    Fault(link_errors_of_long_ago, {}),
    Fault(link_down_twice_within_the_hour, {"rdma-link-downs": "fail"}),
    Fault(rdma_timeouts_within_the_hour, {"rdma-retransmissions": "warn"}),
    Fault(rdma_timeouts_after_a_reset, {}),
)
