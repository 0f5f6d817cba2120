"""Every interleaving of the steps of two operations, each on a real connection of its own.

An operation is a generator of steps, so the order in which two of them take their steps can be chosen from outside.
Each actor is a thread that drives one operation and waits before each step until it is let on. A step that waits for
a lock of the other actor stays on its way, and the other goes on until it has ended its transaction. Operations are
driven as the store drives them: what the database refuses with "try again" is tried again from the start.

A schedule is written as the actors' names in the order of their turns: "ABBA".
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from windlass.errors import StoreUnavailable
from windlass.operation import (
    Begin,
    Commit,
    Connection,
    Current,
    Operation,
    Request,
    Rollback,
    Rows,
    Sleep,
    Statement,
    Step,
    drive,
)

STUCK_SECONDS = 20.0
QUICK_SECONDS = 0.002
FEW_SWITCHES = 2  # schedules with so few changes of turn come first, and all of them


@dataclass(frozen=True, slots=True)
class Turn:
    """Who was let on, and whether the other could have been let on instead."""

    actor: str
    had_choice: bool


class Actor:
    """One operation on its way. `status`: ready (at the gate), moving (its step is with the database), done."""

    def __init__(self, name: str, link: Connection, performance: Performance) -> None:
        self.name, self.link, self.performance = name, link, performance
        self.changed = performance.changed
        self.status = "moving"
        self.in_transaction = False
        self.last_step: Step | None = None
        self.rests = False  # until the other has ended its transaction
        self.moved_at = 0.0
        self.answer: Any = None

    def start(self, operation: Operation[Any]) -> None:
        threading.Thread(target=self._act, args=(operation,), daemon=True).start()

    def _act(self, operation: Operation[Any]) -> None:
        try:
            self.answer = drive(operation, self)
        except Exception as error:
            self.answer = error
        self._become("done")

    def execute(self, step: Step) -> Rows:
        if isinstance(step, Sleep):
            self.rests = True
            return ()
        if not self._joins_last(step):
            self._await_turn()
        self.last_step = step
        while True:
            self.performance.log.append(f"{self.name}  {describe(step)}")
            try:
                rows = self.link.execute(step)
                break
            except StoreUnavailable as error:
                if "was locked by someone else" not in str(error):
                    raise
                self.rests = True  # SQLite would wait in the same way
                self._await_turn()
        if isinstance(step, Begin | Commit | Rollback):
            self.in_transaction = isinstance(step, Begin)
        return rows

    def _joins_last(self, step: Step) -> bool:
        """Whether it is one turn with the step before: nothing that the other does between the two can be seen by
        either, since that step began a transaction, set a savepoint or asked what time it is, or this one reads in a
        snapshot, or adds what nobody meets before the commit."""
        match self.last_step:
            case Begin() | Current():  # neither meets a row
                return True
            case Request(collection=collection, method="find") if collection.endswith("migrations"):
                return True
            case Statement(query=query) if query.name == "savepoint":
                return True
        return self.in_transaction and (_reads_snapshot(step) or _is_apart(step))

    def _await_turn(self) -> None:
        self._become("ready")
        with self.changed:
            self.changed.wait_for(lambda: self.status == "moving")

    def _become(self, status: str) -> None:
        with self.changed:
            self.status = status
            self.changed.notify_all()

    def let_on(self) -> None:
        self.rests = False
        self.moved_at = time.monotonic()
        self._become("moving")


def _reads_snapshot(step: Step) -> bool:
    return isinstance(step, Request) and step.method in ("find", "aggregate")


def _is_apart(step: Step) -> bool:
    """In a transaction, hints and tallies: added under ids of their own, they wait for nobody and see nothing."""
    match step:
        case Statement(query=query):
            return query.name == "hint"
        case Request(collection=collection, method="insert_many"):
            return collection.endswith(("hints", "tallies"))
    return False


def describe(step: Step) -> str:
    match step:
        case Statement(query=query):
            return query.name
        case Request(collection=collection, method=method):
            return f"{collection}.{method}"
    return type(step).__name__.upper()


class Performance:
    """Two operations, played once by one schedule."""

    def __init__(
        self, operations: Sequence[Operation[Any]], links: Sequence[Connection], waits: Callable[[Any, float], bool]
    ) -> None:
        self.changed = threading.Condition()
        self.log: list[str] = []
        self.actors = [Actor(name, link, self) for name, link in zip("AB", links, strict=True)]
        self.waits = waits
        self.turns: list[Turn] = []
        for actor, operation in zip(self.actors, operations, strict=True):
            actor.start(operation)

    @property
    def schedule(self) -> str:
        return "".join(turn.actor for turn in self.turns)

    @property
    def answers(self) -> tuple[Any, Any]:
        return self.actors[0].answer, self.actors[1].answer

    def __str__(self) -> str:
        return "\n".join(self.log)

    def play(self, beginning: str) -> None:
        """By the schedule as far as it goes and can be followed; then whoever had the last turn goes on."""
        self._settle()
        while able := [actor for actor in self.actors if self._is_able(actor)]:
            wanted = beginning[len(self.turns) : len(self.turns) + 1] or self.schedule[-1:]
            actor = next((actor for actor in able if actor.name == wanted), able[0])
            self.turns.append(Turn(actor.name, len(able) > 1))
            actor.let_on()
            self._settle()
        assert all(actor.status == "done" for actor in self.actors), f"neither can go on:\n{self}"

    def _other(self, actor: Actor) -> Actor:
        return self.actors[self.actors[0] is actor]

    def _is_able(self, actor: Actor) -> bool:
        return actor.status == "ready" and not (actor.rests and self._other(actor).in_transaction)

    def _settle(self) -> None:
        """Until each step that is on its way has come back, or waits for an actor that can go on."""
        deadline = time.monotonic() + STUCK_SECONDS
        with self.changed:
            while moving := [actor for actor in self.actors if actor.status == "moving"]:
                # Most steps are back before it is worth asking the server.
                if not self.changed.wait(QUICK_SECONDS) and len(moving) == 1 and self._is_held_up(moving[0]):
                    return
                assert time.monotonic() < deadline, f"stuck:\n{self}"

    def _is_held_up(self, actor: Actor) -> bool:
        other = self._other(actor)
        return other.in_transaction and self._is_able(other) and self.waits(actor.link, actor.moved_at)


def explore(play: Callable[[str], Performance], limit: float, seed: int) -> tuple[int, bool]:
    """Play every schedule, each once: how many there were, and whether these were all.

    Where there are more than `limit`: all with few changes of turn, and of the others a sample that the seed decides.
    """
    chance = random.Random(seed)
    beginnings: list[tuple[int, float, str]] = [(0, 0.0, "")]
    played: set[str] = set()
    # A beginning with one change of turn less becomes a schedule with few: when one actor is done, the turn changes.
    while beginnings and (len(played) < limit or beginnings[0][0] < FEW_SWITCHES):
        _, _, beginning = heapq.heappop(beginnings)
        performance = play(beginning)
        schedule = performance.schedule
        if schedule in played:
            continue
        played.add(schedule)
        for position in range(len(beginning), len(schedule)):
            if performance.turns[position].had_choice:
                branch = schedule[:position] + ("A" if schedule[position] == "B" else "B")
                switches = sum(one != following for one, following in pairwise(branch))
                heapq.heappush(beginnings, (min(switches, FEW_SWITCHES + 1), chance.random(), branch))
    return len(played), not beginnings
