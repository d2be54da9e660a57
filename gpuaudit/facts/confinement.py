# SPDX-License-Identifier: Apache-2.0
"""What hides the node from this process: a container, a pod, a job's device cgroup."""

import re

from gpuaudit.host import Host, Unavailable

MARKS = {
    "/.dockerenv": "a Docker container",
    "/run/.containerenv": "a Podman container",
    "/run/systemd/container": "a container",
    "/var/run/secrets/kubernetes.io": "a Kubernetes pod",
}
JOBS = ("a Slurm job", "a PBS job", "an LSF job")
CGROUPS = {  # patterns; docker.service and units of a like name are the node's own
    "kubepods": "a Kubernetes pod",
    "/docker/|/docker-[0-9a-f]{12}": "a Docker container",
    "/job_": JOBS[0],
    "/pbs_jobs": JOBS[1],
    "/lsf/": JOBS[2],
}
KERNEL = "kthreadd"
"""Process 2 on every machine, seen by none in a PID namespace (Linux init/main.c, rest_init)."""

ROOT_MOUNT = re.compile(r"^\d+ \d+ \S+ (\S+) / .* - (\S+) ", re.MULTILINE)


def confinement(host: Host) -> str | None:
    """The name of what confines this process, None for nothing."""
    kernel_seen = sees_kernel(host)
    mark = next((what for path, what in MARKS.items() if is_there(host, path)), None)
    if mark is not None and not (kernel_seen and has_own_root(host)):
        return mark
    groups = host.optional("/proc/self/cgroup") or ""
    named = next((what for word, what in CGROUPS.items() if re.search(word, groups)), None)
    return named or ("a container" if kernel_seen is False else None)


def is_there(host: Host, path: str) -> bool:
    """True when the mark is known to be there."""
    try:
        return host.exists(path)
    except Unavailable:
        return False


def sees_kernel(host: Host) -> bool | None:
    """Whether the kernel's own process 2 is to be seen; None when process 1 is not either."""
    try:
        names = {one.pid: one.name for one in host.processes()}
    except Unavailable:
        return None
    return names.get(2) == KERNEL if 1 in names else None


def has_own_root(host: Host) -> bool:
    """Whether / is a file system of its own, and no layer or folder of somebody else's.

    The image of a virtual machine may have been made from a container's and keep its mark.
    """
    found = ROOT_MOUNT.findall(host.optional("/proc/self/mountinfo") or "")
    return bool(found) and found[-1][0] == "/" and "overlay" not in found[-1][1]
