"""The queue pump, line by line: messages of sessions in one SQLite file."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from examples.session_pump.messages import Messages
from examples.session_pump.pump import Pump, Settings
from examples.session_pump.station import Station
from examples.session_pump.tour import tour
from windlass import Attempt, Job, StoreUnavailable

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def messages(fresh_sqlite_url: str) -> AsyncIterator[Messages]:
    messages = Messages(fresh_sqlite_url)
    yield messages
    await messages.app.aclose()


class Recorder:
    """A handler that remembers what it was given, and can be waited for."""

    def __init__(self) -> None:
        self.contents: list[Any] = []
        self._more = asyncio.Condition()

    async def handle(self, job: Job) -> Any:
        content = job.input["content"]
        async with self._more:
            self.contents.append(content)
            self._more.notify_all()
        if isinstance(content, str) and content.startswith("bad"):
            raise RuntimeError(f"{content} is not good")
        return content

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(60), self._more:
            await self._more.wait_for(lambda: len(self.contents) >= count)


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the condition is another thread's or the pump's own
            await asyncio.sleep(0.01)


@contextmanager
def run_python(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process of its own, killed at the end."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


# Claim


async def test_claim_next_is_the_oldest_pending_of_that_session_or_none(messages: Messages) -> None:
    """The oldest pending message of that session, or none."""
    assert await messages.claim_next("a") is None
    for content in ("first", "second"):
        await messages.enqueue("a", content)
    await messages.enqueue("b", "other")
    claimed = await messages.claim_next("a")
    assert claimed is not None
    assert (claimed.job.input, claimed.job.state) == ({"content": "first"}, "running")
    assert await messages.claim_next("c") is None


async def test_claim_next_is_one_statement(messages: Messages, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes the message is one statement, which also returns it: nothing is looked at before."""
    statements: list[str] = []
    connect = sqlite3.connect

    def connect_and_listen(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_and_listen)
    await messages.enqueue("a", "only")
    statements.clear()
    claimed = await messages.claim_next("a")
    assert claimed is not None
    about_it = [one for one in statements if "order_key = 'a'" in one]
    assert len(about_it) == 1
    assert about_it[0].startswith("UPDATE")
    assert "RETURNING" in about_it[0]
    assert [one for one in statements if one.startswith("UPDATE")] == about_it


async def claim_patiently(messages: Messages, session: str) -> Attempt | None:
    """As a pump does it: once more when the file was locked for too long."""
    async with asyncio.timeout(60):
        while True:
            with suppress(StoreUnavailable):
                return await messages.claim_next(session)
            await asyncio.sleep(0.25)


async def test_of_many_claimers_each_message_has_one(messages: Messages, fresh_sqlite_url: str) -> None:
    """Claimers with connections of their own never get the same message."""
    for session in "abcdef":
        await messages.enqueue(session, f"of {session}")
    rivals = [Messages(fresh_sqlite_url) for _ in range(4)]
    claims = await asyncio.gather(*(claim_patiently(rival, session) for session in "abcdef" for rival in rivals))
    for rival in rivals:
        await rival.app.aclose()
    taken = [claim.job.input["content"] for claim in claims if claim is not None]
    assert sorted(taken) == [f"of {session}" for session in "abcdef"]


# Order


async def test_first_in_first_out_within_a_session(messages: Messages) -> None:
    """Also when two pumps serve the same session."""
    recorder = Recorder()
    for number in range(20):
        await messages.enqueue("a", number)
    pumps = [Pump(messages, "a", recorder.handle) for _ in range(2)]
    tasks = [asyncio.create_task(pump.run()) for pump in pumps]
    await recorder.wait_for(20)
    for pump in pumps:
        pump.abort()
    await asyncio.wait_for(asyncio.gather(*tasks), 20)
    assert recorder.contents == list(range(20))


async def test_sessions_run_side_by_side(messages: Messages) -> None:
    """Three handlers that only end when all three are at work."""
    together = asyncio.Barrier(3)

    async def handle(job: Job) -> None:
        async with asyncio.timeout(60):
            await together.wait()

    async with Station(messages, handle) as station:
        jobs = [await station.send(session, "hello") for session in "abc"]
        await messages.app.aresults(jobs, timeout=60)


# Kills

