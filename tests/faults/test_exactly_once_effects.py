"""Effects exactly once: whoever writes in `attempt.transaction()` is killed two hundred times on each store between his
write and the completion, and a few times before and after. A failure prints the seed that replays its choices."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from windlass import Windlass
from windlass.embedded import MongodbServer

from ..chains.ledger import Ledger
from .dying import AROUND, BETWEEN, NEVER, NEXT, RECEIPTS, WORK, Death

ROOT = Path(__file__).parents[2]
KILLS = 200
BETWEEN_AT_ONCE, AROUND_AT_ONCE = 25, 3
AT_ONCE = BETWEEN_AT_ONCE + AROUND_AT_ONCE


@pytest.fixture(params=["sqlite", "postgres", "mongodb"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param != "mongodb":
        yield request.getfixturevalue(f"fresh_{request.param}_url")
        return
    # The server does not notice that a client has died in a transaction: what that one wrote stays locked until the
    # transaction is too old, by default for a minute. So this is a server of our own, on which they age quickly.
    with MongodbServer(settings={"transactionLifetimeLimitSeconds": "1"}) as server:
        yield server.url.replace("/?", "/effects?serverSelectionTimeoutMS=30000&")


@pytest.fixture
def dying(url: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.faults.dying", url]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0


class Killings:
    """Jobs, and rounds of workers that die of them."""

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.seed = int(os.environ.get("WINDLASS_TEST_SEED", random.randrange(2**32)))
        print(f"replay with WINDLASS_TEST_SEED={self.seed}")
        self.random = random.Random(self.seed)
        self.process = process
        self.ledger = Ledger(url)
        self.app = Windlass(url)
        self.app.migrate()
        self.jobs: set[str] = set()
        self.deaths: Counter[str] = Counter()
        self._around = itertools.cycle(self.random.sample(AROUND, len(AROUND)))

    @property
    def between(self) -> int:
        """How many died between their write and the completion."""
        return sum(self.deaths[point] for point in BETWEEN)

    def chosen(self) -> list[Death]:
        """Those of one round."""
        between = self.random.choices(BETWEEN, k=min(BETWEEN_AT_ONCE, KILLS - self.between))
        points = [*between, *itertools.islice(self._around, AROUND_AT_ONCE)]
        self.random.shuffle(points)
        return [Death(point, self.random.random(), self.random.random() < 0.5) for point in points]

    def waiting(self) -> int:
        return sum(
            tally.count for tally in self.app.counts().tallies if (tally.queue, tally.state) == (WORK, "pending")
        )

    def play(self, deaths: list[Death]) -> None:
        """One process for each; when it is over, what the dead ones held has been given back."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(msgspec.json.encode(deaths).decode() + "\n")
        self.process.stdin.flush()
        codes = msgspec.json.decode(self.process.stdout.readline(), type=list[int])
        assert codes == [0 if death.point == NEVER else -signal.SIGKILL for death in deaths], f"seed {self.seed}"
        self.deaths.update(death.point for death in deaths if death.point != NEVER)
        self._give_back()

    def _give_back(self) -> None:
        """What a dead client had begun is undone by the server in its own time; until then its job is left alone."""
        deadline = time.monotonic() + 20
        while self.app.counts().running:
            assert time.monotonic() < deadline, f"still running: {self.app.list(state='running')}; seed {self.seed}"
            now = self.app.run_operation(self.app.store.now)
            self.app.rescue(stale_before=now + timedelta(seconds=1))
        self.app.run_now_many(queue=WORK)  # rescued jobs come back staggered

    def top_up(self) -> None:
        missing = range(AT_ONCE - self.waiting())
        calls = [self.app.call("work", {}, queue=WORK, max_attempts=None, backoff=0) for _ in missing]
        self.jobs |= {str(job.id) for job in self.app.enqueue_many(calls)} if calls else set()


@pytest.mark.timeout(300)
def test_two_hundred_kills_and_each_effect_once(url: str, dying: subprocess.Popen[str]) -> None:
    began = time.monotonic()
    killings = Killings(url, dying)
    app, ledger = killings.app, killings.ledger
    while killings.between < KILLS:
        killings.top_up()
        killings.play(killings.chosen())
        assert set(ledger.entries) <= killings.jobs
    died_before = app.counts()["pending"]
    while left := killings.waiting():
        killings.play([Death(NEVER, 0.0, number % 2 == 0) for number in range(min(AT_ONCE, left))])
    took = f"{time.monotonic() - began:.1f} s"
    print(f"{killings.between} kills between, {killings.deaths.total()} in all, in {took}: {dict(killings.deaths)}")

    expected, seed = sorted(killings.jobs), f"seed {killings.seed}"
    assert ledger.entries == expected, seed
    worked = app.list(queue=WORK, limit=1000)
    assert sorted(str(job.id) for job in worked) == expected, seed
    assert {job.state for job in worked} == {"completed"}, seed
    for queue in (RECEIPTS, NEXT):
        assert sorted(job.input["of"] for job in app.list(queue=queue, limit=1000)) == expected, seed
    # It shows something only if they died everywhere, and of both kinds: with and without an effect.
    assert set(killings.deaths) == {*BETWEEN, *AROUND}
    assert died_before
    assert any(job.attempt > 1 for job in worked)
    assert any(job.attempt == 1 for job in worked)
    app.close()
    ledger.close()
