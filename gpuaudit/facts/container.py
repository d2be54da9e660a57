# SPDX-License-Identifier: Apache-2.0
"""How container runtimes of this node reach the GPUs."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.containertoml import Table, parse_toml
from gpuaudit.facts.docker import DAEMON_JSON
from gpuaudit.facts.driver import LIBRARY_FOLDERS, NO_DRIVER_IN_IMAGE, DriverLibraries
from gpuaudit.facts.gpuscan import GpuScan
from gpuaudit.facts.limits import absence
from gpuaudit.facts.systemd import drop_ins
from gpuaudit.host import Host, NotApplicable, Unavailable

PROGRAMS = {
    "docker": ("/usr/bin/dockerd", "/usr/local/bin/dockerd"),
    "containerd": ("/usr/bin/containerd", "/usr/local/bin/containerd"),
    "crio": ("/usr/bin/crio", "/usr/local/bin/crio"),
}
HOOK = "nvidia-container-runtime-hook"
HOOK_FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/toolkit")
RUNTIME = "nvidia-container-runtime"
CONTAINERD = "/etc/containerd/config.toml"
CRIO = ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d", "/usr/share/containers/oci/hooks.d")
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
TOOLKIT_CONFIG = "/etc/nvidia-container-runtime/config.toml"
LIBRARY = "libnvidia-container.so.1"
CDI_KIND = "nvidia.com/"
LIBCUDA = r"/libcuda\.so\.(\d{3,4}\.\d[\d.]*\d)\b"
DEVICE = r"/dev/nvidia(\d{1,3})\b"


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


class Containers(Fact, frozen=True, kw_only=True):
    """Runtimes that are installed, with what their configuration says of NVIDIA.

    /etc/docker/daemon.json, /etc/containerd/config.toml with its imports, /etc/crio, /etc/cdi and
    /var/run/cdi, /etc/nvidia-container-runtime/config.toml, the file libnvidia-container.so.1
    leads to.
    """

    ways: tuple[Way, ...]
    docker: dict[str, Any] | Absent
    """daemon.json; empty without one."""

    specs: tuple[CdiSpec, ...] | Absent
    toolkit: Table | Absent | None
    """config.toml of the NVIDIA container runtime; None when there is none."""

    toolkit_release: str | None
    libraries: frozenset[str]
    """Releases of the libcuda.so that is installed."""

    missing: frozenset[str]
    """Paths that the configuration names and that are known not to be there."""


@probe
def containers(host: Host, scan: GpuScan, libraries: DriverLibraries) -> Containers:
    """Read the configuration. Raises NotApplicable inside a container, and without GPU."""
    if scan.in_container:
        raise NotApplicable("a container does not see the container runtime of its node")
    if scan.image and not libraries.versions:
        raise NotApplicable(NO_DRIVER_IN_IMAGE)
    installed = [name for name, paths in PROGRAMS.items() if any(map(host.exists, paths))]
    specs, toolkit = cdi_specs(host), toolkit_config(host)
    daemon = docker_config(host)
    named = {f"/dev/nvidia{n}" for spec in with_specs(specs) for n in spec.devices}
    if isinstance(toolkit, dict):
        named.add(str(toolkit.get(("nvidia-container-cli", "ldconfig"), "")).removeprefix("@"))
    return Containers(
        ways=tuple(way(host, name, daemon) for name in installed),
        docker=daemon,
        specs=specs,
        toolkit=toolkit,
        toolkit_release=toolkit_release(host),
        libraries=frozenset(v for p, v in libraries.versions.items() if "/libcuda.so" in p),
        missing=frozenset(path for path in named if path and is_missing(host, path)),
    )


def with_specs(specs: tuple[CdiSpec, ...] | Absent) -> tuple[CdiSpec, ...]:
    """The specifications, none when they are not known."""
    return () if isinstance(specs, Absent) else specs


def is_missing(host: Host, path: str) -> bool:
    """True for a path known not to be there; an image has no devices."""
    try:
        return not host.exists(path)
    except (Unavailable, NotApplicable):
        return False


def docker_config(host: Host) -> dict[str, Any] | Absent:
    """daemon.json as it stands."""
    try:
        text = host.read(DAEMON_JSON) if host.exists(DAEMON_JSON) else "{}"
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return Absent("failed", f"{DAEMON_JSON} is no JSON object")
    except Unavailable as absent:
        return absence(absent)


def way(host: Host, name: str, docker: dict[str, Any] | Absent) -> Way:
    """How one runtime gets at the GPUs."""
    try:
        if name == "docker":
            return of_docker(host, docker)
        return of_containerd(host) if name == "containerd" else of_crio(host)
    except Unavailable as absent:
        return Way(name, absence(absent), name)


def of_docker(host: Host, config: dict[str, Any] | Absent) -> Way:
    """A runtime or CDI in daemon.json; the hook, which `--gpus` looks for in the search path.

    moby daemon/nvidia_linux.go; features.cdi is on by default since Docker 28.2.
    """
    if isinstance(config, Absent):
        return Way("docker", config, DAEMON_JSON)
    runtimes, features = config.get("runtimes"), config.get("features")
    for key, one in runtimes.items() if isinstance(runtimes, dict) else ():
        if isinstance(one, dict) and RUNTIME in str(one.get("path", "")):
            return Way("docker", f"runtime {key}", DAEMON_JSON)
    if isinstance(features, dict) and features.get("cdi") is True:
        return Way("docker", "CDI", DAEMON_JSON)
    found = next((f"{f}/{HOOK}" for f in HOOK_FOLDERS if host.exists(f"{f}/{HOOK}")), None)
    return Way("docker", HOOK if found else None, found or DAEMON_JSON)


def of_containerd(host: Host) -> Way:
    """A runtime or CDI in config.toml and what it imports; version 3 has CDI on by default."""
    for path, table in containerd_tables(host):
        for key, value in table.items():
            if RUNTIME in str(value):
                return Way("containerd", f"runtime {key[-3]}" if len(key) > 2 else RUNTIME, path)
            if key[-1] == "enable_cdi" and value is True:
                return Way("containerd", "CDI", path)
            if key == ("version",) and value == 3:
                return Way("containerd", "CDI, the default of its version", path)
    return Way("containerd", None, CONTAINERD)


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


def of_crio(host: Host) -> Way:
    """The NVIDIA runtime in crio.conf.d, or the hook. CDI is on by default but needs a file."""
    paths = [CRIO[0]] if host.exists(CRIO[0]) else []
    for path in (*paths, *drop_ins(host, [CRIO[1]])):
        if RUNTIME in host.read(path):
            return Way("crio", "runtime nvidia", path)
    hooks = host.list(CRIO[2]) if host.exists(CRIO[2]) else ()
    if any("nvidia" in name for name in hooks):
        return Way("crio", "hook", CRIO[2])
    folders = [f for f in CDI_FOLDERS if host.source != "image" or f.startswith("/etc")]
    cdi = any("nvidia" in name for f in folders if host.exists(f) for name in host.list(f))
    return Way("crio", "CDI" if cdi else None, CRIO[1])


def cdi_specs(host: Host) -> tuple[CdiSpec, ...] | Absent:
    """Every specification that describes GPUs of NVIDIA (CDI SPEC.md)."""
    found: list[CdiSpec] = []
    for folder in CDI_FOLDERS:
        try:
            names = host.list(folder) if host.exists(folder) else ()
            for name in names:
                if name.endswith((".yaml", ".json", ".yml")):
                    found += spec(f"{folder}/{name}", host.read(f"{folder}/{name}"))
        except NotApplicable:
            continue
        except Unavailable as absent:
            return absence(absent)
    return tuple(found)


def spec(path: str, text: str) -> list[CdiSpec]:
    """YAML or JSON: the paths in it are written the same way in both."""
    if CDI_KIND not in text:
        return []
    devices = frozenset(int(number) for number in re.findall(DEVICE, text, re.ASCII))
    return [CdiSpec(path, frozenset(re.findall(LIBCUDA, text, re.ASCII)), devices)]


def toolkit_config(host: Host) -> Table | Absent | None:
    """config.toml of the NVIDIA container runtime."""
    try:
        if not host.exists(TOOLKIT_CONFIG):
            return None
        return parse_toml(host.read(TOOLKIT_CONFIG), TOOLKIT_CONFIG)
    except Unavailable as absent:
        return absence(absent)


def toolkit_release(host: Host) -> str | None:
    """1.17.8 of libnvidia-container.so.1.17.8: library and toolkit are released together."""
    for folder in LIBRARY_FOLDERS:
        try:
            target = host.resolve(f"{folder}/{LIBRARY}")
        except Unavailable:
            continue
        if match := re.search(r"\.so\.(\d+\.\d+\.\d+)$", target):
            return match[1]
    return None
