# SPDX-License-Identifier: Apache-2.0
"""Containers with GPUs."""

from collections.abc import Iterator
from typing import Annotated, Literal

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
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.container import CdiSpec, Containers
from gpuaudit.facts.docker import DAEMON_JSON
from gpuaudit.facts.gpuscan import GpuScan

UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
Findings = Iterator[Finding]


class ContainerExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of containers. Null asks for nothing."""

    gpus_in_runtime: Literal["any", "warn", "fail"]
    docker_shm_min_mib: Annotated[int, msgspec.Meta(ge=1)] | None


@check("container-runtime-nvidia", severity=Severity.MEDIUM)
def runtime_nvidia(containers: Containers, want: ContainerExpectations) -> Findings:
    """A container runtime of this node can give GPUs to containers.

    ## Why it matters
    Without the NVIDIA runtime, its hook or CDI, a container starts and sees no GPU.

    ## Evidence
    /etc/docker/daemon.json, /etc/containerd/config.toml and what it imports, /etc/crio; the hook
    nvidia-container-runtime-hook and hooks.d; CDI specifications in /etc/cdi and /var/run/cdi.

    ## How it is judged
    One runtime with a way to the GPUs is enough; CDI is one only with a specification that names
    them. When none has one, each warns; `container.gpus_in_runtime` makes them fail. Unknown where
    it depends on the runtime's release whether a specification is used.

    ## Exceptions
    Not applicable where Docker, containerd and CRI-O are not installed, and inside a container.
    Podman, Apptainer and Enroot need no configuration. k3s and RKE2 write theirs when they start.
    GKE hands out device files by a plugin of its own: set `any` there.

    ## What to do
    Install nvidia-container-toolkit and run `nvidia-ctk runtime configure --runtime=docker` (or
    containerd, crio), then restart the runtime.

    ## References
    - https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html
    """
    if want.gpus_in_runtime == "any":
        raise NotApplicable("the policy does not ask for GPUs in containers")
    if not containers.ways:
        raise NotApplicable("no container runtime is installed")
    good = [way for way in containers.ways if isinstance(way.how, str)]
    for way in good:
        yield passes(way.runtime, way.how, evidence=(way.where,))
    for way in containers.ways if not good else ():
        if isinstance(way.how, Absent):
            yield unknown(way.runtime, way.how.reason)
        else:
            answer = fails if want.gpus_in_runtime == "fail" else warns
            message = f"{way.runtime} knows no NVIDIA runtime, hook or CDI: containers see no GPU"
            yield answer(way.runtime, message, "none", evidence=(way.where,))


@check("container-cdi-spec", severity=Severity.HIGH)
def cdi_spec(containers: Containers, scan: GpuScan) -> Findings:
    """The CDI specification describes the driver and the GPUs that are here.

    ## Why it matters
    A specification holds the file names of the driver. After an update of the driver a container
    that uses it does not start, or starts with half of the libraries.

    ## Evidence
    Files for nvidia.com in /etc/cdi and /var/run/cdi; the libcuda.so that is installed; /dev.

    ## How it is judged
    A release of libcuda.so that is not installed fails, and so does a /dev/nvidiaN that is not
    there. A GPU with a device file that no specification names warns.

    ## Exceptions
    Not applicable without a specification: the runtime then makes its own at each start. In an
    image only the releases are compared. With MIG the specification names the GPU all the same.

    ## What to do
    Run `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`, or enable
    nvidia-cdi-refresh.path of toolkit 1.18, which does so after each update.

    ## References
    - https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html
    - https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
    """
    if isinstance(containers.specs, Absent):
        yield expect(containers.specs, None, of="CDI specifications")
        return
    if not containers.specs:
        raise NotApplicable("no CDI specification names NVIDIA devices")
    for spec in containers.specs:
        yield from judge_spec(spec, containers)
    named = frozenset(number for spec in containers.specs for number in spec.devices)
    count = len(scan.functions or ())
    if named and not scan.image and count > len(named):
        message = f"the CDI specification names {len(named)} of {count} GPUs"
        yield warns("CDI specifications", message, len(named), expected=count)


def judge_spec(spec: CdiSpec, containers: Containers) -> Findings:
    """Releases and device files of one specification."""
    if spec.releases and not containers.libraries:
        yield unknown(spec.path, "no libcuda.so is in a known folder to compare it with")
        return
    stale = sorted(spec.releases - containers.libraries)
    gone = [f"/dev/nvidia{n}" for n in sorted(spec.devices)]
    gone = [path for path in gone if path in containers.missing]
    if stale:
        message = f"it was made for driver {', '.join(stale)}: containers do not start"
        yield fails(spec.path, message, stale, expected=sorted(containers.libraries))
    if gone:
        yield fails(spec.path, f"it names {', '.join(gone)}, which is not there", gone)
    if not stale and not gone:
        yield passes(spec.path, f"{len(spec.devices)} devices, driver {', '.join(spec.releases)}")


@check("container-default-shm", severity=Severity.LOW)
def default_shm(containers: Containers, want: ContainerExpectations) -> Finding:
    """Docker gives containers that ask for nothing enough shared memory.

    ## Why it matters
    Data loaders and NCCL exchange data through /dev/shm. Docker's 64 MiB end in a bus error.

    ## Evidence
    default-shm-size in /etc/docker/daemon.json.

    ## How it is judged
    Below `container.docker_shm_min_mib` warns; without a value there nothing is judged.

    ## Exceptions
    Not applicable without Docker. Containers with --shm-size or --ipc=host are not held by it, and
    Kubernetes does not use it. Limits of open files and locked memory have checks of their own.

    ## What to do
    Set `"default-shm-size": "1g"` in /etc/docker/daemon.json and restart Docker.

    ## References
    - https://docs.docker.com/reference/cli/dockerd/
    - https://docs.nvidia.com/deeplearning/frameworks/user-guide/index.html
    """
    if want.docker_shm_min_mib is None:
        raise NotApplicable("the policy asks for nothing")
    if all(way.runtime != "docker" for way in containers.ways):
        raise NotApplicable("Docker is not installed")
    if isinstance(containers.docker, Absent):
        return expect(containers.docker, None, of=DAEMON_JSON)
    text = str(containers.docker.get("default-shm-size", "64m")).strip().lower()
    digits = text.rstrip("bkmgt")
    if not digits.isdecimal() or len(digits) > 18:
        return unknown("default-shm-size", f"{text[:20]} is no size", text[:20])
    mib = int(digits) * UNITS[(text[len(digits) :] or "b")[0]] / (1 << 20)
    if mib >= want.docker_shm_min_mib:
        return passes("default-shm-size", text)
    message = f"containers get {mib:g} MiB of /dev/shm"
    return warns("default-shm-size", message, text, expected=f"{want.docker_shm_min_mib} MiB")
