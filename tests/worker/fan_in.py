"""Many jobs that waited for much: `make` makes them, `run` runs them in a process whose memory can be measured."""

from __future__ import annotations

import asyncio
import os
import resource
import sys

from windlass import Attempt, Windlass

app = Windlass(os.environ["WINDLASS_URL"])


@app.task
async def part(n: int) -> str:
    return f"{n}" + "x" * 1_000_000


@app.task
async def whole(attempt: Attempt) -> int:
    await asyncio.sleep(0.2)
    size = sum(len(one.output or "") for one in attempt.waited_for)
    assert size == 10 * 1_000_003, size
    return size


async def make() -> None:
    parts = [await part.aenqueue(n) for n in range(10)]
    await app.worker(concurrency=1, until_idle=True).run()
    for _ in range(30):
        await app.aenqueue("whole", {}, after=parts)


async def run() -> None:
    """How many have completed, and by how many bytes this process has grown."""
    await app.aprepare()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    worker = app.worker(concurrency=40, until_idle=True)
    await worker.run()
    print(worker.completed, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)


if __name__ == "__main__":
    asyncio.run({"make": make, "run": run}[sys.argv[1]]())
