"""Payloads as strict JSON text: what cannot be stored alike on every store is refused here, with its path.

`encode`, `decode` and `check_text` know values; `Signature` knows a task's function, and types its arguments and its
result by the annotations. What it encodes it has read back itself: a worker can do so too.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import sys
import types
import typing
from collections import ChainMap, Counter
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property, lru_cache
from typing import Annotated, Any, Optional, Union, get_args, get_origin
from uuid import UUID

import msgspec
from msgspec import UNSET

from .errors import InvalidInput

MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_DEPTH = 200  # well below Python's recursion limit, so that what was encoded here can be decoded anywhere

_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
_UNSUPPORTED = (TypeError, NameError, AttributeError)  # what msgspec raises for types that it cannot read


def encode(value: object, limit: int = MAX_PAYLOAD_BYTES) -> str:
    """JSON text of a value; `InvalidInput`, with the path of the culprit, for what cannot be stored."""
    return _encode(value, limit)


def decode(text: str | bytes, type: Any = Any) -> Any:
    """The value of JSON text, as the type says."""
    try:
        return msgspec.json.decode(text, type=type, dec_hook=_load_special)
    except _UNREADABLE as error:
        raise InvalidInput(_reason(error)) from None
    except _UNSUPPORTED as error:
        raise InvalidInput(f"{type!r} cannot be read from JSON: {error}") from None


def check_text(text: str, limit: int = MAX_PAYLOAD_BYTES) -> str:
    """JSON text from outside, normalised; duplicate keys are refused, and all that `encode` refuses."""
    try:
        # An integer of 25 digits is too large already; Python would choke on one of 5,000.
        value = json.loads(text, object_pairs_hook=_object, parse_int=lambda digits: int(digits[:25]))
    except RecursionError:
        raise InvalidInput(f"nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise InvalidInput(f"not JSON: {error}") from None
    return encode(value, limit)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise InvalidInput(f"the key {key!r} appears more than once in an object")
    return found


def _encode(value: object, limit: int, read: Callable[[bytes], Any] | None = None, careful: bool = False) -> str:
    """`read` reads back by type; `careful` looks at what came of it: bytes that became text, or a naive datetime."""
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
    """Goes up to `_encode`; each level adds its step of the path."""

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
    """The value in JSON's own types, checked. Bytes may stay, to become base64, where `binary` gathers them."""
    kind: Any = type(value)
    if kind is str:
        return _check_string(value)
    if kind is int:
        if not -(2**63) <= value < 2**63:
            raise _Refusal("integers have at most 64 bits, with their sign")
        return value
    if kind is bool or value is None:
        return value
    if kind is float:
        if not math.isfinite(value):
            raise _Refusal(f"{value} is not JSON")
        return value
    if depth >= MAX_DEPTH:
        raise _Refusal(f"nested deeper than {MAX_DEPTH} levels, or contains itself")
    if kind is dict:
        return _lower_object(value, depth + 1, binary)
    if kind is list or kind is tuple:
        items: list[Any] = []
        try:
            for item in value:
                items.append(_lower(item, depth + 1, binary))  # noqa: PERF401 - its length is where we are
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
        raise _Refusal("a datetime needs a timezone")
    if 1 < value.year < 9999 and not offset.seconds % 60 and not offset.microseconds:
        return value.isoformat()
    try:
        return value.astimezone(UTC).isoformat()  # RFC 3339 has no seconds in its offsets; local mean times have
    except OverflowError:
        raise _Refusal("a datetime lies between the years 1 and 9999 of UTC") from None


def _format_decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise _Refusal(f"{value} is not JSON")
    return str(value)


def _refuse_bytes(value: object) -> str:
    raise _Refusal("bytes come back as bytes only where the annotation says so; pass base64 text instead")


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
    """What makes a value of this type one that `_lower` knows."""
    for base, simplify in _SIMPLER.items():
        if issubclass(kind, base):
            return simplify
    if _is_model(kind):
        return _dump_model
    if issubclass(kind, msgspec.Struct):
        return _struct_fields
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
        return lambda value: _without_unset((name, getattr(value, name, UNSET)) for name in names)
    raise _Refusal(f"{kind.__qualname__} cannot be stored as JSON")


def _struct_fields(value: msgspec.Struct) -> dict[str, Any] | list[Any]:
    config = value.__struct_config__
    tag: dict[Any, Any] = {} if config.tag is None else {config.tag_field: config.tag}
    values = [getattr(value, name) for name in value.__struct_fields__]
    if config.array_like:
        return [*tag.values(), *values]
    return tag | _without_unset(zip(value.__struct_encode_fields__, values, strict=True))


def _without_unset(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in fields if value is not UNSET}


def _is_model(kind: Any) -> bool:
    """Whether it is a pydantic class. Not imported here: whoever has such a class has imported pydantic."""
    base = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return base is not None and isinstance(kind, type) and issubclass(kind, base)


