"""Values as SQLite stores them."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from ...clock import to_microseconds


def adapt(value: Any) -> Any:
    """Ids as text, times as microseconds; adapters registered with sqlite3 would be the whole process's."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return to_microseconds(value)
    return value
