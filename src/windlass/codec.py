"""Payloads as strict JSON text. A value that some store cannot keep is refused here, with its path.

This module knows values. `Signature` knows a task's function and its annotations. It reads each payload back before
it is stored, so a worker can read the payload too.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET

from .errors import InvalidInput

MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_DEPTH = 200  # well below Python's recursion limit, so that every process can decode the payload

UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
UNSUPPORTED = (TypeError, NameError, AttributeError)  # msgspec raises these for types that it cannot read


def encode(value: object, limit: int = MAX_PAYLOAD_BYTES) -> str:
    """Return the value as JSON text. `InvalidInput` names the path of a part that cannot be stored."""
    return encode_readable(value, limit)


def decode(text: str | bytes, type: Any = Any) -> Any:
    """Read JSON text as a value of this type."""
    try:
        return msgspec.json.decode(text, type=type, dec_hook=load_special)
    except UNREADABLE as error:
        raise InvalidInput(reason(error)) from None
    except UNSUPPORTED as error:
        raise InvalidInput(f"{type!r} cannot be read from JSON: {error}") from None


def read_text(text: str) -> Any:
    """Read JSON text that a user wrote. A key that appears twice is an error, because a parser would hide it.

    `encode` checks later whether the value can be stored.
    """
    try:
        return _outside.decode(text)
    except RecursionError:
        raise InvalidInput(f"nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise InvalidInput(f"not JSON: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise InvalidInput(f"the key {key!r} appears more than once in an object")
    return found


# An integer of 25 digits is too large already. Python raises an error of its own for one of 5,000 digits.
_outside = json.JSONDecoder(object_pairs_hook=_object, parse_int=lambda digits: int(digits[:25]))


def encode_readable(
    value: object, limit: int, read: Callable[[bytes], Any] | None = None, careful: bool = False
) -> str:
    """Encode the value and read it back with `read`. `careful` also compares the bytes: those that come back as text
    are refused."""
    try:
        binary: list[bytes] | None = [] if careful else None
        data = msgspec.json.encode(_lower(value, 0, binary))
        if len(data) > limit:
            raise _Refusal(
                f"{len(data):,} bytes of JSON are more than the limit of {limit:,}; "
                "store large data elsewhere and pass a reference, or raise it: Windlass(max_payload=…)"
            )
        decoded = read(data) if read else None
        if binary is not None:
            came_back: list[bytes] = []
            _lower(decoded, 0, came_back)
            if Counter(binary) - Counter(came_back):
                _refuse_bytes(value)
    except _Refusal as refusal:
        raise InvalidInput(refusal.describe()) from None
    except RecursionError:
        raise InvalidInput("nested too deeply, or contains itself") from None
    return data.decode()


class _Refusal(Exception):
    """A part of the value cannot be stored. Each level of the value adds its step to the path."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str | int] = []

    def inside(self, step: str | int) -> _Refusal:
        self.steps.append(step)
        return self

    def describe(self) -> str:
        named = [f".{step}" if str(step).isidentifier() else f"[{step!r}]" for step in reversed(self.steps)]
        return f"{''.join(named).removeprefix('.') or 'the value'}: {self.reason}"


def _lower(value: Any, depth: int, binary: list[bytes] | None) -> Any:
    """Check the value and convert it to JSON's own types. With `binary`, bytes stay, and are collected in that list:
    msgspec writes them as base64."""
    kind: Any = type(value)
    if kind is str:
        return _check_string(value)
    if kind is int:
        if not -(2**63) <= value < 2**63:
            raise _Refusal("the integer needs more than 64 bits; pass it as text")
        return value
    if kind is bool or value is None:
        return value
    if kind is float:
        if not math.isfinite(value):
            raise _Refusal(f"{value} is not JSON; pass a finite number or None")
        return value
    if depth >= MAX_DEPTH:
        raise _Refusal(f"nested deeper than {MAX_DEPTH} levels, or contains itself")
    if kind is dict:
        return _lower_object(value, depth + 1, binary)
    if kind is list or kind is tuple:
        items: list[Any] = []
        try:
            for item in value:
                items.append(_lower(item, depth + 1, binary))  # noqa: PERF401 - its length is the index in the path
        except _Refusal as refusal:
            raise refusal.inside(len(items)) from None
        return items
    if binary is not None and issubclass(kind, _BINARY):
        binary.append(bytes(value))
        return binary[-1]
    return _lower(_simplifier(kind)(value), depth, binary)


