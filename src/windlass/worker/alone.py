"""A worker in a process of its own: it is stopped by signals, and then the process ends in time, whatever handlers do.

The first SIGTERM or SIGINT stops the worker, which has `grace` to let its jobs end; `ENDING_SECONDS` later the process
is gone. The second leaves it `HURRY_SECONDS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

from ..errors import WindlassError
from .loops import rare_collections, run_to_end, runner
from .stopping import ENDING_SECONDS, HURRY_SECONDS
from .watchdog import Watchdog, leave
from .worker import Worker


class StopSignals:
    """While it lasts, signals stop the worker. They are heard even while a handler blocks the event loop, where asyncio
    would not hear them; hence nothing is done here that could wait.

    A supervised worker is stopped by SIGTERM, however often it comes, and hurried by SIGINT, which only its parent
    sends: SIGTERM often goes to all processes of a service, and once more from the parent.
    """

    def __init__(self, worker: Worker, watchdog: Watchdog, *, supervised: bool = False) -> None:
        self.worker, self.watchdog, self.supervised = worker, watchdog, supervised
        self.count = 0
        self.loop: asyncio.AbstractEventLoop | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.getsignal(number)
            signal.signal(number, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            if handler is not None:
                signal.signal(number, handler)

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        self.count, stopping = self.count + 1, self.worker.stopping
        hurry = number == signal.SIGINT if self.supervised else self.count > 1
        self.watchdog.arm(HURRY_SECONDS if hurry else stopping.grace_seconds + ENDING_SECONDS)
        stopping.heard()
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(stopping.hurry_up if hurry else stopping.begin)


def refuse_in_loop() -> None:
    with contextlib.suppress(RuntimeError):  # no loop runs in this thread
        asyncio.get_running_loop()
        raise WindlassError(
            "run_worker() has its own event loop, and one runs in this thread already: await arun_worker() instead"
        )


def run_alone(
    worker: Worker, work: Callable[[], Coroutine[Any, Any, int]], *, is_program: bool = False, supervised: bool = False
) -> int:
    """Run `work`, in which the worker runs: how many jobs were run.

    With `is_program` the process is there for the worker alone, and ends in time whatever has ended the worker; without
    (`app.run_worker()`), only if a signal has. Exit code 1 says that handlers were left behind.
    """
    if threading.current_thread() is not threading.main_thread():
        with runner() as loop:
            return run_to_end(loop, work())

    async def watched() -> int:
        count = await work()
        if is_program and worker.left_behind:
            leave(1)  # the loop would wait for them
        return count

    watchdog = Watchdog(leaves_nothing=lambda: worker.leaves_nothing)
    worker.alone, worker.watchdog = True, watchdog if is_program else None
    signals = StopSignals(worker, watchdog, supervised=supervised)
    try:
        with signals, rare_collections(), runner() as loop:
            signals.loop = loop.get_loop()
            if signals.count:
                worker.stop()
            count = run_to_end(loop, watched())
        if signals.count and worker.left_behind:
            raise SystemExit(1)
        return count
    finally:
        to_end = supervised or (signals.count and (is_program or worker.left_behind))
        if not to_end:
            watchdog.disarm()
