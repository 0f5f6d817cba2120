"""`hint` and the wake-up. A hint makes a worker look for work earlier. It may be lost, because workers also poll."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ..operation import Operation
from ..stores.store import Store
from ..stores.wakeup import Hint
from .bench import Bench, new_job

PATIENCE = 60.0  # seconds to wait for a hint
SILENCE = 0.6  # after so many seconds without a hint, none will come


class Ear:
    """A listener that records the hints it receives."""

    def __init__(self) -> None:
        self.heard: list[Hint | None] = []
        self._told = threading.Condition()

    def __call__(self, hint: Hint | None) -> None:
        with self._told:
            self.heard.append(hint)
            self._told.notify_all()

    def hears(self, hint: Hint | None) -> bool:
        """Whether it receives this hint, or None: anything may have happened."""
        with self._told:
            return self._told.wait_for(lambda: hint in self.heard or None in self.heard, PATIENCE)

    def grow_quiet(self) -> None:
        """Wait until no more hints come, and forget those that came."""
        count = -1
        while count != len(self.heard):
            count = len(self.heard)
            time.sleep(SILENCE)
        self.heard.clear()


class Sore(Ear):
    """A listener that raises an error for every hint."""

    def __call__(self, hint: Hint | None) -> None:
        super().__call__(hint)
        raise RuntimeError("not now")


class WakingUp:
    @contextmanager
    def listening(self, store: Store, ear: Ear) -> Iterator[Ear]:
        """Start a listener, and wait until it is connected: the first None says so. Hints before that may be lost."""
        stop = store.wakeup.listen(ear)
        try:
            assert ear.hears(None)
            ear.grow_quiet()
            yield ear
        finally:
            stop()

    def enqueue_and_hint(self, bench: Bench, *, fail: bool = False) -> Callable[[], Operation[None]]:
        def operation() -> Operation[None]:
            yield from bench.store.enqueue([new_job(queue="mail"), new_job(queue="mail")])
            yield from bench.store.hint([Hint("ready", "mail")])
            if fail:
                raise RuntimeError("on second thoughts")

        return operation

    def test_a_hint_that_is_sent_is_heard(self, bench: Bench) -> None:
        with self.listening(bench.store, Ear()) as ear:
            bench.store.wakeup.send([Hint("ready", "mail"), Hint("told", "someone"), Hint("finished", "a chain")])
            bench.store.wakeup.flush(PATIENCE)
            assert ear.hears(Hint("ready", "mail"))
            assert ear.hears(Hint("told", "someone"))
            assert ear.hears(Hint("finished", "a chain"))

    def test_a_hint_in_a_transaction_is_heard_when_that_commits(self, bench: Bench) -> None:
        with self.listening(bench.store, Ear()) as ear:
            bench.run(self.enqueue_and_hint(bench))
            assert ear.hears(Hint("ready", "mail"))
        assert bench.counts().pending == 2

    def test_no_hint_comes_of_a_transaction_that_rolls_back(self, bench: Bench) -> None:
        with self.listening(bench.store, Ear()) as ear:
            with pytest.raises(RuntimeError):
                bench.run(self.enqueue_and_hint(bench, fail=True))
            time.sleep(SILENCE)
            assert ear.heard == []

    def test_a_listener_that_raises_does_not_hurt_the_others(self, bench: Bench) -> None:
        ear = Ear()
        with self.listening(bench.store, Sore()):
            stop = bench.store.wakeup.listen(
                ear
            )  # the connection exists already; this listener gets hints after the other
            try:
                for name in ("one", "two"):
                    bench.store.wakeup.send([Hint("ready", name)])
                    assert ear.hears(Hint("ready", name))
            finally:
                stop()

    def test_who_has_stopped_listening_hears_nothing_more(self, bench: Bench) -> None:
        with self.listening(bench.store, Ear()) as gone:
            pass
        with self.listening(bench.store, Ear()) as ear:
            bench.store.wakeup.send([Hint("ready", "mail")])
            assert ear.hears(Hint("ready", "mail"))
        assert gone.heard == []

    def test_to_stop_twice_is_to_stop_once(self, bench: Bench) -> None:
        stop = bench.store.wakeup.listen(lambda hint: None)
        stop()
        stop()

    def test_hints_with_no_listener_and_empty_ones_are_no_error(self, bench: Bench) -> None:
        bench.store.wakeup.send([Hint("ready", "mail")])
        bench.store.wakeup.send([])
        bench.store.wakeup.flush(PATIENCE)
        bench.run(lambda: bench.store.hint([]))

    def test_with_every_hint_lost_the_work_is_found(self, bench: Bench) -> None:
        bench.store.wakeup.close()
        bench.add()
        bench.store.wakeup.send([Hint("ready", "default")])
        assert len(bench.claim()) == 1
