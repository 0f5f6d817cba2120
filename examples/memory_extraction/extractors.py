"""Extractors find the memories in a conversation. This one has rules and needs no network; `endpoints.py` asks a
model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, Protocol

Kind = Literal["fact", "preference", "instruction"]


@dataclass(frozen=True, slots=True)
class Transaction:
    """One completion: the prompt of the user and the answer of the model."""

    prompt: str
    completion: str


@dataclass(frozen=True, slots=True)
class Memory:
    """One statement about the user to remember."""

    kind: Kind
    text: str


class Extractor(Protocol):
    async def extract(self, transaction: Transaction) -> list[Memory]:
        """Return the memories to keep. Raise `Fail` if a retry is useless, any other exception for a retry."""
        ...


# The first match decides: "please always tell me what I like" is an instruction.
RULES: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("instruction", re.compile(r"^(please )?(always|never|do not|don't|from now on|remember to|call me)\b", re.I)),
    ("preference", re.compile(r"\b(I|we) (really |much )?(prefer|like|love|enjoy|hate|dislike|avoid)\b", re.I)),
    ("fact", re.compile(r"\b(I am|I'm|I live|I work|I have|we are|we have|(my|our) [\w ]{1,40} (is|are))\b", re.I)),
)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
LONGEST_SENTENCE = 500


class RuleExtractor:
    """Checks each sentence with a few patterns. The same text gives the same memories."""

    async def extract(self, transaction: Transaction) -> list[Memory]:
        found: dict[str, Memory] = {}
        for text in (transaction.prompt, transaction.completion):
            for sentence in SENTENCE_END.split(text):
                memory = _judge(sentence.strip().rstrip(".!"))
                if memory is not None:
                    found.setdefault(memory.text.lower(), memory)
        return list(found.values())


def _judge(sentence: str) -> Memory | None:
    if len(sentence) > LONGEST_SENTENCE or sentence.endswith("?"):
        return None
    return next((Memory(kind, sentence) for kind, pattern in RULES if pattern.search(sentence)), None)
