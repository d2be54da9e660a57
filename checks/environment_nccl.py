# SPDX-License-Identifier: Apache-2.0
"""Settings of NCCL and its transports that are made for the whole node."""

from collections.abc import Iterator
from typing import Literal

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    fails,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.environment import Assignment, Environment
from gpuaudit.facts.environmentnccl import NcclConf

PREFIXES = ("NCCL_", "OFI_NCCL_", "UCX_", "FI_", "SHARP_", "NVSHMEM_")
PLACES = ("_HOME", "_PATH", "_ROOT", "_DIR", "_BIN", "_VERSION", "_VISIBLE_DEVICES")
"""Of the toolkit: several may stand side by side."""
Findings = Iterator[Finding]


class EnvironmentNcclExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of NCCL settings that everyone gets."""

    node_wide: Literal["any", "none"]


@check("environment-nccl-node-wide", severity=Severity.LOW)
def node_wide(environment: Environment, want: EnvironmentNcclExpectations) -> Findings:
    """Settings of NCCL and CUDA for everyone contradict each other nowhere.

    ## Why it matters
    The same variable with two values means that a job's speed depends on how it was started: by
    ssh, by Slurm or in a container.

    ## Evidence
    NCCL_*, OFI_NCCL_*, UCX_*, FI_*, SHARP_*, NVSHMEM_* and CUDA_* in the places that
    environment-debug names, without the calling shell. Of CUDA_* not those that name a folder or a
    version, and not CUDA_VISIBLE_DEVICES (environment-visible-devices).

    ## How it is judged
    Each setting is listed. A variable with different values in two places warns. With
    `environment_nccl.node_wide: none` every setting does.

    ## Exceptions
    Clouds set such variables in their images, and mean it. Scripts are not run: an assignment below
    a condition is listed with that remark. A value that names another variable is not compared.

    ## What to do
    Keep one place, best /etc/nccl.conf, and delete the others.

    ## References
    - https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
    """
    mine = [one for one in environment.assignments if is_setting(one.name)]
    for name in sorted({one.name for one in mine}):
        yield judge(name, [one for one in mine if one.name == name], want)
    for path, absent in environment.gaps.items():
        if absent.kind != "unsupported":
            yield unknown(f"NCCL settings in {path}", absent.reason)
    if not mine and not environment.gaps:
        yield passes("NCCL settings for everyone", "none")


def is_setting(name: str) -> bool:
    """Whether a variable tells NCCL, its transports or the CUDA driver how to work."""
    return name.startswith(PREFIXES) or (name.startswith("CUDA_") and not name.endswith(PLACES))


def judge(name: str, places: list[Assignment], want: EnvironmentNcclExpectations) -> Finding:
    """One variable with all its places."""
    fixed = {one.value for one in places if "$" not in one.value and not one.conditional}
    evidence = tuple(shown(one) for one in places)
    if len(fixed) > 1:
        reaches = ", ".join(f"{one.value} for {one.reach}" for one in places)
        return warns(name, f"{name} has several values: {reaches}", fixed, evidence=evidence)
    if want.node_wide == "none":
        message = f"{name} is set for {places[0].reach}"
        return warns(name, message, places[0].value, expected="not set", evidence=evidence)
    return passes(name, places[0].value, evidence=evidence)


def shown(one: Assignment) -> str:
    """Place and value."""
    return f"{one.where} {one.value}{' (below a condition)' if one.conditional else ''}"


@check("environment-nccl-conf", severity=Severity.MEDIUM)
def nccl_conf(conf: NcclConf) -> Findings:
    """NCCL understands every line of its configuration files.

    ## Why it matters
    NCCL passes over a line that it does not understand, and over a file that it may not open,
    without a word: the setting that somebody relies on is not there.

    ## Evidence
    /etc/nccl.conf, and the caller's ~/.nccl.conf or the file that NCCL_CONF_FILE names.

    ## How it is judged
    A line is NAME=value from its first character on. White space around the name, `export`, quotes,
    a line end of DOS and a line without `=` fail in /etc/nccl.conf and warn in the caller's file.
    So does an /etc/nccl.conf that not everyone may read. A NCCL_CONF_FILE that is not there warns.

    ## Exceptions
    Not applicable where there is no such file. In a container these are the container's files.

    ## What to do
    Write one NAME=value a line, without spaces and quotes, with comments on lines that begin with
    `#`, and run `chmod 644 /etc/nccl.conf`.

    ## References
    - https://github.com/NVIDIA/nccl/blob/master/src/misc/param.cc
    - https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
    """
    for path, absent in conf.gaps.items():
        answer = warns if absent.kind == "missing" else unknown
        yield answer(path, absent.reason)
    for path, text in conf.texts.items():
        bad = [f"line {number}: {why}" for number, why in conf.mistakes(text)]
        if path == conf.system and conf.everyone_reads is False:
            bad.insert(0, "not everyone may read it")
        answer = fails if path == conf.system else warns
        message = f"NCCL does not take {path} as it was meant: {'; '.join(bad[:4])}"
        yield answer(path, message, len(bad)) if bad else passes(path, "understood")
    if not conf.texts and not conf.gaps:
        raise NotApplicable("there is no nccl.conf")
