# SPDX-License-Identifier: Apache-2.0
"""The GPUs are all there, alive and known."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    Severity,
    check,
    expect,
    fails,
    not_applicable,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpus
from gpuaudit.facts.gpumissing import MissingGpu, missing_gpus
from gpuaudit.facts.gpuscan import GpuScan
from gpuaudit.facts.node import Machine

BOARD = 8
GONE = frozenset({"gpu-lost", "gpu-not-found", "reset-required"})
PciId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{4}:[0-9a-f]{4}$")]
ACTIONS = {
    0: "none",
    1: "reset the GPU",
    2: "reboot the node",
    3: "drain the peer-to-peer traffic",
    4: "drain the GPU, then reset it",
    5: "recover the IMEX domain",
    6: "reset the GPU's bus",
    7: "reboot the system",
}


class GpuExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of the GPUs as such."""

    expected_count: Annotated[int, msgspec.Meta(ge=1, le=64)] | None
    known_pci_ids: tuple[PciId, ...]


@check("gpu-count", severity=Severity.CRITICAL)
def count(scan: GpuScan, gpus: Gpus, node: Machine, want: GpuExpectations) -> Iterator[Finding]:
    """NVML lists every GPU that is on the PCI bus, and none is missing.

    ## Why it matters
    A job that is given seven of eight GPUs does not start, or starts with the wrong ranks.

    ## Evidence
    GPU functions in /sys/bus/pci/devices, /proc/driver/nvidia/gpus and NVML's device list.

    ## How it is judged
    NVML must list each function, and there must be `gpu.expected_count` of them where that is set.
    On bare metal with NVSwitches on the bus the number of GPUs of one kind is a multiple of 8, as
    on every such board.

    ## Exceptions
    Virtual functions and GPUs handed to guests do not count here, but they do count towards a whole
    board. In a container or a job NVML lists what was handed out; a GPU without the NVIDIA driver
    fails there too. A GPU that does not answer on the bus is gpu-alive's.

    ## What to do
    Read `dmesg | grep NVRM` for the named address, then reseat or replace the GPU or power-cycle
    the node. A missing /dev/nvidiaN is made by nvidia-persistenced, or by nvidia-smi run as root.

    For an excluded GPU look for NVreg_ExcludedGpus in modprobe.d.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    - https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
    """
    there = len(scan.functions or gpus.records)
    wrong = wrong_number(there, scan, want) or broken_board(scan, node, want)
    if gpus.problem and not gpus.records and not (scan.functions and wrong):
        gpus.asked()
    if scan.functions is None and want.expected_count is None:
        yield unknown("GPUs", "the PCI bus was not read and the policy expects no number")
        return
    if wrong:
        yield wrong
    if gpus.problem and not gpus.records:
        return
    missing = missing_gpus(scan, gpus)
    yield from (of_missing(one, scan) for one in missing)
    doubts = tuple(doubtful(scan, gpus))
    yield from doubts
    if not wrong and not missing and not doubts:
        yield passes("GPUs", there, expected=want.expected_count or there)


def wrong_number(there: int, scan: GpuScan, want: GpuExpectations) -> Finding | None:
    """The finding for another number than the policy expects, or None."""
    if want.expected_count is None or there == want.expected_count:
        return None
    away = f", {len(scan.handed_out)} more handed to guests" if scan.handed_out else ""
    return fails("GPUs", f"{there} on the PCI bus{away}", there, expected=want.expected_count)


def broken_board(scan: GpuScan, node: Machine, want: GpuExpectations) -> Finding | None:
    """The finding for a board that lacks a GPU, or None: 8 of a kind with those of guests."""
    if not scan.switches or node.is_vm is not False or want.expected_count is not None:
        return None
    there = max(Counter(scan.kinds).values(), default=0)
    if there % BOARD == 0:
        return None
    more = there - there % BOARD + BOARD
    return fails("GPUs", "boards with NVSwitch carry 8", there, expected=more)


def doubtful(scan: GpuScan, gpus: Gpus) -> Iterator[Finding]:
    """What the bus does not explain: it shows every GPU, or none where it is hidden (WSL)."""
    on_bus = {one.address for one in scan.functions or ()}
    for address in scan.untold:
        yield unknown(address, "nothing says what kind of device it is: it may be a GPU")
    for gpu in gpus.records if on_bus else ():
        if gpu.address is not None and gpu.address not in on_bus:
            yield unknown(gpu.subject, "NVML lists it, the PCI bus does not")


