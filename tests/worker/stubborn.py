"""Handlers that do not end when they are asked to; the store comes by $WINDLASS_URL."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import threading
import time
from pathlib import Path

from windlass import Windlass

if os.environ.get("WITHOUT_UVLOOP"):
    sys.modules.update({"uvloop": None})  # type: ignore[dict-item]  # as if it were not installed

app = Windlass()
LONG = 120.0


def note(word: str) -> None:
    with Path(os.environ["NOTES"]).open("a") as file:
        file.write(f"{word} {os.getpid()}\n")


@app.task(queue="sleeps")
def sleeps() -> None:
    note("sleeps")
    time.sleep(LONG)


@app.task(queue="swallows")
async def swallows() -> None:
    note("swallows")
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(LONG)


@app.task(queue="blocks")
async def blocks() -> None:
    note("blocks")
    time.sleep(LONG)  # noqa: ASYNC251 - just that


@app.task(queue="spins")
async def spins() -> None:
    note("spins")
    while True:
        pass


@app.task(queue="delegates")
async def delegates() -> None:
    note("delegates")
    await asyncio.to_thread(time.sleep, LONG)


@app.task(queue="starts_a_thread")
async def starts_a_thread() -> None:
    threading.Thread(target=time.sleep, args=(LONG,)).start()
    note("starts_a_thread")


@app.task(queue="holds_the_interpreter")
async def holds_the_interpreter() -> None:
    """From when the test says so: no other thread runs, and no signal is heard."""
    note("holds_the_interpreter")
    while not Path(f"{os.environ['NOTES']}.go").exists():  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.02)
    note("holding")
    sum(range(10**12))


@app.task(queue="in_child", isolation="process")
def in_child() -> None:
    note("in_child")
    re.match(r"(a+)+$", "a" * 60 + "b")


@app.task(queue="counted")
async def counted(n: int) -> int:
    note("counted")
    return n


if __name__ == "__main__":
    app.run_worker(["sleeps"], grace="300ms")
