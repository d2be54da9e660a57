# SPDX-License-Identifier: Apache-2.0
"""Where programs look for the CUDA driver library."""

from collections.abc import Iterator

from gpuaudit.check import Finding, NotApplicable, Severity, check, fails, passes, unknown, warns
from gpuaudit.facts.base import Absent
from gpuaudit.facts.driver import KernelDriver
from gpuaudit.facts.environmentloader import Folder, Loader
from gpuaudit.facts.generation import Generation

Findings = Iterator[Finding]


@check("environment-library-path", severity=Severity.HIGH)
def library_path(loader: Loader) -> Findings:
    """Programs find the driver's libcuda and not a stub.

    ## Why it matters
    The stubs of the CUDA toolkit are there to link against. A program that loads one instead of
    the driver's library sees no GPU (CUDA_ERROR_STUB_LIBRARY).

    ## Evidence
    /etc/ld.so.conf and ld.so.conf.d; LD_LIBRARY_PATH in the places that environment-debug names.

    ## How it is judged
    A folder named `stubs` fails in ld.so.conf, because ldconfig makes libcuda.so.1 there, and warns
    in LD_LIBRARY_PATH, where only programs that ask for libcuda.so find it.

    ## Exceptions
    On machines that only compile, and have no driver, stubs in LD_LIBRARY_PATH may be meant. In a
    container its own files count.

    ## What to do
    Take the stubs folder out and run `ldconfig`; give it to the linker with -L when compiling.

    ## References
    - https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html
    - https://man7.org/linux/man-pages/man8/ldconfig.8.html
    """
    bad = [folder for folder in loader.folders if "stubs" in folder.path.split("/")]
    for one in bad:
        answer = fails if one.reach == "every program" else warns
        condition = " where a condition of the script holds" if one.conditional else ""
        message = f"{one.reach} may load the stub of libcuda{condition}"
        yield answer(subject(one), message, one.path, evidence=(one.where,))
    yield from gaps(loader)
    if not bad and not loader.gaps:
        yield passes("folders of the loader", f"{len(loader.folders)} without stubs")


def subject(one: Folder) -> str:
    """The folder and the file that names it."""
    return f"{one.path} in {one.where.partition(':')[0]}"


def gaps(loader: Loader) -> Findings:
    """What of the loader's files is not known."""
    for path, absent in loader.gaps.items():
        yield unknown(path, absent.reason)


@check("environment-forward-compat", severity=Severity.MEDIUM)
def forward_compat(loader: Loader, driver: KernelDriver, kinds: Generation) -> Findings:
    """A CUDA compatibility library that programs find fits driver and GPU.

    ## Why it matters
    The package cuda-compat brings a libcuda newer than the driver. Once the driver has been updated
    beyond it, or on a GPU that is not made for data centers, each CUDA program ends with error 803
    or 804.

    ## Evidence
    Folders named `compat` in ld.so.conf.d and LD_LIBRARY_PATH, the release of the libcuda.so in
    them, the release of the loaded driver, the PCI IDs of the GPUs.

    ## How it is judged
    A library older than the driver fails where every program finds it and warns in
    LD_LIBRARY_PATH. So does any such library with a GeForce GPU.

    ## Exceptions
    Not applicable where no such folder is searched, and in an image, which has no driver loaded.
    Containers switch to theirs only when the driver is older, and are judged the same way.

    ## What to do
    Remove the package cuda-compat or its line in /etc/ld.so.conf.d, then run `ldconfig`.

    ## References
    - https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
    """
    mine = [folder for folder in loader.folders if folder.path in loader.compat]
    yield from gaps(loader)
    if not mine and not loader.gaps:
        raise NotApplicable("no folder with a CUDA compatibility library is searched")
    for one in mine:
        release = loader.compat[one.path]
        if isinstance(driver.version, Absent):
            yield unknown(subject(one), driver.version.reason, release)
            continue
        why = None
        if kinds.any_geforce:
            why = "GeForce GPUs do not take a compatibility library"
        elif numbers(release) < numbers(driver.version):
            why = f"it is older than the driver {driver.version}"
        answer = fails if one.reach == "every program" else warns
        yield answer(subject(one), why, release) if why else passes(subject(one), release)


def numbers(release: str) -> tuple[int, ...]:
    """570.86.15 as numbers."""
    return tuple(int(part[:18]) for part in release.split(".") if part.isdecimal())
