"""The end of a process, whatever its handlers do: a thread that ends it in time, and children that end with it."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable

MARGIN_SECONDS = 0.5  # before the deadline the thread acts; at the deadline it is done without Python
FLUSH_SECONDS = 0.3
PR_SET_PDEATHSIG = 1


class Watchdog:
    """Once armed, it ends the process unless it was disarmed before: with exit code 1, or 0 if `leaves_nothing` says
    that no work is left behind. May be armed in a signal handler: its thread is there already, and a SimpleQueue can be
    interrupted by itself."""

    def __init__(self, leaves_nothing: Callable[[], bool] = lambda: False) -> None:
        self._leaves_nothing = leaves_nothing
        self._deadlines: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="windlass-watchdog", daemon=True)
        self._thread.start()

    def arm(self, seconds: float) -> None:
        """The process is gone after so many seconds. The earliest deadline counts."""
        self._deadlines.put(time.monotonic() + seconds)

    def disarm(self) -> None:
        self._deadlines.put(None)
        self._thread.join()

    def _run(self) -> None:
        deadline = self._deadlines.get()
        if deadline is None:
            return
        while True:
            seconds = deadline - time.monotonic()
            _arm_without_python(seconds)
            try:
                given = self._deadlines.get(timeout=max(0.0, seconds - MARGIN_SECONDS))
            except queue.Empty:
                if self._leaves_nothing():
                    os.write(2, b"windlass: the store did not answer in time; the process ends, and leaves no job\n")
                    leave(0)
                os.write(2, b"windlass: handlers did not end in time; the process ends without them\n")
                leave(1)
            if given is None:
                faulthandler.cancel_dump_traceback_later()
                return
            deadline = min(deadline, given)


def _arm_without_python(seconds: float) -> None:
    """For handlers that hold the interpreter's lock: a thread of C code shows where they are, and exits with 1."""
    with contextlib.suppress(Exception):
        faulthandler.dump_traceback_later(max(seconds, 0.01), exit=True, file=2)


def leave(code: int) -> None:
    """End the process at once, leaving behind what runs. Logs and output are written, if that does not take long."""
    flushing = threading.Thread(target=_flush, daemon=True)
    with contextlib.suppress(RuntimeError):
        flushing.start()
        flushing.join(FLUSH_SECONDS)
    os._exit(code)


def _flush() -> None:
    with contextlib.suppress(Exception):
        logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def die_with_parent(parent: int | None = None) -> None:
    """On Linux the system kills this process when its parent dies, even one that is busy. If `parent` is dead already,
    this process ends now."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)
