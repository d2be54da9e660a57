# SPDX-License-Identifier: Apache-2.0
"""CPUs that the scheduler leaves alone, and CPUs without a tick.

Sources: Linux Documentation/admin-guide/kernel-parameters.txt (isolcpus, nohz_full),
drivers/base/cpu.c (print_cpus_isolated, print_cpus_nohz_full), admin-guide/cgroup-v2.rst
(cpuset.cpus.isolated of the root).
"""

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.cpu import FOLDER, read_cpu_set
from gpuaudit.host import Host

PARTITIONS = "/sys/fs/cgroup/cpuset.cpus.isolated"


class IsolatedCpus(Fact, frozen=True, kw_only=True):
    """/sys/devices/system/cpu/{isolated,nohz_full}, /sys/fs/cgroup/cpuset.cpus.isolated.

    A kernel without one of these files isolates nothing in that way.
    """

    isolated: frozenset[int] | Absent
    nohz_full: frozenset[int] | Absent


@probe
def isolated_cpus(host: Host) -> IsolatedCpus:
    """Read the sets; a cpuset partition counts like isolcpus."""
    isolated, later = of_kernel(host, f"{FOLDER}/isolated"), read_cpu_set(host, PARTITIONS)
    if not isinstance(isolated, Absent) and not isinstance(later, Absent):
        isolated |= later
    return IsolatedCpus(isolated=isolated, nohz_full=of_kernel(host, f"{FOLDER}/nohz_full"))


def of_kernel(host: Host, path: str) -> frozenset[int] | Absent:
    """A set; kernels before 6.8 print (null) where the parameter was not given."""
    if host.optional(path) == "(null)":
        return frozenset()
    found = read_cpu_set(host, path)
    return frozenset() if isinstance(found, Absent) and found.kind == "unsupported" else found
