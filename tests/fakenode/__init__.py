# SPDX-License-Identifier: Apache-2.0
"""A complete made-up machine with 8 GPUs, healthy until a test breaks something.

The same FakeNode becomes a Host in memory, a snapshot folder, an archive, or the root of a live
machine. Everything a check reads is there; what is not there is known to be missing.
"""

import copy
import json
import posixpath
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from trees import Link, write_tree

from fakenode.classes import class_files
from fakenode.commands import commands
from fakenode.cpus import cpu_files
from fakenode.driver import driver_files
from fakenode.environment import device_statuses, environment_files
from fakenode.hostconfig import hostconfig_files
from fakenode.hoststate import hoststate_commands, hoststate_files
from fakenode.kernellog import kernel_log_files
from fakenode.network import network_commands, network_files
from fakenode.nvml import nvml_document
from fakenode.pci import pci_files
from fakenode.pciextra import pciextra_files
from fakenode.rdma import rdma_files
from fakenode.settings import settings_files
from fakenode.storage import storage_commands, storage_files
from fakenode.system import process_table, system_files
from fakenode.values import Answers, Files
from gpuaudit.host import Host
from gpuaudit.host.archive import write_archive
from gpuaudit.host.memory import Entry, MemoryTree
from gpuaudit.host.recording import Recording

__all__ = ["FakeNode", "Link", "healthy_node"]


class FakeNode:
    """Files by absolute path, and the answers that are no files."""

    def __init__(
        self,
        files: Files,
        nvml: Answers,
        processes: list[dict[str, Any]],
        commands: list[dict[str, Any]],
        udev: dict[str, list[dict[str, str]]],
    ) -> None:
        self.files = files
        self.nvml = nvml
        self.processes = processes
        self.commands = commands
        self.udev = udev
        self.euid = 0
        self.gaps: dict[str, dict[str, str]] = {}
        self.statuses: dict[str, list[Any]] = {}

    def copied(self) -> "FakeNode":
        """A node of its own, to break."""
        node = FakeNode(
            dict(self.files),
            json.loads(json.dumps(self.nvml)),
            copy.deepcopy(self.processes),
            copy.deepcopy(self.commands),
            copy.deepcopy(self.udev),
        )
        node.euid, node.gaps = self.euid, dict(self.gaps)
        node.statuses = copy.deepcopy(self.statuses)
        return node

    def host(self) -> Host:
        """As a snapshot held in memory: what an archive becomes once it is open."""
        tree = MemoryTree.of({f"/{name}": entry for name, entry in self.entries().items()}, "fake")
        return Host(tree.below("/root"), "snapshot", recording=Recording(tree, "/", "fake"))

    def write(self, folder: Path) -> Path:
        """As a snapshot folder, which must not exist yet."""
        write_archive(str(folder), self.entries().items())
        return folder

    def archive(self, path: Path) -> Path:
        """As a snapshot archive, .tar.gz or .tar.zst."""
        write_archive(str(path), self.entries().items())
        return path

    def live_root(self, folder: Path) -> Path:
        """As the root folder of a live machine (files only)."""
        folder.mkdir(parents=True)
        write_tree(folder, self.files)
        return folder

    def entries(self) -> dict[str, Entry]:
        """Everything a snapshot holds, by name in the archive."""
        side = {
            "manifest.json": self.manifest(),
            "nvml.json": self.nvml,
            "processes.json": self.processes,
            "commands.json": self.commands,
            "udev.json": self.udev,
        }
        found: dict[str, Entry] = {n: msgspec.json.encode(v) for n, v in side.items()}
        return found | {f"root{path}": entry_of(node) for path, node in self.files.items()}

    def manifest(self) -> dict[str, Any]:
        """A manifest that lists every folder, so that what is not there is known to be missing."""
        return {
            "schema": "gpuaudit.snapshot/1",
            "gpuaudit": "test",
            "recorded_at": "2026-01-01T00:00:00Z",
            "euid": self.euid,
            "gaps": self.gaps,
            "listings": listings(self.files),
            "statuses": {p: s for p, s in self.statuses.items() if p in self.files},
        }


def entry_of(node: "str | bytes | Link | None") -> Entry:
    """As MemoryTree and archives hold it: a str there is the target of a link."""
    if isinstance(node, Link):
        return node.target
    return node.encode() if isinstance(node, str) else node


def listings(files: Files) -> dict[str, list[str]]:
    """Folder -> names, for every folder down to the root."""
    names: defaultdict[str, set[str]] = defaultdict(set)
    for path, node in files.items():
        if node is None:
            names[path]
        below = path
        while below != "/" and posixpath.basename(below) not in names[posixpath.dirname(below)]:
            folder = posixpath.dirname(below)
            names[folder].add(posixpath.basename(below))
            below = folder
    return {folder: sorted(inside) for folder, inside in names.items()}


@cache
def built() -> FakeNode:
    """The healthy machine, built once."""
    hardware = cpu_files() | pci_files() | class_files()
    hardware |= pciextra_files()
    files = hardware | driver_files() | system_files() | settings_files()
    files |= network_files() | storage_files()
    files |= rdma_files()
    files |= hoststate_files()
    files |= kernel_log_files()
    files |= hostconfig_files()
    asked = [*commands(), *hoststate_commands(), *network_commands(), *storage_commands()]
    node = FakeNode(files | environment_files(), nvml_document(), process_table(), asked, {})
    node.statuses = device_statuses()
    return node


def healthy_node() -> FakeNode:
    """A healthy machine that the caller may change."""
    return built().copied()
