# SPDX-License-Identifier: Apache-2.0
"""Variables left behind where they slow down, watch or blind every program."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from gpuaudit.check import (
    Expectations,
    Finding,
    Severity,
    check,
    expect,
    fails,
    not_applicable,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.environment import CALLER, CALLING_SHELL, Assignment, Environment
from gpuaudit.facts.environmentloader import PRELOAD, Loader
from gpuaudit.facts.environmentunits import EVERY_SERVICE
from gpuaudit.facts.gpuscan import GpuScan

INJECTORS = ("LD_PRELOAD", "LD_AUDIT", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
MASKS = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
EVERY_GPU = frozenset({"all", "void"})
Findings = Iterator[Finding]


class EnvironmentExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of variables. Patterns are shell words: NAME=value -> reason."""

    never: dict[str, str]
    costly: dict[str, str]
    injection_allowed: tuple[str, ...]


@check("environment-debug", severity=Severity.HIGH)
def debug(environment: Environment, want: EnvironmentExpectations) -> Findings:
    """No variable that slows down every program is set for everyone.

    ## Why it matters
    A variable that somebody set to find a fault stays in a profile file for months. Each program
    that starts from there is slower, and none of them says so.

    ## Evidence
    /etc/environment, pam_env.conf, /etc/profile, profile.d, bashrc, /etc/nccl.conf and Podman's
    containers.conf; systemd units that start jobs; /proc/self/environ of the audit itself.

    ## How it is judged
    Each assignment is compared with the patterns of `environment.never`, which fail, and of
    `environment.costly`, which warn. Of scripts an assignment below a condition only warns, and so
    does one of the calling shell or of a service: it need not reach a job.

    ## Exceptions
    In a batch job the calling shell is the job. A Slurm prolog and `sudo` start with an environment
    of their own, so the variables of jobs are not seen there. In a container its own files count.
    GeForce boards without peer-to-peer access may need NCCL_P2P_DISABLE: allow it in the policy.

    ## What to do
    Delete the line, or move it into the one job that needs it; log in again or restart the service.

    ## References
    - https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
    - https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
    """
    yield from listed(judge_debug(environment, want), environment, "debugging variables")


def judge_debug(environment: Environment, want: EnvironmentExpectations) -> Findings:
    """One finding for each assignment that a pattern fits."""
    for one in environment.everywhere():
        wrong, costly = (reason(one, patterns) for patterns in (want.never, want.costly))
        if wrong or costly:
            answer = fails if wrong and for_everyone(one) else warns
            message = f"{one.name} is set for {one.reach}{condition(one)}"
            yield answer(of(one), message, one.value, cost=wrong or costly, evidence=(one.where,))


def for_everyone(one: Assignment) -> bool:
    """True for what is sure to reach the programs of users."""
    private = one.reach in {CALLING_SHELL, EVERY_SERVICE} or one.reach.endswith(".service")
    return not (one.conditional or private)


def condition(one: Assignment) -> str:
    """What has to be said of an assignment in a script."""
    return " where a condition of the script holds" if one.conditional else ""


def reason(one: Assignment, patterns: dict[str, str]) -> str | None:
    """Why this assignment is unwanted."""
    written = f"{one.name}={one.value.strip()}"
    return next((why for p, why in patterns.items() if one.value and fnmatchcase(written, p)), None)


def of(one: Assignment) -> str:
    """The subject: the variable and the file, without the line, so that waivers last."""
    return f"{one.name} in {one.where.partition(':')[0]}"


def listed(findings: Findings, environment: Environment, what: str) -> Findings:
    """The findings; each place that could not be read; a pass where there was nothing."""
    found = list(findings)
    yield from found
    gaps = [gap for gap in environment.gaps.items() if gap[1].kind != "unsupported"]
    for path, absent in gaps:
        yield unknown(f"{what} in {path}", absent.reason)
    if isinstance(environment.caller, Absent):
        yield expect(environment.caller, None, of=f"{what} of the calling shell")
    if not found and not gaps:
        yield passes(f"{what} for everyone", "none")


