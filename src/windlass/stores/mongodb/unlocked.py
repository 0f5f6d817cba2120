"""Writing on documents of which some may be locked, without waiting for any.

Outside a transaction the server waits for a document that another transaction has written on, until that one ends. In a
transaction it refuses at once. So the write is made in a short transaction; where that is refused, by halves, until
those that are locked stand alone. They are left for later, and the others do not wait for them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from ...operation import Begin, Commit, Operation, Rollback, Sleep, Transient

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

PAUSES = 0.005, 0.01, 0.02  # seconds before another try with all: most locks are short


def by_halves(items: Sequence[I], work: Callable[[Sequence[I]], Operation[R]]) -> Operation[tuple[list[R], list[I]]]:
    """Do the work on all items in one transaction, or on parts of them in several: what came of each; and the items
    that another transaction has locked. Not for an operation that has begun a transaction itself."""
    done: list[R] = []
    locked: list[I] = []
    parts = [list(items)] if items else []
    pauses = list(PAUSES)
    while parts:
        some = parts.pop()
        yield Begin()
        try:
            result = yield from _within(work(some))
            yield Commit()
        except Transient:
            yield Rollback()
            if pauses:
                yield Sleep(pauses.pop(0) * random.uniform(0.5, 1.5))
                parts.append(some)
            elif len(some) == 1:
                locked += some
            else:
                middle = len(some) // 2
                parts += [some[middle:], some[:middle]]
        else:
            done.append(result)
    return done, locked


def _within(operation: Operation[R]) -> Operation[R]:
    """Its steps belong to the transaction that was begun here: none of them is to begin another."""
    try:
        step = next(operation)
        while True:
            try:
                rows = yield replace(step, alone=True)
            except Exception as error:
                step = operation.throw(error)
            else:
                step = operation.send(rows)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
