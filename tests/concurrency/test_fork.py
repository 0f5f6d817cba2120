"""An app that was used before a fork works on both sides of it: neither disturbs what belongs to the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windlass import Windlass

ROOT = Path(__file__).parents[2]


def test_an_app_survives_a_fork(store_url: str) -> None:
    """In a process that has no threads but the app's; what a driver has to say about forks is taken as a failure."""
    program = [sys.executable, "-W", "error::UserWarning", "-m", "tests.concurrency.forking", store_url]
    done = subprocess.run(program, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def in_child(work: Callable[[], Any]) -> int:
    """The exit code of a child that does this. A child that hangs is ended by a signal."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            work()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_fork_while_another_thread_checks_the_schema(fresh_sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Windlass(fresh_sqlite_url)
    run, is_checking, may_end = app.store.connections.run, threading.Event(), threading.Event()

    def slow_run(*arguments: Any) -> Any:
        if threading.current_thread() is thread:
            is_checking.set()
            assert may_end.wait(60)
        return run(*arguments)

    monkeypatch.setattr(app.store.connections, "run", slow_run)
    thread = threading.Thread(target=app.counts)
    thread.start()
    assert is_checking.wait(60)
    try:
        assert in_child(lambda: app.enqueue("greet")) == 0
    finally:
        may_end.set()
        thread.join()
    assert app.counts().pending == 1
    app.close()


def test_a_child_has_an_empty_queue_in_memory() -> None:
    app = Windlass("sqlite://")
    app.enqueue("greet")

    def use_it() -> None:
        assert app.counts().total == 0
        assert app.enqueue("greet").created

    assert in_child(use_it) == 0
    assert app.counts().total == 1
    app.close()
