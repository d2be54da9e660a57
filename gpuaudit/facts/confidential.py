# SPDX-License-Identifier: Apache-2.0
"""Confidential computing of the GPUs, which holds for the whole node."""

from gpuaudit.facts.base import Absent, Fact, probe
from gpuaudit.facts.gpu import Gpus
from gpuaudit.facts.gpuanswer import absence
from gpuaudit.facts.gpurecord import Call
from gpuaudit.facts.nvml import Nvml

SETTINGS, STATE = "nvmlSystemGetConfComputeSettings", "nvmlSystemGetConfComputeState"
MODES = {1: " (protected PCIe)", 2: " (NVLink encryption)"}
"""NVML_CC_SYSTEM_MULTIGPU_PROTECTED_PCIE, _NVLE: the feature itself may read as off with them."""


class Confidential(Fact, frozen=True, kw_only=True):
    """Whether it is on: ccFeature or multiGpuMode of nvmlSystemGetConfComputeSettings.

    Drivers before 545 answer nvmlSystemGetConfComputeState only, without the mode.
    """

    on: bool | Absent
    how: str = ""


@probe
def confidential(nvml: Nvml, gpus: Gpus) -> Confidential:
    """Read the two answers."""
    settings = nvml.answers.of_system(SETTINGS)
    state = settings if settings.ok else nvml.answers.of_system(STATE)
    if not state.ok or not isinstance(state.v, dict):
        return Confidential(on=absence(state, Call("ConfComputeState", int, 535), gpus.driver))
    mode = state.v.get("multiGpuMode", 0)
    return Confidential(on=bool(state.v.get("ccFeature") or mode), how=MODES.get(mode, ""))
