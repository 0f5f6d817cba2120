"""A value of one process: a forked child makes its own."""

from __future__ import annotations

import os

from windlass.forks import PerProcess


def test_a_process_makes_its_value_once() -> None:
    values = PerProcess(object)
    assert values.existing() is None
    assert values.get() is values.get() is values.existing()


def test_a_forked_child_makes_its_own() -> None:
    values = PerProcess(os.getpid)
    assert values.get() == os.getpid()
    child = os.fork()
    if child == 0:
        os._exit(0 if values.existing() is None and values.get() == os.getpid() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert values.get() == os.getpid()
