# SPDX-License-Identifier: Apache-2.0
"""The links of NVLink-C2C, between a GPU and its Grace CPU."""

from gpuaudit.facts.base import Fact, probe
from gpuaudit.facts.nvml import Nvml

STATUS = "nvmlDeviceGetFieldValues(171,"
"""NVML_FI_DEV_C2C_LINK_GET_STATUS of one link: 1 is up."""


class C2cLinks(Fact, frozen=True, kw_only=True):
    """Index of a GPU -> its links whose status NVML gives as other than up."""

    down: dict[int, tuple[int, ...]]


@probe
def c2c_links(nvml: Nvml) -> C2cLinks:
    """Read the status of every link that was asked."""
    down = {}
    for index, device in enumerate(nvml.answers.devices):
        told = ((c, a) for c, a in device.items() if c.startswith(STATUS) and a.ok)
        links = (call[len(STATUS) :].rstrip(")") for call, answer in told if answer.v != 1)
        down[index] = tuple(int(link) for link in links)
    return C2cLinks(down=down)