PUMPING = """
import asyncio, os, sys
from examples.session_pump.messages import Messages
from examples.session_pump.station import Station

url, journal = sys.argv[1:]

def write(line):
    with open(journal, "a") as file:
        file.write(line + "\\n")

async def handle(job):
    write(f"begun {job.tenant} {job.input['content']}")
    await asyncio.sleep(0.02)
    write(f"done {job.tenant} {job.input['content']}")
    await asyncio.sleep(0.02)

async def main():
    async with Station(Messages(url), handle):
        await asyncio.Event().wait()

asyncio.run(main())
"""

SENDING = """
import asyncio, sys
from examples.session_pump.messages import Messages

async def main():
    messages = Messages(sys.argv[1])
    for number in range(100_000):
        await messages.enqueue("a", number)
        print(number, flush=True)
        await asyncio.sleep(0.01)  # others want to write too

asyncio.run(main())
"""


@pytest.mark.timeout(300)
def test_after_kill_9_again_and_again_the_next_continues(fresh_sqlite_url: str, tmp_path: Path) -> None:
    """Nothing in memory: pending or in processing, after a kill the next process goes on with it."""
    sessions, count = ("a", "b", "c"), 16

    async def fill() -> None:
        messages = Messages(fresh_sqlite_url)
        for number in range(count):
            for session in sessions:
                await messages.enqueue(session, number)
        await messages.app.aclose()

    asyncio.run(fill())
    journal = tmp_path / "journal"
    journal.touch()

    def lines(kind: str) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for what, session, number in map(str.split, journal.read_text().splitlines()):
            if what == kind:
                found[session].append(int(number))
        return found

    def run_until(enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        with run_python(PUMPING, fresh_sqlite_url, str(journal)) as process:
            while not enough():
                assert process.poll() is None
                assert time.monotonic() < deadline, journal.read_text()
                time.sleep(0.003)

    kills = 4
    for _ in range(kills):
        before = {session: len(lines("done")[session]) for session in sessions}
        run_until(lambda: all(len(lines("done")[one]) > before[one] + 1 for one in sessions))  # noqa: B023
    run_until(lambda: all(count - 1 in lines("done")[one] for one in sessions))

    for numbers in lines("begun").values():
        assert sorted(set(numbers)) == list(range(count))
        assert numbers == sorted(numbers)
        assert len(numbers) - count <= kills  # only what was in hand was begun once more


def test_an_acknowledged_message_survives_a_kill_of_the_sender(fresh_sqlite_url: str) -> None:
    """A message whose enqueueing has returned is in the file, whatever happens to who sent it."""
    with run_python(SENDING, fresh_sqlite_url) as process:
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(25)]
        process.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in process.stdout.read().split()]

    async def read() -> list[int]:
        messages, numbers = Messages(fresh_sqlite_url), []
        assert await messages.take_over() == {"a"}
        while (message := await messages.claim_next("a")) is not None:
            numbers.append(message.job.input["content"])
            await message.acomplete()
        await messages.app.aclose()
        return numbers

    there = asyncio.run(read())
    assert there[: len(acknowledged)] == acknowledged
    assert len(there) <= len(acknowledged) + 1


async def test_a_message_that_kills_its_process_each_time_has_failed_in_the_end(messages: Messages) -> None:
    """And does not hold up its session for ever."""
    poison = await messages.enqueue("a", "poison")
    await messages.enqueue("a", "next")
    for _ in range(3):
        assert await messages.claim_next("a") is not None
        await messages.take_over()
    assert (await poison.arefresh()).state == "failed"
    following = await messages.claim_next("a")
    assert following is not None
    assert following.job.input == {"content": "next"}


# Wake-up and abort


async def test_wakes_on_an_event_and_does_not_look_meanwhile(messages: Messages) -> None:
    """While nothing happens it does not ask the database; a message wakes it."""
    recorder = Recorder()
    pump = Pump(messages, "a", recorder.handle)
    task = asyncio.create_task(pump.run())
    await messages.enqueue("a", 1)
    await recorder.wait_for(1)
    looks = 0
    async with asyncio.timeout(60):
        while pump.looks != looks:  # its own confirmation is seen as a change of the file, once
            looks = pump.looks
            await asyncio.sleep(1)
    await messages.enqueue("a", 2)
    await recorder.wait_for(2)  # sooner than it would end by itself
    pump.abort()
    await asyncio.wait_for(task, 20)


