"""Times and rates, and the operations that are measured on all stores."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

from uuid_utils.compat import uuid7

from windlass.job import NewJob
from windlass.outcome import Settlement
from windlass.stores.store import ClaimRequest, Store

ROUNDS = 3
POLICY = '{"backoff":{"kind":"exponential","base":1.0,"cap":300.0,"jitter":true},"timeout":null}'


@dataclass(frozen=True)
class Figure:
    """One figure: a rate in jobs per second, or a ratio ("×"). With `at_most`, smaller is better."""

    store: str
    what: str
    value: float
    unit: str = "/s"
    wanted: float | None = None
    at_most: bool = False

    @property
    def holds(self) -> bool:
        if self.wanted is None:
            return True
        return self.value <= self.wanted if self.at_most else self.value >= self.wanted

    @property
    def shown(self) -> str:
        return f"{self.value:,.0f}/s" if self.unit == "/s" else f"{self.value:.2f} {self.unit}"

    @property
    def shown_wanted(self) -> str:
        if self.wanted is None:
            return ""
        number = f"{self.wanted:,.0f}/s" if self.unit == "/s" else f"{self.wanted:.1f} {self.unit}"
        return f"{'≤' if self.at_most else '≥'} {number}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"holds": self.holds}


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def in_turn(*works: Callable[[], float], rounds: int = ROUNDS) -> list[float]:
    """Measure each in turn, and return the median of each."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for index, work in enumerate(works):
            times[index].append(work())
    return [statistics.median(one) for one in times]


def new_jobs(count: int, queue: str = "bench", **more: Any) -> list[NewJob]:
    return [
        NewJob(
            id=uuid7(),
            type="noop",
            queue=queue,
            input=f'{{"userId":"u-123","text":"hello world","n":{number}}}',
            max_attempts=20,
            lease_seconds=60.0,
            policy=POLICY,
            **more,
        )
        for number in range(count)
    ]


def enqueue(store: Store, jobs: Sequence[NewJob], chunk: int = 10_000) -> None:
    for start in range(0, len(jobs), chunk):
        part = jobs[start : start + chunk]
        store.connections.run(lambda part=part: store.enqueue(part))  # type: ignore[misc]


def claim(store: Store, batch: int, queue: str = "bench") -> list[Settlement]:
    """Claim a batch, and return the settlements that complete it."""
    token = uuid4()
    request = ClaimRequest(queue=queue, limit=batch, token=token, worker="bench", types=["noop"])
    jobs = store.connections.run(lambda: store.claim(request))
    return [Settlement(id=job.id, token=token, state="completed", output="null") for job in jobs]


def drain_side_by_side(store: Store, batch: int, queue: str = "bench") -> None:
    """Claim the next batch while the last one is settled, as a worker does."""
    with ThreadPoolExecutor(1) as settler:
        settled: Future[Any] | None = None
        while settlements := claim(store, batch, queue):
            if settled is not None:
                assert not settled.result()
            settled = settler.submit(store.connections.run, lambda part=settlements: store.settle(part))  # type: ignore[misc]
        assert settled is None or not settled.result()


def drain(store: Store, batch: int, queue: str = "bench") -> int:
    """Claim and complete until no job is due. Return the number of jobs."""
    done = 0
    while settlements := claim(store, batch, queue):
        refused = store.connections.run(lambda: store.settle(settlements))
        assert not refused
        done += len(settlements)
    return done
