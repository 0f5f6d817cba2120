"""Delays that grow from one try to the next."""

from __future__ import annotations

import random
from collections.abc import Iterator


class Delays(Iterator[float]):
    """Seconds: `first`, then `factor` times as long each time, at most `longest`. `reset()` begins again.

    `jitter=(0.5, 1.5)` multiplies each delay by a number of that range, so that many clients do not retry in step.
    """

    def __init__(
        self, first: float, longest: float, *, factor: float = 2.0, jitter: tuple[float, float] | None = None
    ) -> None:
        self.first, self.longest, self.factor, self.jitter = first, longest, factor, jitter
        self._next = first

    def __next__(self) -> float:
        seconds, self._next = self._next, min(self._next * self.factor, self.longest)
        return seconds if self.jitter is None else seconds * random.uniform(*self.jitter)

    def reset(self) -> None:
        self._next = self.first
