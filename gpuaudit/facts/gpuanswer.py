# SPDX-License-Identifier: Apache-2.0
"""One answer of NVML as the value of a field, or what its absence means."""

import re
from typing import Any

import msgspec

from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpurecord import Call
from gpuaudit.host.answers import Answer
from gpuaudit.host.nvml_problems import (
    ARGUMENT_VERSION_MISMATCH,
    DEPRECATED,
    FUNCTION_NOT_FOUND,
    NO_ANSWER,
)

INVALID_ARGUMENT = 2
"""What an older driver answers to a field ID it does not know (nvml.h, NVML_ERROR_...)."""


def value_of(answer: Answer, call: Call, driver: str | None) -> Any:
    """The value as the field's type, or Absent with the reason."""
    if not answer.ok:
        return absence(answer, call, driver)
    try:
        return msgspec.convert(answer.v, call.kind)
    except msgspec.ValidationError as error:
        return Absent("failed", f"{call.name} answered something else: {error}")


def absence(answer: Answer, call: Call, driver: str | None) -> Absent:
    """Unsupported, denied or failed. A question that a driver never knew is unsupported too."""
    if answer.unsupported:
        return Absent("unsupported", f"this GPU does not support it ({call.name})")
    if answer.e == DEPRECATED:
        return Absent("unsupported", f"driver {driver} no longer has it ({call.name})")
    if answer.denied:
        return Absent("denied", f"{call.name} needs root: run gpuaudit as root")
    if answer.e == NO_ANSWER:
        return Absent("failed", answer.reason)
    too_old = {FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, INVALID_ARGUMENT}
    if answer.e in too_old and 0 < release_of(driver) < call.since:
        return Absent("unsupported", f"driver {driver} is older than {call.since} ({call.name})")
    return Absent("failed", f"{call.name}: {answer.reason}")


def release_of(driver: str | None) -> int:
    """570 of '570.86.15'; zero when it is not known."""
    major = re.match(r"[0-9]{1,6}", driver or "")
    return int(major[0]) if major else 0
