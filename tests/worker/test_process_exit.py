"""A worker's process ends when it is told to, whatever its handlers do, and its children end with it."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from windlass import Windlass

from . import stubborn

MODULE = "tests.worker.stubborn"
SLACK = 15.0  # for a machine that is busy with other things; the handlers take two minutes


class Programs:
    """Starts workers, each for a queue of its own, and reads what their handlers noted."""

    def __init__(self, url: str, folder: Path) -> None:
        self.notes_file = folder / "notes"
        self.environment = os.environ | {"WINDLASS_URL": url, "NOTES": str(self.notes_file)}
        self.started: list[subprocess.Popen[bytes]] = []
        self.pids: set[int] = set()
        self.app = Windlass(url)
        self.app.migrate()
        self.app.tasks.update(stubborn.app.tasks)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-m", *arguments], env=self.environment)
        self.started.append(process)
        return process

    def worker(self, queue: str, *options: str, grace: str = "300ms") -> subprocess.Popen[bytes]:
        return self.start("windlass", "worker", f"{MODULE}:app", "--queues", queue, "--grace", grace, *options)

    def notes(self) -> list[str]:
        return [note.split()[0] for note in self._lines()]

    def pid_of(self, word: str) -> int:
        """The process in which this handler runs."""
        pid = next(int(note.split()[1]) for note in self._lines() if note.startswith(f"{word} "))
        self.pids.add(pid)
        return pid

    def _lines(self) -> list[str]:
        return self.notes_file.read_text().splitlines() if self.notes_file.exists() else []

    def let_go(self) -> None:
        Path(f"{self.notes_file}.go").touch()

    def until(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"it did not happen in time; notes: {self._lines()}"
            time.sleep(0.05)


@pytest.fixture
def programs(store_url: str, tmp_path: Path) -> Iterator[Programs]:
    yield from _programs(store_url, tmp_path)


@pytest.fixture
def on_sqlite(fresh_sqlite_url: str, tmp_path: Path) -> Iterator[Programs]:
    """For what has nothing to do with the store."""
    yield from _programs(fresh_sqlite_url, tmp_path)


def _programs(url: str, folder: Path) -> Iterator[Programs]:
    programs = Programs(url, folder)
    yield programs
    for pid in programs.pids - {process.pid for process in programs.started}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for process in programs.started:
        process.kill()
        process.wait(10)
    programs.app.close()


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_after_the_grace_the_process_is_gone_whatever_handlers_do(programs: Programs) -> None:
    end_after_the_grace(programs)


def test_after_the_grace_the_process_is_gone_with_the_loop_of_asyncio(on_sqlite: Programs) -> None:
    on_sqlite.environment["WITHOUT_UVLOOP"] = "1"
    end_after_the_grace(on_sqlite)


def end_after_the_grace(programs: Programs) -> None:
    kinds = ["sleeps", "swallows", "blocks", "delegates"]
    workers = {kind: programs.worker(kind) for kind in kinds}
    for kind in kinds:
        programs.app.enqueue(kind)
    programs.until(lambda: set(programs.notes()) == set(kinds))
    for worker in workers.values():
        worker.terminate()
    codes = {kind: worker.wait(5.3 + SLACK) for kind, worker in workers.items()}
    assert codes == dict.fromkeys(kinds, 1)


def test_a_thread_that_a_handler_started_and_a_loop_that_spins_hold_up_no_end(on_sqlite: Programs) -> None:
    kinds = ["starts_a_thread", "spins"]
    workers = {kind: on_sqlite.worker(kind) for kind in kinds}
    for kind in kinds:
        on_sqlite.app.enqueue(kind)
    on_sqlite.until(lambda: set(on_sqlite.notes()) == set(kinds))
    for worker in workers.values():
        worker.terminate()
    assert {kind: worker.wait(5.3 + SLACK) for kind, worker in workers.items()} == dict.fromkeys(kinds, 1)


def test_a_handler_that_holds_the_interpreter_after_the_signal_is_ended_all_the_same(on_sqlite: Programs) -> None:
    on_sqlite.app.enqueue("holds_the_interpreter")
    worker = on_sqlite.worker("holds_the_interpreter", grace="2s")
    on_sqlite.until(lambda: "holds_the_interpreter" in on_sqlite.notes())
    worker.terminate()
    time.sleep(1.0)  # it has heard the signal
    on_sqlite.let_go()
    on_sqlite.until(lambda: "holding" in on_sqlite.notes())
    assert worker.wait(7.0 + SLACK) == 1


def test_a_supervisor_kills_a_child_that_hears_nothing(on_sqlite: Programs) -> None:
    on_sqlite.app.enqueue("holds_the_interpreter")
    supervisor = on_sqlite.worker("holds_the_interpreter", "--processes", "1")
    on_sqlite.until(lambda: "holds_the_interpreter" in on_sqlite.notes())
    child = on_sqlite.pid_of("holds_the_interpreter")
    on_sqlite.let_go()
    on_sqlite.until(lambda: "holding" in on_sqlite.notes())
    supervisor.terminate()
    assert supervisor.wait(6.3 + SLACK) == 1
    assert not runs(child)


@pytest.mark.parametrize(
    ("processes", "numbers"),
    [(False, (signal.SIGTERM, signal.SIGTERM)), (True, (signal.SIGINT, signal.SIGTERM))],
    ids=["alone", "supervised"],
)
def test_a_second_signal_ends_it_at_once_though_a_handler_blocks(
    on_sqlite: Programs, numbers: tuple[signal.Signals, signal.Signals], processes: bool
) -> None:
    on_sqlite.app.enqueue("blocks")
    options = ["--processes", "1"] if processes else []
    worker = on_sqlite.worker("blocks", *options, grace="2m")
    on_sqlite.until(lambda: "blocks" in on_sqlite.notes())
    child = on_sqlite.pid_of("blocks")
    worker.send_signal(numbers[0])
    time.sleep(1.0)
    assert worker.poll() is None
    worker.send_signal(numbers[1])
    assert worker.wait(4.0 + SLACK) == 1
    on_sqlite.until(lambda: not runs(child), 5.0)


def test_a_program_that_runs_a_worker_ends_too(on_sqlite: Programs) -> None:
    on_sqlite.app.enqueue("sleeps")
    program = on_sqlite.start(MODULE)
    on_sqlite.until(lambda: "sleeps" in on_sqlite.notes())
    program.terminate()
    assert program.wait(5.3 + SLACK) == 1


def test_children_die_with_a_killed_parent(on_sqlite: Programs) -> None:
    for kind in ("sleeps", "in_child"):
        on_sqlite.app.enqueue(kind)
    supervisor = on_sqlite.worker("sleeps", "--processes", "1", grace="2m")
    worker = on_sqlite.worker("in_child", grace="2m")
    on_sqlite.until(lambda: set(on_sqlite.notes()) == {"sleeps", "in_child"})
    children = [on_sqlite.pid_of("sleeps"), on_sqlite.pid_of("in_child")]
    assert not {supervisor.pid, worker.pid} & set(children)
    assert all(runs(pid) for pid in children)
    supervisor.kill()
    worker.kill()
    on_sqlite.until(lambda: not any(runs(pid) for pid in children), 10.0)


def test_a_signal_to_all_processes_of_a_service_lets_jobs_end(on_sqlite: Programs) -> None:
    """Its children in processes of their own, too: it is for the worker to end them."""
    on_sqlite.app.enqueue("in_child")
    worker = on_sqlite.worker("in_child", grace="2m")
    on_sqlite.until(lambda: "in_child" in on_sqlite.notes())
    child = on_sqlite.pid_of("in_child")
    os.kill(child, signal.SIGTERM)
    worker.terminate()
    time.sleep(1.0)
    assert runs(child)
    assert worker.poll() is None


def test_processes_that_have_run_their_jobs_are_replaced(programs: Programs) -> None:
    jobs = [programs.app.enqueue("counted", {"n": n}) for n in range(12)]
    supervisor = programs.worker("counted", "--processes", "2", "--max-jobs", "3", "--concurrency", "2")
    programs.until(lambda: all(job.refresh().state == "completed" for job in jobs), 90)
    assert supervisor.poll() is None
    late = programs.app.enqueue("counted", {"n": 99})
    programs.until(lambda: late.refresh().state == "completed")
    supervisor.terminate()
    assert supervisor.wait(5.3 + SLACK) == 0


def test_a_child_that_alone_receives_a_stop_signal_is_replaced(on_sqlite: Programs) -> None:
    job = on_sqlite.app.enqueue("counted", {"n": 1})
    supervisor = on_sqlite.worker("counted", "--processes", "1")
    on_sqlite.until(lambda: job.refresh().state == "completed")
    os.kill(on_sqlite.pid_of("counted"), signal.SIGTERM)
    on_sqlite.until(lambda: not runs(on_sqlite.pid_of("counted")))
    late = on_sqlite.app.enqueue("counted", {"n": 2})
    on_sqlite.until(lambda: late.refresh().state == "completed")
    supervisor.terminate()
    assert supervisor.wait(5.3 + SLACK) == 0


def test_processes_that_end_when_idle_are_not_replaced(on_sqlite: Programs) -> None:
    jobs = [on_sqlite.app.enqueue("counted", {"n": n}) for n in range(7)]
    supervisor = on_sqlite.worker("counted", "--processes", "2", "--max-jobs", "3", "--until-idle")
    assert supervisor.wait(60) == 0
    assert [job.refresh().state for job in jobs] == ["completed"] * 7


def test_a_worker_without_jobs_exits_with_0_although_the_store_does_not_answer(
    on_sqlite: Programs, fresh_sqlite_url: str
) -> None:
    process = on_sqlite.worker("idle")
    on_sqlite.until(lambda: on_sqlite.app.workers())
    time.sleep(2)  # its first look at its queue ends: a claim that has no answer yet may take a job
    lock = sqlite3.connect(fresh_sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")
    try:
        process.send_signal(signal.SIGTERM)
        assert process.wait(10 + SLACK) == 0
    finally:
        lock.rollback()
        lock.close()