def _dump_model(model: Any) -> Any:
    for leaf in _leaves(model.model_dump(round_trip=True)):
        if isinstance(leaf, datetime):
            _format_moment(leaf)  # in the JSON below, a naive one is mere text
    try:
        return model.model_dump(mode="json", by_alias=False, round_trip=True)
    except ValueError as error:
        raise _Refusal(f"{type(model).__qualname__}: {error}") from None


def _load_special(kind: Any, value: Any) -> Any:
    """For types that msgspec does not know; it turns these errors into its own, with a path."""
    if not _is_model(kind):
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


def _reason(error: Exception) -> str:
    reason, _, path = str(error).partition(" - at `$")
    path = path.rstrip("`").removeprefix(".")
    return f"{path}: {reason}" if path else reason


class Signature:
    """A task's function as its payloads see it: arguments by name, typed, without the one that the worker injects.

    `control` are types that a handler may return and that are no results. `local_names` help to resolve annotations
    that are written as text; those that stay unresolved (`unresolved`, at the time of decoration) count as Any.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        injected: type,
        *,
        name: str | None = None,
        control: tuple[type, ...] = (),
        limit: int = MAX_PAYLOAD_BYTES,
        local_names: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name or str(getattr(function, "__name__", function))
        self.limit = limit
        self._control = control
        self._module_names: dict[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
        # The injected type comes last: a module may import it for its type checker only.
        self._names_in_sight = ChainMap(dict(local_names or {}), self._module_names, {injected.__name__: injected})
        signature = _inspect(function)
        self._return_annotation = signature.return_annotation
        hints = {p.name: self._resolve(p.annotation, None) for p in signature.parameters.values()}
        self.unresolved = [parameter for parameter, hint in hints.items() if hint is None]
        self.injected_name = self._find_injected(hints, injected)
        given = [p for p in signature.parameters.values() if p.name != self.injected_name]
        self._signature = signature.replace(parameters=given)
        self._learn_parameters(given)
        if not self.unresolved:
            self._refuse_unreadable()

    def encode_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """The arguments of a call, bound as the call itself would bind them. Defaults are not stored."""
        values = self._bind(args, kwargs)
        try:
            return _encode(values, self.limit, self._read, self._is_careful)
        except InvalidInput as error:
            raise InvalidInput(f"{self.name}: {error}") from None

    def encode_object(self, arguments: Mapping[str, Any]) -> str:
        """The same for arguments that came as one object."""
        if not isinstance(arguments, Mapping):
            raise InvalidInput(f"{self.name}: the input is an object of arguments by name")
        return self.encode_arguments((), arguments)

    def decode_arguments(self, text: str | bytes) -> dict[str, Any]:
        """What to call the function with, the injected parameter aside."""
        try:
            return self._read(text)
        except InvalidInput as error:
            raise InvalidInput(f"{self.name}: {error}") from None

    def encode_result(self, value: object) -> str:
        """The type is not enforced: work that is done must not be done again because an annotation is wrong."""
        try:
            if self._result_is_plain:
                return _encode(value, self.limit)
            return _encode(value, self.limit, self.decode_result, careful=True)
        except InvalidInput as error:
            raise InvalidInput(f"{self.name}: result: {error}") from None

    def decode_result(self, text: str | bytes) -> Any:
        """As the return annotation says, or as plain JSON where the two do not agree."""
        try:
            return decode(text, self._result_type)
        except InvalidInput:
            return decode(text)

    def _find_injected(self, hints: dict[str, Any], injected: type) -> str | None:
        found = [name for name, hint in hints.items() if _mentions(hint, injected)]
        if len(found) > 1:
            raise InvalidInput(f"{self.name}: {' and '.join(found)} are both the {injected.__name__}")
        return found[0] if found else None

    def _learn_parameters(self, given: list[inspect.Parameter]) -> None:
        for parameter in given:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise InvalidInput(f"{self.name}: arguments go by name, `{parameter}` has none: leave out * or /")
        self._extra = next((p for p in given if p.kind is p.VAR_KEYWORD), None)
        self._parameters = {p.name: p for p in given if p is not self._extra}
        self._names = frozenset(self._parameters)
        self._required = frozenset(name for name, p in self._parameters.items() if p.default is p.empty)
        self._positional = [name for name, p in self._parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]

    def _refuse_unreadable(self) -> None:
        try:
            self._reader  # noqa: B018
        except InvalidInput as error:
            # A name that is missing inside a class may be defined further down in the module.
            if isinstance(error.__cause__, TypeError):
                raise InvalidInput(f"{self.name}: {error}") from None

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        values = dict(zip(self._positional, args, strict=False))
        fits = len(values) == len(args) and values.keys().isdisjoint(kwargs)
        values.update(kwargs)
        names = values.keys()
        if fits and names >= self._required and (names <= self._names or self._takes_extra(names)):
            return values
        try:
            self._signature.bind(*args, **kwargs)  # only for its message: it takes longer than all the rest
        except TypeError as error:
            raise InvalidInput(f"{self.name}: {error}") from None
        raise InvalidInput(f"{self.name}: {self.injected_name!r} is given by the worker")

    def _takes_extra(self, names: Container[str | None]) -> bool:
        return self._extra is not None and self.injected_name not in names

    def _read(self, text: str | bytes) -> dict[str, Any]:
        try:
            found = msgspec.structs.astuple(self._reader.decode(text))
            values = {name: value for name, value in zip(self._parameters, found, strict=True) if value is not UNSET}
            if self._extra is not None:
                values |= self._read_extra(text)
        except _UNREADABLE as error:
            raise InvalidInput(_reason(error)) from None
        return values

    def _read_extra(self, text: str | bytes) -> dict[str, Any]:
        extra = {name: value for name, value in decode(text).items() if name not in self._names}
        if not self._takes_extra(extra):
            raise InvalidInput(f"{self.injected_name!r} is given by the worker")
        return msgspec.convert(extra, dict[str, self._extra_type], dec_hook=_load_special)  # type: ignore[name-defined]

    def _resolve(self, annotation: Any, otherwise: Any = Any) -> Any:
        """The type that an annotation, or the text of one, stands for."""
        if annotation is inspect.Parameter.empty:
            return Any
        holder = types.SimpleNamespace(__annotations__={"it": annotation})
        try:
            return typing.get_type_hints(holder, self._module_names, self._names_in_sight, include_extras=True)["it"]
        except Exception:  # whatever evaluating somebody's text may raise
            return otherwise

    # The types are looked up at first use, when the whole module of the function has been read.

    @cached_property
    def _types(self) -> dict[str, Any]:
        hints = {}
        for name, parameter in self._parameters.items():
            hint = self._resolve(parameter.annotation)
            hints[name] = Optional[hint] if parameter.default is None else hint  # noqa: UP045 - not every hint has |
        return hints

    @cached_property
    def _extra_type(self) -> Any:
        hint = self._resolve(self._extra.annotation) if self._extra else Any
        return Any if get_origin(hint) is typing.Unpack else hint

    @cached_property
    def _result_type(self) -> Any:
        hint = _result_hint(self._resolve(self._return_annotation), self._control)
        try:
            msgspec.json.Decoder(hint)
        except _UNSUPPORTED:
            return Any
        return hint

    @cached_property
    def _is_careful(self) -> bool:
        return not all(_is_plain(hint) for hint in (*self._types.values(), self._extra_type))

    @cached_property
    def _result_is_plain(self) -> bool:
        return _is_plain(self._result_type)

    @cached_property
    def _reader(self) -> msgspec.json.Decoder[Any]:
        """Reads all arguments at once into a struct, whose fields are numbered since not every name can be one."""
        for name, hint in (self._types | {"**": self._extra_type}).items():
            try:
                msgspec.json.Decoder(hint)
            except _UNSUPPORTED as error:
                raise InvalidInput(f"{name}: this annotation cannot be read from JSON: {error}") from error
        fields = {f"p{index}": name for index, name in enumerate(self._types)}
        arguments = msgspec.defstruct(
            "Arguments",
            [(f, self._types[n]) if n in self._required else (f, self._types[n], UNSET) for f, n in fields.items()],
            kw_only=True,
            rename=fields,
            forbid_unknown_fields=self._extra is None,
        )
        return msgspec.json.Decoder(arguments, dec_hook=_load_special)


_PLAIN = (int, str, float, bool, types.NoneType, Any, object, UUID, date, list, dict)
_PLAIN_CONTAINERS = (Union, types.UnionType, list, dict, tuple, set)


def _is_plain(hint: Any) -> bool:
    """Whether neither bytes nor moments can come of it."""
    if get_origin(hint) in _PLAIN_CONTAINERS:
        return all(_is_plain(inner) for inner in get_args(hint))
    return any(hint is plain for plain in _PLAIN)


def _mentions(hint: Any, wanted: type) -> bool:
    if get_origin(hint) in (Union, types.UnionType, Annotated):
        return any(_mentions(inner, wanted) for inner in get_args(hint))
    return (get_origin(hint) or hint) is wanted


def _result_hint(hint: Any, control: tuple[type, ...]) -> Any:
    if get_origin(hint) in (Coroutine, Awaitable):
        return _result_hint(get_args(hint)[-1], control)
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    results = tuple(member for member in members if not any(_mentions(member, kind) for kind in control))
    return Union[results] if results else Any  # noqa: UP007


def _inspect(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):  # where annotations are evaluated only now, and may not be there yet
        import annotationlib

        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(function)
