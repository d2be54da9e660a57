# SPDX-License-Identifier: Apache-2.0
"""IMEX: only where a domain of several nodes is configured, and then with its channels."""

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Unavailable,
    Verdict,
    check,
    expect,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpuscan import GpuScan
from gpuaudit.facts.imex import CHANNELS, DAEMON, NODES, Imex

UNTOLD = "which GPUs this machine has was not recorded"
ELSEWHERE = "IMEX runs on a host that is running, not in a container or an image"
NO_NEIGHBOURS = "this product has no NVLink between nodes"
NO_DOMAIN = "no IMEX domain of several nodes is configured"


class FabricImexExpectations(Expectations, frozen=True, kw_only=True):
    """Whether the product has NVLink between nodes."""

    multi_node: bool


@check("fabric-imex", severity=Severity.HIGH)
def imex(scan: GpuScan, found: Imex, want: FabricImexExpectations) -> Finding:
    """IMEX runs where a domain is configured, and nowhere else.

    ## Why it matters
    In an NVLink domain of several nodes CUDA shares memory between them through IMEX only. Without
    it jobs fall back to the network. On a single node it has nothing to do.

    ## Evidence
    /etc/nvidia-imex/nodes_config.cfg, nvidia-imex in the process table.

    ## How it is judged
    With two nodes or more in the list the daemon has to run: a warning if not, because schedulers
    start it with the job. On products without NVLink between nodes a running daemon is a warning.

    ## Exceptions
    Not applicable without a list and without a daemon, in containers, and in an image.

    ## What to do
    Run `systemctl start nvidia-imex`, then `nvidia-imex-ctl -N` to see the nodes of the domain; on
    a single node `systemctl disable --now nvidia-imex`.

    ## References
    - https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/deployment.html
    """
    if scan.in_container or scan.image:
        raise NotApplicable(ELSEWHERE)
    if not want.multi_node and scan.functions is None:
        raise Unavailable(UNTOLD, "not-recorded")
    if not want.multi_node:
        if found.running is True:
            return warns(DAEMON, "it runs, though this product has no NVLink between nodes", "runs")
        raise NotApplicable(NO_NEIGHBOURS)
    if isinstance(found.nodes, int) and found.nodes < 2:
        raise NotApplicable(NO_DOMAIN)
    absent = next((one for one in (found.nodes, found.running) if isinstance(one, Absent)), None)
    if absent is not None:
        return expect(absent, None, of=DAEMON)
    state = "runs" if found.running else "does not run"
    text = f"{NODES} lists {found.nodes} nodes, but the daemon {state}"
    return expect(state, "runs", of=DAEMON, message=text, otherwise=Verdict.WARN)


@check("fabric-imex-channels", severity=Severity.MEDIUM)
def imex_channels(scan: GpuScan, found: Imex, want: FabricImexExpectations) -> Finding:
    """An IMEX channel is there for jobs to use.

    ## Why it matters
    A job that shares memory between nodes opens a channel; without one CUDA says that permission
    is missing, and jobs fail or fall back to the network.

    ## Evidence
    /dev/nvidia-caps-imex-channels, where a domain is configured and the daemon runs.

    ## How it is judged
    At least one channel is there: a warning if not, because schedulers make them with the job.

    ## Exceptions
    Not applicable without a domain or without its daemon (fabric-imex), on products without NVLink
    between nodes, in containers and in an image. Channels do not outlive a reboot.

    ## What to do
    Load the driver with NVreg_CreateImexChannel0=1, or make channel0 with mknod as the guide shows.

    ## References
    - https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/imexchannels.html
    """
    if scan.in_container or scan.image:
        raise NotApplicable(ELSEWHERE)
    if not want.multi_node and scan.functions is None:
        raise Unavailable(UNTOLD, "not-recorded")
    if not want.multi_node:
        raise NotApplicable(NO_NEIGHBOURS)
    absent = next((one for one in (found.nodes, found.running) if isinstance(one, Absent)), None)
    if absent is not None:
        return expect(absent, None, of=CHANNELS)
    if not found.running or (isinstance(found.nodes, int) and found.nodes < 2):
        raise NotApplicable(NO_DOMAIN)
    known = found.channels if isinstance(found.channels, Absent) else found.channels > 0
    text = "there is no channel"
    return expect(known, expected=True, of=CHANNELS, message=text, otherwise=Verdict.WARN)
