"""`--processes N`: worker processes, and a parent that restarts the dead ones.

The parent runs no handler, so nothing a handler does can stop it. While a child cannot renew its leases itself (a
handler holds the interpreter), the parent does it, as long as the child is alive and not stopped.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from ..app import Windlass
from ..logs import Log
from .stopping import ENDING_SECONDS, HURRY_SECONDS
from .watchdog import Watchdog

log = Log("windlass.supervisor")

MOST_EARLY_DEATHS = 5  # in a row, before any child got ready
LONGEST_DELAY = 30.0
LONGEST_SILENCE = 10  # leases for which a silent child is believed to be busy
TICK_SECONDS = 0.25
KILL_SECONDS = 1.0  # after which a child that should have ended is killed; the watchdog waits for twice as long


@dataclass
class Child:
    """One worker process, and what it said through its pipe."""

    process: subprocess.Popen[bytes]
    pipe: int
    heard_at: float = field(default_factory=time.monotonic)
    renewed_at: float = field(default_factory=time.monotonic)
    ready: bool = False
    done: bool = False  # it ends since nothing is left to do
    held: dict[UUID, float] = field(default_factory=dict)  # token -> seconds of its shortest lease
    rest: bytes = b""

    def read(self) -> bool:
        """What it has said; whether it has said anything."""
        try:
            data = os.read(self.pipe, 1 << 16)
        except BlockingIOError:
            return False
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.told(json.loads(line))
        return bool(data)

    def told(self, message: dict[str, object]) -> None:
        # When it was said, not when it is read: one who was held up himself would take old news for new.
        self.heard_at = max(self.heard_at, float(str(message["at"])))
        self.ready = self.ready or "ready" in message
        self.done = self.done or "done" in message
        if "hold" in message:
            self.held[UUID(str(message["hold"]))] = float(str(message["seconds"]))
        if "drop" in message:
            self.held.pop(UUID(str(message["drop"])), None)

    def needs_help(self) -> bool:
        """Silent for a third of a lease, alive, and not stopped by a signal (SIGSTOP)."""
        if not self.held:
            return False
        lease, now = min(self.held.values()), time.monotonic()
        silent = now - self.heard_at
        return lease / 3 < silent < lease * LONGEST_SILENCE and now - self.renewed_at > lease / 3 and self.runs()

    def runs(self) -> bool:
        if self.process.poll() is not None:
            return False
        try:
            state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        return state not in ("T", "t", "Z", "X")


class Supervisor:
    def __init__(self, app: Windlass, arguments: list[str], count: int, grace_seconds: float = 30.0) -> None:
        self.app, self.arguments, self.count, self.grace_seconds = app, arguments, count, grace_seconds
        self.children: list[Child] = []
        self.deaths = 0
        self.stopping = False
        self._signals = self._passed_on = 0
        self._kill_at = math.inf
        self._failed = False
        self._start_at = [0.0] * count
        self._selector = selectors.DefaultSelector()
        self._helper: threading.Thread | None = None

    def run(self) -> int:
        self._watchdog = Watchdog()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._heard)
        while not (self.stopping and not self.children):
            self._pass_on()
            if not self.stopping:
                self._start_missing()
            for key, _ in self._selector.select(TICK_SECONDS):
                key.data.read()
            self._help_silent()
            self._bury_dead()
            if self.deaths >= MOST_EARLY_DEATHS and not self.stopping:
                log.error("%d worker processes died before they were ready: giving up", self.deaths)
                self._failed = True
                self._stop(signal.SIGTERM, self.grace_seconds)
            if time.monotonic() > self._kill_at:
                self._kill_all()
        return 1 if self._failed else 0

    def _heard(self, _number: int, _frame: object) -> None:
        """Only counted here, in the midst of anything: a child that is just being started must hear of it, too."""
        self._signals += 1
        seconds = self.grace_seconds + ENDING_SECONDS if self._signals == 1 else HURRY_SECONDS
        self._watchdog.arm(seconds + 2 * KILL_SECONDS)

    def _pass_on(self) -> None:
        """The first signal stops the children, the second hurries them."""
        if self._signals > self._passed_on:
            if self._passed_on == 0:
                self._stop(signal.SIGTERM, self.grace_seconds + ENDING_SECONDS)
            if self._signals > 1:
                self._stop(signal.SIGINT, HURRY_SECONDS)
            self._passed_on = self._signals

    def _stop(self, number: signal.Signals, within: float) -> None:
        self.stopping = True
        self._kill_at = min(self._kill_at, time.monotonic() + within + KILL_SECONDS)
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                child.process.send_signal(number)

    def _kill_all(self) -> None:
        for child in self.children:
            log.error("process %d does not end, and is killed", child.process.pid)
            child.process.kill()

    def _start_missing(self) -> None:
        due = [index for index, moment in enumerate(self._start_at) if moment <= time.monotonic()]
        for _ in due[: self.count - len(self.children)]:
            mine, theirs = os.pipe()
            os.set_blocking(mine, False)
            command = [sys.executable, "-m", "windlass", *self.arguments, "--supervised-by", str(theirs)]
            process = subprocess.Popen(command, pass_fds=[theirs], start_new_session=True)  # noqa: S603 - ourselves
            os.close(theirs)
            child = Child(process, mine)
            self.children.append(child)
            self._selector.register(mine, selectors.EVENT_READ, child)

    def _help_silent(self) -> None:
        """Renew the leases of all silent children at once: where a commit takes long, one write for each child would
        take longer than a lease. On a thread, and one at a time: while the store does not answer, the parent still
        reads the pipes. A child whose pipe is full would wait in its event loop."""
        if self._helper is not None and self._helper.is_alive():
            return
        silent = [child for child in self.children if child.needs_help()]
        if not silent:
            return
        tokens = [token for child in silent for token in child.held]
        for child in silent:
            child.renewed_at = time.monotonic()
        pids = [child.process.pid for child in silent]
        self._helper = threading.Thread(target=self._renew, args=(tokens, pids), name="windlass-leases", daemon=True)
        self._helper.start()

    def _renew(self, tokens: list[UUID], pids: list[int]) -> None:
        try:
            self.app.run_for_worker(lambda: self.app.store.hold(tokens))
            for pid in pids:
                log.warning("process %d is busy: its leases were renewed for it", pid)
        except Exception as error:
            log.warning("leases of busy processes could not be renewed: %s", error)

    def _bury_dead(self) -> None:
        for child in [child for child in self.children if child.process.poll() is not None]:
            while child.read():
                pass
            self.children.remove(child)
            self._selector.unregister(child.pipe)
            os.close(child.pipe)
            self.deaths = 0 if child.ready else self.deaths + 1
            code = child.process.returncode
            if self.stopping:
                unstarted = code == -signal.SIGTERM and not child.ready  # it had nothing to leave behind
                self._failed = self._failed or (code != 0 and not unstarted)
            elif code == 0 and child.done:
                self.stopping = not self.children
                self.count -= 1
            elif code == 0:  # it has run as many jobs as one process may, or it alone was told to stop
                log.info("process %d has ended; another starts", child.process.pid)
            else:
                delay = min(LONGEST_DELAY, 0.1 * 2**self.deaths) * random.uniform(0.5, 1.5)
                log.warning("process %d ended with %s; another starts in %.1f s", child.process.pid, code, delay)
                self._start_at = [max(moment, time.monotonic() + delay) for moment in self._start_at]


class Reporter:
    """In a child: report to the parent which leases it holds. `gone` is called when the parent is gone."""

    def __init__(self, descriptor: int, gone: Callable[[], object]) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor, self._gone = descriptor, gone

    def __call__(self, **message: object) -> None:
        try:
            os.write(self._descriptor, json.dumps({"at": time.monotonic(), **message}).encode() + b"\n")
        except OSError:
            self._gone()
