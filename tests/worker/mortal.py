"""A worker in a process of its own, which one of its jobs ends: `python -m tests.worker.mortal FILE N`. In the file is
which jobs were started."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from windlass import Windlass

app = Windlass(os.environ["WINDLASS_URL"])
started = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
deadly = int(sys.argv[2])


def start(n: int) -> None:
    os.write(started, f"{n}\n".encode())
    if n == deadly:
        os._exit(7)


@app.task
async def in_loop(n: int) -> int:
    start(n)
    await asyncio.sleep(0.05 if deadly < 0 else 60)
    return n


@app.task
def in_thread(n: int) -> int:
    start(n)
    time.sleep(0.05 if deadly < 0 else 60)
    return n


if __name__ == "__main__":
    app.run_worker(concurrency=20, rescue_interval="200ms", poll_interval="200ms", grace="1s")
