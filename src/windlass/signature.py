"""How a task's function turns its arguments and its result into payloads and back."""

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
    """The arguments of a task's function, by name and with their types, without the one that the worker injects.

    `control` are types that a handler may return and that are no results, such as `Continue`. `local_names` help to
    resolve annotations that are written as text. An annotation that cannot be resolved counts as Any; `unresolved`
    names those that could not be resolved when the function was decorated.
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
        # A module may import the injected type under TYPE_CHECKING only, so its name is added here.
        self._known_names = ChainMap(dict(local_names or {}), self._module_names, {injected.__name__: injected})
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
        """The names of the arguments."""
        return self._names

    @property
    def defaults(self) -> dict[str, Any]:
        """The default values, of the arguments that have one."""
        return {name: self._parameters[name].default for name in self._optional}

    def takes(self, name: str) -> bool:
        """Whether a call may give an argument of this name."""
        return name in self._names or (self._extra is not None and name != self.injected_name)

    def encode_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Encode the arguments of a call, bound as Python binds them. Defaults are not stored."""
        values = self._bind(args, kwargs)
        if self._is_simple and _SIMPLE.issuperset(map(type, values.values())):
            text = self._encode_simple(values, self._simple_reader)
            if text is not None:
                return text
        try:
            return encode_readable(values, self.limit, self._read, self._is_careful)
        except InvalidInput as error:
            raise InvalidInput(f"{self.name}: {error}") from None

    def _encode_simple(self, value: object, reader: msgspec.json.Decoder[Any]) -> str | None:
        """Encode numbers and strings ten times as fast. None if the value needs the full check."""
        try:
            data = _encode(value)
            reader.decode(data)
        except (*UNREADABLE, OverflowError):
            return None
        return None if len(data) > self.limit or b"\\u0000" in data else data.decode()

    def encode_object(self, arguments: Mapping[str, Any]) -> str:
        """Encode arguments that the caller gave as one object."""
        if not isinstance(arguments, Mapping):
            raise InvalidInput(
                f"{self.name}: the input is an object of arguments by name, not {type(arguments).__name__}"
            )
        return self.encode_arguments((), arguments)

    def decode_arguments(self, text: str | bytes) -> dict[str, Any]:
        """Decode the arguments of the function, without the injected one."""
        try:
            return self._read(text)
        except InvalidInput as error:
            raise InvalidInput(f"{self.name}: {error}") from None

    def encode_result(self, value: object) -> str:
        """Encode the value that the handler returned, checked by the return annotation.

        The type is not checked if the annotation is Any, or a type that cannot be read from JSON.
        """
        if value is None and self._may_be_none:
            return "null"
        kind = self._result_type
        is_simple = type(value) is kind and kind in _SIMPLE
        if is_simple and (text := self._encode_simple(value, self._simple_result_reader)) is not None:
            return text
        try:
            if kind is Any or is_simple:
                return encode_readable(value, self.limit)
            return encode_readable(value, self.limit, self._read_result, careful=not self._result_is_plain)
        except InvalidInput as error:
            raise InvalidInput(f"{self.name}: result: {error}") from None

    def encode_output(self, value: object) -> str:
        """Encode the output that `complete(…)` was given. With `-> None` it is not checked: the annotation says only
        that the handler returns nothing, and a webhook may complete the job with any value."""
        if self._result_type is not types.NoneType:
            return self.encode_result(value)
        try:
            return encode_readable(value, self.limit)
        except InvalidInput as error:
            raise InvalidInput(f"{self.name}: result: {error}") from None

    def _read_result(self, text: str | bytes) -> Any:
        try:
            return self._result_reader.decode(text)
        except UNREADABLE as error:
            raise InvalidInput(reason(error)) from None
        except NotReadable:
            return decode(text)

    def decode_result(self, text: str | bytes) -> Any:
        """Decode by the return annotation, or as plain JSON if the text does not fit the annotation."""
        try:
            return self._read_result(text)
        except InvalidInput:
            return decode(text)

    def _find_injected(self, hints: dict[str, Any], injected: type) -> str | None:
        found = [name for name, hint in hints.items() if _mentions(hint, injected)]
        if len(found) > 1:
            names = " and ".join(found)
            raise InvalidInput(f"{self.name}: {names} are both the {injected.__name__}; declare one such parameter")
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
            # Any other error may be a missing name, which the module may define further down.
            if isinstance(error.__cause__, TypeError):
                raise InvalidInput(f"{self.name}: {error}") from None

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, without the injected one. `TypeError` as Python's own call raises
        it."""
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
            self._signature.bind(*args, **kwargs)  # only for its message: it is slower than the checks above
        except TypeError as error:
            raise InvalidInput(f"{self.name}: {error}") from None
        raise InvalidInput(f"{self.name}: {self.injected_name!r} is given by the worker; leave it out")

    def _takes_extra(self, names: Container[str | None]) -> bool:
        return self._extra is not None and self.injected_name not in names

    def _read(self, text: str | bytes) -> dict[str, Any]:
        try:
            arguments = self._reader.decode(text)
            if self._fields_are_names:  # three times as fast
                values: dict[str, Any] = _asdict(arguments)
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
            raise InvalidInput(f"{self.injected_name!r} is given by the worker; leave it out")
        return msgspec.convert(extra, dict[str, self._extra_type], dec_hook=load_special)  # type: ignore[name-defined]

    def _resolve(self, annotation: Any, otherwise: Any = Any) -> Any:
        """Return the type of an annotation, which may be written as text."""
        if annotation is inspect.Parameter.empty:
            return Any
        holder = types.SimpleNamespace(__annotations__={"it": annotation})
        try:
            return typing.get_type_hints(holder, self._module_names, self._known_names, include_extras=True)["it"]
        except Exception:  # the text is the user's code, and may raise any error
            return otherwise

    # The types are resolved at first use, because by then Python has read the whole module of the function.

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
        """Reads simple arguments. It refuses an integer of more than 64 bits, and the null that msgspec writes for an
        infinite number."""
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
    def _simple_result_reader(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(_BOUNDED.get(self._result_type, self._result_type))

    @cached_property
    def _result_is_plain(self) -> bool:
        return _is_plain(self._result_type)

    @cached_property
    def _fields_are_names(self) -> bool:
        """Whether each parameter's name can name a field of a struct. Otherwise the fields get numbers."""
        return all(name[0].isalpha() and name.isascii() and name != "self" for name in self._types)

    @cached_property
    def _reader(self) -> msgspec.json.Decoder[Any]:
        """Reads all arguments into one struct."""
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
    """The return annotation names a class that cannot be read from JSON, so it cannot check the result."""


def _load_result(kind: Any, value: Any) -> Any:
    if not is_model(kind):
        raise NotReadable
    return load_special(kind, value)


_encode = msgspec.json.Encoder().encode
_asdict = msgspec.structs.asdict
_NOTHING = (Any, types.NoneType)
_SIMPLE = frozenset((int, str, float, bool))
_BOUNDED: dict[Any, Any] = {int: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]}
_PLAIN = (int, str, float, bool, types.NoneType, Any, object, UUID, date, list, dict)
_PLAIN_CONTAINERS = (Union, types.UnionType, list, dict, tuple, set)


def _is_plain(hint: Any) -> bool:
    """Whether a value of this type contains neither bytes nor a datetime."""
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
    if sys.version_info >= (3, 14):  # it evaluates annotations here, and their names may not be defined yet
        import annotationlib

        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    else:
        return inspect.signature(function)
