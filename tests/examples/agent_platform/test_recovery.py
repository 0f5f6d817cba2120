"""Workers that die, stop, and share."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from examples.agent_platform.__main__ import main
from windlass import Attempt, Job

from .conftest import Replicas

ROOT = Path(__file__).parents[3]
PATIENT = f"{__package__}.patient:Patient"


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def environment(replicas: Replicas, gate: Path, **more: str) -> dict[str, str]:
    """Of workers whose turns wait for a file."""
    return os.environ | {
        "WINDLASS_URL": replicas.settings.url,
        "AGENTS_RECORDS": replicas.settings.records,
        "AGENTS_MODEL": PATIENT,
        "PATIENT_UNTIL": str(gate),
    } | more  # fmt: skip


@contextmanager
def working(
    command: list[str], environment: dict[str, str], stderr: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    arguments = [sys.executable, "-m", *command]
    with subprocess.Popen(arguments, cwd=ROOT, env=environment, stderr=stderr) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def running(replicas: Replicas) -> list[Job]:
    return list(replicas.app.list(state="running"))


def test_the_job_of_a_killed_worker_is_pending_again_after_five_minutes(replicas: Replicas, tmp_path: Path) -> None:
    """Not before; then another answers."""
    job = replicas.turn("hello")
    command = ["windlass", "worker", "examples.agent_platform.worker:app"]
    with working(command, environment(replicas, tmp_path / "never")) as process:
        until(lambda: bool(running(replicas)))
        process.send_signal(signal.SIGKILL)
    replicas.pass_time(minutes=4, seconds=30)
    assert replicas.app.rescue() == 0
    assert job.refresh().state == "running"
    replicas.pass_time(seconds=30)
    assert replicas.app.rescue() == 1
    rescued = job.refresh()
    assert (rescued.state, rescued.attempt) == ("pending", 1)
    assert "did not renew the lease" in str(rescued.error)
    replicas.pass_time(seconds=12)
    assert replicas.work() == 1
    assert job.result(5).startswith("About 'hello'")


def test_workers_rescue_at_boot(replicas: Replicas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`work` rescues lost jobs before it becomes as many workers as the settings say."""
    lost, fresh = replicas.turn("lost"), replicas.turn("fresh")
    replicas.app.claim(1, lease="10ms", worker="dead")
    replicas.app.claim(1, lease=None, worker="alive")
    time.sleep(0.02)
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, arguments: became.append(arguments))
    result = CliRunner().invoke(
        main, ["work"], env=environment(replicas, tmp_path, AGENTS_REPLICAS="3", AGENTS_CONCURRENCY="2")
    )
    assert result.exit_code == 0, result.output
    assert became[0][3:5] == ["worker", "examples.agent_platform.worker:app"]
    assert became[0][5:] == ["--processes", "3", "--concurrency", "2", "--queues", "default:2"]
    assert (lost.refresh().state, fresh.refresh().state) == ("pending", "running")


async def test_and_at_any_time(replicas: Replicas) -> None:
    """A worker that has long been there rescues, too."""
    app, told = replicas.app, asyncio.Event()
    loop = asyncio.get_running_loop()
    app.on("rescued")(lambda event: loop.call_soon_threadsafe(told.set))
    job = await asyncio.to_thread(replicas.turn, "hello")
    await app.aclaim(1, lease=None, worker="dead")
    async with app.worker(rescue_interval=0.05, poll_interval=0.1):
        await asyncio.sleep(0.3)
        assert not told.is_set()
        replicas.pass_time(minutes=5)
        await asyncio.wait_for(told.wait(), 20)
        replicas.pass_time(seconds=12)
        assert (await job.aresult(20)).startswith("About")
    await app.aclose()


def test_the_handler_gets_payload_record_and_context(replicas: Replicas) -> None:
    """Arguments by name, the job with its attempt, and the platform."""
    seen: list[object] = []

    @replicas.first.kind("look")
    def look(attempt: Attempt, where: str) -> str:
        seen.extend([where, attempt.job, attempt.job.worker, attempt.number, replicas.first.settings])
        return replicas.first.model.check()

    job = replicas.jobs.enqueue("look", {"where": "everywhere"})
    replicas.work()
    assert (seen[0], seen[1], seen[3], seen[4]) == ("everywhere", job, 1, replicas.settings)
    assert isinstance(seen[2], str)
    assert job.result(5) == "ready"
    turn = replicas.turn("hello")
    replicas.work()
    assert [line.text for line in turn.refresh().notes.log] == ["attempt 1 answers session s on web"]


async def test_stopping_ends_the_loop_after_the_current_job(replicas: Replicas) -> None:
    """The one that runs is completed, the next is not begun."""
    current = await asyncio.to_thread(replicas.turn, "slow")
    following = await asyncio.to_thread(replicas.turn, "next")
    worker = replicas.app.worker(concurrency=1)
    work = asyncio.create_task(worker.run())
    assert await asyncio.to_thread(replicas.model.begun.wait, 20)
    worker.stop()
    await asyncio.sleep(0.2)
    assert not work.done()
    replicas.model.go_on.set()
    assert await asyncio.wait_for(work, 20) == 1
    states = [(await job.arefresh()).state for job in (current, following)]
    assert states == ["completed", "pending"]
    assert (await following.arefresh()).attempt == 0
    await replicas.app.aclose()


def test_three_replicas_share_the_work(replicas: Replicas, tmp_path: Path) -> None:
    """Three processes hold a job each, and each job says whose it is; told to stop, they end what they hold."""
    gate = tmp_path / "go on"
    jobs = [replicas.turn(f"message {number}") for number in range(7)]
    settings = environment(replicas, gate, AGENTS_REPLICAS="3", AGENTS_CONCURRENCY="1")
    with working(["examples.agent_platform", "work"], settings, stderr=subprocess.PIPE) as process:
        until(lambda: len(running(replicas)) == 3)
        held = {job.worker: job for job in running(replicas)}
        assert len(held) == 3
        assert set(held) <= {worker.name for worker in replicas.app.workers()}
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        told = (line for line in process.stderr if b"claims no more" in line)
        assert len(list(islice(told, 3))) == 3
        gate.touch()
        assert process.wait(60) == 0
    assert all(job.refresh().state == "completed" for job in held.values())
    assert replicas.app.counts()["pending"] == 4
    assert len(replicas.records.all("turn")) == 3
    assert replicas.work() == 4
    assert {job.refresh().state for job in jobs} == {"completed"}


def test_each_job_is_run_by_one_of_them(replicas: Replicas) -> None:
    """Three replicas at once, thirty turns, each answered in one attempt and in the records once."""
    platforms = [replicas.first, replicas.another(), replicas.another()]
    texts = {f"message {number}" for number in range(30)}
    jobs = [replicas.turn(text) for text in texts]
    threads = [
        threading.Thread(target=platform.app.run_worker, kwargs={"until_idle": True, "concurrency": 2})
        for platform in platforms
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(job.refresh().state, job.refresh().attempt) for job in jobs} == {("completed", 1)}
    assert set(replicas.model.answered) == texts
    turns = replicas.records.all("turn").values()
    assert sorted(turn["text"] for turn in turns) == sorted(texts)