async def test_a_message_of_another_process_wakes_it_too(messages: Messages, fresh_sqlite_url: str) -> None:
    """Who enqueues need not be who pumps."""
    recorder = Recorder()
    pump = Pump(messages, "a", recorder.handle)
    task = asyncio.create_task(pump.run())
    await until(lambda: pump.looks > 0)
    with run_python(SENDING, fresh_sqlite_url):
        await recorder.wait_for(3)
    pump.abort()
    await asyncio.wait_for(task, 20)
    assert recorder.contents[:3] == [0, 1, 2]


async def test_an_abort_ends_it_at_once_while_it_waits(messages: Messages) -> None:
    """Not when the next message comes, nor when the idle timeout is over."""
    pump = Pump(messages, "a", Recorder().handle)
    task = asyncio.create_task(pump.run())
    await until(lambda: pump.looks > 0)
    pump.abort()
    await asyncio.wait_for(task, 20)


async def test_an_abort_gives_back_the_message_in_hand(messages: Messages) -> None:
    """The handler is interrupted, and its message is pending as if it had not been begun."""
    begun, ended = asyncio.Event(), []

    async def endless(job: Job) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(job.id)

    job = await messages.enqueue("a", 1)
    pump = Pump(messages, "a", endless)
    task = asyncio.create_task(pump.run())
    await asyncio.wait_for(begun.wait(), 60)
    pump.abort()
    await asyncio.wait_for(task, 20)
    now = await job.arefresh()
    assert (ended, now.state, now.attempt) == ([job.id], "pending", 0)


# Success and failure


async def test_success_confirms_an_exception_fails_and_the_loop_continues(messages: Messages) -> None:
    """One pump, from the first message to the last."""
    recorder = Recorder()
    async with Station(messages, recorder.handle) as station:
        jobs = [await station.send("a", content) for content in ("good", "bad one", "better")]
        assert await jobs[2].aresult(timeout=60) == "better"
    good, bad, better = [await job.arefresh() for job in jobs]
    assert (good.state, good.output) == ("completed", "good")
    assert (better.state, better.output) == ("completed", "better")
    assert (bad.state, bad.attempt) == ("failed", 1)
    assert bad.error is not None
    assert (bad.error.type, bad.error.message) == ("RuntimeError", "bad one is not good")
    assert recorder.contents == ["good", "bad one", "better"]


# Idle timeout


async def test_a_failed_message_that_is_pending_again_wakes_the_pump(messages: Messages) -> None:
    """Whoever brings it back, here by the app alone."""
    recorder = Recorder()
    job = await messages.enqueue("a", "bad one")
    pump = Pump(messages, "a", recorder.handle)
    task = asyncio.create_task(pump.run())
    await recorder.wait_for(1)
    await until(lambda: pump.looks > 1)
    await messages.app.aretry(job.id)
    await recorder.wait_for(2)
    pump.abort()
    await asyncio.wait_for(task, 20)


