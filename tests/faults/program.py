"""Worker processes that can be killed by the dozen: `python -m tests.faults.program HISTORY`, a worker for each line of
its input, which gives the worker's options as JSON.

The program has imported everything before it forks, so that a worker is there in a moment. The store comes by
$WINDLASS_URL. What handlers do and what workers are told goes into the history.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import sys
from pathlib import Path

import msgspec

from windlass import Attempt, Windlass
from windlass.stores.store import Refusal
from windlass.worker.hand_over import NextJob
from windlass.worker.unwritten import Ended
from windlass.worker.worker import Worker

from .history import Event, History

app = Windlass()
if "HISTORY" in os.environ:  # as `windlass worker` imports it
    history = History(Path(os.environ["HISTORY"]))

HELD_LEASE_SECONDS = 4.0
POISONS = ("exit", "signal", "recursion", "memory", "abort")


def note(kind: str, attempt: Attempt) -> None:
    history.note(Event(kind=kind, id=attempt.job.id, attempt=attempt.number, token=attempt.token))  # type: ignore[arg-type]


@app.task(lease="1500ms", backoff="20ms")
async def work(attempt: Attempt, seconds: float) -> str:
    note("started", attempt)
    await asyncio.sleep(seconds)
    note("ended", attempt)
    return "done"


@app.task(lease="1500ms", backoff="20ms", max_attempts=3)
async def fragile(attempt: Attempt, seconds: float) -> str:
    note("started", attempt)
    await asyncio.sleep(seconds)
    note("ended", attempt)
    return "done"


@app.task(lease=HELD_LEASE_SECONDS, backoff="20ms")
async def holds_the_interpreter(attempt: Attempt) -> str:
    """For three leases; nothing else of this process runs meanwhile, as in a regular expression that goes astray."""
    note("started", attempt)
    await asyncio.sleep(0.3)  # a lock of SQLite's that this process has meanwhile would be held as long
    microseconds = int((3 * HELD_LEASE_SECONDS + 0.5) * 1_000_000)
    ctypes.PyDLL(None).usleep(microseconds)  # it does not let go of the interpreter's lock
    note("ended", attempt)
    return "done"


@app.task(lease="1s", backoff="20ms", max_attempts=3)
def poison(attempt: Attempt, kind: str) -> None:
    note("started", attempt)
    match kind:
        case "exit":
            os._exit(7)
        case "signal":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "recursion":
            recurse(0)
        case "memory":
            hoard()
        case "abort":
            os.abort()


def recurse(depth: int) -> int:
    return recurse(depth + 1) + [depth][0]


def hoard() -> None:
    """More than the limit allows: a MemoryError where Python asks for it, which a handler may survive or not."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 100 * 2**20, resource.RLIM_INFINITY))
    try:
        kept = []
        while True:
            kept.append(bytearray(10 * 2**20))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class Told(Worker):
    """Notes what it is told of its settlements, before anything else comes of it."""

    async def _open(self) -> None:
        await super()._open()
        self.outbox.written = self._note_written

    def _note_written(self, batch: list[Ended], refusals: list[Refusal], next_job: NextJob | None) -> None:
        refused = {(refusal.id, refusal.token) for refusal in refusals}
        history.note(
            *(
                Event(
                    kind="refused" if (settlement.id, settlement.token) in refused else "accepted",
                    id=settlement.id,
                    attempt=attempt.number,
                    token=settlement.token,
                    state=settlement.state,
                )
                for attempt, settlement in batch
            )
        )
        self.attempts.written(batch, refusals, next_job)


def serve() -> None:
    """A worker for each line; says its process id. Ends when nobody writes any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    for line in sys.stdin:
        options = msgspec.json.decode(line)
        child = os.fork()
        if child == 0:
            os.close(0)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asyncio.run(Told(app, **options).run())
            os._exit(0)
        print(child, flush=True)


if __name__ == "__main__":
    # Under its own name, so that handlers and this are of one module.
    from tests.faults import program

    program.history = History(Path(sys.argv[1]))  # type: ignore[attr-defined,unused-ignore]
    program.serve()
