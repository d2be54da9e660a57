# SPDX-License-Identifier: Apache-2.0
"""GPUs that are on the PCI bus and that NVML does not list."""

from typing import NamedTuple

from gpuaudit.facts.gpu import Gpus
from gpuaudit.facts.gpuscan import GpuScan, PciGpu


class MissingGpu(NamedTuple):
    """One of them, and why it is likely missing.

    `excluded`: the driver was told to leave it out. `withheld`: it works, and the container or job
    in which this runs was not given it.
    """

    address: str
    why: str
    excluded: bool = False
    withheld: bool = False


def missing_gpus(scan: GpuScan, gpus: Gpus) -> tuple[MissingGpu, ...]:
    """Alive functions without a record. Records without an address may be some of them."""
    told = {gpu.address for gpu in gpus.records}
    nameless = sum(gpu.address is None for gpu in gpus.records)
    missing = [f for f in scan.functions or () if f.address not in told]
    if len(missing) <= nameless:
        return ()
    return tuple(explained(one, scan) for one in missing if one.dead is not True)


def explained(one: PciGpu, scan: GpuScan) -> MissingGpu:
    """The reason by what the kernel says of the function."""
    left_out = (scan.listed or {}).get(one.address)
    if left_out:
        return MissingGpu(one.address, "excluded by NVreg_ExcludedGpus", excluded=True)
    return MissingGpu(one.address, why_missing(one, scan), withheld=is_withheld(one, scan))


def is_withheld(one: PciGpu, scan: GpuScan) -> bool:
    """A container sees its own GPUs only in /proc/driver/nvidia, a job sees the node's."""
    if scan.confined is None or one.driver != "nvidia":
        return False
    return scan.in_container or scan.listed is None or one.address in scan.listed


def why_missing(one: PciGpu, scan: GpuScan) -> str:
    """In the order in which a GPU comes up: bound, listed by the driver, listed by NVML."""
    if one.driver is None:
        return "no kernel driver is bound to it"
    if one.driver != "nvidia":
        return f"the driver {one.driver} holds it"
    if scan.listed is not None and one.address not in scan.listed:
        return "the kernel driver did not bring it up"
    return "the kernel driver has it, NVML does not list it: is its /dev/nvidiaN there?"
