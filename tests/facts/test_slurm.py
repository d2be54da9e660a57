# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from trees import Link, Tree, make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.slurm import slurm_limits

CONF = "/etc/slurm/slurm.conf"


@pytest.mark.parametrize(
    ("text", "propagates"),
    [
        ("ClusterName=x\n", True),
        ("PropagateResourceLimitsExcept=MEMLOCK\n", False),
        ("propagateresourcelimitsexcept = rlimit_memlock , NPROC\r\n", False),
        ('PropagateResourceLimitsExcept="NPROC,MEMLOCK"\n', False),
        ("PropagateResourceLimitsExcept=NPROC\n", True),
        ("PropagateResourceLimitsExcept=ALL\n", False),
        ("PropagateResourceLimits=NONE\n", False),
        ("PropagateResourceLimits=ALL\n", True),
        ("PropagateResourceLimits=CPU,STACK\n", False),
        ("PropagateResourceLimits=MEMLOCK\n", True),
        ("#PropagateResourceLimits=NONE\n", True),
        ("PropagateResourceLimits=\n", True),
        ("PropagateResourceLimits=NONE\nPropagateResourceLimits=ALL\n", True),
    ],
)
def test_whether_memlock_is_propagated(tmp_path: Path, text: str, propagates: bool) -> None:
    assert slurm_limits(make_host(tmp_path, {CONF: text})).propagates_memlock is propagates


def test_the_place_that_decides_is_named(tmp_path: Path) -> None:
    tree: Tree = {
        CONF: "\nInclude limits.conf\n",
        "/etc/slurm/limits.conf": "# x\nPropagateResourceLimitsExcept=MEMLOCK\n",
    }
    fact = slurm_limits(make_host(tmp_path, tree))
    assert fact.where == "/etc/slurm/limits.conf:2"
    assert fact.propagates_memlock is False


def test_an_include_that_is_missing_is_unknown(tmp_path: Path) -> None:
    fact = slurm_limits(make_host(tmp_path, {CONF: "Include /etc/slurm/gone.conf\n"}))
    assert isinstance(fact.propagates_memlock, Absent)


def test_includes_in_a_circle_end(tmp_path: Path) -> None:
    assert slurm_limits(make_host(tmp_path, {CONF: "Include slurm.conf\n"})).propagates_memlock


def test_a_configless_node_has_its_file_below_run(tmp_path: Path) -> None:
    tree: Tree = {
        "/run/slurm/conf": Link("/var/spool/slurmd/conf-cache"),
        "/var/spool/slurmd/conf-cache/slurm.conf": "PropagateResourceLimits=NONE\n",
    }
    fact = slurm_limits(make_host(tmp_path, tree))
    assert fact.propagates_memlock is False
    assert fact.where == "/run/slurm/conf/slurm.conf:1"


def test_no_file_is_unknown_on_a_node_and_normal_in_an_image(tmp_path: Path) -> None:
    on_node = slurm_limits(make_host(tmp_path / "a", {})).propagates_memlock
    in_image = slurm_limits(make_host(tmp_path / "b", {}, source="image")).propagates_memlock
    assert isinstance(on_node, Absent)
    assert isinstance(in_image, Absent)
    assert (on_node.kind, in_image.kind) == ("missing", "unsupported")


def test_not_recorded_is_unknown(tmp_path: Path) -> None:
    found = slurm_limits(make_host(tmp_path, {}, source="plain")).propagates_memlock
    assert isinstance(found, Absent)
    assert found.kind == "failed"
