# SPDX-License-Identifier: Apache-2.0
"""Containers with GPUs, by facts made by hand."""

from typing import Any

import pytest
from gpufacts import findings, function, only, policy, scan, section, verdicts

from gpuaudit.facts.base import Absent
from gpuaudit.facts.container import CdiSpec, Containers, Way
from gpuaudit.host import NotApplicable

DENIED = Absent("denied", "needs root")
GARBLED = Absent("failed", "config.toml:3 is no TOML")
BUS = scan(["0000:19:00.0", "0000:3b:00.0"])
SPEC = CdiSpec("/etc/cdi/nvidia.yaml", frozenset({"570.86.15"}), frozenset({0, 1}))
LDCONFIG = ("nvidia-container-cli", "ldconfig")
NO_LDCONFIG = {"/sbin/ldconfig", "/sbin/ldconfig.real"}
CGROUPS = ("nvidia-container-cli", "no-cgroups")
MODE = ("nvidia-container-runtime", "mode")


def containers(**changes: Any) -> Containers:
    fields: dict[str, Any] = {
        "ways": (Way("docker", "runtime nvidia", "/etc/docker/daemon.json"),),
        "docker": {},
        "specs": (SPEC,),
        "toolkit": {},
        "toolkit_release": "1.18.0",
        "libraries": frozenset({"570.86.15"}),
        "missing": frozenset(),
    }
    return Containers(**fields | changes)


def wanted(check: str, found: Containers, **want: Any) -> Any:
    return function(check)(found, policy(section(check), **want))


@pytest.mark.parametrize(
    ("ways", "want", "expected"),
    [
        ([("docker", "runtime nvidia")], "warn", ["pass"]),
        ([("docker", "CDI"), ("containerd", None)], "warn", ["pass"]),
        ([("docker", None)], "warn", ["warn"]),
        ([("docker", None)], "fail", ["fail"]),
        ([("docker", None), ("crio", DENIED)], "fail", ["fail", "unknown"]),
    ],
)
def test_ways_to_the_gpus(ways: list[Any], want: Any, expected: list[str]) -> None:
    found = containers(ways=tuple(Way(name, how, name) for name, how in ways))
    answer = wanted("container-runtime-nvidia", found, gpus_in_runtime=want)
    assert verdicts(answer) == expected


@pytest.mark.parametrize(("ways", "want"), [((), "warn"), ((Way("docker", None, ""),), "any")])
def test_no_runtime_and_no_wish(ways: Any, want: str) -> None:
    found = containers(ways=ways)
    with pytest.raises(NotApplicable):
        findings(wanted("container-runtime-nvidia", found, gpus_in_runtime=want))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["pass"]),
        ({"libraries": frozenset({"580.1.2"})}, ["fail"]),
        ({"libraries": frozenset()}, ["unknown"]),
        ({"missing": frozenset({"/dev/nvidia1"})}, ["fail"]),
        ({"specs": DENIED}, ["unknown"]),
        ({"specs": (SPEC._replace(devices=frozenset({0})),)}, ["pass", "warn"]),
        ({"specs": (SPEC._replace(devices=frozenset()),)}, ["pass"]),
    ],
)
def test_cdi_specifications(changes: Any, expected: list[str]) -> None:
    assert verdicts(function("container-cdi-spec")(containers(**changes), BUS)) == expected


def test_without_a_cdi_specification() -> None:
    with pytest.raises(NotApplicable):
        findings(function("container-cdi-spec")(containers(specs=()), BUS))


@pytest.mark.parametrize(
    ("table", "missing", "expected"),
    [
        ({}, set(), ["pass"]),
        ({LDCONFIG: "@/sbin/ldconfig", CGROUPS: False}, set(), ["pass"]),
        ({LDCONFIG: "@/sbin/ldconfig"}, {"/sbin/ldconfig"}, ["pass"]),
        ({LDCONFIG: "@/sbin/ldconfig.real"}, {"/sbin/ldconfig.real"}, ["pass"]),
        ({LDCONFIG: "@/sbin/ldconfig"}, NO_LDCONFIG, ["pass", "fail"]),
        ({LDCONFIG: "/sbin/ldconfig"}, NO_LDCONFIG, ["pass", "warn"]),
        ({CGROUPS: True}, set(), ["pass", "warn"]),
        ({MODE: "legacy"}, set(), ["pass"]),
        ({MODE: "fast"}, set(), ["fail"]),
        (GARBLED, set(), ["fail"]),
        (DENIED, set(), ["unknown"]),
    ],
)
def test_the_toolkits_configuration(table: Any, missing: set[str], expected: list[str]) -> None:
    found = containers(toolkit=table, missing=frozenset(missing))
    assert verdicts(function("container-toolkit-config")(found)) == expected


def test_the_toolkits_release() -> None:
    check = "container-toolkit-version"
    assert verdicts(wanted(check, containers())) == ["pass"]
    assert verdicts(wanted(check, containers(toolkit_release="1.17.8"))) == ["pass"]
    old = only(wanted(check, containers(toolkit_release="1.9.0")), "warn")
    assert old.expected == "1.17.8"
    for found, want in ((containers(toolkit_release=None), "1.17.8"), (containers(), None)):
        with pytest.raises(NotApplicable):
            wanted(check, found, min_release=want)


def test_without_the_toolkits_configuration() -> None:
    with pytest.raises(NotApplicable):
        findings(function("container-toolkit-config")(containers(toolkit=None)))


@pytest.mark.parametrize(
    ("docker", "verdict"),
    [
        ({}, "warn"),
        ({"default-shm-size": "1g"}, "pass"),
        ({"default-shm-size": "1G"}, "pass"),
        ({"default-shm-size": "512M"}, "warn"),
        ({"default-shm-size": "1gb"}, "pass"),
        ({"default-shm-size": 1 << 30}, "pass"),
        ({"default-shm-size": "much"}, "unknown"),
        (DENIED, "unknown"),
    ],
)
def test_shared_memory_of_docker(docker: Any, verdict: str) -> None:
    found = containers(docker=docker)
    answer = wanted("container-default-shm", found, docker_shm_min_mib=1024)
    assert verdicts(answer) == [verdict]


def test_shared_memory_is_not_always_judged() -> None:
    check = "container-default-shm"
    for found, want in ((containers(), None), (containers(ways=()), 1024)):
        with pytest.raises(NotApplicable):
            wanted(check, found, docker_shm_min_mib=want)
