"""Options of a task that may be functions of its arguments: `@app.task(unique=lambda user_id: f"hello-{user_id}")`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from .call import Call, Options
from .errors import InvalidInput
from .schedule import NO_ID
from .signature import Signature


class Derived:
    """`unique`, `order_key` and `labels` of a task, each a value or a function of the arguments; None where not given.

    A function is given those arguments that it names, typed as the handler sees them, defaults included.
    """

    def __init__(self, signature: Signature, **given: Any) -> None:
        self._signature = signature
        self._values = {name: value for name, value in given.items() if value is not None and not callable(value)}
        self._functions = {name: _by_name(signature, name, value) for name, value in given.items() if callable(value)}
        # A wrong value is refused at once. A function can only be checked by its jobs.
        Call(type=signature.name, input="{}", options=Options(**self._values)).new_job(lambda: NO_ID)

    def apply(self, options: Options, input: str, chosen: AbstractSet[str]) -> Options:
        """The options of one job, completed by those of the task; `chosen` are those that the caller has given."""
        changes = {name: value for name, value in self._values.items() if name not in chosen}
        functions = {name: function for name, function in self._functions.items() if name not in chosen}
        if functions:
            arguments = self._signature.defaults | self._signature.decode_arguments(input)
            changes |= {name: function(arguments) for name, function in functions.items()}
        return msgspec.structs.replace(options, **changes) if changes else options


def _by_name(signature: Signature, option: str, function: Callable[..., Any]) -> Callable[[Mapping[str, Any]], Any]:
    title = f"{signature.name}: {option}"
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise InvalidInput(f"{title} is a function whose parameters cannot be seen: wrap it in a lambda") from None
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    wanted = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    unknown = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    unknown = [p for p in unknown if p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY) or not signature.takes(p.name)]
    if unknown:
        known = ", ".join(sorted(signature.names)) or "none"
        raise InvalidInput(f"{title} takes `{unknown[0]}`, which is no argument of the task; there are: {known}")

    def call(arguments: Mapping[str, Any]) -> Any:
        if takes_all:
            return function(**arguments)
        return function(**{name: arguments[name] for name in wanted if name in arguments})

    return call
