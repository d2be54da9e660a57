# SPDX-License-Identifier: Apache-2.0
"""What is mounted, whether it answers, and how much room there is."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.fstab import Line, fstab, plain
from gpuaudit.facts.limits import absence
from gpuaudit.facts.memory import MOUNTS
from gpuaudit.host import Host, NotApplicable, Unavailable

LOCAL = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "xfs", "zfs"})
NETWORK = frozenset(
    {
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "gpfs",
        "glusterfs",
        "lustre",
        "nfs",
        "nfs4",
        "orangefs",
        "panfs",
        "quobyte",
        "smb3",
        "wekafs",
    }
)
NETWORK_FUSE = (
    "alluxio", "beegfs", "blobfuse", "ceph", "cosfs", "dfuse", "gcsfuse", "glusterfs", "goofys",
    "hdfs", "hf3fs", "juicefs", "mfs", "mount-s3", "mountpoint-s3", "obsfs", "ossfs", "quobyte",
    "rclone", "s3fs", "seaweedfs", "sshfs", "weed",
)  # fmt: skip
MEMORY = frozenset({"devtmpfs", "overlay", "ramfs", "rootfs", "tmpfs"})
OF_ROOT = "user_id=0"
COSTLY = {
    "sync": "each write waits for the drive",
    "dirsync": "each change of a folder waits for the drive",
    "strictatime": "each read writes the time of access",
    "relatime": "the first read of a file in a day writes the time of access",
}
"""Options of mount(8), and what they cost."""

FOREIGN = ("/proc/", "/sys/", "/dev/", "/run/", "/var/lib/kubelet/", "/var/lib/docker/",
           "/var/lib/containerd/", "/var/lib/containers/", "/snap/", "/etc/")  # fmt: skip
"""Below them other programs mount for their own ends, often hundreds of folders."""


class Mount(NamedTuple):
    """One mount. `options` are those of the mount, `super_options` those of its file system."""

    folder: str
    type: str
    source: str
    options: tuple[str, ...]
    super_options: tuple[str, ...]

    @property
    def all_options(self) -> frozenset[str]:
        """Both."""
        return frozenset((*self.options, *self.super_options))

    @property
    def network(self) -> bool:
        """A file system whose data is on another machine. FUSE without a subtype: by its source.

        What a user mounted for itself alone answers nobody else, root included (mount.fuse3(8)).
        """
        kind, _, name = self.type.partition(".")
        named = (name or self.source).lower()
        users = any(o.startswith("user_id=") and o != OF_ROOT for o in self.super_options)
        own = users and "allow_other" not in self.super_options
        return kind in NETWORK or (kind == "fuse" and not own and named.startswith(NETWORK_FUSE))


class Space(NamedTuple):
    """statvfs(2), as a user sees it. A file system without a fixed number of inodes has 0."""

    total_kib: int
    free_kib: int
    inodes: int
    free_inodes: int


class Mounts(Fact, frozen=True, kw_only=True):
    """/proc/self/mountinfo: the topmost mount of each folder (proc_pid_mountinfo(5))."""

    mounts: tuple[Mount, ...]

    def over(self, path: str) -> Mount | None:
        """The mount that a path is on."""
        fits = [m for m in self.mounts if is_below(path, m.folder)]
        return max(fits, key=lambda mount: len(mount.folder), default=None)


class NetworkMounts(Fact, frozen=True, kw_only=True):
    """Which mounts of network file systems answer statvfs(2) in time. Autofs is not woken up."""

    answers: dict[Mount, Space | Absent]


class FileSystemSpace(Fact, frozen=True, kw_only=True):
    """Room on local file systems, by folder: statvfs(2)."""

    by_mount: dict[Mount, Space | Absent]


class ConfiguredMounts(Fact, frozen=True, kw_only=True):
    """/etc/fstab.

    `links`: folders without a mount that are links, and where they lead: that is where mount(8)
    mounts.
    """

    lines: tuple[Line, ...]
    links: dict[str, str] = msgspec.field(default_factory=dict)


@probe
def mounts(host: Host) -> Mounts:
    """Parse the table. Raises Unavailable."""
    found: dict[str, Mount] = {}
    for line in host.read(MOUNTS).split("\n"):
        front, _, back = line.partition(" - ")
        fields, kind = front.split(" "), back.split(" ")
        if len(fields) > 5 and len(kind) > 2:
            folder = plain(fields[4])
            found.pop(folder, None)
            found[folder] = Mount(
                folder,
                kind[0],
                plain(kind[1]),
                tuple(fields[5].split(",")),
                tuple(kind[2].strip().split(",")),
            )
    if not found:
        raise Unavailable(f"{MOUNTS} names no mount", "garbled")
    return Mounts(mounts=tuple(found.values()))


@probe
def network_mounts(host: Host, table: Mounts) -> NetworkMounts:
    """Ask one after the other until one is silent: its wait is all the time there is.

    Raises NotApplicable.
    """
    found = [mount for mount in table.mounts if mount.network]
    if not found:
        raise NotApplicable("no network file system is mounted")
    answers: dict[Mount, Space | Absent] = {}
    silent = ""
    for mount in found:
        if silent:
            answers[mount] = Absent("failed", f"not asked, since {silent} does not answer")
            continue
        answers[mount] = told = space(host, mount.folder)
        if isinstance(told, Absent) and "did not answer" in told.reason:
            silent = mount.folder
    return NetworkMounts(answers=answers)


@probe
def file_system_space(host: Host, table: Mounts) -> FileSystemSpace:
    """Ask local file systems, each device once, and memory file systems on /tmp and the like."""
    chosen: dict[str, Mount] = {}
    for mount in sorted(table.mounts, key=lambda one: len(one.folder)):
        if is_judged(mount):
            chosen.setdefault(identity(mount), mount)
    return FileSystemSpace(by_mount={one: space(host, one.folder) for one in chosen.values()})


@probe
def configured_mounts(host: Host) -> ConfiguredMounts:
    """Raises Unavailable."""
    lines = fstab(host)
    return ConfiguredMounts(lines=lines, links=links(host, {one.folder for one in lines}))


def links(host: Host, folders: set[str]) -> dict[str, str]:
    """Links among folders of local file systems: a look at others may wait for their server."""
    try:
        table = mounts(host)
    except (Unavailable, NotApplicable):
        return {}
    mounted = {mount.folder for mount in table.mounts}
    real = {f: real_place(host, table, f) for f in folders - mounted if f.startswith("/")}
    return {folder: place for folder, place in real.items() if place and place != folder}


def real_place(host: Host, table: Mounts, folder: str) -> str | None:
    """Where a folder without a mount is, if that can be asked safely and is known."""
    below = table.over(folder)
    if below is None or below.type not in LOCAL | MEMORY:
        return None
    try:
        return host.resolve(folder)
    except (Unavailable, NotApplicable):
        return None


def is_judged(mount: Mount) -> bool:
    """A local, writable file system that no other program mounted for itself.

    A service's sandbox may see it read-only (ProtectSystem= of systemd.exec(5)): that is the mount.
    """
    ours = not mount.folder.startswith(FOREIGN)
    scratch = mount.type == "tmpfs" and mount.folder in {"/tmp", "/var/tmp", "/scratch"}  # noqa: S108 - folders that are audited
    kinds = mount.type in LOCAL or scratch or (mount.type == "overlay" and mount.folder == "/")
    return ours and kinds and "ro" not in mount.super_options


def identity(mount: Mount) -> str:
    """What makes two mounts the same file system: the device, if there is one."""
    return mount.source if mount.source.startswith("/") else mount.folder


def is_below(path: str, folder: str) -> bool:
    """True for the folder itself too."""
    return folder in {"/", path} or path.startswith(f"{folder}/")


def space(host: Host, folder: str) -> Space | Absent:
    """One statvfs, patiently; a file system that answers with an error is Absent too."""
    try:
        said = host.run("@statvfs", folder)
    except (Unavailable, NotApplicable) as absent:
        return absence(absent)
    if said.returncode:
        return Absent("failed", f"{folder} answers: {said.stderr}")
    try:
        known: dict[str, Any] = msgspec.json.decode(said.stdout)
        return Space(*numbers(known[name] for name in Space._fields))
    except (msgspec.DecodeError, KeyError, RecursionError, TypeError, ValueError):
        return Absent("failed", f"{folder}: the answer {said.stdout[:40]!r} makes no sense")


def numbers(values: Iterable[Any]) -> list[int]:
    """Raises ValueError for what is no count."""
    found = list(values)
    if not all(isinstance(value, int) and 0 <= value < 1 << 64 for value in found):
        raise ValueError(found)
    return found
