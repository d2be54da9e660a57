# SPDX-License-Identifier: Apache-2.0
"""How container runtimes of this node reach the GPUs."""

import re
from typing import Any

import msgspec

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.containertoml import Table, parse_toml
from gpuaudit.facts.containerways import CdiSpec, Specs, Way, way
from gpuaudit.facts.docker import DAEMON_JSON
from gpuaudit.facts.driver import LIBRARY_FOLDERS, NO_DRIVER_IN_IMAGE, DriverLibraries
from gpuaudit.facts.gpuscan import GpuScan
from gpuaudit.facts.limits import absence
from gpuaudit.host import Host, NotApplicable, Unavailable

__all__ = ["TOOLKIT_CONFIG", "CdiSpec", "Containers", "Way", "containers"]

PROGRAMS = {
    "docker": ("/usr/bin/dockerd", "/usr/local/bin/dockerd"),
    "containerd": ("/usr/bin/containerd", "/usr/local/bin/containerd"),
    "crio": ("/usr/bin/crio", "/usr/local/bin/crio"),
}
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
TOOLKIT_CONFIG = "/etc/nvidia-container-runtime/config.toml"
LIBRARY = "libnvidia-container.so.1"
CDI_KIND = "nvidia.com/"
LIBCUDA = r"/libcuda\.so\.(\d{3,4}\.\d[\d.]*\d)\b"
DEVICE = r"/dev/nvidia(\d{1,3})\b"


class Containers(Fact, frozen=True, kw_only=True):
    """Runtimes that are installed, with what their configuration says of NVIDIA.

    /etc/docker/daemon.json, /etc/containerd/config.toml with its imports, /etc/crio, /etc/cdi and
    /var/run/cdi, /etc/nvidia-container-runtime/config.toml, the file libnvidia-container.so.1
    leads to.
    """

    ways: tuple[Way, ...]
    docker: dict[str, Any] | Absent
    """daemon.json; empty without one."""

    specs: Specs
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
        named |= host_ldconfigs(str(toolkit.get(("nvidia-container-cli", "ldconfig"), "")))
    return Containers(
        ways=tuple(way(host, name, daemon, specs) for name in installed),
        docker=daemon,
        specs=specs,
        toolkit=toolkit,
        toolkit_release=toolkit_release(host),
        libraries=frozenset(v for p, v in libraries.versions.items() if "/libcuda.so" in p),
        missing=frozenset(path for path in named if path and is_missing(host, path)),
    )


def with_specs(specs: Specs) -> tuple[CdiSpec, ...]:
    """The specifications, none when they are not known."""
    return () if isinstance(specs, Absent) else specs


def host_ldconfigs(path: str) -> set[str]:
    """The node's ldconfig (marked by @), under both names that the toolkit tries.

    NVIDIA Container Toolkit internal/config/cli.go, NormalizeLDConfigPath.
    """
    plain = path.removeprefix("@").removesuffix(".real")
    return {plain, f"{plain}.real"} if path.startswith("@") else set()


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


def cdi_specs(host: Host) -> Specs:
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
