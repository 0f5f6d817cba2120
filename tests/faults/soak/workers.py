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
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    children = []
    for line in sys.stdin:
        options = msgspec.json.decode(line)
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)  # not closed: an event loop's own file would take its place
            os.dup2(2, 1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            run(options)
            sys.exit()  # as a program ends: whatever holds that up is to be seen
        children.append(child)
        print(child, flush=True)
    for child in children:  # whoever started them is gone
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
