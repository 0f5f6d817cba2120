"""Workers as processes of their own: killed, stopped, busy. Handlers in child processes, too."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from windlass import Job, Windlass

from . import program


class Workers:
    """Starts `windlass worker`, and reads what its handlers noted."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.notes_file = url, folder / "notes"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.app = Windlass(url)
        self.app.migrate()
        self.app.tasks.update(program.app.tasks)

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "windlass", "worker", "tests.worker.program:app", "--rescue-interval", "300ms"]
        environment = os.environ | {"WINDLASS_URL": self.url, "NOTES": str(self.notes_file)}
        process = subprocess.Popen([*command, *options], env=environment)
        self.processes.append(process)
        return process

    def notes(self) -> list[str]:
        return self.notes_file.read_text().splitlines() if self.notes_file.exists() else []

    def let_go(self) -> None:
        """Those that wait may end."""
        Path(f"{self.notes_file}.go").touch()

    def enqueue(self, task: str, **arguments: object) -> Job:
        return self.app.enqueue(task, arguments)

    def until(self, condition: Callable[[], object], seconds: float = 40.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"it did not happen in time; notes: {self.notes()}"
            time.sleep(0.05)


def has_taken(process: subprocess.Popen[bytes], number: signal.Signals) -> bool:
    """Whether no such signal waits for the process any more."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (pending,) = re.findall(r"^ShdPnd:\s*(\w+)$", status, re.MULTILINE)
    return not int(pending, 16) >> (number - 1) & 1


@pytest.fixture
def workers(store_url: str, tmp_path: Path) -> Iterator[Workers]:
    workers = Workers(store_url, tmp_path)
    yield workers
    for process in workers.processes:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait(10)
    workers.app.close()


def test_a_handler_that_kills_its_process_runs_as_often_as_it_may_then_fails(workers: Workers) -> None:
    job = workers.enqueue("dies")
    workers.start("--processes", "1")
    workers.until(lambda: job.refresh().state == "failed", 80)  # it is started four times
    assert workers.notes() == ["dies 1", "dies 2", "dies 3"]
    assert "LeaseExpired" in str(job.refresh().error)


def test_kill_9_in_mid_job_runs_it_again_and_completes_it_once(workers: Workers) -> None:
    job = workers.enqueue("sleeps", seconds=1.5, name="a")
    first = workers.start()
    workers.until(lambda: "start a" in workers.notes())
    first.kill()
    workers.start()
    workers.until(lambda: job.refresh().state == "completed")  # in time for its own lease; the default is a minute
    assert workers.notes() == ["start a", "start a", "end a"]
    assert job.refresh().attempt == 2


def test_after_kill_9_and_rescue_a_queues_limit_is_whole_again(workers: Workers) -> None:
    """The limit is counted from what a worker holds: what its dead predecessor held is neither missing nor added."""
    for n in range(9):
        workers.enqueue("waits", name=f"job{n}")
    first = workers.start("--queues", "default:3")
    workers.until(lambda: len(workers.notes()) >= 3)
    first.kill()
    first.wait()
    before = len(workers.notes())
    workers.start("--queues", "default:3")
    workers.until(lambda: len(workers.notes()) >= before + 3)
    workers.until(lambda: workers.app.counts().running == 3)  # what the dead one held waits again
    workers.let_go()
    workers.until(lambda: workers.app.counts().completed == 9)
    running = most = 0
    for word in (note.split()[0] for note in workers.notes()[before:]):
        running += 1 if word == "start" else -1
        most = max(most, running)
    assert (running, most) == (0, 3)


def test_sigterm_lets_running_jobs_end_and_gives_the_rest_back(workers: Workers) -> None:
    running = workers.enqueue("waits", name="runs")
    process = workers.start("--concurrency", "1")
    workers.until(lambda: "start runs" in workers.notes())
    waiting = [workers.enqueue("waits", name=f"w{n}") for n in range(3)]
    process.terminate()
    workers.until(lambda: has_taken(process, signal.SIGTERM))
    workers.let_go()
    assert process.wait(40) == 0
    assert running.refresh().state == "completed"
    assert [(job.refresh().state, job.refresh().attempt) for job in waiting] == [("pending", 0)] * 3


def test_after_the_grace_running_jobs_are_interrupted_and_given_back(workers: Workers) -> None:
    job = workers.enqueue("sleeps", seconds=60.0, name="long")
    process = workers.start("--grace", "500ms")
    workers.until(lambda: "start long" in workers.notes())
    process.terminate()
    assert process.wait(20) == 0
    assert (job.refresh().state, job.refresh().attempt) == ("pending", 0)


def test_a_second_signal_ends_at_once(workers: Workers) -> None:
    workers.enqueue("sleeps", seconds=60.0, name="long")
    process = workers.start("--grace", "1m")
    workers.until(lambda: "start long" in workers.notes())
    process.terminate()
    workers.until(lambda: has_taken(process, signal.SIGTERM))  # two of a kind that wait would be one
    process.terminate()
    assert process.wait(20) == 0


def test_a_blocked_loop_loses_no_lease(workers: Workers) -> None:
    job = workers.enqueue("blocks_the_loop", seconds=5.0)
    workers.start()
    workers.start()
    workers.until(lambda: job.refresh().finished)
    assert workers.notes() == ["block"]
    assert job.refresh().attempt == 1


@pytest.mark.usefixtures("write_ahead")
def test_a_stopped_worker_is_rescued_and_its_late_completion_refused(workers: Workers) -> None:
    job = workers.enqueue("waits", name="a")
    first = workers.start()
    workers.until(lambda: "start a" in workers.notes())
    time.sleep(0.3)  # what it says when it starts is written: stopped with SQLite's lock, it would stop everybody
    first.send_signal(signal.SIGSTOP)
    workers.start()
    workers.until(lambda: workers.notes().count("start a") == 2)
    workers.let_go()
    workers.until(lambda: job.refresh().state == "completed")
    completed = job.refresh()
    first.send_signal(signal.SIGCONT)
    first.terminate()
    assert first.wait(40) == 0  # whatever it had to say, it has said
    after = job.refresh()
    assert (after.state, after.attempt, after.finished_at) == ("completed", 2, completed.finished_at)


def test_child_processes_run_time_out_and_die_without_hurting_the_worker(workers: Workers) -> None:
    jobs = {name: workers.enqueue(name) for name in ("never_ends", "child_dies")}
    jobs["square"] = workers.enqueue("square", n=7)
    workers.start()
    workers.until(lambda: all(job.refresh().finished for job in jobs.values()))
    assert jobs["square"].refresh().output == 49
    assert [line.text for line in jobs["square"].refresh().notes.log] == ["squaring"]
    assert "TimedOut" in str(jobs["never_ends"].refresh().error)
    assert "ProcessDied" in str(jobs["child_dies"].refresh().error)
    assert workers.notes().count("child dies") == 2


def test_a_supervisor_restarts_the_dead_and_gives_up_on_those_that_never_get_ready(
    workers: Workers, tmp_path: Path
) -> None:
    process = workers.start("--processes", "2")
    workers.until(lambda: len(workers.app.workers()) == 2)
    before = {worker.pid for worker in workers.app.workers()}
    os.kill(next(iter(before)), signal.SIGKILL)
    workers.until(lambda: {worker.pid for worker in workers.app.workers()} - before)
    process.terminate()
    assert process.wait(20) == 0
    assert workers.app.workers() == [] or len(workers.app.workers()) == 1  # the killed one said no farewell


def test_an_app_that_cannot_be_imported_is_wrong_use() -> None:
    command = [sys.executable, "-m", "windlass", "worker", "no.such.module:app"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "no.such" in done.stderr
    assert "Traceback" not in done.stderr
