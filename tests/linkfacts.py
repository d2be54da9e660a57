# SPDX-License-Identifier: Apache-2.0
"""NVLink facts made by hand: eight healthy H100, and answers of one that are not."""

from typing import Any

import msgspec
from fakenvml import healthy_h100
from gpufacts import answers, gpus, machine

from gpuaudit.facts.nvlink import NvLinks, nvlinks
from gpuaudit.facts.nvml import Nvml

BARE, GUEST = machine(), machine(hypervisor="kvm")


def links(changes: dict[str, Any] | None = None, gpu: int = 2, count: int = 8) -> NvLinks:
    """Healthy GPUs with changed answers of one: a value, or an error as {"e": code}."""
    document = healthy_h100(count)
    for call, value in (changes or {}).items():
        document["devices"][gpu][f"nvmlDeviceGet{call}"] = (
            value if isinstance(value, dict) and "e" in value else {"v": value}
        )
    return nvlinks(Nvml(answers=answers(document)), gpus(document))


def replaced(found: NvLinks, index: int = 2, **fields: Any) -> NvLinks:
    """The GPU itself with other fields."""
    told = list(found.gpus)
    gpu = msgspec.structs.replace(told[index].gpu, **fields)
    told[index] = msgspec.structs.replace(told[index], gpu=gpu)
    return msgspec.structs.replace(found, gpus=tuple(told))


def down(*numbers: int) -> dict[str, Any]:
    states = {f"NvLinkState({n})": 0 for n in numbers}
    return states | {f"FieldValues(165,{n})": 0 for n in numbers}