async def test_an_idle_timeout_ends_it_and_a_message_resets_that(
    messages: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three minutes if nothing is said; only a message counts, not a mere wake-up."""
    assert Settings().idle_seconds == 180
    loop, passed = asyncio.get_running_loop(), [0]
    read_clock = loop.time
    monkeypatch.setattr(loop, "time", lambda: read_clock() + sum(passed))
    recorder = Recorder()
    pump = Pump(messages, "a", recorder.handle)

    async def looks_once_more() -> None:
        looks = pump.looks
        pump.wake()
        await until(lambda: pump.looks > looks or task.done())
        assert not task.done()

    task = asyncio.create_task(pump.run())
    await until(lambda: pump.looks > 0)
    passed.append(160)
    await looks_once_more()
    job = await messages.enqueue("a", 1)
    assert await job.aresult(timeout=60) == 1
    await looks_once_more()
    passed.append(160)
    await looks_once_more()
    await asyncio.sleep(0.1)
    assert not task.done()
    passed.append(21)
    pump.wake()
    await asyncio.wait_for(task, 20)


async def test_a_message_after_the_idle_timeout_has_a_new_pump(messages: Messages) -> None:
    """The end of a pump is no end of its session."""
    recorder = Recorder()
    async with Station(messages, recorder.handle, Settings(idle_seconds=0.1)) as station:
        await station.send("a", 1)
        await recorder.wait_for(1)
        await until(lambda: not station.sessions)
        await station.send("a", 2)
        assert station.sessions == {"a"}
        await recorder.wait_for(2)


# Errors of the claim


async def test_a_transient_error_of_the_claim_is_retried(tmp_path: Path) -> None:
    """After 250 ms, three times: the file's folder is not there at first, as on a disk that is not mounted."""
    assert (Settings().retries, Settings().retry_seconds) == (3, 0.25)
    messages, recorder = Messages(f"sqlite:///{tmp_path / 'disk' / 'messages.db'}"), Recorder()
    pump = Pump(messages, "a", recorder.handle)
    started = time.monotonic()
    task = asyncio.create_task(pump.run())
    await until(lambda: pump.looks == 3)
    assert time.monotonic() - started >= 0.5
    (tmp_path / "disk").mkdir()
    await messages.enqueue("a", "after all")
    await recorder.wait_for(1)
    pump.abort()
    await asyncio.wait_for(task, 20)
    await messages.app.aclose()


async def test_an_error_that_stays_ends_the_pump_with_it(tmp_path: Path) -> None:
    """Four looks in all, 250 ms apart."""
    messages = Messages(f"sqlite:///{tmp_path / 'disk' / 'messages.db'}")
    pump = Pump(messages, "a", Recorder().handle)
    started = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(pump.run(), 60)
    assert pump.looks == 4
    assert time.monotonic() - started >= 0.75
    await messages.app.aclose()


# Deduplication, depth, pruning


async def test_deduplicated_by_session_and_tool_use(messages: Messages) -> None:
    """Within the session, also when the first is done, and when both come at once; a null id never is."""
    first = await messages.enqueue("a", 1, tool_use_id="use 1")
    assert first.created
    again = await messages.enqueue("a", 1, tool_use_id="use 1")
    assert (again.created, again.id) == (False, first.id)
    assert (await messages.enqueue("b", 1, tool_use_id="use 1")).created
    message = await messages.claim_next("a")
    assert message is not None
    await message.acomplete()
    assert not (await messages.enqueue("a", 1, tool_use_id="use 1")).created
    at_once = await asyncio.gather(*(messages.enqueue("a", 2, tool_use_id="use 2") for _ in range(10)))
    assert sorted(job.created for job in at_once) == [False] * 9 + [True]
    without = [await messages.enqueue("a", 3) for _ in range(3)]
    assert all(job.created for job in without)
    assert len({job.id for job in without}) == 3


async def test_depth_counts_pending_and_processing(messages: Messages) -> None:
    """Not what is done, not what failed, not another session's."""
    for number in range(4):
        await messages.enqueue("a", number)
    await messages.enqueue("b", 0)
    assert await messages.depth("a") == 4
    done = await messages.claim_next("a")
    assert done is not None
    assert await messages.depth("a") == 4
    await done.acomplete()
    assert await messages.depth("a") == 3
    failed = await messages.claim_next("a")
    assert failed is not None
    await failed.afail("no")
    assert await messages.depth("a") == 2
    assert (await messages.depth("b"), await messages.depth("c")) == (1, 0)


async def test_failed_messages_are_pruned(fresh_sqlite_url: str) -> None:
    """When they have been kept for as long as was said, and no sooner."""
    brief, lasting = Messages(fresh_sqlite_url, keep=1), Messages(fresh_sqlite_url)
    jobs = [await brief.enqueue("a", "gone soon"), await lasting.enqueue("a", "kept for a day")]
    failed_at = time.monotonic()
    for _ in jobs:
        message = await lasting.claim_next("a")
        assert message is not None
        await message.afail("no")
    while await brief.app.aget(jobs[0].id) is not None:
        await lasting.forget_old()
        assert time.monotonic() < failed_at + 30
        await asyncio.sleep(0.05)
    assert time.monotonic() - failed_at >= 0.9
    kept = await lasting.app.aget(jobs[1].id)
    assert kept is not None
    assert kept.state == "failed"
    for messages in (brief, lasting):
        await messages.app.aclose()


# The example itself


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"idle_seconds": 0}, "idle_seconds must be more than 0"),
        ({"idle_seconds": float("nan")}, "idle_seconds must be more than 0"),
        ({"retries": -1}, "retries is 0"),
        ({"retry_seconds": -0.25}, "retry_seconds is 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Settings(**settings)


def test_the_tour_counts_right(store_url: str) -> None:
    told: list[tuple[int, int]] = []
    checks = tour(store_url, lambda done, total: told.append((done, total)))
    assert [check for check in checks if not check.right] == []
    assert told[-1] == (18, 18)
