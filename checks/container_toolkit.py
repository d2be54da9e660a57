# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA Container Toolkit."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    check,
    expect,
    fails,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.container import TOOLKIT_CONFIG, Containers

CLI, RUNTIME = "nvidia-container-cli", "nvidia-container-runtime"
MODES = frozenset({"auto", "cdi", "csv", "jit-cdi", "legacy"})
Findings = Iterator[Finding]


class ContainerToolkitExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of the toolkit. Null asks for nothing."""

    min_release: Annotated[str, msgspec.Meta(pattern=r"^\d+\.\d+\.\d+$")] | None


@check("container-toolkit-config", severity=Severity.MEDIUM)
def toolkit_config(containers: Containers) -> Findings:
    """The configuration of the NVIDIA container runtime can work.

    ## Why it matters
    With a wrong path to ldconfig no container with GPUs starts; with `no-cgroups` those that root
    starts are not allowed to open the device files.

    ## Evidence
    /etc/nvidia-container-runtime/config.toml.

    ## How it is judged
    A file that is no TOML, an unknown mode and an ldconfig that is not there fail. `no-cgroups` and
    an ldconfig without `@`, which runs the container's own program, warn. The toolkit takes
    ldconfig for ldconfig.real and the other way round, where only one of them is there.

    ## Exceptions
    Not applicable without the file: the defaults then hold. `no-cgroups = true` is right for
    rootless containers.

    ## What to do
    Run `nvidia-ctk config --in-place` with `--set nvidia-container-cli.no-cgroups=false`, or write
    the file anew with `nvidia-ctk config default`.

    ## References
    - https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/internal/config/config.go
    """
    table = containers.toolkit
    if table is None:
        raise NotApplicable(f"{TOOLKIT_CONFIG} is not there: the defaults hold")
    if isinstance(table, Absent):
        wrong = fails(TOOLKIT_CONFIG, table.reason) if table.kind == "failed" else None
        yield wrong or expect(table, None, of=TOOLKIT_CONFIG)
        return
    mode = table.get((RUNTIME, "mode"), "auto")
    yield expect(mode, tuple(sorted(MODES)), of="mode", message=f"there is no mode {mode}")
    cgroups = table.get((CLI, "no-cgroups"), False)
    if cgroups is True:
        yield warns("no-cgroups", "only rootless containers get at the GPUs", cgroups)
    ldconfig = str(table.get((CLI, "ldconfig"), ""))
    plain = ldconfig.removeprefix("@").removesuffix(".real")
    if ldconfig.startswith("@") and {plain, f"{plain}.real"} <= containers.missing:
        yield fails("ldconfig", f"{ldconfig} is not there: containers do not start", ldconfig)
    elif ldconfig and not ldconfig.startswith("@"):
        yield warns("ldconfig", "the container's own ldconfig is run", ldconfig)


@check("container-toolkit-version", severity=Severity.MEDIUM)
def toolkit_version(containers: Containers, want: ContainerToolkitExpectations) -> Finding:
    """The NVIDIA Container Toolkit has no known hole to the node.

    ## Why it matters
    Up to 1.16.1 (CVE-2024-0132) and up to 1.17.7 (CVE-2025-23266) a container can take over its
    node, and with it the jobs of everyone else.

    ## Evidence
    The file that libnvidia-container.so.1 leads to; library and toolkit are released together.

    ## How it is judged
    A release below `container_toolkit.min_release` warns.

    ## Exceptions
    Not applicable where the toolkit is not in a library folder of the node: the GPU Operator brings
    its own in a container. Distributors may have put the repair into an older release.

    ## What to do
    Update the packages nvidia-container-toolkit and libnvidia-container1.

    ## References
    - https://nvidia.custhelp.com/app/answers/detail/a_id/5659
    - https://nvidia.custhelp.com/app/answers/detail/a_id/5582
    """
    release = containers.toolkit_release
    if want.min_release is None:
        raise NotApplicable("the policy asks for no release of the toolkit")
    if release is None:
        raise NotApplicable("the NVIDIA Container Toolkit is not installed on the node")
    if numbers(release) >= numbers(want.min_release):
        return passes("NVIDIA Container Toolkit", release)
    message = f"release {release} lets containers break out"
    return warns("NVIDIA Container Toolkit", message, release, expected=want.min_release)


def numbers(release: str) -> tuple[int, ...]:
    """1.17.8 as numbers."""
    return tuple(int(part) for part in release.split("."))
