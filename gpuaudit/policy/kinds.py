# SPDX-License-Identifier: Apache-2.0
"""Which value in a document does not fit its type, and what would."""

import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

Path = tuple[str | int, ...]
HOLDS: dict[Any, type] = {dict: dict, list: list, tuple: list}


WORDS = {
    "object": "a mapping",
    "array": "a list",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "a truth value",
    "null": "nothing",
    "date": "a date",
}


def plain(message: str) -> str:
    """What msgspec says, in the words of whoever writes YAML: `object` is a mapping."""
    if "RFC3339" in message:
        return "expected a date such as 2027-01-31"
    return re.sub(r"`(\w+)`", lambda m: WORDS.get(m[1], m[0]), message)


class Misfit(NamedTuple):
    """The smallest value that does not fit: where it stands, its type and what msgspec says."""

    path: Path
    value: object
    kind: Any
    message: str


def misfit(value: object, kind: Any, path: Path = ()) -> Misfit | None:
    """Descend to the value that is wrong by itself; None when everything fits.

    Msgspec's own path says `[...]` for any key of a dict, which names no line.
    """
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        inside = (misfit(one, of, (*path, step)) for step, one, of in children(value, kind))
        message = str(error).partition(" - at `")[0]
        return next((one for one in inside if one is not None), Misfit(path, value, kind, message))
    return None


def children(value: object, kind: Any) -> Iterator[tuple[str | int, object, Any]]:
    """(step, value, type) of what a mapping or list holds, keys of dicts before their values."""
    arm = container(kind, value)
    inside = get_args(arm)
    if isinstance(value, dict) and is_record(arm):
        hints = get_type_hints(arm, include_extras=True)
        yield from ((key, one, hints[key]) for key, one in value.items() if key in hints)
    elif isinstance(value, dict) and inside:
        yield from ((key, key, inside[0]) for key in value)
        yield from ((key, one, inside[1]) for key, one in value.items())
    elif isinstance(value, list) and inside:
        yield from ((at, one, inside[0]) for at, one in enumerate(value))


def container(kind: Any, value: object) -> Any:
    """The arm of a union that holds what `value` holds; a plain type is its own."""
    for arm in arms(kind):
        holds = HOLDS.get(dict if is_record(arm) else get_origin(arm))
        if holds is not None and isinstance(value, holds):
            return arm
    return None


def arms(kind: Any) -> tuple[Any, ...]:
    """The alternatives of a type, without None and annotations; literals stay together."""
    if get_origin(kind) is Annotated:
        return arms(get_args(kind)[0])
    if get_origin(kind) in {Union, types.UnionType}:
        return tuple(arm for one in get_args(kind) for arm in arms(one))
    return () if kind is type(None) else (kind,)


def is_record(kind: Any) -> bool:
    """True for a msgspec.Struct."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def allowed(kind: Any) -> str:
    """'none, any', '0 to 64', 'true or false': what fits, where that is a matter of values."""
    if get_origin(kind) in {Union, types.UnionType}:
        return " or ".join(text for one in get_args(kind) if (text := allowed(one)))
    if get_origin(kind) is Literal:
        return ", ".join(map(str, get_args(kind)))
    if get_origin(kind) is Annotated:
        return of_meta(*get_args(kind)[:2])
    if get_origin(kind) in {tuple, list}:
        text = allowed(get_args(kind)[0])
        return text and f"a list of {text}"
    return {bool: "true or false", type(None): "null"}.get(kind, "")


def of_meta(kind: Any, meta: Any) -> str:
    """The limits of an annotated type."""
    if not isinstance(meta, msgspec.Meta):
        return allowed(kind)
    low = meta.ge if meta.ge is not None else meta.gt
    high = meta.le if meta.le is not None else meta.lt
    if low is not None and high is not None:
        return f"{'above ' if meta.ge is None else ''}{low} to {high}"
    return f"{meta.pattern}" if meta.pattern else allowed(kind)


def takes_words(kind: Any) -> bool:
    """True when some words fit, such as `any`."""
    return any(arm is str or get_origin(arm) is Literal for arm in arms(kind))


def takes_numbers(kind: Any) -> bool:
    """True when some numbers fit."""
    return any(arm in {int, float} for arm in arms(kind))
