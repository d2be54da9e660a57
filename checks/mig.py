# SPDX-License-Identifier: Apache-2.0
"""Multi-Instance GPU mode."""

from collections.abc import Iterator
from typing import Literal

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Verdict,
    check,
    expect,
    passes,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpu, Gpus, majority

WORDS = {0: "disabled", 1: "enabled"}


class MigExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of MIG."""

    mode: Literal["any", "enabled", "disabled"]


def current(gpu: Gpu) -> str | Absent:
    """The running mode as a word."""
    return gpu.mig if isinstance(gpu.mig, Absent) else WORDS.get(gpu.mig.current, "unknown mode")


@check("mig-mode-settled", severity=Severity.MEDIUM)
def mode_settled(gpus: Gpus) -> Iterator[Finding]:
    """No change of the MIG mode waits for a reset.

    ## Why it matters
    The node changes shape at its next reset: a GPU of seven slices comes back whole, or the other
    way round, and whoever counts on today's shape fails then.

    ## Evidence
    nvmlDeviceGetMigMode: current and pending.

    ## How it is judged
    The two are equal.

    ## Exceptions
    Not applicable on GPUs without MIG.

    ## What to do
    Stop the GPU's users and run `nvidia-smi --gpu-reset -i INDEX`, in a guest reboot it; or take
    the change back with `nvidia-smi -i INDEX -mig 0` (or 1).

    ## References
    - https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
    """
    for gpu in gpus.asked():
        now = current(gpu)
        after = now if isinstance(gpu.mig, Absent) else WORDS.get(gpu.mig.pending, "unknown mode")
        yield expect(now, after, of=gpu.subject, message=f"the change to {after} waits for a reset")


@check("mig-mode-expected", severity=Severity.HIGH)
def mode_expected(gpus: Gpus, want: MigExpectations) -> Iterator[Finding]:
    """MIG is on or off as the policy wants it.

    ## Why it matters
    With MIG on there is no peer access and no NVLink between GPUs, so NCCL across GPUs does not
    work; with MIG off a scheduler that hands out slices has none.

    ## Evidence
    nvmlDeviceGetMigMode, current.

    ## How it is judged
    The mode is `mig.mode`; `any` accepts both.

    ## Exceptions
    Not applicable on GPUs without MIG.

    ## What to do
    Run `nvidia-smi -i INDEX -mig 0` (or 1) while nothing uses the GPU, then reset it. On Ampere the
    mode outlives a reboot, on Hopper and later a service has to set it.

    ## References
    - https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
    """
    for gpu in gpus.asked():
        mode = current(gpu)
        if want.mode == "any" and not isinstance(mode, Absent):
            yield passes(gpu.subject, mode, expected=("enabled", "disabled"))
        else:
            yield expect(mode, want.mode, of=gpu.subject, message=f"MIG is {mode}")


@check("mig-mode-alike", severity=Severity.MEDIUM)
def mode_alike(gpus: Gpus) -> Iterator[Finding]:
    """All GPUs of the node have the same MIG mode.

    ## Why it matters
    One GPU left in MIG mode after a test keeps off every job that wants the whole node.

    ## Evidence
    nvmlDeviceGetMigMode, current, of every GPU that has MIG.

    ## How it is judged
    A mode that differs from the most frequent one is a warning.

    ## Exceptions
    Nodes that are mixed on purpose: skip the check in the site policy. One GPU is not compared.

    ## What to do
    Run `nvidia-smi -i INDEX -mig 0` (or 1) on the named GPU and reset it, or
    `skip: {mig-mode-alike: reason}`.

    ## References
    - https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
    """
    modes = {gpu.subject: current(gpu) for gpu in gpus.asked()}
    usual = majority(mode for mode in modes.values() if not isinstance(mode, Absent))
    if len(modes) < 2:
        raise NotApplicable("there is only one GPU to compare")
    for subject, mode in modes.items():
        yield expect(mode, usual, of=subject, message=f"MIG is {mode}", otherwise=Verdict.WARN)
