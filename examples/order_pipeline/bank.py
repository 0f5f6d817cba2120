"""The bank: a remote service that is slow, and closed at times."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Closed(Exception):
    def __init__(self, until: datetime) -> None:
        super().__init__(f"closed until {until.isoformat()}")
        self.until = until


class Bank(Protocol):
    async def charge(self, key: str, cents: int, card: str) -> bool:
        """Charge the card. Return whether it was accepted. The key is an idempotency key: a second call with it returns
        the same answer and charges nothing."""


class PlayBank:
    """A bank for tests. It accepts the card `good` always, `slow to clear` at the third try, any other never."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def charge(self, key: str, cents: int, card: str) -> bool:
        self.asked.append(key)
        return card == "good" or (card == "slow to clear" and key.endswith("/3"))
