# SPDX-License-Identifier: Apache-2.0
"""What a fact and a probe are.

A probe is a function that returns one fact. Its parameters are injected by type: the Host, or
other facts. It raises Unavailable(reason, kind) when the evidence could not be had, and
NotApplicable(reason) when the machine has no such thing.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, TypeVar

import msgspec

from gpuaudit.host.errors import Unavailable


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A typed reading. The docstring of each fact names its origin (path or call)."""

    asks_nvml: ClassVar[bool] = False
    """True for a fact whose own probe asks NVML: the engine gets it last."""


class Absent(msgspec.Struct, frozen=True):
    """A value that is not there: the device says unsupported, or it could not be read.

    unsupported -> the check does not apply to this device; failed, denied, missing -> unknown.
    """

    kind: Literal["unsupported", "failed", "denied", "missing"]
    reason: str


def unread(absent: Unavailable) -> Absent:
    """One value of several that could not be read: a right is lacking, or it was not to be had."""
    return Absent("denied" if absent.kind == "denied" else "missing", absent.reason)


P = TypeVar("P", bound=Callable[..., Any])
PROBES: dict[type, Callable[..., Any]] = {}


def probe(function: P) -> P:
    """Register `function` as the source of the fact type it returns."""
    fact = function.__annotations__["return"]
    other = PROBES.get(fact)
    if other is not None and other.__module__ != function.__module__:
        raise TypeError(
            f"{fact.__name__} has two probes: {other.__module__} and {function.__module__}"
        )
    PROBES[fact] = function
    return function
