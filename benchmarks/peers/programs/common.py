"""The common part of the Python programs: the commands, and one definition of each figure.

    python with_….py prepare | enqueue-bulk N | enqueue-single N | drain N | latency-work N | latency-send N

DATABASE_URL has the address of the database. Each command but `prepare` prints one line of JSON. A worker prints it
when its handler has got the last job, and then runs until it is killed. `drain` prints another line before, when its
first job starts. The program runs in the environment of the peer, so it needs only the standard library. common.mjs
does the same for Node.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

Payload = dict[str, Any]
Handle = Callable[[int], None]

WARM_UP = 20  # the first jobs, which are not measured
PAUSE_SECONDS = 0.005


def payload(number: int) -> Payload:
    return {"userId": "u-123", "text": "hello world", "n": number}


class Peer(ABC):
    """One system. Its handler calls `handle(n)` with the payload's n, and does nothing else."""

    def __init__(self) -> None:
        self.url = os.environ["DATABASE_URL"]

    @abstractmethod
    async def prepare(self) -> None:
        """Create the schema."""

    @abstractmethod
    async def open(self) -> None:
        """Connect, before jobs are enqueued."""

    @abstractmethod
    async def add_many(self, payloads: list[Payload]) -> None:
        """Enqueue with the system's own bulk call, in batches of a size that suits it."""

    @abstractmethod
    async def add_one(self, one: Payload) -> None: ...

    @abstractmethod
    async def work(self, handle: Handle) -> None:
        """Connect, and run jobs until the process is killed."""


async def enqueue_bulk(peer: Peer, count: int) -> None:
    await peer.open()
    payloads = [payload(number) for number in range(count)]
    began = time.perf_counter()
    await peer.add_many(payloads)
    say(seconds=time.perf_counter() - began)


async def enqueue_single(peer: Peer, count: int) -> None:
    await peer.open()
    for _ in range(WARM_UP):
        await peer.add_one(payload(-1))
    began = time.perf_counter()
    for number in range(count):
        await peer.add_one(payload(number))
    say(seconds=time.perf_counter() - began)


async def drain(peer: Peer, count: int) -> None:
    done, cpu = 0, 0.0

    def handle(_: int) -> None:
        nonlocal done, cpu
        if not done:
            say(first_ns=time.time_ns())
            cpu = time.process_time()
        done += 1
        if done == count:
            say(cpu_seconds=time.process_time() - cpu)

    await peer.work(handle)


async def latency_work(peer: Peer, count: int) -> None:
    started: dict[int, int] = {}

    def handle(number: int) -> None:
        now = time.time_ns()
        if number < 0:
            return
        started.setdefault(number, now)
        if len(started) == count:
            say(started_ns=[started[number] for number in range(count)])

    await peer.work(handle)


async def latency_send(peer: Peer, count: int) -> None:
    await peer.open()
    sent: list[int] = []
    for number in range(-WARM_UP, count):
        await asyncio.sleep(PAUSE_SECONDS)
        now = time.time_ns()
        await peer.add_one(payload(number))
        if number >= 0:
            sent.append(now)
    say(sent_ns=sent)


def say(**figures: object) -> None:
    print(json.dumps(figures), flush=True)


COMMANDS = {
    "enqueue-bulk": enqueue_bulk,
    "enqueue-single": enqueue_single,
    "drain": drain,
    "latency-work": latency_work,
    "latency-send": latency_send,
}


def main(peer: Peer) -> None:
    command, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
    work = peer.prepare() if command == "prepare" else COMMANDS[command](peer, count)
    try:
        import uvloop  # every asyncio peer gets it, even if its docs do not mention it
    except ImportError:
        asyncio.run(work)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work)
