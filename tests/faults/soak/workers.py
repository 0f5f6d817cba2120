"""Worker processes of the soak: `serve()` starts one for each line of options on its input.

Everything is imported before it forks. A worker heeds SIGTERM as `windlass worker` does, and notes what it is told of
its settlements.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Any

import msgspec

from windlass.worker.alone import run_alone

from .. import program
from . import work


def run(options: dict[str, Any]) -> None:
    assert work.history is not None
    program.history = work.history
    worker = program.Told(work.app, **options)

    async def until_stopped() -> int:
        try:
            return await worker.run()
        finally:
            await work.app.store.connections.aclose_loop()

    run_alone(worker, until_stopped, is_program=True)


def serve() -> None:
    children: set[int] = set()

    def reap(*_: object) -> None:
        """A number is forgotten with its process: another process may get it later."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                children.discard(ended[0])
                print(f"worker {ended[0]} ended: {os.waitstatus_to_exitcode(ended[1])}", file=sys.stderr, flush=True)

    signal.signal(signal.SIGCHLD, reap)
    for line in sys.stdin:
        options = msgspec.json.decode(line)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)  # not closed: an event loop's own file would take its place
            os.dup2(2, 1)
            run(options)
            sys.exit()  # as a program ends: whatever holds that up is to be seen
        children.add(child)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        print(child, flush=True)
    for child in list(children):  # their tests are gone
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
