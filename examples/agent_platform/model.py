"""The interface of a model, and a stand-in without a real model: the same text gives the same answer."""

from __future__ import annotations

import importlib
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

DIMENSIONS = 16
STAND_IN = f"{__name__}:StandIn"


@dataclass(frozen=True, slots=True)
class Remember:
    """The model asks to store this text."""

    text: str


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The model asks to send a question to remote agents."""

    agents: Sequence[str]
    question: str


@dataclass(frozen=True, slots=True)
class Reply:
    text: str
    tools: Sequence[Remember | Dispatch] = ()


class Model(Protocol):
    """The interface of a real model: a class without arguments, given as `AGENTS_MODEL=package.module:Class`."""

    def answer(self, text: str) -> Reply: ...

    def plan(self, goal: str, steps: int) -> list[str]: ...

    def summarise(self, question: str, parts: Sequence[str]) -> str: ...

    def embed(self, text: str) -> list[float]: ...

    def check(self) -> str:
        """The state of its provider, in a word or two."""
        ...


class StandIn:
    """A stand-in that understands "remember …" and "ask tokyo, berlin: …"."""

    def answer(self, text: str) -> Reply:
        command, _, rest = text.partition(" ")
        names, colon, question = rest.partition(":")
        if command == "remember" and rest:
            return Reply(f"I shall remember {rest!r}.", [Remember(rest)])
        if command == "ask" and colon and question.strip():
            agents = [name.strip() for name in names.split(",")]
            return Reply(f"I have asked {', '.join(agents)}.", [Dispatch(agents, question.strip())])
        return Reply(f"About {text!r}: {len(text.split())} words, and well said.")

    def plan(self, goal: str, steps: int) -> list[str]:
        return [f"{goal}, part {number} of {steps}" for number in range(1, steps + 1)]

    def summarise(self, question: str, parts: Sequence[str]) -> str:
        return "\n".join([f"{question}:", *(f"- {part}" for part in parts)])

    def embed(self, text: str) -> list[float]:
        vector = [0.0] * DIMENSIONS
        for word in text.lower().split():
            vector[zlib.crc32(word.encode()) % DIMENSIONS] += 1.0
        length = math.hypot(*vector) or 1.0
        return [value / length for value in vector]

    def check(self) -> str:
        return "ready"


def load_model(name: str) -> Model:
    """Make the model that `package.module:Class` names. `ValueError` if there is none."""
    module, _, kind = name.partition(":")
    try:
        return cast("Model", getattr(importlib.import_module(module), kind)())
    except (ImportError, AttributeError, TypeError) as error:
        raise ValueError(f"there is no model {name}: {error}") from error