def of_missing(one: MissingGpu, scan: GpuScan) -> Finding:
    """Missing is a fault, unless somebody took the GPU away from this process on purpose."""
    if one.withheld:
        return not_applicable(one.address, f"not handed to {scan.confined}, where this runs")
    return (warns if one.excluded else fails)(one.address, one.why, "not in NVML's list")


@check("gpu-alive", severity=Severity.CRITICAL)
def alive(scan: GpuScan, gpus: Gpus) -> Iterator[Finding]:
    """Every GPU answers on the PCI bus and needs no reset.

    ## Why it matters
    A GPU that fell off the bus ends its job, and every collective that waits for it hangs.

    ## Evidence
    The first four bytes of PCI config space (all ones: nobody answers), and NVML's codes
    15 GPU_IS_LOST, 28 GPU_NOT_FOUND and 16 RESET_REQUIRED.

    ## How it is judged
    Any of these is a failure of that GPU. sysfs itself is no evidence: it caches vendor and class.

    ## Exceptions
    A GPU that sleeps under runtime power management reads all ones too and is not judged by that.

    ## What to do
    Drain the node. For a reset stop all jobs and run `nvidia-smi --gpu-reset -i INDEX`; a GPU off
    the bus needs a power cycle. Look for Xid 79 in the kernel log.

    ## References
    - https://docs.nvidia.com/deploy/xid-errors/
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html
    """
    dead = {one.address for one in scan.functions or () if one.dead is True}
    known = {gpu.address for gpu in gpus.records}
    for address in sorted(dead - known):
        yield fails(address, "does not answer on the PCI bus", "config space reads ff")
    for gpu in gpus.records:
        if gpu.lost or gpu.address in dead:
            yield fails(gpu.subject, gpu.lost.reason if gpu.lost else "config space reads ff")
        else:
            answer = gpu.name if isinstance(gpu.name, Absent) else "answers"
            yield expect(answer, "answers", of=gpu.subject)
    if gpus.problem:
        judge = fails if gpus.problem.kind in GONE else unknown
        yield judge("NVML", gpus.problem.sentence)
    elif not gpus.records and not dead:
        gpus.asked()


@check("gpu-product-known", severity=Severity.LOW)
def product_known(scan: GpuScan, gpus: Gpus, want: GpuExpectations) -> Iterator[Finding]:
    """The policy has expectations for this GPU product.

    ## Why it matters
    For an unknown product only the generic expectations hold, so a pass says less.

    ## Evidence
    PCI vendor and device ID from the bus, or from NVML where the bus was not recorded.

    ## How it is judged
    The ID must be one of `gpu.known_pci_ids`.

    ## Exceptions
    Never a failure: a new product is no fault of the node.

    ## What to do
    Write a site policy with `match: {pci_ids: [...]}` for the product, and add the ID to
    `gpu.known_pci_ids` there. `gpuaudit policy from` drafts one from a known-good node.

    ## References
    - https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/README.md
    """
    names = {gpu.address: gpu.subject for gpu in gpus.records}
    ids: dict[str, str | Absent] = {
        names.get(one.address, one.address): one.id for one in scan.functions or ()
    }
    if scan.functions is None:
        ids = {gpu.subject: gpu.pci_id for gpu in gpus.asked()}
    for subject, pci_id in ids.items():
        if isinstance(pci_id, Absent):
            yield expect(pci_id, want.known_pci_ids, of=subject)
        elif pci_id in want.known_pci_ids:
            yield passes(subject, pci_id)
        else:
            yield warns(subject, f"no policy for {pci_id}: generic expectations hold", pci_id)


@check("gpu-recovery-action", severity=Severity.CRITICAL)
def recovery_action(gpus: Gpus) -> Iterator[Finding]:
    """The driver asks for no recovery of a GPU.

    ## Why it matters
    After some errors the driver marks a GPU as usable only after a reset or a reboot. New work on
    it fails or runs with less memory.

    ## Evidence
    NVML field 230, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION.

    ## How it is judged
    The value must be 0, none.

    ## Exceptions
    Drivers before 570 do not have the field: not applicable.

    ## What to do
    Drain the node and do what the finding says: `nvidia-smi --gpu-reset -i INDEX` or a reboot.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlFieldValueEnums.html
    """
    for gpu in gpus.asked():
        action = gpu.recovery_action
        shown = ACTIONS.get(action, f"action {action}") if isinstance(action, int) else action
        yield expect(shown, "none", of=gpu.subject, message=f"the driver asks: {shown}")
