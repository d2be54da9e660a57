# SPDX-License-Identifier: Apache-2.0
"""Firmware of the GPUs: the GSP's, and the InfoROM image."""

from collections.abc import Iterator

from gpuaudit.check import (
    Finding,
    NotApplicable,
    Severity,
    Verdict,
    check,
    expect,
    not_applicable,
    unknown,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpu import Gpu, Gpus, majority


@check("gpu-gsp-firmware", severity=Severity.MEDIUM)
def gsp_firmware(gpus: Gpus) -> Iterator[Finding]:
    """The GSP runs as the product wants it, with the firmware of the driver.

    ## Why it matters
    The GSP is the processor on the GPU that does the driver's work. Switched off it costs CPU time,
    and newer GPUs do not start; firmware of another release makes calls fail in odd ways.

    ## Evidence
    nvmlDeviceGetGspFirmwareMode (now and by default), nvmlDeviceGetGspFirmwareVersion, driver.

    ## How it is judged
    Firmware of another version than the driver fails. A GSP that is off though on by default warns.

    ## Exceptions
    Sites switched the GSP off on A100 and H100 because of Xid 119 with old drivers: waive it with
    a date. Open kernel modules switch it on where the default was off: that is right. Not
    applicable on GPUs without a GSP and with vGPU.

    ## What to do
    Look for NVreg_EnableGpuFirmware in /etc/modprobe.d and take it out; for another version, take
    away the old files in /lib/firmware/nvidia and install the driver again. Reboot.

    ## References
    - https://download.nvidia.com/XFree86/Linux-x86_64/570.86.15/README/gsp.html
    """
    for gpu in gpus.asked():
        yield of_gsp(gpu, gpus.driver)


def of_gsp(gpu: Gpu, driver: str | None) -> Finding:
    """One GPU: mode, then version."""
    of, mode = gpu.subject, gpu.gsp_mode
    if gpu.is_vgpu:
        return not_applicable(of, "a virtual GPU: the host runs the firmware")
    if isinstance(mode, Absent):
        return expect(mode, None, of=of)
    if mode[1] and not mode[0]:
        return warns(of, "the GSP is off, by default it is on", "off", expected="on")
    if not mode[0]:
        return not_applicable(of, "this GPU runs without a GSP by default")
    return of_version(of, gpu.gsp_version, driver)


def of_version(of: str, version: str | Absent, driver: str | None) -> Finding:
    """The firmware of a GSP that runs."""
    if driver is None and not isinstance(version, Absent):
        return unknown(of, "the version of the driver is not known")
    return expect(version, driver, of=of, message=f"GSP firmware {version}, driver {driver}")


@check("gpu-inforom-alike", severity=Severity.LOW)
def inforom_alike(gpus: Gpus) -> Iterator[Finding]:
    """All GPUs of one model have the same InfoROM image.

    ## Why it matters
    The InfoROM holds the configuration of the board. One that differs is a board from another batch
    or a swapped one, and the first thing to look at when one GPU behaves differently.

    ## Evidence
    nvmlDeviceGetInforomImageVersion of every GPU.

    ## How it is judged
    An image that differs from the most frequent one of the same model is a warning.

    ## Exceptions
    One GPU of a model is not compared. Not applicable where the GPU has no InfoROM (GeForce), and
    with vGPU. Boards are replaced one at a time: a warning says no more than that.

    ## What to do
    Ask the vendor whether the two images may be mixed; NVIDIA's firmware update packages bring
    boards to one level.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    asked = gpus.asked()
    if len(asked) < 2:
        raise NotApplicable("there is only one GPU to compare")
    for gpu in asked:
        mates = [one for one in asked if one.pci_id == gpu.pci_id]
        usual = majority(one.inforom for one in mates if not isinstance(one.inforom, Absent))
        text = f"InfoROM {gpu.inforom}, its neighbours have {usual}"
        yield expect(gpu.inforom, usual, of=gpu.subject, message=text, otherwise=Verdict.WARN)
