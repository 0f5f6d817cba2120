"""Values as SQLite stores them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from ...clock import to_microseconds
from ...operation import Statement


def adapt(value: Any) -> Any:
    """Ids as text, times as microseconds. Adapters of sqlite3 would hold for the whole process."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return to_microseconds(value)
    return value


def bound(step: Statement) -> Iterator[tuple[str, Any]]:
    """Each text to be executed, with its values."""
    if step.places is not None:
        yield from ((text, step.places) for text in step.query.named)
        return
    for parameters in [step.parameters] if step.each is None else step.each:
        values = {name: adapt(value) for name, value in parameters.items()}
        for text in step.query.named:
            yield text, values
