"""Embedders turn text into vectors. Similar texts get vectors that are close together."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

Vector: TypeAlias = list[float]


class Embedder(Protocol):
    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        """Return a vector of length one for each text."""
        ...


def normalised(numbers: Iterable[float]) -> Vector:
    """Scale a vector to length one. The similarity of two such vectors is their dot product."""
    vector = [float(number) for number in numbers]
    length = math.sqrt(math.fsum(number * number for number in vector))
    if not length or not math.isfinite(length):
        raise ValueError("the vector has no direction: its numbers are all zero, or not finite")
    return [number / length for number in vector]


class HashedWords:
    """A bag of words: the hash of a word is its position in the vector. Texts that share words are similar."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions

    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        return [self._embed(text) for text in texts]

    def _embed(self, text: str) -> Vector:
        counts = [0.0] * self.dimensions
        for word in re.findall(r"\w+", text.lower()) or [
            text
        ]:  # a text without words, such as "?!", counts as one word
            digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            counts[int.from_bytes(digest, "big") % self.dimensions] += 1.0
        return normalised(counts)
