"""`python -m tests.faults.soak`: play, tell of it every ten seconds, judge."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from windlass import Windlass

from ..checker import Violation
from ..history import Event, History
from .faults import FAULTS, WORK, Faults
from .scene import Client, Place, Workers, ledger_of, place, rows_of, slowness
from .verdict import Evidence, judge

DRAIN_SECONDS = 120.0
STILL_SECONDS = 40.0  # without a change: no lease and no backoff is as long
TELL_SECONDS = 10.0
OVERDUE_SECONDS = 25.0


class Soak:
    def __init__(self, where: Place, folder: Path, seconds: float, chosen: set[str], seed: int, workers: int) -> None:
        self.where, self.seconds, self.chosen = where, seconds, chosen
        self.random = random.Random(seed)
        self.history = History(folder / "history")
        self.app = Windlass(where.direct)
        self.app.migrate()
        self.ledger = ledger_of(where)
        self.workers = Workers(where.url, self.history.path, random.Random(seed + 1))
        self.workers.start(workers)
        self.faults = Faults(where, self.workers, chosen, random.Random(seed + 2))
        self.clients = [
            Client(
                f"client {n}",
                where.url,
                self.history,
                random.Random(seed + 3 + n),
                chosen & set(WORK),
                only_plain=n == 2,
            )
            for n in range(3)
        ]
        self.violations: list[Violation] = []
        self.ended, self.slowness = 0.0, 1.0
        self.began = time.monotonic()
        self._tell_at = self.began + TELL_SECONDS

    def run(self) -> list[Violation]:
        for client in self.clients:
            client.start()
        until = self.began + self.seconds
        while time.monotonic() < until:
            self._pause(min(self.random.uniform(1, 3), max(0.0, until - time.monotonic())))
            if self.faults.deeds and time.monotonic() < until - 1:
                self.faults.one()
        for client in self.clients:
            if not client.stop():
                self.violations.append(Violation("S5", None, f"{client.name} hangs in an enqueue"))
        self.ended = time.monotonic()
        self._drain()
        self.workers.stop_all()
        for seconds in self.workers.late:
            self.violations.append(Violation("S6", None, f"a worker had not exited {seconds:.0f} s after SIGTERM"))
        if died := self.faults.done["died by itself"]:
            self.violations.append(Violation("S9", None, f"{died} workers ended, and had not been told to"))
        return self.violations + self._judged()

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            self._tell()
            self._look()
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.5))

    def _look(self) -> None:
        self.slowness = max(self.slowness, slowness())
        self.workers.look()
        self.faults.done["died by itself"] += self.workers.replace_dead()

    def _tell(self, *, now: bool = False) -> None:
        if not now and time.monotonic() < self._tell_at:
            return
        self._tell_at = time.monotonic() + TELL_SECONDS
        counts = self.app.counts()
        late = [
            job
            for job in self.app.list(state="running", limit=1000)
            if job.lease_expires_at and job.lease_expires_at + timedelta(seconds=OVERDUE_SECONDS) < datetime.now(UTC)
        ]
        self.history.note(*(Event(kind="overdue", id=job.id) for job in late))
        if self.ended:
            kinds = Counter(
                job.type for state in ("pending", "running", "blocked") for job in self.app.list(state=state)
            )
            print(f"          left: {dict(kinds)}")
        seen = {state: count for state, count in counts.items() if count}
        done = {name: count for name, count in self.faults.done.items() if count}
        print(f"{time.monotonic() - self.began:6.0f} s  {seen}  faults: {done}", flush=True)

    def _drain(self) -> None:
        moved = began = time.monotonic()
        before = self.app.counts()
        while (
            moved < began + DRAIN_SECONDS * self.slowness and time.monotonic() < moved + STILL_SECONDS * self.slowness
        ):
            counts = self.app.counts()
            if not (counts.pending or counts.running or counts.blocked):
                print(f"{time.monotonic() - self.began:6.0f} s  all done", flush=True)
                return
            if dict(counts) != dict(before):
                before, moved = counts, time.monotonic()
            self._pause(0.3)
        left = [f"{job.type} {job.state} {job.id}" for job in self.app.list(limit=1000) if not job.finished]
        print(f"not done after {time.monotonic() - began:.0f} s: {len(left)}: {left[:10]}", flush=True)

    def _judged(self) -> list[Violation]:
        # A worker that was killed between its settlement and its count has left the count to upkeep: at its own time.
        self.app.store.clock.move(timedelta(minutes=10))
        self.app.prune()
        self.app.store.clock.move(-timedelta(minutes=10))
        evidence = Evidence(
            events=self.history.read(),
            rows=rows_of(self.where),
            sent={id: sent for client in self.clients for id, sent in client.sent.items()},
            counted=self.app.counts().completed,
            entries=self.ledger.entries,
            windows=self.faults.windows,
            ended=self.ended,
            enqueues=[took for client in self.clients for took in client.took],
            faults=self.chosen,
            kills=self.faults.done["kill"],
            slowness=self.slowness,
        )
        kinds = Counter(event.kind for event in evidence.events)
        errors = sum((client.errors for client in self.clients), Counter[str]())
        print(f"events: {dict(kinds)}; clients saw: {dict(errors)}; effects: {len(evidence.entries)}", flush=True)
        if self.slowness > 1:
            print(f"the machine was busy with other things: what takes time may take {self.slowness:.1f} times as long")
        return judge(evidence)

    def close(self) -> None:
        self.workers.close()
        self.app.close()
        self.ledger.close()
        self.history.close()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--store", choices=sorted(FAULTS), required=True)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--faults", help="separated by commas; all that the store can have, if not given")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="keep the history and the workers' log")
    given = parser.parse_args(arguments)
    chosen = set((given.faults or ",".join(FAULTS[given.store])).split(",")) - {"none"}
    if unknown := chosen - set(FAULTS[given.store]):
        parser.error(f"{given.store} has no {', '.join(sorted(unknown))}; it has {', '.join(FAULTS[given.store])}")
    seconds = given.minutes * 60 + given.seconds or 60.0
    print(
        f"replay: python -m tests.faults.soak --store {given.store} --seconds {seconds:g} --seed {given.seed} "
        f"--workers {given.workers} --faults {','.join(sorted(chosen)) or 'none'}",
        flush=True,
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="windlass-soak-"))
    violations: list[Violation] | None = None
    try:
        with place(given.store, folder) as where:
            soak = Soak(where, folder, seconds, chosen, given.seed, given.workers)
            try:
                violations = soak.run()
            finally:
                soak.close()
    finally:
        if violations or violations is None or given.keep:
            print(f"history and log are kept in {folder}", flush=True)
        else:
            shutil.rmtree(folder)
    for rule, count in sorted(Counter(violation.rule for violation in violations).items()):
        print(f"violated: {rule}, {count} times")
    for violation in violations[:20]:
        print(f"  {violation.rule} {violation.id}: {violation.what}")
    print("nothing was lost, none was done twice, none hung" if not violations else f"{len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
