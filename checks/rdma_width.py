# SPDX-License-Identifier: Apache-2.0
"""Lanes of InfiniBand links."""

from collections.abc import Iterator

from gpuaudit.check import Finding, NotApplicable, Severity, check, expect_at_least, unknown
from gpuaudit.facts.base import Absent
from gpuaudit.facts.rdmaports import INFINIBAND, RdmaPorts
from gpuaudit.topology.rdmaroles import RdmaRoles

FULL_WIDTH = 4
WHOLE_SPEEDS = frozenset({"DDR", "QDR", "FDR10", "FDR", "EDR"})
"""Those whose links nobody splits. SDR is what a kernel says of a speed that it does not know."""


@check("rdma-port-width", severity=Severity.HIGH)
def port_width(ports: RdmaPorts, roles: RdmaRoles) -> Iterator[Finding]:
    """Every InfiniBand link uses all its lanes.

    ## Why it matters
    A link that lost lanes to a bad cable or a dirty connector works, at a fraction of its rate.

    ## Evidence
    The width in /sys/class/infiniband/*/ports/*/rate of active InfiniBand ports.

    ## How it is judged
    At least 4X; from HDR on 2X as well, which is one half of a split cable (HDR100, NDR200), and
    at speeds that the kernel does not know.
    That a port has fewer lanes than the others of its kind is for rdma-port-rate to say.

    ## Exceptions
    Not for Ethernet, where width is a way to write the speed. Virtual functions on their host and
    software devices are left out.

    ## What to do
    Reseat or replace the cable; `mlxlink -d DEVICE -m` shows each lane.

    ## References
    - https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband
    - https://github.com/torvalds/linux/blob/master/drivers/infiniband/hw/mlx5/main.c
    """
    carriers = [port for port in ports.ports if roles.of(port).kind != "none"]
    found = [port for port in carriers if port.link_layer == INFINIBAND and port.active]
    if not found:
        raise NotApplicable("no InfiniBand port is active")
    for port in found:
        rate = port.rate
        if isinstance(rate, Absent):
            yield unknown(port.name, rate.reason)
            continue
        least = FULL_WIDTH if rate.speed in WHOLE_SPEEDS else 2
        full = rate.gb_per_s * FULL_WIDTH / rate.width
        lost = f"{rate.gb_per_s:.1f} instead of {full:.1f} GB/s each way"
        yield expect_at_least(
            rate.width,
            least,
            of=port.name,
            unit=f"of {FULL_WIDTH} lanes",
            message=f"the link runs on {rate.width} of {FULL_WIDTH} lanes",
            cost=lost,
        )
