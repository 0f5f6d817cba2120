"""Acting on many: filter by filter, chunk by chunk, and again while that frees what was refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .stores.store import Bookmark, Filter


class Chunk(NamedTuple):
    """What became of some jobs, each of them looked at once."""

    done: int
    waited_for: int  # refused, since others wait for them
    before: Bookmark | None  # where the next chunk begins; None at the end


class Sweep:
    """How far an action on many has come.

    What others wait for may be listed before them, in a chunk of its own: when those have gone, it can go too. So the
    list is gone through again as long as that leaves fewer of them behind; what arrives meanwhile cannot prolong it.
    """

    def __init__(self, filters: Sequence[Filter]) -> None:
        self.filters = list(filters)
        self.before: Bookmark | None = None
        self.done = 0
        self._done_before = self._waited_for = 0
        self._left_behind: int | None = None  # by the pass before

    def took(self, chunk: Chunk) -> None:
        self.done += chunk.done
        self._waited_for += chunk.waited_for
        self.before = chunk.before
        if chunk.before is None:
            self._end_pass()

    def _end_pass(self) -> None:
        left, earlier = self._waited_for, self._left_behind
        if left and self.done > self._done_before and (earlier is None or left < earlier):
            self._left_behind = left
        else:
            self.filters.pop(0)
            self._left_behind = None
        self._done_before, self._waited_for = self.done, 0
