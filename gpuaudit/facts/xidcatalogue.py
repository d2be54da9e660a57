# SPDX-License-Identifier: Apache-2.0
"""What the codes of the NVIDIA driver mean: xids.tsv, read when the first code turns up."""

from functools import cache
from typing import NamedTuple

SWITCH, GPU = "S", "X"
UNKNOWN = "unknown"

ACTIONS = {
    "none": "nothing has to be done",
    "watch": "nothing has to be done unless it comes back",
    "restart-app": "start the program again; when it comes back, look at the program first",
    "check-app": "look at the program and its CUDA version",
    "reset-when-idle": "reset the GPU when it is idle; a reboot does it too",
    "reset-gpu": "drain the node, end what uses the GPU, run nvidia-smi --gpu-reset; "
    "reboot and run the field diagnostic if it comes back",
    "reset-fabric": "drain the node and reset all GPUs and NVSwitches together with "
    "nvidia-smi --gpu-reset; reboot if that fails",
    "reboot": "drain the node and reboot it, with a power cycle if it comes back",
    "restart-vm": "restart the virtual machine",
    "update-software": "bring driver, vGPU manager and firmware to releases that fit together",
    "check-mechanics": "look at the power cables and at how boards and links sit",
    "check-cooling": "look at the fans and at the air that comes in",
    "contact-support": "run the field diagnostic and ask the vendor when it comes back",
    "see-text": "do what the message names",
}


class Meaning(NamedTuple):
    """One row of the catalogue. `kind`: fail, warn, application, information, by-text, unknown."""

    code: int
    fault: str
    action: str
    kind: str
    applies: str
    meaning: str


@cache
def catalogue() -> dict[str, Meaning]:
    """Every code that is known: X79 of a GPU, S20034 of an NVSwitch."""
    import pkgutil

    text = (pkgutil.get_data("gpuaudit.facts", "xids.tsv") or b"").decode()
    rows = (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
    return {row[0]: Meaning(int(row[0][1:]), *row[1:]) for row in rows}


def meaning_of(code: int, family: str = GPU) -> Meaning:
    """What a code means, also of one that this release does not know."""
    known = catalogue().get(f"{family}{code}")
    if known is not None:
        return known
    text = "not in the catalogue of this release"
    return Meaning(code, "unknown", "contact-support", UNKNOWN, "unknown", text)
