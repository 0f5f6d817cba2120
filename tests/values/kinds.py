"""Types and values that the tests of payloads share."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
from hypothesis import strategies as st

from windlass.signature import Signature

NOON = datetime(2024, 5, 1, 12, 30, 15, 250, tzinfo=UTC)
IDENTITY = UUID("0190f5a2-7b7c-7000-8000-000000000001")


class Attempt:
    """Stands for the type that the worker injects."""


class Continue:
    """Stands for an outcome that is no result."""


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Mood(Enum):
    CALM = "calm"


class Odd(Enum):
    ONE = (1, 2)


@dataclass
class Item:
    sku: str
    price: Decimal
    tags: set[str] = field(default_factory=set)


@dataclass
class Order:
    id: UUID
    at: datetime
    items: list[Item]


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Circle(msgspec.Struct, tag="circle", rename={"radius": "r"}):
    radius: float
    label: str | msgspec.UnsetType = msgspec.UNSET


class Square(msgspec.Struct, tag="square"):
    side: float


class Pair(msgspec.Struct, array_like=True):
    left: int
    right: int


class Spot(NamedTuple):
    x: int
    y: int


class Options(TypedDict, total=False):
    verbose: bool


@dataclass
class Blob:
    data: bytes


@dataclass
class Node:
    value: int
    next: Node | None = None


class User(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    id: int
    email: str = pydantic.Field(alias="eMail", serialization_alias="mail")
    born: date | None = None
    seen: datetime | None = None
    score: float = 0.0

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def shown(self) -> str:
        return f"{self.id} {self.email}"


class Ring(pydantic.BaseModel):
    next: Ring | None = None


class Numbers(pydantic.RootModel[list[int]]):
    pass


def short(value: object) -> str:
    """An id for a case; pytest's own would print 5,000 digits and a megabyte of text."""
    return value[:40] if isinstance(value, str) else type(value).__name__


def one(annotation: Any) -> Signature:
    """The signature of a task with one parameter, `value`, and that type."""

    def task(value): ...

    task.__annotations__ = {"value": annotation, "return": annotation}
    return Signature(task, Attempt)


text = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner) | st.dictionaries(text, inner),
)
