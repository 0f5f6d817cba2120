"""The values of the pipeline: orders, outcomes, settings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Order:
    number: str
    customer: str
    article: str
    quantity: int
    cents: int
    card: str = "good"
    not_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an order ended: shipped, unpaid or refused."""

    state: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """The rules of the shop."""

    approval_from_cents: int = 100_000
    payment_tries: int = 3
    payment_pause_seconds: float = 3600.0
    stock_pause_seconds: float = 6 * 3600.0

    def __post_init__(self) -> None:
        if self.approval_from_cents < 1:
            raise ValueError(f"approval_from_cents is 1 (every order) or more, not {self.approval_from_cents}")
        if self.payment_tries < 1:
            raise ValueError(f"payment_tries is 1 or more, not {self.payment_tries}: no order could be paid")
        for name in ("payment_pause_seconds", "stock_pause_seconds"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is 0 (at once) or more, not {getattr(self, name)}")
