# SPDX-License-Identifier: Apache-2.0
"""Locked memory in every context that starts jobs."""

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Unavailable,
    check,
    expect,
    fails,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.daemons import JobDaemons
from gpuaudit.facts.docker import DockerLimits
from gpuaudit.facts.limits import ProcessLimits, RdmaNeed, Reading, show_bytes, show_limit
from gpuaudit.facts.manager import DefaultLimits
from gpuaudit.facts.pam import LoginLimits
from gpuaudit.facts.slurm import SlurmLimits

Findings = Iterator[Finding]
OWN_LIMITS = "units may set limits of their own"
EXEMPT = "CAP_IPC_LOCK exempts this process, and not the jobs of users"
MAY_ASK = "those that get IPC_LOCK or a --ulimit of their own are exempt"


class LimitsExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of locked memory."""

    memlock_gib: Literal["unlimited"] | Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
    memlock_without_rdma: Literal["warn", "fail"]
    memlock_systemd_default: Literal["warn", "fail"]
    memlock_containers: Literal["warn", "fail"]


@check("limits-memlock-process", severity=Severity.HIGH)
def memlock_process(process: ProcessLimits, need: RdmaNeed, want: LimitsExpectations) -> Finding:
    """What started this audit may lock as much memory as RDMA needs.

    ## Why it matters
    In a prolog or a job this is the limit jobs get. Above it ibv_reg_mr() fails and NCCL stops.
    ## Evidence
    /proc/self/limits, CapEff in /proc/self/status, /sys/class/infiniband, MemTotal.
    ## How it is judged
    The soft limit, and so the hard one, must reach `limits.memlock_gib` or all memory of the node.
    ## Exceptions
    Without RDMA devices it warns: host memory that CUDA pins is not charged to this limit. So it
    does with CAP_IPC_LOCK (root, privileged containers), which the kernel exempts.
    ## What to do
    Set `LimitMEMLOCK=infinity` in the unit that starts jobs and restart it. In a container the
    runtime sets the limit: `docker run --ulimit memlock=-1`.
    ## References
    - https://github.com/torvalds/linux/blob/master/drivers/infiniband/core/umem.c
    """
    advisory = EXEMPT if process.may_lock_anyway else ""
    return judge(msgspec.structs.replace(process.reading, advisory=advisory), need, want)


@check("limits-memlock-systemd", severity=Severity.MEDIUM)
def memlock_systemd(defaults: DefaultLimits, need: RdmaNeed, want: LimitsExpectations) -> Findings:
    """Services without a limit of their own may lock as much as RDMA needs.

    ## Why it matters
    systemd gives 8 MiB to every service that asks for nothing else: enough for a few queue pairs
    and a small buffer.
    ## Evidence
    `systemctl show`, and system.conf with its drop-ins for the next boot.
    ## How it is judged
    As limits-memlock-process, now and at the next boot. It only warns unless
    `limits.memlock_systemd_default` says fail, since the services that start jobs are judged one by
    one.
    ## Exceptions
    Not applicable where systemd does not run. The limits of process 1 itself say nothing.
    ## What to do
    Write `[Manager]` and `DefaultLimitMEMLOCK=infinity` to
    /etc/systemd/system.conf.d/90-memlock.conf and reboot.
    ## References
    - https://www.freedesktop.org/software/systemd/man/latest/systemd-system.conf.html
    """
    advisory = OWN_LIMITS if want.memlock_systemd_default == "warn" else ""
    for reading in (defaults.running, defaults.next_boot):
        yield judge(msgspec.structs.replace(reading, advisory=advisory), need, want)


@check("limits-memlock-slurmd", severity=Severity.HIGH)
def memlock_slurmd(
    daemons: JobDaemons, slurm: SlurmLimits, need: RdmaNeed, want: LimitsExpectations
) -> Findings:
    """Slurm gives jobs as much locked memory as RDMA needs.

    ## Why it matters
    A job inherits the limits of slurmd, or of the submit host where Slurm propagates them.
    ## Evidence
    /proc/<pid>/limits of slurmd, its unit with drop-ins for the next boot, slurm.conf.
    ## How it is judged
    As limits-memlock-process. What only the next boot brings, and a slurm.conf that propagates
    MEMLOCK, warn.
    ## Exceptions
    Not applicable without slurmd. Propagation does no harm where login nodes have no limit.
    ## What to do
    Set `LimitMEMLOCK=infinity` in a drop-in of slurmd.service and restart slurmd; set
    `PropagateResourceLimitsExcept=MEMLOCK` in slurm.conf.
    ## References
    - https://slurm.schedmd.com/slurm.conf.html#OPT_PropagateResourceLimitsExcept
    """
    yield from judge_all(daemons.contexts["slurmd"], need, want)
    if slurm.propagates_memlock is True:
        message = "the soft limit of the submit host replaces that of slurmd"
        yield warns(slurm.where, message, "MEMLOCK is propagated", expected="not propagated")
    else:
        yield expect(slurm.propagates_memlock, expected=False, of=slurm.where)


@check("limits-memlock-containerd", severity=Severity.HIGH)
def memlock_containerd(daemons: JobDaemons, need: RdmaNeed, want: LimitsExpectations) -> Findings:
    """Pods and containers may lock as much memory as RDMA needs.

    ## Why it matters
    A pod has no field for ulimits: it inherits the limits of containerd or CRI-O.
    ## Evidence
    /proc/<pid>/limits of containerd and crio, and their units with drop-ins for the next boot.
    ## How it is judged
    As limits-memlock-process. What only the next boot brings warns while the system runs.
    ## Exceptions
    Not applicable without either. A unit that is installed and not enabled is judged too.
    ## What to do
    Set `LimitMEMLOCK=infinity` in a drop-in of containerd.service (or crio.service), restart it,
    and restart the pods.
    ## References
    - https://github.com/kubernetes/kubernetes/issues/3595
    """
    yield from judge_all(handed_down(daemons.contexts["containerd"], want), need, want)


@check("limits-memlock-docker", severity=Severity.HIGH)
def memlock_docker(docker: DockerLimits, need: RdmaNeed, want: LimitsExpectations) -> Findings:
    """Docker gives containers as much locked memory as RDMA needs.

    ## Why it matters
    `docker run` without --ulimit hands down Docker's default, which is containerd's own limit.
    ## Evidence
    default-ulimits in /etc/docker/daemon.json or --default-ulimit in docker.service, else the
    limits of containerd: running, and by its unit for the next boot.
    ## How it is judged
    As limits-memlock-process. It only warns unless `limits.memlock_containers` says fail, since a
    container may be started with `--ulimit memlock=-1`.
    ## Exceptions
    Not applicable without Docker. A file changed after dockerd started counts from its restart on.
    ## What to do
    Set `"default-ulimits": {"memlock": {"Name": "memlock", "Soft": -1, "Hard": -1}}` in
    /etc/docker/daemon.json and restart docker, or start containers with `--ulimit memlock=-1`.
    ## References
    - https://docs.docker.com/reference/cli/dockerd/
    """
    yield from judge_all(handed_down(docker.readings, want), need, want)


@check("limits-memlock-kubelet", severity=Severity.LOW)
def memlock_kubelet(daemons: JobDaemons, need: RdmaNeed, want: LimitsExpectations) -> Findings:
    """Kubelet, k3s and rke2 may lock as much memory as RDMA needs.

    ## Why it matters
    k3s and rke2 start containerd themselves, so pods inherit their limit.
    ## Evidence
    /proc/<pid>/limits of kubelet, k3s and rke2, and their units for the next boot.
    ## How it is judged
    As limits-memlock-containerd. A plain kubelet only warns: it starts no container itself.
    ## Exceptions
    Not applicable where none of them is part of the node.
    ## What to do
    Set `LimitMEMLOCK=infinity` in a drop-in of the unit and restart it.
    ## References
    - https://docs.k3s.io/architecture
    """
    yield from judge_all(handed_down(daemons.contexts["kubelet"], want), need, want)


@check("limits-memlock-login", severity=Severity.MEDIUM)
def memlock_login(login: LoginLimits, need: RdmaNeed, want: LimitsExpectations) -> Findings:
    """Ordinary users who log in may lock as much memory as RDMA needs.

    ## Why it matters
    mpirun and torchrun over SSH start their workers in such sessions.
    ## Evidence
    limits.conf and limits.d where sshd's PAM stack has pam_limits, over the limits of sshd.
    ## How it is judged
    As limits-memlock-process, for lines that hold for every user: `*` and open uid ranges.
    ## Exceptions
    Not applicable without sshd. Lines for single users and groups are named as evidence only.
    ## What to do
    Write `* - memlock unlimited` to /etc/security/limits.d/90-memlock.conf and log in again. It
    needs `UsePAM yes` and pam_limits.so in the session part of /etc/pam.d/sshd.
    ## References
    - https://man7.org/linux/man-pages/man5/limits.conf.5.html
    """
    yield from judge_all(login.readings, need, want)


def handed_down(
    readings: tuple[Reading, ...] | Absent, want: LimitsExpectations
) -> tuple[Reading, ...] | Absent:
    """Readings of a container runtime, as advice where the policy says so."""
    if isinstance(readings, Absent) or want.memlock_containers == "fail":
        return readings
    return tuple(msgspec.structs.replace(r, advisory=r.advisory or MAY_ASK) for r in readings)


def judge_all(
    readings: tuple[Reading, ...] | Absent, need: RdmaNeed, want: LimitsExpectations
) -> Findings:
    """One finding a reading. Raises NotApplicable or Unavailable where there is none."""
    if isinstance(readings, Absent):
        absent = NotApplicable if readings.kind == "unsupported" else Unavailable
        raise absent(readings.reason)
    return (judge(reading, need, want) for reading in readings)


def judge(reading: Reading, need: RdmaNeed, want: LimitsExpectations) -> Finding:
    """Locked memory: soft and hard limit against the policy and the memory of the node."""
    limit, gib = reading.memlock, want.memlock_gib
    if isinstance(limit, Absent):
        return expect(limit, None, of=reading.subject)
    wanted = None if gib == "unlimited" else gib << 30
    fields = {"expected": show_bytes(wanted), "evidence": reading.evidence}
    if need.satisfied_by(limit, wanted):
        return passes(reading.subject, show_limit(limit), **fields)
    matters = need.has_devices or want.memlock_without_rdma == "fail"
    strict = matters and (reading.now or need.image) and not reading.advisory
    answer = fails if strict else warns
    remark = need.remark(reading, limit.hard, wanted)
    message = f"locked memory is limited to {show_limit(limit)}{remark}"
    return answer(reading.subject, message, show_limit(limit), cost=need.cost(limit), **fields)
