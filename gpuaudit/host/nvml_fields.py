# SPDX-License-Identifier: Apache-2.0
"""Field values of NVML: one by one, or many in one call. Runs in the child."""

from collections.abc import Sequence
from typing import Any

from gpuaudit.host.answers import Answer
from gpuaudit.host.nvml_calls import Read, attempt, symbol

FIELDS = "nvmlDeviceGetFieldValues"
UNION_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of nvmlValue_t, in the order of nvmlValueType_t (nvml.h)."""


def field_value(identifier: int) -> tuple[str, Read]:
    """A field: the call succeeds even when the value carries an error of its own."""
    return field_key((identifier,)), lambda nvml, handle: _alone(nvml, handle, identifier)


def field_values(nvml: Any, handle: Any, wanted: Sequence[tuple[int, ...]]) -> list[Answer]:
    """Many fields, (ID) or (ID, scope), in one call. Each has an answer of its own.

    Eight H200 with 18 links answer three error counters of each in 135 ms when the fields of a link
    stand together, and in 360 ms when they do not. What the driver did not fill in is asked again.
    """
    pairs = [(one[0], one[1] if len(one) > 1 else 0) for one in wanted]
    try:
        fields = symbol(nvml, FIELDS)(handle, pairs)
    except Exception as error:  # noqa: BLE001 - attempt tells what it was, once for every field
        return [attempt(nvml, _raise, error)] * len(pairs)
    found = zip(pairs, fields, strict=True)
    return [
        attempt(nvml, _of_field, field) if _filled(field) else attempt(nvml, _alone, handle, pair)
        for pair, field in found
    ]


def field_key(wanted: tuple[int, ...]) -> str:
    """nvmlDeviceGetFieldValues(164,3): field 164 of link 3."""
    return f"{FIELDS}({','.join(map(str, wanted))})"


def _raise(_: Any, error: Exception) -> Any:
    raise error


def _filled(field: Any) -> bool:
    """Driver 580 left the type of 270 and 271 as it was when they stood behind unsupported fields.

    That is the type double, which none of the fields has that are asked here.
    """
    return bool(field.nvmlReturn or field.valueType)


def _alone(nvml: Any, handle: Any, wanted: Any) -> Any:
    (field,) = symbol(nvml, FIELDS)(handle, [wanted])
    if not _filled(field):
        raise ValueError("the driver filled in no value")
    return _of_field(nvml, field)


def _of_field(nvml: Any, field: Any) -> Any:
    if field.nvmlReturn:
        raise nvml.NVMLError(field.nvmlReturn)
    return getattr(field.value, UNION_MEMBERS[field.valueType])
