"""Flows: one generator, run on a thread and in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from windlass.operation import Flow, Operation, Pause, flow_twins, joining_twins, transact
from windlass.policy import UNSET


class Runner:
    """Runs operations without a database, and notes on which connection."""

    def __init__(self) -> None:
        self.connections: list[Any] = []
        self.given_back = False

    def run_operation(self, make: Callable[[], Operation[Any]], connection: Any = None) -> Any:
        self.connections.append(connection)
        try:
            next(make())
        except StopIteration as stop:
            return stop.value

    async def arun_operation(self, make: Callable[[], Operation[Any]], connection: Any = None) -> Any:
        await asyncio.sleep(0.01)
        return self.run_operation(make, connection)

    def _answer(self, value: Any) -> Operation[Any]:
        yield from ()
        if isinstance(value, Exception):
            raise value
        return value

    def _add(self, *values: Any) -> Flow[int]:
        """The sum of all values; an error counts as 100."""
        total = 0
        for value in values:
            try:
                total += yield from transact(partial(self._answer, value))
            except ValueError:
                total += 100
            yield Pause(0.001)
        return total

    add, aadd = flow_twins(_add)

    def _echo(self, value: str, *, connection: Any = UNSET) -> Operation[str]:
        return (yield from self._answer(value))

    echo, aecho = joining_twins(_echo)

    def _hold(self) -> Flow[None]:
        def give_back() -> Operation[None]:
            self.given_back = True
            return (yield from self._answer(None))

        try:
            yield Pause(60)
        except BaseException:
            yield from transact(give_back, shielded=True)
            raise

    hold, ahold = flow_twins(_hold)


async def test_both_ways_give_the_same() -> None:
    assert Runner().add(1, 2, ValueError(), 4) == await Runner().aadd(1, 2, ValueError(), 4) == 107


async def test_an_error_that_the_flow_does_not_catch_reaches_the_caller() -> None:
    with pytest.raises(KeyError):
        Runner().add(1, KeyError())
    with pytest.raises(KeyError):
        await Runner().aadd(1, KeyError())


async def test_a_connection_is_passed_to_the_runner_alone() -> None:
    runner = Runner()
    assert runner.echo("a", connection="mine") == await runner.aecho("a", connection="mine") == "a"
    assert runner.echo("b") == "b"
    assert runner.connections == ["mine", "mine", None]


async def test_a_cancelled_flow_can_clean_up() -> None:
    runner = Runner()
    task = asyncio.create_task(runner.ahold())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert runner.given_back


def test_the_methods_have_the_name_and_the_docstring_of_their_generator() -> None:
    assert (Runner.add.__name__, Runner.aadd.__name__) == ("add", "aadd")
    assert Runner.add.__doc__ == Runner.aadd.__doc__ == Runner._add.__doc__
