# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trees import Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.daemons import JobDaemons
from gpuaudit.facts.docker import DockerLimits, docker_limits, from_json
from gpuaudit.facts.limits import Limit, Reading

SMALL, BIG = Limit(8 << 20, 8 << 20), Limit(None, None)
NOT_HERE = Absent("unsupported", "not part of this node")
DAEMON_JSON = json.dumps(
    {"default-ulimits": {"memlock": {"Name": "memlock", "Soft": 1024, "Hard": -1}}}
)


def reading(subject: str, memlock: Limit, *, now: bool = True) -> Reading:
    return Reading(subject=subject, memlock=memlock, nofile=Limit(1024, 4096), now=now)


def read(folder: Path, tree: Tree, *, owns: bool = False, containerd: bool = True) -> DockerLimits:
    below = (reading("containerd", SMALL), reading("containerd.service", BIG, now=False))
    daemons = JobDaemons(
        contexts={
            "docker": (reading("dockerd", BIG),),
            "containerd": below if containerd else NOT_HERE,
        },
        docker_owns_containerd=owns,
    )
    return docker_limits(make_host(folder, tree), daemons)


def memlocks(fact: DockerLimits) -> list[Limit | Absent]:
    assert isinstance(fact.readings, tuple)
    return [r.memlock for r in fact.readings]


def test_containers_inherit_from_containerd(tmp_path: Path) -> None:
    fact = read(tmp_path, {})
    assert memlocks(fact) == [SMALL, BIG]
    assert isinstance(fact.readings, tuple)
    assert [r.subject for r in fact.readings] == [
        "docker containers",
        "docker containers at the next boot",
    ]


def test_containerd_of_docker_has_dockers_limits(tmp_path: Path) -> None:
    assert memlocks(read(tmp_path, {}, owns=True)) == [BIG]


def test_docker_without_a_containerd_in_sight(tmp_path: Path) -> None:
    assert memlocks(read(tmp_path, {}, containerd=False)) == [BIG]


def test_default_ulimits_decide(tmp_path: Path) -> None:
    fact = read(tmp_path, {"/etc/docker/daemon.json": DAEMON_JSON})
    assert memlocks(fact) == [Limit(1024, None)] * 2
    assert isinstance(fact.readings, tuple)
    assert fact.readings[0].nofile == Limit(1024, 4096)
    assert fact.readings[0].evidence == ("/etc/docker/daemon.json",)


@pytest.mark.parametrize(
    ("flag", "limit"),
    [
        ("--default-ulimit memlock=-1:-1", BIG),
        ("--default-ulimit=memlock=65536", Limit(65536, 65536)),
        ('--default-ulimit "memlock=65536:-1"', Limit(65536, None)),
    ],
)
def test_a_flag_of_the_unit_decides(tmp_path: Path, flag: str, limit: Limit) -> None:
    unit = f"[Service]\nExecStart=/usr/bin/dockerd \\\n  {flag}\n"
    assert memlocks(read(tmp_path, {"/lib/systemd/system/docker.service": unit})) == [limit] * 2


def test_other_settings_change_nothing(tmp_path: Path) -> None:
    tree = {"/etc/docker/daemon.json": '{"log-driver": "journald"}'}
    assert memlocks(read(tmp_path, tree)) == [SMALL, BIG]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"default-ulimits": {"memlock": {}}}',
        '{"default-ulimits": {"memlock": 5}}',
        '{"default-ulimits": {"memlock": {"Soft": 1e999, "Hard": 1}}}',
    ],
)
def test_a_garbled_file_is_unknown(tmp_path: Path, text: str) -> None:
    (first, _) = memlocks(read(tmp_path, {"/etc/docker/daemon.json": text}))
    assert isinstance(first, Absent)
    assert first.kind == "failed"
    assert "/etc/docker/daemon.json" in first.reason


def test_a_file_that_was_not_recorded_is_unknown(tmp_path: Path) -> None:
    docker = JobDaemons(
        contexts={"docker": (reading("dockerd", BIG),), "containerd": NOT_HERE},
    )
    fact = docker_limits(make_host(tmp_path, {}, source="plain"), docker)
    (found,) = memlocks(fact)
    assert isinstance(found, Absent)
    assert "was not recorded" in found.reason


def test_no_docker(tmp_path: Path) -> None:
    daemons = JobDaemons(contexts={"docker": NOT_HERE, "containerd": NOT_HERE})
    assert docker_limits(make_host(tmp_path, {}), daemons).readings is NOT_HERE


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["Soft", "Hard"]), inner),
    )
)
def test_no_value_breaks_the_parser(value: object) -> None:
    found = from_json(json.dumps({"default-ulimits": {"memlock": value}}), "memlock")
    assert found is None or isinstance(found, Limit | Absent)


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    assert isinstance(from_json(text, "memlock"), Limit | Absent | None)
