"""A task's function as its payloads see it: arguments by name, typed by the annotations."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections import ChainMap
from collections.abc import Awaitable, Callable, Container, Coroutine, Mapping
from datetime import date
from functools import cached_property
from typing import Annotated, Any, Optional, Union, get_args, get_origin
from uuid import UUID

import msgspec
from msgspec import UNSET

from .codec import (
    MAX_PAYLOAD_BYTES,
    UNREADABLE,
    UNSUPPORTED,
    decode,
    encode_readable,
    is_model,
    load_special,
    reason,
)
from .errors import InvalidInput


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

    @property
    def names(self) -> frozenset[str]:
        """Of its arguments."""
        return self._names

    @property
    def defaults(self) -> dict[str, Any]:
        """Of the arguments that have one."""
        return {name: self._parameters[name].default for name in self._optional}

    def takes(self, name: str) -> bool:
        """Whether a call may give an argument of this name."""
        return name in self._names or (self._extra is not None and name != self.injected_name)

    def encode_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """The arguments of a call, bound as the call itself would bind them. Defaults are not stored."""
        values = self._bind(args, kwargs)
        if self._is_simple and _SIMPLE.issuperset(map(type, values.values())):
            text = self._encode_simple(values)
            if text is not None:
                return text
        try:
            return encode_readable(values, self.limit, self._read, self._is_careful)
        except InvalidInput as error:
            raise InvalidInput(f"{self.name}: {error}") from None

    def _encode_simple(self, values: dict[str, Any]) -> str | None:
        """Numbers and strings in a tenth of the time; None where there is something to be looked at more closely."""
        try:
            data = _encode(values)
            self._simple_reader.decode(data)
        except (*UNREADABLE, OverflowError):
            return None
        return None if len(data) > self.limit or b"\\u0000" in data else data.decode()

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
        """What was returned, checked by the return annotation as arguments are by theirs. None, Any, and what cannot be
        read from JSON at all is not checked."""
        if value is None and self._may_be_none:
            return "null"
        kind = self._result_type
        try:
            if kind is Any or (type(value) is kind and kind in _SIMPLE):
                return encode_readable(value, self.limit)
            return encode_readable(value, self.limit, self._read_result, careful=not self._result_is_plain)
        except InvalidInput as error:
            raise InvalidInput(f"{self.name}: result: {error}") from None

    def encode_output(self, value: object) -> str:
        """The same for what a caller completes the job with: `-> None` says of a handler that it returns nothing, and
        of what it, or a webhook, completes its job with nothing either."""
        if self._result_type is not types.NoneType:
            return self.encode_result(value)
        try:
            return encode_readable(value, self.limit)
        except InvalidInput as error:
            raise InvalidInput(f"{self.name}: result: {error}") from None

    def _read_result(self, text: bytes) -> Any:
        try:
            return self._result_reader.decode(text)
        except UNREADABLE as error:
            raise InvalidInput(reason(error)) from None
        except NotReadable:
            return decode(text)

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
        self._optional = self._names - self._required
        self._positional = [name for name, p in self._parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]

    def _refuse_unreadable(self) -> None:
        try:
            self._reader  # noqa: B018
        except InvalidInput as error:
            # A name that is missing inside a class may be defined further down in the module.
            if isinstance(error.__cause__, TypeError):
                raise InvalidInput(f"{self.name}: {error}") from None

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, the injected one aside; `TypeError` as the call itself would raise it."""
        bound = self._signature.bind(*args, **kwargs).arguments
        return bound | (bound.pop(self._extra.name, {}) if self._extra is not None else {})

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if not args and kwargs.keys() == self._names:
            return dict(kwargs)
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
            arguments = self._reader.decode(text)
            if self._fields_are_names:  # three times as quick
                values = msgspec.structs.asdict(arguments)
            else:
                values = dict(zip(self._parameters, msgspec.structs.astuple(arguments), strict=True))
            if self._optional:
                values = {name: value for name, value in values.items() if value is not UNSET}
            if self._extra is not None:
                values |= self._read_extra(text)
        except UNREADABLE as error:
            raise InvalidInput(reason(error)) from None
        return values

    def _read_extra(self, text: str | bytes) -> dict[str, Any]:
        extra = {name: value for name, value in decode(text).items() if name not in self._names}
        if not self._takes_extra(extra):
            raise InvalidInput(f"{self.injected_name!r} is given by the worker")
        return msgspec.convert(extra, dict[str, self._extra_type], dec_hook=load_special)  # type: ignore[name-defined]

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
        except UNSUPPORTED:
            return Any
        return hint

    @cached_property
    def _is_careful(self) -> bool:
        return not all(_is_plain(hint) for hint in (*self._types.values(), self._extra_type))

    @cached_property
    def _is_simple(self) -> bool:
        return self._extra is None and all(hint in _SIMPLE for hint in self._types.values())

    @cached_property
    def _simple_reader(self) -> msgspec.json.Decoder[Any]:
        """Refuses what JSON, or 64 bits, cannot hold: an infinite number would have become null."""
        fields = {f"p{index}": name for index, name in enumerate(self._types)}
        hints = [(field, _BOUNDED.get(self._types[name], self._types[name])) for field, name in fields.items()]
        kinds = [(field, hint) if fields[field] in self._required else (field, hint, UNSET) for field, hint in hints]
        return msgspec.json.Decoder(msgspec.defstruct("Arguments", kinds, kw_only=True, rename=fields))

    @cached_property
    def _may_be_none(self) -> bool:
        kind = self._result_type
        return kind in _NOTHING or (get_origin(kind) in (Union, types.UnionType) and types.NoneType in get_args(kind))

    @cached_property
    def _result_reader(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self._result_type, dec_hook=_load_result)

    @cached_property
    def _result_is_plain(self) -> bool:
        return _is_plain(self._result_type)

    @cached_property
    def _fields_are_names(self) -> bool:
        """Not every name of a parameter can be the name of a struct's field: then those are numbered."""
        return all(name[0].isalpha() and name.isascii() and name != "self" for name in self._types)

    @cached_property
    def _reader(self) -> msgspec.json.Decoder[Any]:
        """Reads all arguments at once into a struct."""
        for name, hint in (self._types | {"**": self._extra_type}).items():
            try:
                msgspec.json.Decoder(hint)
            except UNSUPPORTED as error:
                raise InvalidInput(f"{name}: this annotation cannot be read from JSON: {error}") from error
        named = self._fields_are_names
        fields = {name if named else f"p{index}": name for index, name in enumerate(self._types)}
        arguments = msgspec.defstruct(
            "Arguments",
            [(f, self._types[n]) if n in self._required else (f, self._types[n], UNSET) for f, n in fields.items()],
            kw_only=True,
            rename=fields,
            forbid_unknown_fields=self._extra is None,
        )
        return msgspec.json.Decoder(arguments, dec_hook=load_special)


class NotReadable(Exception):
    """A class that nothing can be read into from JSON: an annotation that names one says nothing of results."""


def _load_result(kind: Any, value: Any) -> Any:
    if not is_model(kind):
        raise NotReadable
    return load_special(kind, value)


_encode = msgspec.json.Encoder().encode
_NOTHING = (Any, types.NoneType)
_SIMPLE = frozenset((int, str, float, bool))
_BOUNDED: dict[Any, Any] = {int: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]}
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
    else:
        return inspect.signature(function)
