"""Whoever takes the money: somewhere else, slow, closed at times."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Closed(Exception):
    def __init__(self, until: datetime) -> None:
        super().__init__(f"closed until {until.isoformat()}")
        self.until = until


class Bank(Protocol):
    async def charge(self, key: str, cents: int, card: str) -> bool:
        """Whether the card was good for it. Asked again with the same key, it answers the same and takes nothing."""


class PlayBank:
    """The card `good` is always good, `slow to clear` at the third try, any other never."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def charge(self, key: str, cents: int, card: str) -> bool:
        self.asked.append(key)
        return card == "good" or (card == "slow to clear" and key.endswith("/3"))
