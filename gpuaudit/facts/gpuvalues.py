# SPDX-License-Identifier: Apache-2.0
"""What NVML's answers are made of. Names and meanings: nvml.h."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

P0 = 0
"""NVML_PSTATE_0, the highest performance."""
FABRIC_COMPLETED = 3
"""NVML_GPU_FABRIC_STATE_COMPLETED."""

Text = Annotated[str, Meta(min_length=1)]
Flag = Literal[0, 1]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Celsius = Annotated[int, Meta(ge=-100, le=300)]
"""NVML's numbers are unsigned but for some temperatures: what does not fit was not NVML's."""


class Setting(msgspec.Struct, frozen=True, array_like=True):
    """A mode that runs now and the one that runs after a reset: 0 off, 1 on."""

    current: Flag
    pending: Flag


class RemappedRows(msgspec.Struct, frozen=True, array_like=True):
    """nvmlDeviceGetRemappedRows: rows by cause, and whether one waits or one failed."""

    correctable: Count
    uncorrectable: Count
    pending: Count
    failed: Count


class Banks(msgspec.Struct, frozen=True):
    """nvmlDeviceGetRowRemapperHistogram: memory banks by how many spare rows they have left."""

    max: Count
    high: Count
    partial: Count
    low: Count
    none: Count


class Sram(msgspec.Struct, frozen=True):
    """nvmlEccSramErrorStatus_t."""

    threshold_exceeded: Count = msgspec.field(name="bThresholdExceeded")
    parity: Count = msgspec.field(name="aggregateUncParity", default=0)
    secded: Count = msgspec.field(name="aggregateUncSecDed", default=0)


class Utilization(msgspec.Struct, frozen=True):
    """nvmlUtilization_t: percent of the last sample period in which a kernel ran; it may be 1 s."""

    gpu: Annotated[int, Meta(ge=0, le=100)]


class Fabric(msgspec.Struct, frozen=True):
    """nvmlGpuFabricInfoV_t; health is missing in the first form of the call (before 550)."""

    state: Count
    status: Count
    health_mask: Count | None = msgspec.field(name="healthMask", default=None)
    health_summary: Count | None = msgspec.field(name="healthSummary", default=None)
    cluster: str = msgspec.field(name="clusterUuid", default="")
    clique: Count = msgspec.field(name="cliqueId", default=0)


class Pci(msgspec.Struct, frozen=True):
    """nvmlPciInfo_t."""

    bus_id: str = msgspec.field(name="busId")
    device_id: Count = msgspec.field(name="pciDeviceId")


class Bar1(msgspec.Struct, frozen=True):
    """nvmlBAR1Memory_t, bytes."""

    total: Positive = msgspec.field(name="bar1Total")


class Memory(msgspec.Struct, frozen=True):
    """nvmlMemory_v2_t, bytes. Before 510 there is no `reserved`, and `used` holds it."""

    total: Positive
    used: Count = 0
    reserved: Count | None = None
