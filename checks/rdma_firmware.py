# SPDX-License-Identifier: Apache-2.0
"""Firmware and make of RDMA adapters: alike where they work together."""

from collections import Counter
from collections.abc import Iterator

from gpuaudit.check import Finding, NotApplicable, Severity, check, expect, passes, warns
from gpuaudit.facts.base import Absent
from gpuaudit.facts.rdmaports import RdmaPort, RdmaPorts
from gpuaudit.topology.rdmaroles import RdmaRoles

Group = list[RdmaPort]


@check("rdma-firmware-alike", severity=Severity.LOW)
def firmware_alike(ports: RdmaPorts) -> Iterator[Finding]:
    """RDMA adapters of one make run the same firmware.

    ## Why it matters
    Congestion control, link training and error handling differ between releases: one rail is
    slower or fails more often than the others, and nobody knows why.

    ## Evidence
    /sys/class/infiniband/*/{fw_ver,hca_type,board_id}.

    ## How it is judged
    Adapters of one model and board ID report one version. A difference warns.

    ## Exceptions
    Not applicable where each adapter is alone of its make. Virtual functions show the firmware of
    their adapter. Drivers without a firmware version (EFA says 0.0.0.0) say nothing here.

    ## What to do
    Bring the odd one to the release of the others: `mlxfwmanager -d DEVICE -u`, then reset it.

    ## References
    - https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband
    - https://docs.nvidia.com/networking/display/mftv4341lts/mlxfwmanager
    """
    makes: dict[tuple[str, str], Group] = {}
    for device in physical(ports):
        if device.model and isinstance(device.board, str):
            makes.setdefault((device.model, device.board), []).append(device)
    several = {make: group for make, group in makes.items() if len(group) > 1}
    if not several:
        raise NotApplicable("no two RDMA adapters are of one make")
    for (model, board), group in several.items():
        yield alike(f"{model} {board}", group, "firmware")


@check("rdma-board-alike", severity=Severity.LOW)
def board_alike(ports: RdmaPorts, roles: RdmaRoles) -> Iterator[Finding]:
    """The adapters of the compute ports are of one board ID (PSID).

    ## Why it matters
    The PSID says for which board, vendor and default settings the firmware was built. An adapter
    that was replaced by another vendor's has other defaults, and other firmware files.

    ## Evidence
    /sys/class/infiniband/*/board_id of the adapters with compute ports.

    ## How it is judged
    Adapters of one model have one board ID. A difference warns.

    ## Exceptions
    Not applicable with one adapter, and to drivers that tell no board ID (bnxt_re, irdma, efa).

    ## What to do
    Compare `mlxfwmanager --query` of both; replace the odd adapter by one of the same part number,
    or check that its settings (`mlxconfig -d DEVICE query`) equal those of the others.

    ## References
    - https://docs.nvidia.com/networking/display/mftv4341lts/mlxfwmanager
    - https://github.com/torvalds/linux/blob/master/drivers/infiniband/hw/mlx5/main.c
    """
    compute = {port.device for port in roles.compute(ports)}
    models: dict[str, Group] = {}
    for device in physical(ports):
        if device.device in compute and device.model:
            models.setdefault(device.model, []).append(device)
    several = {model: group for model, group in models.items() if len(group) > 1}
    if not several:
        raise NotApplicable("no two adapters with compute ports are of one model")
    for model, group in several.items():
        yield alike(model, group, "board")


def physical(ports: RdmaPorts) -> Group:
    """Adapters that are no virtual functions of another one here."""
    return [device for device in ports.devices if not device.virtual_function]


def alike(of: str, group: Group, field: str) -> Finding:
    """One value for the whole group, or the odd ones by name."""
    values = [getattr(device, field) for device in group]
    lost = next((value for value in values if isinstance(value, Absent)), None)
    told = {d.device: v for d, v in zip(group, values, strict=True) if isinstance(v, str)}
    counts = Counter(told.values())
    if len(counts) > 1:
        common, number = counts.most_common(1)[0]
        odd = ", ".join(f"{device} {value}" for device, value in told.items() if value != common)
        message = f"{field} differs: {number} have {common}, but {odd}"
        return warns(of, message, ", ".join(counts))
    if lost is not None:
        return expect(lost, "readable", of=of)
    return passes(of, f"{len(group)} adapters with {values[0]}")
