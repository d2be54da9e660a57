# SPDX-License-Identifier: Apache-2.0
"""The RDMA software of the running kernel: whose modules, and the way in for programs."""

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.driver import KernelDriver
from gpuaudit.facts.limits import absence
from gpuaudit.facts.rdmaports import RdmaPorts
from gpuaudit.host import Host, NotApplicable, Unavailable

MODULES = ("ib_core", "ib_uverbs", "mlx5_core", "mlx5_ib")
"""MLNX_OFED and DOCA-OFED replace all of these; other vendors' packages only their own driver."""

VERBS = "/sys/class/infiniband_verbs"
NODES = "/dev/infiniband"


class RdmaStack(Fact, frozen=True, kw_only=True):
    """Modules and device files.

    `taints`: loaded module -> /sys/module/M/taint, in which O means built outside of the kernel's
    tree (Linux Documentation/ABI/stable/sysfs-module). Modules that are known not to be loaded,
    or are built in, are left out. `verbs`: RDMA device -> the name of its uverbs device
    (/sys/class/infiniband_verbs/*/ibdev). `nodes`: names in /dev/infiniband.
    """

    taints: dict[str, str | Absent]
    verbs: dict[str, str] | Absent
    nodes: frozenset[str] | Absent


class GdrCopy(Fact, frozen=True, kw_only=True):
    """/sys/module/gdrdrv and /dev/gdrdrv (NVIDIA GDRCopy)."""

    module: bool | Absent
    node: bool | Absent


@probe
def rdma_stack(host: Host, ports: RdmaPorts) -> RdmaStack:
    """Read the modules and the device files. Needs RDMA devices to be of interest."""
    del ports
    texts = {module: taint(host, module) for module in MODULES}
    return RdmaStack(
        taints={module: text for module, text in texts.items() if text is not None},
        verbs=verbs(host),
        nodes=nodes(host),
    )


def taint(host: Host, module: str) -> str | Absent | None:
    """The letters of one module, None when it is known to have no such file."""
    try:
        return host.read(f"/sys/module/{module}/taint")
    except Unavailable as absent:
        return None if absent.kind == "missing" else absence(absent)


def verbs(host: Host) -> dict[str, str] | Absent:
    """Known not to be there: none. Else why it could not be read."""
    try:
        names = host.list(VERBS) if host.exists(VERBS) else ()
        return {host.read(f"{VERBS}/{n}/ibdev"): n for n in names if n.startswith("uverbs")}
    except Unavailable as absent:
        return absence(absent)


def nodes(host: Host) -> frozenset[str] | Absent:
    """Known not to be there: none. Else why it could not be read."""
    try:
        return frozenset(host.list(NODES) if host.exists(NODES) else ())
    except Unavailable as absent:
        return absence(absent)


@probe
def gdr_copy(host: Host, driver: KernelDriver) -> GdrCopy:
    """Of interest only where there is a GPU. Never raises by itself: most policies do not ask."""
    del driver
    return GdrCopy(module=there(host, "/sys/module/gdrdrv"), node=there(host, "/dev/gdrdrv"))


def there(host: Host, path: str) -> bool | Absent:
    """Whether a path is there, or why that is not known."""
    try:
        return host.exists(path)
    except (Unavailable, NotApplicable) as absent:
        return absence(absent)
