"""Arguments that are only the handler's business (`@app.task(redact=[…])`): shown as dots wherever jobs are shown, and
taken out of what is kept of an error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

HIDDEN = "•••"
LEAST_CHARACTERS = 4  # of a value that is looked for in texts: a shorter one is found everywhere


def hide_arguments(input: Any, names: Sequence[str]) -> Any:
    """The arguments by name, with dots for these."""
    if not names or not isinstance(input, dict):
        return input
    return {name: HIDDEN if name in names else value for name, value in input.items()}


def hide_in_text(text: str, input: Any, names: Sequence[str]) -> str:
    """The text without the values of these arguments, wherever they occur in it; the longest first."""
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
