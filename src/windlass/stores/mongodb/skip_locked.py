"""Writes on documents of which some may be locked, without waiting for those.

Outside a transaction the server waits for a document that another transaction has locked, until that transaction ends.
Inside a transaction it refuses at once. So `by_halves` writes in short transactions: all documents in one; where the
server refuses that, each half in one, until the locked documents stand alone and are left for later.

A process that is killed in a transaction leaves its locks on the server, for a minute by default. Therefore
`plainly_or_by_halves`, for writes that can be repeated, first writes without a transaction and gives up soon.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from ...errors import StoreUnavailable
from ...operation import Begin, Commit, Operation, Request, Rollback, Sleep, Step, Transient
from .context import Brief

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")

PLAINLY_SECONDS = 1.0  # for a write without a transaction; a new connection may have to be made for it
PAUSES = 0.005, 0.01, 0.02  # seconds before another try with all: most locks are short


def plainly_or_by_halves(
    items: Sequence[I], work: Callable[[Sequence[I]], Operation[R]]
) -> Operation[tuple[list[R], list[I]]]:
    """As `by_halves`, but without a transaction unless there is no answer soon. A write that was cut short is repeated
    on all items: its result must count those that were written before, too."""
    if not items:
        return [], []
    try:
        result = yield from _each_step(work(items), _plainly)
    except (StoreUnavailable, Transient):
        return (yield from by_halves(items, work))
    return [result], []


def by_halves(items: Sequence[I], work: Callable[[Sequence[I]], Operation[R]]) -> Operation[tuple[list[R], list[I]]]:
    """Do the work on all items in one transaction, or on parts of them in several: the result of each; and the items
    that another transaction has locked. Not for an operation that has begun a transaction itself."""
    done: list[R] = []
    locked: list[I] = []
    parts = [list(items)] if items else []
    pauses = list(PAUSES)
    while parts:
        some = parts.pop()
        yield Begin()
        try:
            result = yield from _each_step(work(some), _alone)
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


def _alone(step: Step) -> Step:
    """It belongs to the transaction that was begun here, and begins no other."""
    return replace(step, alone=True) if isinstance(step, Request) else step


def _plainly(step: Step) -> Step:
    if not isinstance(step, Request):
        return step
    return Brief(step.collection, step.method, step.arguments, step.options, alone=True, seconds=PLAINLY_SECONDS)


def _each_step(operation: Operation[R], change: Callable[[Step], Step]) -> Operation[R]:
    """The operation, with each of its steps changed."""
    try:
        step = next(operation)
        while True:
            try:
                rows = yield change(step)
            except Exception as error:
                step = operation.throw(error)
            else:
                step = operation.send(rows)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
