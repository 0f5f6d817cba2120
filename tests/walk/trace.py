"""The files of Windlass that one job passes through, from `app.enqueue` to `job.result`, its worker included."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import windlass
from windlass import Windlass

PACKAGE = str(Path(windlass.__file__).parent)
JOBS = 50  # a file counts if each of them passes through it: so caches and accidents of timing do not count
NEVER = 3600  # seconds: no poll and no maintenance of the worker during the walk


class Tracer:
    """Notes the file of each function that is called, in order, while it is on. For all threads."""

    def __init__(self) -> None:
        self.files: dict[str, None] | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.files is None or event != "call" or frame.f_code.co_name == "<module>":
            return
        name = frame.f_code.co_filename
        if name.startswith(PACKAGE):
            self.files[name[len(PACKAGE) + 1 :]] = None

    @contextmanager
    def on_all_threads(self) -> Iterator[None]:
        """Threads that exist already stay out: there is no worker yet."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def walk(app: Windlass) -> list[str]:
    """The files that each job passes through, in the order in which the last one came to them."""

    @app.task
    async def greet(name: str) -> str:
        return f"hello {name}"

    app.migrate()
    tracer = Tracer()
    with tracer.on_all_threads(), _working(app):
        walks = [_walk_once(app, tracer) for _ in range(JOBS)]
    return [name for name in walks[-1] if all(name in one for one in walks)]


def _walk_once(app: Windlass, tracer: Tracer) -> list[str]:
    tracer.files = {}
    try:
        assert app.enqueue("greet", {"name": "Ada"}).result(timeout=30) == "hello Ada"
        return list(tracer.files)
    finally:
        tracer.files = None


@contextmanager
def _working(app: Windlass) -> Iterator[None]:
    """A worker in a thread of its own."""
    started, loops = threading.Event(), []
    stop = asyncio.Event()

    async def work() -> None:
        loops.append(asyncio.get_running_loop())
        async with app.worker(concurrency=1, poll_interval=NEVER, rescue_interval=NEVER):
            started.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()
    try:
        assert started.wait(60)
        yield
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join()


def walk_alone(url: str) -> list[str]:
    """In a process of its own: a profile function and the greenlets of other tests do not go together."""
    command = [sys.executable, "-m", "tests.walk.trace", url]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=90, check=True
    )
    files: list[str] = json.loads(done.stdout)
    return files


if __name__ == "__main__":
    walked = Windlass(sys.argv[1])
    print(json.dumps(walk(walked)))
    walked.close()
