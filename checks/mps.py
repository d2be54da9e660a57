# SPDX-License-Identifier: Apache-2.0
"""The Multi-Process Service of CUDA."""

from collections.abc import Iterator
from typing import Literal

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    expect,
    fails,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpus
from gpuaudit.facts.mps import Mps

MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
"""nvmlComputeMode_t of nvml.h."""

DAEMON = "MPS control daemon"
Findings = Iterator[Finding]


class MpsExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of MPS."""

    daemon: Literal["any", "running", "absent"]


@check("mps-daemon", severity=Severity.MEDIUM)
def daemon(mps: Mps, want: MpsExpectations) -> Findings:
    """The MPS control daemon runs, or does not, as the policy wants.

    ## Why it matters
    While the daemon runs, every CUDA program becomes its client without being asked: the fault of
    one takes the others with it, and a job of another user waits until the server has ended.

    ## Evidence
    nvidia-cuda-mps-control and its server in the process table; the user each belongs to.

    ## How it is judged
    By `mps.daemon`: `running` fails without it, `absent` fails with it, `any` accepts both. A dead
    process that nobody has collected warns, and so do servers of several users at once.

    ## Exceptions
    A container does not see the processes of its node: not applicable, and unknown where the policy
    asks for one of the two.
    Slurm starts one daemon a job for --gres=mps, and those of several jobs stand side by side.

    ## What to do
    End it with `echo quit | nvidia-cuda-mps-control`, start it with `nvidia-cuda-mps-control -d`.

    ## References
    - https://docs.nvidia.com/deploy/mps/index.html
    """
    if mps.hidden is not None and not mps.daemons:
        if want.daemon == "any":
            raise NotApplicable(mps.hidden.reason)
        yield expect(mps.hidden, None, of=DAEMON)
        return
    yield judge_daemon(mps, want)
    users = {user for user in mps.servers.values() if user is not None}
    if len(users) > 1:
        yield warns("MPS servers", f"servers of {len(users)} users run", len(mps.servers))
    if mps.orphans:
        message = "a process of MPS died and is still in the process table"
        yield warns("MPS processes", message, f"PID {', '.join(map(str, mps.orphans))}")


def judge_daemon(mps: Mps, want: MpsExpectations) -> Finding:
    """Running or not against the policy."""
    state = "running" if mps.daemons else "absent"
    if want.daemon in {"any", state}:
        return passes(DAEMON, state, expected=want.daemon)
    pids = f" (process {', '.join(map(str, mps.daemons))})" if mps.daemons else ""
    return fails(DAEMON, f"it is {state}{pids}", state, expected=want.daemon)


@check("mps-compute-mode", severity=Severity.LOW)
def compute_mode(mps: Mps, gpus: Gpus) -> Findings:
    """While MPS runs, GPUs accept nobody but its server.

    ## Why it matters
    In the mode `default` a program that misses the daemon, because its pipe folder is another,
    takes its own share of the GPU beside the server, and all of them run in turns.

    ## Evidence
    The MPS control daemon in the process table; nvmlDeviceGetComputeMode.

    ## How it is judged
    With a daemon, a GPU in another mode than exclusive-process warns.

    ## Exceptions
    Not applicable without a daemon. A daemon for one GPU alone leaves the others in `default`, as
    does one that a user has started; a GPU with MIG has no exclusive mode of its own before
    release 525 of the driver.

    ## What to do
    Run `nvidia-smi -c EXCLUSIVE_PROCESS` before the daemon starts.

    ## References
    - https://docs.nvidia.com/deploy/mps/index.html
    """
    if not mps.daemons:
        raise NotApplicable(mps.hidden.reason if mps.hidden else "no MPS control daemon runs here")
    if 0 not in mps.daemons.values() and None not in mps.daemons.values():
        raise NotApplicable("the MPS control daemon belongs to a user, who cannot set the mode")
    for gpu in gpus.asked():
        if isinstance(gpu.compute_mode, Absent):
            yield expect(gpu.compute_mode, None, of=gpu.subject)
            continue
        mode = MODES.get(gpu.compute_mode, str(gpu.compute_mode))
        good = mode == "exclusive-process"
        message = f"programs can go past MPS: the compute mode is {mode}"
        answer = passes(gpu.subject, mode) if good else warns(gpu.subject, message, mode)
        yield answer
