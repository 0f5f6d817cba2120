"""A thread that renews leases: neither a blocked event loop nor a busy handler loses one."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from uuid import UUID

from ..app import Windlass
from ..attempt import Attempt, Stop
from ..duration import Delays
from ..logs import Log
from ..policy import DEFAULT
from ..stores.store import Renewal

log = Log("windlass.worker")

PART = 3  # a lease is renewed when a third of it has passed
MOST_AT_ONCE = 2000
GLANCE_SECONDS = 0.25
ASK_SECONDS = 1.0
LOCKED_SECONDS = 1.0  # until a lease is asked for again whose job another transaction has locked
NOTE_SECONDS = 1.0  # between writes of what handlers say of their progress, while they say something
FIRST_DELAY, LONGEST_DELAY = 0.5, 5.0  # seconds between tries while the store is gone: a lease may be short


class Leases:
    """`told` is called, on the thread, for each attempt whose lease is lost or whose job is to be cancelled."""

    def __init__(
        self, app: Windlass, told: Callable[[Attempt, Renewal], None], report: Callable[..., None] | None = None
    ) -> None:
        self.app, self.told, self.report = app, told, report
        self._of_token: Counter[UUID] = Counter()
        self._reported: dict[UUID, float] = {}  # the shortest lease of each token
        self._due: dict[Attempt, float] = {}  # when each is to be renewed
        self._lock = threading.Lock()
        self._asked: set[UUID] = set()
        self._all_asked = False
        self._all_answered_at = 0.0
        self._note_at = 0.0
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="windlass-leases", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop_soon(self) -> None:
        self._stopping = True
        self._wake.set()

    def stop(self, within: float = 5.0) -> None:
        self.stop_soon()
        if self._thread.ident is not None:  # it was started
            self._thread.join(within)

    def hold(self, attempts: Iterable[Attempt], since: float) -> None:
        """`since` is when the claim was sent, so that our idea of the lease ends before the store's."""
        due, report = self._due, self.report
        with self._lock:
            for attempt in attempts:
                due[attempt] = since + (attempt.job.lease_seconds_raw or DEFAULT.lease_seconds) / PART
                if report is not None:
                    self._tell_supervisor(attempt, report)

    def _tell_supervisor(self, attempt: Attempt, report: Callable[..., None]) -> None:
        """Before the attempt starts: its handler may block the whole process."""
        self._of_token[attempt.token] += 1
        if _seconds(attempt) < self._reported.get(attempt.token, math.inf):
            self._reported[attempt.token] = _seconds(attempt)
            report(hold=str(attempt.token), seconds=_seconds(attempt))

    def let_go(self, attempts: Iterable[Attempt]) -> None:
        pop, report = self._due.pop, self.report
        with self._lock:
            for attempt in attempts:
                if pop(attempt, None) is not None and report is not None:
                    self._drop_token(attempt.token, report)

    def _drop_token(self, token: UUID, report: Callable[..., None]) -> None:
        self._of_token[token] -= 1
        if not self._of_token[token]:
            del self._of_token[token], self._reported[token]
            report(drop=str(token))

    def ask(self, id: UUID) -> None:
        """There is news of this job. If this worker has it, renew its lease now: the answer has the news."""
        with self._lock:
            self._asked.add(id)
        self._wake.set()

    def ask_all(self) -> None:
        """Something has changed, and the store cannot say what. Ask for news of long-running jobs, once a second."""
        self._all_asked = True

    def _run(self) -> None:
        delays = Delays(FIRST_DELAY, LONGEST_DELAY, jitter=(0.5, 1.5))
        while not self._stopping:
            if self.report is not None:
                self.report(beat=True)
            try:
                self._renew()
                self._note()
                delays.reset()
            except Exception as error:
                log.warning("leases could not be renewed, which is tried again: %s", error)
                self._wake.wait(next(delays))
            self._wake.wait(GLANCE_SECONDS)
            self._wake.clear()

    def _renew(self) -> None:
        under_way: Future[None] = Future()
        try:
            attempts = self._choose(under_way)
            for start in range(0, len(attempts), MOST_AT_ONCE):
                self._renew_some(attempts[start : start + MOST_AT_ONCE])
        finally:
            under_way.set_result(None)

    def _choose(self, under_way: Future[None]) -> list[Attempt]:
        now = time.monotonic()
        with self._lock:
            asked, self._asked = self._asked, set()
            if self._all_asked and now - self._all_answered_at > ASK_SECONDS:
                old = {a.job.id for a, moment in self._due.items() if moment - _seconds(a) / PART < now - ASK_SECONDS}
                self._all_asked, self._all_answered_at = len(old) < len(self._due), now
                asked |= old
            wanted = [
                (attempt, moment)
                for attempt, moment in self._due.items()
                if (moment <= now or (asked and attempt.job.id in asked)) and not attempt.settled
            ]
            for attempt, _ in wanted:  # before it is asked for its block: one of the two sees the other
                attempt.renewal = under_way
            attempts = [attempt for attempt, moment in wanted if _may_be_written(attempt, moment, now)]
            if len(attempts) < len(wanted):  # ask for the others again
                self._asked |= asked & ({attempt.job.id for attempt, _ in wanted} - {one.job.id for one in attempts})
        return attempts

    def _renew_some(self, attempts: list[Attempt]) -> None:
        sent = time.monotonic()
        leases = [attempt.renewing() for attempt in attempts]
        renewals = self.app.run_for_worker(lambda: self.app.store.renew(leases))
        for attempt, renewal in zip(attempts, renewals, strict=True):
            if renewal.expires_at is None:
                if self._may_be_done(attempt):
                    continue
                self.let_go([attempt])
            else:
                attempt.renewed(renewal.expires_at)
                with self._lock:
                    if attempt in self._due:
                        again = _seconds(attempt) / PART
                        self._due[attempt] = sent + (min(again, LOCKED_SECONDS) if renewal.locked else again)
            if renewal.expires_at is None or renewal.cancel_requested:
                self.told(attempt, renewal)

    def _may_be_done(self, attempt: Attempt) -> bool:
        """Its handler has settled it, or is doing so: then there is nothing left to renew. If the lease is lost, the
        block finds out."""
        if attempt.settled or attempt.unconfirmed_settlement is not None:
            self.let_go([attempt])
            return True
        with self._lock:
            if attempt.block is not None and attempt in self._due:
                self._due[attempt] = time.monotonic() + ASK_SECONDS
                return True
        return False

    # Progress and log lines

    def _note(self) -> None:
        """Write the new progress and log lines of all attempts together. The leases stay as they are. For an attempt
        that is in a transaction of its handler they wait: the outcome brings them along."""
        now = time.monotonic()
        if now < self._note_at:
            return
        under_way: Future[None] = Future()
        with self._lock:
            talking = [attempt for attempt in self._due if attempt.noted and attempt.unconfirmed_settlement is None]
            for attempt in talking:  # before it is asked for its block: one of the two sees the other
                attempt.renewal = under_way
            talking = [attempt for attempt in talking if attempt.block is None]
        try:
            notes = [note for attempt in talking if (note := attempt.note_to_write()) is not None]
            for start in range(0, len(notes), MOST_AT_ONCE):
                part = notes[start : start + MOST_AT_ONCE]
                self.app.run_for_worker(lambda: self.app.store.note(part))  # noqa: B023
        except Exception as error:
            log.warning("what jobs say of their progress could not be written, which is tried again: %s", error)
            for attempt in talking:
                attempt.noted = True
            self._note_at = now + LONGEST_DELAY
        else:
            self._note_at = now + NOTE_SECONDS if talking else now
        finally:
            under_way.set_result(None)


def _may_be_written(attempt: Attempt, due: float, now: float) -> bool:
    """In a transaction of the handler's own a renewal can wait a little: in MongoDB the two would collide, and the
    handler would have to begin again."""
    return attempt.block is None or now >= due + _seconds(attempt) / PART


def _seconds(attempt: Attempt) -> float:
    return attempt.job.lease_seconds_raw or DEFAULT.lease_seconds


def interrupt_in(loop: asyncio.AbstractEventLoop) -> Callable[[Attempt, Renewal], None]:
    """Interrupts an attempt whose lease is lost or whose job is to be cancelled, in the event loop that runs it."""

    def interrupt(attempt: Attempt, renewal: Renewal) -> None:
        if renewal.expires_at is None:
            attempt.interrupt(Stop.LEASE_LOST, renewal.reason)
        elif renewal.cancel_requested:
            attempt.interrupt(Stop.CANCEL, "cancelled while it ran")

    def told(attempt: Attempt, renewal: Renewal) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(interrupt, attempt, renewal)

    return told