@check("environment-injection", severity=Severity.MEDIUM)
def injection(environment: Environment, loader: Loader, want: EnvironmentExpectations) -> Findings:
    """No library is forced into every program.

    ## Why it matters
    A preloaded library or a profiler that is injected runs in each process. It costs time on calls
    that are made a million times, and a version that does not fit crashes jobs at their start.

    ## Evidence
    LD_PRELOAD, LD_AUDIT, CUDA_INJECTION64_PATH and NVTX_INJECTION64_PATH in the places that
    environment-debug names, and /etc/ld.so.preload.

    ## How it is judged
    Every library that fits none of the patterns of `environment.injection_allowed` warns.

    ## Exceptions
    Allocators such as jemalloc and trackers such as XALT are allowed by the base policy. In a
    container and in a sandbox the runtime may preload its own. `sudo` drops LD_PRELOAD, so an audit
    started by it does not see that of the shell.

    ## What to do
    Delete the line if nobody needs it, or add the library to `environment.injection_allowed`.

    ## References
    - https://man7.org/linux/man-pages/man8/ld.so.8.html
    - https://docs.nvidia.com/cupti/main/main.html
    """
    yield from listed(judge_injection(environment, loader, want), environment, "injected libraries")
    if isinstance(loader.preloaded, Absent):
        yield expect(loader.preloaded, None, of=PRELOAD)


def judge_injection(
    environment: Environment, loader: Loader, want: EnvironmentExpectations
) -> Findings:
    """One finding for each library that is not allowed."""
    forced = () if isinstance(loader.preloaded, Absent) else loader.preloaded
    every = [Assignment("library", path, PRELOAD, "everyone") for path in forced]
    for one in (*environment.named(*INJECTORS), *every):
        for path in re.split(r"[\s:]+", one.value):
            if path and not any(fnmatchcase(path, p) for p in want.injection_allowed):
                message = f"it is loaded into the programs of {one.reach}{condition(one)}"
                yield warns(of(one), message, path, evidence=(one.where,))


@check("environment-visible-devices", severity=Severity.MEDIUM)
def visible_devices(environment: Environment, scan: GpuScan) -> Findings:
    """No variable hides GPUs from every program.

    ## Why it matters
    A job that sees fewer GPUs than it was given fails at its start, or runs on the wrong ones. The
    scheduler sets these variables itself and does not expect them to be there already.

    ## Evidence
    CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES in the places that environment-debug names.

    ## How it is judged
    Set in a file for everyone, either one warns, the empty value too: it hides every GPU. In the
    calling shell CUDA_VISIBLE_DEVICES warns when it names fewer GPUs than the node has.

    ## Exceptions
    In a batch job or a container the scheduler or the runtime has set it on purpose: the calling
    shell is then not judged. With MIG the variable names instances and is not counted.

    ## What to do
    Delete the line and let the scheduler set it.

    ## References
    - https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html
    """
    yield from listed(judge_masks(environment), environment, "variables that hide GPUs")
    value = environment.value(MASKS[0])
    subject = f"{MASKS[0]} in {CALLER}"
    if value is None:
        return
    if environment.job or scan.confined:
        yield not_applicable(subject, f"{scan.confined or environment.job} sets it on purpose")
    elif (total := len(scan.functions or ())) > count(value) >= 0:
        message = f"the calling shell sees {count(value)} of {total} GPUs"
        yield warns(subject, message, value or "empty", expected=f"{total} GPUs")
    else:
        yield passes(subject, value)


def judge_masks(environment: Environment) -> Findings:
    """One finding for each file."""
    for one in environment.assignments:
        if one.name in MASKS and one.value not in EVERY_GPU:
            message = f"{one.name} is set for {one.reach}{condition(one)}"
            yield warns(of(one), message, one.value or "empty", evidence=(one.where,))


def count(value: str) -> int:
    """How many GPUs are visible; -1 where instances are named. Nothing counts behind an error."""
    words = [word.strip() for word in value.split(",")]
    if any(word.startswith("MIG") for word in words):
        return -1
    good = [word.isdigit() or word.startswith("GPU-") for word in words]
    return good.index(False) if False in good else len(good)
