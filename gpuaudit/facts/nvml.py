# SPDX-License-Identifier: Apache-2.0
"""NVML's answers as a fact."""

from typing import ClassVar

from gpuaudit.facts.base import Fact, probe
from gpuaudit.host import Host
from gpuaudit.host.answers import NvmlAnswers


class Nvml(Fact, frozen=True, kw_only=True):
    """What nvidia-ml-py answered, call by call."""

    asks_nvml: ClassVar[bool] = True
    answers: NvmlAnswers


@probe
def nvml(host: Host) -> Nvml:
    """Ask NVML once, in its child process. The engine reads the PCI links before it starts that."""
    return Nvml(answers=host.nvml())
