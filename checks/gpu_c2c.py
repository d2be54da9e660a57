# SPDX-License-Identifier: Apache-2.0
"""NVLink-C2C, the way between a GPU and the Grace CPU beside it."""

from collections.abc import Iterator

from gpuaudit.check import (
    Expectations,
    Finding,
    NotApplicable,
    Severity,
    Unavailable,
    check,
    expect,
    fails,
    not_applicable,
    passes,
    warns,
)
from gpuaudit.facts.base import Absent
from gpuaudit.facts.c2c import C2cLinks
from gpuaudit.facts.gpu import Gpu, Gpus
from gpuaudit.facts.gpuscan import GpuScan


class GpuC2cExpectations(Expectations, frozen=True, kw_only=True):
    """Whether the product has NVLink-C2C."""

    link: bool


@check("gpu-c2c-link", severity=Severity.CRITICAL)
def c2c_link(
    scan: GpuScan, gpus: Gpus, links: C2cLinks, want: GpuC2cExpectations
) -> Iterator[Finding]:
    """NVLink-C2C joins every GPU with its Grace CPU.

    ## Why it matters
    Without it the GPU reaches the memory of the CPU over PCIe, at a seventh of the bandwidth, and
    programs that rely on coherent memory do not work.

    ## Evidence
    nvmlDeviceGetC2cModeInfoV, NVML_FI_DEV_C2C_LINK_GET_STATUS of each link.

    ## How it is judged
    The mode is enabled, where `gpu_c2c.link` says that the product has it. Where it is enabled, a
    link that is down warns.

    ## Exceptions
    Not applicable to products without Grace. A guest that is given the GPU without C2C shows it
    off. Single links that are down warn: whether a board uses all of them NVML does not tell.

    ## What to do
    Read the kernel log for C2C lines, power-cycle the tray, and have the superchip replaced when it
    comes back.

    ## References
    - https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    - https://docs.nvidia.com/grace-perf-tuning-guide/
    """
    if not want.link and not any(gpu.is_coherent for gpu in gpus.records):
        if scan.functions is None:
            raise Unavailable("which GPUs this machine has was not recorded", "not-recorded")
        raise NotApplicable("the policy knows no NVLink-C2C of this product, and it is not on")
    for gpu in gpus.asked():
        if want.link or gpu.is_coherent:
            yield of_gpu(gpu, links.down.get(gpu.index, ()))
        else:
            yield not_applicable(gpu.subject, "no NVLink-C2C")


def of_gpu(gpu: Gpu, down: tuple[int, ...]) -> Finding:
    """One GPU."""
    cost = "the GPU reaches the memory of the CPU at PCIe speed"
    if isinstance(gpu.c2c, Absent):
        return expect(gpu.c2c, None, of=gpu.subject)
    if not gpu.is_coherent:
        return fails(gpu.subject, "NVLink-C2C is off", "off", expected="on", cost=cost)
    if down:
        text = f"C2C links are down: {', '.join(map(str, down))}"
        return warns(gpu.subject, text, text, expected="all up")
    return passes(gpu.subject, "on")
