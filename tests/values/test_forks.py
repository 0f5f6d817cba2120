"""A value of one process, or of one event loop in it: a forked child makes its own."""

from __future__ import annotations

import asyncio
import gc
import os
import weakref
from collections.abc import Callable

import pytest

from windlass.forks import PerLoop, PerProcess
from windlass.identity import Identity


class Value:
    pass


def in_child(check: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


def test_a_process_makes_its_value_once() -> None:
    values = PerProcess(object)
    assert values.existing() is None
    assert values.get() is values.get() is values.existing()


def test_a_forked_child_makes_its_own() -> None:
    values = PerProcess(os.getpid)
    assert values.get() == os.getpid()
    assert in_child(lambda: values.existing() is None and values.get() == os.getpid())
    assert values.get() == os.getpid()


def test_a_child_with_the_pid_of_a_dead_parent_makes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    values, identity = PerProcess(object), Identity()
    monkeypatch.setattr(os, "getpid", lambda: 4711)
    first, name = values.get(), identity.name
    assert in_child(lambda: values.existing() is None and values.get() is not first and identity.name != name)


def test_an_event_loop_makes_its_value_once() -> None:
    values = PerLoop(lambda: [asyncio.get_running_loop()])  # as a connection does, the value keeps the loop alive

    async def use() -> object:
        assert values.get() is values.get()
        return values.get()

    first, second = asyncio.run(use()), asyncio.run(use())
    assert first is not second
    assert values.values() == [second]  # the first loop is closed, so its value was dropped


def test_a_child_keeps_the_values_of_its_parents_loops() -> None:
    """Also if the loop goes, as the frame that holds it may."""
    values = PerLoop(Value)
    loop = asyncio.new_event_loop()

    async def use() -> weakref.ref[Value]:
        return weakref.ref(values.get())

    kept = loop.run_until_complete(use())
    in_loop = [loop]
    del loop

    def check() -> bool:
        in_loop.clear()
        gc.collect()
        return values.values() == [] and kept() is not None

    assert in_child(check)
    in_loop[0].close()
