# SPDX-License-Identifier: Apache-2.0
"""Record a machine: everything every probe asks, raw, with what could not be had and why.

A replay gives the verdicts that the machine itself gave, and parsers that are written later find
more than today's ask for. Recording reads; it writes nothing but the recording.
"""

import datetime as dt
import os
import platform
from collections import Counter
from collections.abc import Callable

import msgspec

from gpuaudit import __version__
from gpuaudit.host import Host
from gpuaudit.host.archive import write_archive
from gpuaudit.host.recording import Manifest
from gpuaudit.snapshot.contents import ONLY_PRESENCE, Contents, contents_of
from gpuaudit.snapshot.gather import SUBSYSTEMS, ask_everything

__all__ = ["Recorded", "record", "recorded_at_text"]

NOBODY = 65534
Progress = Callable[[str], None]


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """What was written. `crashed` names probes with a fault of their own: probe -> error."""

    path: str
    size_bytes: int
    files: int
    links: int
    folders: int
    commands: int
    gpus: int
    manifest: Manifest
    crashed: dict[str, str] = {}

    def missing_by_reason(self) -> dict[str, tuple[int, str]]:
        """Gaps other than "it is not there": 'needs root' -> (24, the first such path)."""
        found: dict[str, list[str]] = {}
        for path, gap in sorted(self.manifest.gaps.items()):
            asked = path in self.manifest.statuses  # of a device nobody wants the content
            if gap.kind != "missing" and gap != ONLY_PRESENCE and not asked:
                found.setdefault(self._because(gap.kind), []).append(path)
        largest = sorted(found.items(), key=lambda item: -len(item[1]))
        return {reason: (len(paths), paths[0]) for reason, paths in largest}

    def _because(self, kind: str) -> str:
        needs = "refused even to root" if self.manifest.euid == 0 else "needs root"
        return needs if kind == "denied" else GAP_WORDS[kind]


GAP_WORDS = {
    "hung": "did not answer in time",
    "garbled": "no regular file, or an error when read",
    "unsupported": "not supported by the driver",
    "not-recorded": "too large, or gone while recording",
}


def record(
    host: Host, path: str, *, scrub: bool = False, progress: Progress | None = None
) -> Recorded:
    """Ask `host` everything and write a folder, a .tar.gz or a .tar.zst. Raises SnapshotError."""
    say = progress or (lambda _: None)
    crashed = ask_everything(host, say)
    say("collecting what was read")
    contents = contents_of(host, SUBSYSTEMS)
    if scrub:
        from gpuaudit.snapshot.scrub import scrubbed

        say("replacing what identifies the machine")
        contents = scrubbed(contents)
    made = manifest(contents, root=host.is_root(), scrub=scrub)
    say("writing")
    write_archive(path, contents.named(msgspec.json.format(msgspec.json.encode(made), indent=1)))
    return summary(path, contents, made, crashed)


def manifest(contents: Contents, *, root: bool | None, scrub: bool) -> Manifest:
    """What manifest.json says. `root` is None for a recording of one that does not tell."""
    euid = 0 if root else None if root is None else os.geteuid() or NOBODY
    return Manifest(
        gpuaudit=__version__,
        recorded_at=recorded_at_text(),
        euid=euid,
        scrubbed=scrub,
        versions=versions(contents),
        gaps=dict(sorted(contents.gaps.items())),
        listings=dict(sorted(contents.listings.items())),
        statuses=dict(sorted(contents.statuses.items())),
    )


def recorded_at_text() -> str:
    """Now, in UTC, to the second."""
    return dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def versions(contents: Contents) -> dict[str, str]:
    """Of everything whose release changes what an answer looks like."""
    answers = contents.nvml
    driver = answers.of_system("nvmlSystemGetDriverVersion") if answers else None
    found = {
        "gpuaudit": __version__,
        "python": platform.python_version(),
        "msgspec": msgspec.__version__,
        "kernel": contents.text("/proc/sys/kernel/osrelease"),
        "driver": str(driver.v)
        if driver is not None and driver.ok
        else contents.text("/sys/module/nvidia/version"),
        "nvidia-ml-py": answers.binding if answers else None,
    }
    return {name: version for name, version in found.items() if version}


def summary(path: str, contents: Contents, made: Manifest, crashed: dict[str, str]) -> Recorded:
    """The counts of what was written."""
    kinds = Counter(type(entry) for entry in contents.entries.values())
    return Recorded(
        path=path,
        size_bytes=size_of(path),
        files=kinds[bytes],
        links=kinds[str],
        folders=kinds[type(None)],
        commands=sum(1 for one in contents.commands if one.output is not None),
        gpus=len(contents.nvml.devices) if contents.nvml else 0,
        manifest=made,
        crashed=crashed,
    )


def size_of(path: str) -> int:
    """Bytes on disk, of all files of a folder."""
    if not os.path.isdir(path):
        return os.path.getsize(path)
    files = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(os.lstat(file).st_size for file in files)
