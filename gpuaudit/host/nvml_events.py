# SPDX-License-Identifier: Apache-2.0
"""What the NVML child tells its parent, one JSON line each."""

from typing import Final

import msgspec

from gpuaudit.host.answers import Answer

INIT: Final = "nvmlInit"
COUNT: Final = "nvmlDeviceGetCount_v2"


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call begins (`at` is monotonic), it answered, or all is done."""

    begin: str | None = None
    at: float = 0.0
    answer: str | None = None
    is_: Answer | None = msgspec.field(default=None, name="is")
    device: int | None = None
    binding: str | None = None
    failed: str | None = None
    done: bool = False
