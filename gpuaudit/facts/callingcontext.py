# SPDX-License-Identifier: Apache-2.0
"""What the process that started this audit may use: CPUs, memory nodes and GPUs.

A job started from the same place inherits it: sched_setaffinity(2), cpuset(7).
"""

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.boot import in_container
from gpuaudit.facts.cpusets import CpuSetError, parse_list
from gpuaudit.facts.environment import Environment
from gpuaudit.facts.limits import absence
from gpuaudit.host import Host, NotApplicable, Unavailable

STATUS = "/proc/self/status"
CGROUPS = "/sys/fs/cgroup"
DEEPEST = 12
"""Levels of cgroups that are read; Kubernetes has five."""

GPU_LISTS = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
NO_GPU = frozenset({"none", "-1", "NoDevFiles"})
UNNAMED = frozenset({"", "all", "void"})
"""Of NVIDIA_VISIBLE_DEVICES: void is what CDI sets where it hands out the GPUs in another way."""

SCRIPT = "SLURM_SCRIPT_CONTEXT"
OF_SLURMD = (
    "it is that of slurmd (prolog, health check), which CoreSpecCount may hold; jobs get theirs"
)
OF_MONITOR = "it is that of a container that names no GPU: it need not be a job"


class CallingContext(Fact, frozen=True, kw_only=True):
    """Cpus_allowed_list and Mems_allowed_list of /proc/self/status, and the GPUs of a job.

    `gpus` is how many CUDA_VISIBLE_DEVICES, else NVIDIA_VISIBLE_DEVICES, of the calling
    environment names; None where neither limits them. `quota_cpus` is the CPU time a second that
    cpu.max grants its cgroup, or one above it; None without a limit. `not_of_job` says why a
    small set says nothing of jobs (SLURM_SCRIPT_CONTEXT, the processes above this one).
    """

    cpus: frozenset[int] | Absent
    memory_nodes: frozenset[int] | Absent
    gpus: int | None = None
    quota_cpus: float | None = None
    not_of_job: str = ""


@probe
def calling_context(host: Host, environment: Environment) -> CallingContext:
    """Read both sets; never raises."""
    try:
        text = host.read(STATUS)
    except (Unavailable, NotApplicable) as absent:
        why = absence(absent)
        return CallingContext(cpus=why, memory_nodes=why)
    fields = dict(line.partition(":")[::2] for line in text.splitlines())
    return CallingContext(
        cpus=set_of(fields, "Cpus_allowed_list"),
        memory_nodes=set_of(fields, "Mems_allowed_list"),
        gpus=visible_gpus(environment),
        quota_cpus=quota(host),
        not_of_job=why_not_of_job(host, environment, fields.get("PPid", "").strip()),
    )


def why_not_of_job(host: Host, environment: Environment, parent: str) -> str:
    """Why jobs do not inherit this set, "" where nothing says so."""
    script = environment.value(SCRIPT) or ""
    if script.endswith("_slurmd") or (
        parent.isdecimal() and len(parent) < 10 and below_slurmd(host, int(parent))
    ):
        return OF_SLURMD
    named = any((environment.value(name) or "") not in UNNAMED for name in GPU_LISTS)
    return OF_MONITOR if in_container(host) and not named else ""


def below_slurmd(host: Host, pid: int) -> bool:
    """Whether slurmd itself started this, and no slurmstepd, which starts jobs."""
    try:
        table = {one.pid: one for one in host.processes()}
    except (Unavailable, NotApplicable):
        return False
    for _ in range(DEEPEST):
        one = table.get(pid)
        if one is None or one.name == "slurmstepd":
            return False
        if one.name == "slurmd":
            return True
        pid = one.parent or 0
    return False


def quota(host: Host) -> float | None:
    """The smallest cpu.max on the way from the process's cgroup up (cgroup v2 only).

    In a cgroup namespace the way ends at the container's own group.
    """
    lines = (host.optional("/proc/self/cgroup") or "").splitlines()
    path = next((line[3:].rstrip("/") for line in lines if line.startswith("0::/")), None)
    if path is None or "/.." in path:
        return None
    ends = [n for n, letter in enumerate(path) if letter == "/"] + [len(path)]
    texts = (host.optional(f"{CGROUPS}{path[:end]}/cpu.max") for end in ends[-DEEPEST:])
    found = [cpus for text in texts if text and (cpus := time_share(text)) is not None]
    return min(found, default=None)


def time_share(text: str) -> float | None:
    """'400000 100000' -> 4.0; 'max 100000' -> None (Linux Documentation/admin-guide/cgroup-v2)."""
    granted, _, period = text[:40].partition(" ")
    if not (granted.isdecimal() and period.strip().isdecimal() and int(period)):
        return None
    return int(granted) / int(period)


def set_of(fields: dict[str, str], name: str) -> frozenset[int] | Absent:
    """One list of the status file. A kernel without NUMA prints no Mems_allowed."""
    if name not in fields:
        return Absent("missing", f"{STATUS} has no line {name}")
    try:
        found = parse_list(fields[name])
    except CpuSetError as error:
        return Absent("failed", f"{STATUS}: {name}: {error}")
    return found or Absent("failed", f"{STATUS}: {name} is empty")


def visible_gpus(environment: Environment) -> int | None:
    """How many GPUs the environment leaves visible; None for all of them.

    An empty CUDA_VISIBLE_DEVICES hides every GPU, an empty NVIDIA_VISIBLE_DEVICES says nothing.
    """
    mine, container = (environment.value(name) for name in GPU_LISTS)
    container = "all" if (container or "") in UNNAMED else container
    value = (container if mine is None else mine or "none") or "all"
    if value.strip() in NO_GPU:
        return 0
    return None if value.strip() == "all" else len([w for w in value.split(",") if w.strip()])
