# SPDX-License-Identifier: Apache-2.0
"""Whether a GPU that asked for a recovery has had it: nvidia-smi --gpu-reset leaves no line.

Xid 154 says that the driver asks for a recovery of a GPU, NVML what it asks for now.
"""

from collections.abc import Iterable
from typing import ClassVar

from gpuaudit.facts.base import Fact, probe
from gpuaudit.facts.gpu import told_address
from gpuaudit.facts.xid import RECOVERY_CHANGED, Xid
from gpuaudit.host import Host, NotApplicable, Unavailable

CALL = "nvmlDeviceGetFieldValues(230)"  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION of nvml.h
NO_ACTION = 0  # NVML_GPU_RECOVERY_ACTION_NONE
RECOVERED = "the driver asked for a recovery then (Xid 154), and does not any more (NVML)"


class RecoveryActions(Fact, frozen=True, kw_only=True):
    """NVML field 230 of each GPU that answers, by PCI address; empty where NVML does not."""

    asks_nvml: ClassVar[bool] = True
    by_address: dict[str, int]


@probe
def recovery_actions(host: Host) -> RecoveryActions:
    """Ask NVML, which may not answer at all after such an error: that is no reason to stop."""
    try:
        answers = host.nvml()
    except (Unavailable, NotApplicable):
        return RecoveryActions(by_address={})
    found: dict[str, int] = {}
    for index in range(len(answers.devices)):
        answer, address = answers.of_device(index, CALL), told_address(answers, index)
        if address and answer.ok and type(answer.v) is int:
            found[address] = answer.v
    return RecoveryActions(by_address=found)


def with_recovered(rows: Iterable[Xid], now: RecoveryActions) -> tuple[Xid, ...]:
    """The rows; those up to the driver's demand are past where it demands nothing any more."""
    known = tuple(rows)
    demands = {
        whole(one): one.order
        for one in known
        if one.meaning.code == RECOVERY_CHANGED and one.kind == "fail"
    }
    return tuple(
        one._replace(settled=one.settled or RECOVERED)
        if now.by_address.get(whole(one)) == NO_ACTION and one.order <= demands.get(whole(one), -1)
        else one
        for one in known
    )


def whole(one: Xid) -> str:
    """The GPU that an instance of MIG is a part of."""
    return one.device.partition(" ")[0]
