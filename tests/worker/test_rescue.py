"""What dead workers leave behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from windlass import Windlass

from .conftest import until
from .rows import rewrite

ROOT = Path(__file__).parents[2]
FUTURE = datetime(2100, 1, 1, tzinfo=UTC)

# A program that makes an app and a worker, forks, and says who holds what on either side.
FORKS = """
import asyncio, os, sys
from windlass import Windlass

app = Windlass(sys.argv[1])
app.migrate()

@app.task
async def some() -> None: ...

worker = app.worker(queues=["none"], until_idle=True)
before = app.identity.name, worker.identity.name
app.enqueue_many([some.using(queue=queue).call() for queue in ("parent", "forked")])
child = os.fork()
side = "parent" if child else "forked"
(attempt,) = app.claim(1, queues=[side])
asyncio.run(worker.run())
words = os.getpid(), side, attempt.job.worker, worker.describe().name, *before
os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # in one piece: both write to the same pipe
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
app.close()
"""


def names(url: str) -> dict[str, list[str]]:
    done = subprocess.run([sys.executable, "-c", FORKS, url], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert sorted(line[1] for line in lines) == ["forked", "parent"], (done.stdout, done.stderr)
    for pid, _, claimer, worker, *_ in lines:
        assert claimer.split(":")[1] == worker.split(":")[1] == pid
    return {line[1]: line[2:] for line in lines}


def test_a_workers_name_is_random_for_each_process_also_after_a_fork(store_url: str) -> None:
    said = [names(store_url) for _ in range(2)]
    for one in said:
        claimer, worker, claimer_before, worker_before = one["parent"]
        assert (claimer, worker) == (claimer_before, worker_before)
    everyone = [name for one in said for side in one.values() for name in side[:2]]
    assert len(set(everyone)) == len(everyone) == 8
    endings = [name.rsplit(":", 1)[1] for name in everyone]
    assert len(set(endings)) == 8, "the random part is not random"


JUNK: dict[str, list[dict[str, Any]]] = {
    "any": [
        {"policy": "not json"},
        {"policy": '{"backoff": {"kind": "fixed", "delay": -1}, "timeout": "soon"}'},
        {"policy": '{"backoff": {"kind": "polynomial", "base": 1e300, "power": 9e99}}'},
        {"error": "{"},
        {"error": '{"type": 5}'},
        {"attempts": "[[[["},
        {"attempts": '[{"number": "one"}]'},
        {"labels": "[1]"},
        {"progress": "no"},
        {"max_attempts": -3},
    ],
    "sqlite": [
        {"attempt": "many"},
        {"max_attempts": "all"},
        {"claimed_at": "yesterday"},
        {"keep_seconds": "long"},
        {"rank": "high"},
    ],
    "postgres": [
        {"claimed_at": "infinity"},
        {"claimed_at": "-infinity"},
        {"created_at": "20000-01-01"},
        {"max_attempts": -(2**31)},
    ],
    "mongodb": [
        {"attempt": "many"},
        {"attempts": 5},
        {"error": {"type": "x"}},
        {"policy": 7},
        {"claimed_at": "yesterday"},
        {"keep_seconds": "long"},
        {"type": None},
        {"token": None},
    ],
}


async def test_bad_rows_do_not_stop_rescue_which_pages_through_a_thousand(app: Windlass, store_url: str) -> None:
    store = store_url.split(":")[0].removesuffix("ql")

    @app.task(backoff="10ms", lease="1s")
    async def some(n: int) -> None: ...

    junk = JUNK["any"] + JUNK[store]
    # Of all ids, those of the bad rows come first: whoever goes by the id meets them at once.
    bad = [await some.aenqueue(n) for n in range(len(junk))]
    await app.aenqueue_many([some.call(n) for n in range(1000)])
    taken: set[UUID] = set()
    while len(taken) < 1000 + len(junk):
        taken |= {attempt.job.id for attempt in await app.aclaim(1000, lease="1s", worker="gone")}
    for job, columns in zip(bad, junk, strict=True):
        rewrite(store_url, job.id, **columns)
    async with app.worker(rescue_interval="200ms") as worker:
        await until(lambda: worker.completed >= 1000, 30)
        await until(lambda: not app.counts().running, 30)
    counts = await app.acounts()
    assert counts.running == 0, "a bad row is held by the dead for ever"
    assert counts.completed >= 1000
    assert counts.completed + counts.failed + counts.pending == 1000 + len(junk)


async def test_a_thousand_that_are_rescued_at_once_come_back_staggered(app: Windlass) -> None:
    @app.task(backoff="5s")
    async def some(n: int) -> None: ...

    await app.aenqueue_many([some.call(n) for n in range(1000)])
    assert len(await app.aclaim(1000, lease="60s")) == 1000
    assert await app.arescue(stale_before=FUTURE) == 1000
    moments = [job.run_at for job in await app.alist(state="pending", limit=1000)]
    assert len(moments) == 1000
    first = min(moments)
    assert max(moments) - first > timedelta(seconds=1)
    tenths = Counter(int((moment - first) / timedelta(milliseconds=100)) for moment in moments)
    assert max(tenths.values()) < 250, "most of them come back at the same moment"


async def test_leases_that_are_lost_leave_no_hole_in_a_queues_limit(app: Windlass) -> None:
    running = most = 0
    gate = asyncio.Event()

    @app.task(queue="narrow", lease="60s", backoff="1ms")
    async def some() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            await gate.wait()
        finally:
            running -= 1

    await app.aenqueue_many([some.call() for _ in range(12)])
    async with app.worker(queues={"narrow": 3}, concurrency=10) as worker:
        for _ in range(3):
            await until(lambda: running == 3)
            lost, rescued = set(worker.running), 0
            while rescued < 3:  # PostgreSQL passes over a row whose renewal is just being written
                rescued += await app.arescue(stale_before=FUTURE)
            await until(lambda lost=lost: not lost & worker.running)  # type: ignore[misc]
        await until(lambda: running == 3)
        gate.set()
        await until(lambda: worker.completed == 12)
        await until(lambda: worker.ledger.held["narrow"] == 0)  # a claim that is under way has places, too
    assert most == 3


async def test_a_worker_until_idle_rescues_before_it_ends(app: Windlass) -> None:
    @app.task(max_attempts=3, backoff=0)
    async def some() -> str:
        return "done"

    job = await some.aenqueue()
    assert await app.aclaim(1, lease="100ms", worker="one that is gone")
    await asyncio.sleep(0.3)
    await asyncio.wait_for(app.arun_worker(until_idle=True), 20)
    assert (await job.arefresh()).state != "running"
    async with asyncio.timeout(20):  # rescued jobs start a little apart from each other, so it may not have been due
        while not (await job.arefresh()).finished:
            await asyncio.sleep(0.05)
            await app.arun_worker(until_idle=True)
    assert await job.aresult(timeout=5) == "done"
