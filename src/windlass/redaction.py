"""Hide the secret arguments of a task (`@app.task(redact=[…])`): in every view of a job, and in the texts of its
errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

HIDDEN = "•••"
LEAST_CHARACTERS = 4  # a shorter value is not searched for in texts, because it would match too much


def hide_arguments(input: Any, names: Sequence[str]) -> Any:
    """Return the arguments, with dots as the values of these names."""
    if not names or not isinstance(input, dict):
        return input
    return {name: HIDDEN if name in names else value for name, value in input.items()}


def hide_in_text(text: str, input: Any, names: Sequence[str]) -> str:
    """Replace the values of these arguments in the text. The longest is replaced first, since it may contain others."""
    if not names or not isinstance(input, dict):
        return text
    values = {leaf for name in names if name in input for leaf in _leaves(input[name])}
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text


def _leaves(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for one in value.values():
                yield from _leaves(one)
        case list():
            for one in value:
                yield from _leaves(one)
        case str() | int() | float() if not isinstance(value, bool):
            text = str(value)
            if len(text) >= LEAST_CHARACTERS:
                yield text
                if repr(value)[1:-1] != text and isinstance(value, str):
                    yield repr(value)[1:-1]
