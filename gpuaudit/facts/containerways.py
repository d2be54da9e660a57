# SPDX-License-Identifier: Apache-2.0
"""How Docker, containerd and CRI-O are told to give GPUs to containers."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from gpuaudit.facts.base import Absent
from gpuaudit.facts.containertoml import Table, parse_toml
from gpuaudit.facts.docker import DAEMON_JSON
from gpuaudit.facts.limits import absence
from gpuaudit.facts.systemd import drop_ins
from gpuaudit.host import Host, Unavailable

HOOK = "nvidia-container-runtime-hook"
HOOK_FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/toolkit")
RUNTIME = "nvidia-container-runtime"
CONTAINERD = "/etc/containerd/config.toml"
CRIO = ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d", "/usr/share/containers/oci/hooks.d")
CDI, VERSION_OF_1_7 = "CDI", 2
MAY_BE_ON = Absent(
    "missing", "there is a CDI specification; Docker 28.2 and containerd 2.0 use it, older ones not"
)


class Way(NamedTuple):
    """How one runtime gives GPUs to containers; None for a runtime without any way."""

    runtime: str
    how: str | Absent | None
    where: str


class CdiSpec(NamedTuple):
    """A CDI specification of NVIDIA: releases of libcuda.so and numbers of /dev/nvidiaN in it."""

    path: str
    releases: frozenset[str]
    devices: frozenset[int]


Specs = tuple[CdiSpec, ...] | Absent


def way(host: Host, name: str, docker: dict[str, Any] | Absent, specs: Specs) -> Way:
    """How one runtime gets at the GPUs."""
    try:
        if name == "docker":
            return of_docker(host, docker, specs)
        return of_containerd(host, specs) if name == "containerd" else of_crio(host, specs)
    except Unavailable as absent:
        return Way(name, absence(absent), name)


def by_cdi(specs: Specs, *, on: bool | None) -> str | Absent | None:
    """CDI is a way where it is on and a specification names GPUs; `on` is None where untold."""
    if isinstance(specs, Absent):
        return specs
    if not specs or on is False:
        return None
    return CDI if on else MAY_BE_ON


def of_docker(host: Host, config: dict[str, Any] | Absent, specs: Specs) -> Way:
    """A runtime or CDI in daemon.json; the hook, which `--gpus` looks for in the search path.

    moby daemon/nvidia_linux.go; features.cdi is on by default since Docker 28.2.
    """
    if isinstance(config, Absent):
        return Way("docker", config, DAEMON_JSON)
    runtimes, features = config.get("runtimes"), config.get("features")
    for key, one in runtimes.items() if isinstance(runtimes, dict) else ():
        if isinstance(one, dict) and RUNTIME in str(one.get("path", "")):
            return Way("docker", f"runtime {key}", DAEMON_JSON)
    found = next((f"{f}/{HOOK}" for f in HOOK_FOLDERS if host.exists(f"{f}/{HOOK}")), None)
    if found:
        return Way("docker", HOOK, found)
    told = features.get("cdi") if isinstance(features, dict) else None
    return Way("docker", by_cdi(specs, on=None if told is None else told is True), DAEMON_JSON)


def of_containerd(host: Host, specs: Specs) -> Way:
    """A runtime, or CDI, in config.toml and what it imports."""
    tables = list(containerd_tables(host))
    for path, table in tables:
        found = next((key for key, value in table.items() if RUNTIME in str(value)), None)
        if found:
            return Way("containerd", f"runtime {found[-3]}" if len(found) > 2 else RUNTIME, path)
    return Way("containerd", by_cdi(specs, on=cdi_is_on(tables)), CONTAINERD)


def cdi_is_on(tables: list[tuple[str, Table]]) -> bool | None:
    """What the first file says that says anything, else the default; None without any file.

    It is on from containerd 2.0, which writes version 3 (containerd pull request 9621).
    """
    told = [value for _, table in tables for key, value in table.items() if key[-1] == "enable_cdi"]
    if told or not tables:
        return told[0] is True if told else None
    version = tables[-1][1].get(("version",), 1)
    return isinstance(version, int) and version > VERSION_OF_1_7


def containerd_tables(host: Host) -> Iterator[tuple[str, Table]]:
    """What is imported, which wins, then the main file. Raises Unavailable."""
    if not host.exists(CONTAINERD):
        return
    main = parse_toml(host.read(CONTAINERD), CONTAINERD)
    imports = main.get(("imports",), ())
    for pattern in imports if isinstance(imports, tuple) else ():
        for path in imported(host, str(pattern)):
            yield path, parse_toml(host.read(path), path)
    yield CONTAINERD, main


def imported(host: Host, pattern: str) -> list[str]:
    """The files of FOLDER/*.toml, or the one file."""
    folder, _, last = pattern.rpartition("/")
    if "*" not in last:
        return [pattern] if pattern.startswith("/") and host.exists(pattern) else []
    names = host.list(folder) if host.exists(folder) else ()
    return [f"{folder}/{name}" for name in names if name.endswith(".toml")]


def of_crio(host: Host, specs: Specs) -> Way:
    """The NVIDIA runtime in crio.conf.d, or the hook. CDI is on by default but needs a file."""
    paths = [CRIO[0]] if host.exists(CRIO[0]) else []
    for path in (*paths, *drop_ins(host, [CRIO[1]])):
        if RUNTIME in host.read(path):
            return Way("crio", "runtime nvidia", path)
    hooks = host.list(CRIO[2]) if host.exists(CRIO[2]) else ()
    if any("nvidia" in name for name in hooks):
        return Way("crio", "hook", CRIO[2])
    return Way("crio", by_cdi(specs, on=True), CRIO[1])