def _lower_object(value: dict[Any, Any], depth: int, binary: list[bytes] | None) -> dict[str, Any]:
    fields = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise _Refusal(f"keys are strings, not {type(key).__name__}")
        try:
            fields[_check_string(str.__str__(key))] = _lower(item, depth, binary)
        except _Refusal as refusal:
            raise refusal.inside(key) from None
    return fields


def _check_string(value: str) -> str:
    if "\0" in value:
        raise _Refusal("text must not contain NUL characters")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _Refusal("text must not contain lone surrogates") from None
    return value


def _format_moment(value: datetime) -> str:
    offset = value.utcoffset()
    if offset is None:
        raise _Refusal("a datetime needs a timezone; use datetime.now(UTC), or give tzinfo=")
    if 1 < value.year < 9999 and not offset.seconds % 60 and not offset.microseconds:
        return value.isoformat()
    try:
        # RFC 3339 allows no seconds in an offset, and the offsets of local mean times have some.
        return value.astimezone(UTC).isoformat()
    except OverflowError:
        raise _Refusal("a datetime must lie between the years 1 and 9999 in UTC") from None


def _format_decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise _Refusal(f"{value} is not JSON; pass a finite Decimal or None")
    return str(value)


def _refuse_bytes(value: object) -> str:
    raise _Refusal("bytes come back as bytes only where the annotation says bytes; annotate it, or pass base64 text")


_BINARY = (bytes, bytearray, memoryview)
_SIMPLER: dict[Any, Callable[[Any], Any]] = {
    Enum: lambda value: value.value,
    str: str.__str__,
    int: int,
    float: float,
    datetime: _format_moment,
    date: date.isoformat,
    time: time.isoformat,
    timedelta: lambda value: msgspec.to_builtins(timedelta(value.days, value.seconds, value.microseconds)),
    UUID: str,
    Decimal: _format_decimal,
    Mapping: dict,
    (list, tuple, set, frozenset): list,
    _BINARY: _refuse_bytes,
}


@lru_cache(maxsize=1024)
def _simplifier(kind: Any) -> Callable[[Any], Any]:
    """Return the function that converts a value of this type to one that `_lower` knows."""
    for base, simplify in _SIMPLER.items():
        if issubclass(kind, base):
            return simplify
    if is_model(kind):
        return _dump_model
    if issubclass(kind, msgspec.Struct):
        return _struct_fields
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
        return lambda value: without_unset((name, getattr(value, name, UNSET)) for name in names)
    raise _Refusal(
        f"{kind.__qualname__} cannot be stored as JSON; pass JSON types, a dataclass, a struct or a pydantic model"
    )


def _struct_fields(value: msgspec.Struct) -> dict[str, Any] | list[Any]:
    config = value.__struct_config__
    tag: dict[Any, Any] = {} if config.tag is None else {config.tag_field: config.tag}
    values = [getattr(value, name) for name in value.__struct_fields__]
    if config.array_like:
        return [*tag.values(), *values]
    return tag | without_unset(zip(value.__struct_encode_fields__, values, strict=True))


def without_unset(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in fields if value is not UNSET}


def is_model(kind: Any) -> bool:
    """Whether it is a pydantic model class. This module does not import pydantic: the module that defines such a class
    has imported it."""
    base = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return base is not None and isinstance(kind, type) and issubclass(kind, base)


def _dump_model(model: Any) -> Any:
    try:
        for leaf in _leaves(model.model_dump(round_trip=True)):
            if isinstance(leaf, datetime):
                _format_moment(leaf)  # the JSON below is plain text, so a naive datetime must be refused here
        return model.model_dump(mode="json", by_alias=False, round_trip=True)
    except ValueError as error:
        raise _Refusal(f"{type(model).__qualname__}: {error}") from None


def load_special(kind: Any, value: Any) -> Any:
    """msgspec's hook for types that it does not know. msgspec adds the path to the errors that this raises."""
    if not is_model(kind):
        raise TypeError(f"{kind!r} cannot be read from JSON")
    try:
        return kind.model_validate_json(msgspec.json.encode(value), by_alias=True, by_name=True)
    except ValueError as error:
        details: list[Any] = getattr(error, "errors", list)()
        found = [f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}".removeprefix(": ") for detail in details]
        raise ValueError(f"{kind.__qualname__}: {'; '.join(found) or error}") from None


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, list, tuple, set, frozenset)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value


def reason(error: Exception) -> str:
    reason, _, path = str(error).partition(" - at `$")
    path = path.rstrip("`").removeprefix(".")
    return f"{path}: {reason}" if path else reason
