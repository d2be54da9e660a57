# SPDX-License-Identifier: Apache-2.0
"""The NVML answers of one node: schema ``gpuaudit.nvml/1``, written by the NVML child."""

import signal
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from gpuaudit.host.nvml_problems import (
    ARGUMENT_VERSION_MISMATCH,
    DEPRECATED,
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    GPU_NOT_FOUND,
    NO_ANSWER,
    NO_PERMISSION,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    Problem,
    child_problem,
    crashed_problem,
    error_text,
    hung_problem,
    nvml_problem,
)

__all__ = [
    "SCHEMA",
    "Answer",
    "BadAnswers",
    "Crashed",
    "Hung",
    "NvmlAnswers",
    "Problem",
    "decode_answers",
    "encode_answers",
    "nvml_problem",
]

SCHEMA: Final = "gpuaudit.nvml/1"
SECOND: Final = "#2"
"""Behind the key of a question that was asked again, after all others."""


class BadAnswers(ValueError):
    """The document is not gpuaudit.nvml/1; the message names the JSON path."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one NVML call returned: a value `v`, or an error code `e` with a text `t`."""

    v: Any = UNSET
    e: int | UnsetType = UNSET
    t: str | UnsetType = UNSET

    def __post_init__(self) -> None:
        if (self.v is UNSET) == (self.e is UNSET):
            raise ValueError("exactly one of `v` and `e` is needed")
        if self.e == 0:
            raise ValueError("`e` is an error code; 0 is success")

    @property
    def ok(self) -> bool:
        """NVML returned a value."""
        return self.e is UNSET

    @property
    def unsupported(self) -> bool:
        """The device does not have this feature."""
        return self.e == NOT_SUPPORTED

    @property
    def outdated(self) -> bool:
        """Driver and binding are too far apart for this call."""
        return self.e in {FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, DEPRECATED}

    @property
    def denied(self) -> bool:
        """Only root may ask this."""
        return self.e == NO_PERMISSION

    @property
    def gone(self) -> bool:
        """The GPU itself does not answer any more, whatever it is asked."""
        return self.e in {GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND}

    @property
    def reason(self) -> str:
        """Why there is no value; empty when there is one."""
        if isinstance(self.e, UnsetType):
            return ""
        text = error_text(self.e) if isinstance(self.t, UnsetType) else self.t
        return text if self.e < 0 else f"{text} (NVML error {self.e})"


class Hung(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The call in progress at the deadline; `after_s` is how long that call had been running."""

    call: str
    device: int | None
    after_s: float

    @property
    def subject(self) -> str:
        """The call and its GPU, for people."""
        return _place(self.call, self.device)


class Crashed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The call in which the child ended by itself: by a signal, or `text` says what else."""

    call: str
    device: int | None
    signal: int | None
    text: str = ""

    @property
    def subject(self) -> str:
        """The call and its GPU, for people."""
        return _place(self.call, self.device)

    @property
    def how(self) -> str:
        """The name of the signal, or the text."""
        known = {one.value: one.name for one in signal.Signals}
        return self.text if self.signal is None else known.get(self.signal, f"signal {self.signal}")


class NvmlAnswers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything NVML was asked, by name of the Python call; `devices` is ordered by index."""

    schema: Literal["gpuaudit.nvml/1"]
    binding: str | None
    init: Answer
    system: dict[str, Answer]
    devices: tuple[dict[str, Answer], ...]
    hung: Hung | None = None
    crashed: Crashed | None = None

    def of_system(self, call: str) -> Answer:
        """The answer to a system call; NO_ANSWER with the reason when it was not asked."""
        return self.system.get(call) or self._unanswered()

    def of_device(self, index: int, call: str) -> Answer:
        """The answer of one GPU; NO_ANSWER with the reason when it was not asked."""
        if not 0 <= index < len(self.devices):
            return Answer(e=NO_ANSWER, t=f"NVML knows no GPU {index}")
        handle = self.devices[index].get("nvmlDeviceGetHandleByIndex_v2")
        lost = handle if handle is not None and not handle.ok else None
        return self.devices[index].get(call) or lost or self._unanswered()

    def problem(self, *, driver_loaded: bool | None = None) -> Problem | None:
        """Why NVML as a whole cannot be trusted, or None when every question was asked."""
        if self.hung is not None:
            return hung_problem(self.hung.subject, self.hung.after_s)
        if self.crashed is not None:
            explain = child_problem if self.crashed.signal is None else crashed_problem
            return explain(self.crashed.subject, self.crashed.how)
        if isinstance(self.init.e, UnsetType):
            return None
        detail = "" if isinstance(self.init.t, UnsetType) else self.init.t
        return nvml_problem(self.init.e, driver_loaded=driver_loaded, detail=detail)

    def _unanswered(self) -> Answer:
        if self.hung is not None:
            return Answer(e=NO_ANSWER, t=f"not answered: NVML hung in {self.hung.subject}")
        if self.crashed is not None:
            return Answer(e=NO_ANSWER, t=f"not answered: NVML crashed in {self.crashed.subject}")
        return Answer(e=NO_ANSWER, t="NVML was not asked for this") if self.init.ok else self.init


def encode_answers(answers: NvmlAnswers) -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(answers)


def decode_answers(data: bytes | str) -> NvmlAnswers:
    """Read a document. Raises BadAnswers, which names the JSON path."""
    try:
        return msgspec.json.decode(data, type=NvmlAnswers)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadAnswers(_with_key(str(error), data)) from None


def _with_key(message: str, data: bytes | str) -> str:
    """The library writes `[...]` for a key of a dict; name the first key that is at fault."""
    if "[...]" not in message:
        return message
    for place, answer in _places(msgspec.json.decode(data)):
        try:
            msgspec.convert(answer, Answer)
        except msgspec.ValidationError as error:
            return f"{error} - below `{place}`"
    return message


def _places(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    groups = {"$.system": document.get("system")}
    devices = document.get("devices")
    for index, device in enumerate(devices if isinstance(devices, list) else ()):
        groups[f"$.devices[{index}]"] = device
    for place, answers in groups.items():
        for call, answer in answers.items() if isinstance(answers, dict) else ():
            yield f"{place}[{call!r}]", answer


def _place(call: str, device: int | None) -> str:
    return call if device is None else f"{call} on GPU {device}"
