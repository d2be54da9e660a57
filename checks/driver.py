# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA kernel driver and what has to fit it."""

from collections.abc import Iterator
from typing import Literal

from gpuaudit.check import (
    Expectations,
    Finding,
    Severity,
    Unavailable,
    Verdict,
    check,
    expect,
    fails,
    passes,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.driver import (
    NOT_LOADED,
    DriverLibraries,
    KernelDriver,
    Nouveau,
)
from gpuaudit.facts.gpu import Gpus
from gpuaudit.facts.gpuscan import GpuScan

MODULE = "nvidia kernel module"
NO_LIBRARY = "libnvidia-ml.so.1 is not installed"


class DriverExpectations(Expectations, frozen=True, kw_only=True):
    """What the policy wants of the driver."""

    modules: Literal["any", "open", "proprietary"]


@check("driver-loaded", severity=Severity.CRITICAL)
def loaded(driver: KernelDriver) -> Finding:
    """The NVIDIA kernel driver is loaded.

    ## Why it matters
    Without it no GPU can be used, and nothing else about the GPUs can be judged.

    ## Evidence
    /sys/module/nvidia and /proc/driver/nvidia/version.

    ## How it is judged
    One of the two exists.

    ## Exceptions
    Not applicable where there is no NVIDIA GPU, or where all are handed to guests.

    ## What to do
    Run `modprobe nvidia` and read `dmesg | grep -i nvrm` when it fails. After a kernel update run
    `dkms autoinstall`; with Secure Boot the module must be signed.

    ## References
    - https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/
    """
    if not driver.loaded:
        return fails(MODULE, "not loaded", "not loaded", expected="loaded")
    return passes(MODULE, "loaded", expected="loaded")


@check("driver-library-match", severity=Severity.CRITICAL)
def library_match(
    driver: KernelDriver, libraries: DriverLibraries, scan: GpuScan, gpus: Gpus
) -> Iterator[Finding]:
    """The kernel driver and the user-space libraries have the same version.

    ## Why it matters
    NVML and CUDA refuse to work with a kernel driver of another version.

    ## Evidence
    /proc/driver/nvidia/version; the files that libnvidia-ml.so.1 and libcuda.so.1 lead to; NVML's
    own version, and its code 18 LIB_RM_VERSION_MISMATCH.

    ## How it is judged
    All versions are equal. A library that is not installed fails too.

    ## Exceptions
    The 64-bit library folders of the distributions are searched, and those of the GPU Operator, GKE
    and NixOS; elsewhere NVML's version decides. CUDA's forward-compatibility folder is not looked
    at.

    ## What to do
    Reboot, or stop all GPU users and run `modprobe -r nvidia_uvm nvidia && modprobe nvidia`. Hold
    the driver packages (`apt-mark hold`) so that updates do not do it again.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html
    """
    if not driver.loaded:
        raise Unavailable(NOT_LOADED)
    if isinstance(driver.version, Absent):
        raise Unavailable(driver.version.reason)
    if gpus.problem and gpus.problem.kind == "library-missing" and not has_nvml(libraries):
        if scan.in_container:
            raise Unavailable(gpus.problem.sentence)
        yield fails("libnvidia-ml.so.1", NO_LIBRARY, "missing", expected=driver.version)
        return
    found = dict(libraries.versions)
    if gpus.library:
        found["NVML"] = gpus.library
    judged = [of_library(path, version, driver.version) for path, version in found.items()]
    yield from judged
    unexplained = all(finding.verdict is Verdict.PASS for finding in judged)
    if gpus.problem and gpus.problem.kind == "version-mismatch" and unexplained:
        yield fails("NVML", "the driver refuses the library (code 18)", expected=driver.version)
    elif not judged:
        yield unknown("libnvidia-ml.so.1", "no library was found and NVML did not tell its version")


def has_nvml(libraries: DriverLibraries) -> bool:
    """Whether the NVML library is in one of the folders."""
    return any("/libnvidia-ml.so." in path for path in libraries.versions)


def of_library(path: str, version: str, wanted: str) -> Finding:
    """One library. NVML leaves out the last number in some releases: compare what it tells."""
    same = wanted == version or wanted.startswith(f"{version}.")
    message = f"its version is {version}, that of the driver {wanted}"
    return expect(wanted if same else version, wanted, of=path, message=message)


@check("driver-open-modules", severity=Severity.HIGH)
def open_modules(driver: KernelDriver, want: DriverExpectations) -> Finding:
    """The kernel modules are of the flavour that the GPUs need.

    ## Why it matters
    Blackwell and Grace run with the open modules only: with the proprietary ones the GPU is not
    brought up. DMA-BUF, which GPUDirect RDMA uses on stock kernels, needs the open ones as well.

    ## Evidence
    The words "Open Kernel Module" in /proc/driver/nvidia/version.

    ## How it is judged
    The flavour is `driver.modules`; `any` accepts both.

    ## Exceptions
    Pascal and Volta need the proprietary modules.

    ## What to do
    Install the open flavour (`nvidia-open`, or packages whose names end in -open) of the same
    release, then reboot.

    ## References
    - https://developer.nvidia.com/blog/nvidia-transitions-fully-towards-open-source-gpu-kernel-modules/
    """
    if want.modules == "any" and not isinstance(driver.flavour, Absent):
        return passes(MODULE, driver.flavour, expected="open or proprietary")
    return expect(driver.flavour, want.modules, of=MODULE, message=f"{driver.flavour} modules")


@check("driver-nouveau-absent", severity=Severity.HIGH)
def nouveau_absent(other: Nouveau) -> Finding:
    """No other driver takes the GPUs away from the NVIDIA driver.

    ## Why it matters
    Whoever binds a GPU first keeps it; with nouveau bound, CUDA does not see the GPU.

    ## Evidence
    /sys/module/{nouveau,nova_core,nova_drm}; in an image the files of modprobe.d.

    ## How it is judged
    None of the modules is loaded; while every GPU is bound to the NVIDIA driver all the same, a
    loaded one is a warning of the next boot. An image that holds the NVIDIA driver must blacklist
    nouveau.

    ## Exceptions
    An image without the NVIDIA driver is not judged. The initramfs of an image is not looked into.

    ## What to do
    Write `blacklist nouveau` and `options nouveau modeset=0` to
    /etc/modprobe.d/nvidia-no-nouveau.conf, rebuild the initramfs and reboot.

    ## References
    - https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/
    - https://www.freedesktop.org/software/systemd/man/latest/modprobe.d.html
    """
    if other.kept_out is None:
        names = ", ".join(other.loaded)
        if names and other.idle:
            return warns(names, "loaded, though no GPU is bound to it now", "loaded")
        return fails(names, "loaded", "loaded") if names else passes("nouveau", "not loaded")
    if other.kept_out:
        return passes("nouveau", "blacklisted in modprobe.d")
    return fails("nouveau", "not blacklisted: the next boot may load it", "no blacklist")
