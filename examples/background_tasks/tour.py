"""The tour: each step checks one promise by counting."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from windlass import Windlass

from ..tour import Check, Progress
from .memory import MemoryService
from .processor import Processor
from .settings import Settings
from .tasks import QUEUE

TASKS, REPLICAS, ENTRIES, CLAIMED = 60, 3, 8, 5


@contextmanager
def replica(url: str, folder: Path, settings: Settings) -> Iterator[tuple[MemoryService, Processor]]:
    """One replica: the service and its processor."""
    app = Windlass(url)
    try:
        service = MemoryService(app, folder, settings.batch_size)
        yield service, Processor(app, service.handlers, settings)
    finally:
        app.close()


def tour(url: str, progress: Progress) -> list[Check]:
    """Run the tour on an empty database with this URL."""
    steps = (share, fail_and_recover, repair_once, outlive_a_crash)
    checks = []
    with tempfile.TemporaryDirectory(prefix="windlass-tasks-") as name:
        for done, step in enumerate(steps):
            progress(done, len(steps))
            checks.append(step(url, Path(name)))
    progress(len(steps), len(steps))
    return checks


def share(url: str, folder: Path) -> Check:
    """Three processors work at once, in batches of five."""

    def work() -> None:
        with replica(url, folder, Settings(batch_size=5)) as (_, processor):
            while processor.run_once():
                pass

    with replica(url, folder, Settings()) as (service, _):
        groups = [f"group {number}" for number in range(TASKS)]
        for group in groups:
            service.evict(group)
        threads = [threading.Thread(target=work) for _ in range(REPLICAS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        deleted = service.vectors.deletions
    seen = len(deleted) if sorted(deleted) == sorted(groups) else f"{len(deleted)}, not each once"
    return Check(f"vector deletions by {REPLICAS} processors at once, each done once", TASKS, seen)


def fail_and_recover(url: str, folder: Path) -> Check:
    """The vector store is down for one group. Its task fails, and succeeds ten minutes later."""
    with replica(url, folder, Settings()) as (service, processor):
        service.vectors.fail_for("broken")
        task = service.evict("broken")
        processor.run_once()
        failed = task.refresh()
        delay = failed.run_at - task.run_at
        service.vectors.recover()
        service.tasks.app.store.clock.move(Settings().retry_delay)
        processor.run_once()
        done = service.vectors.deletions.count("broken")
    expected = "failed 1 time, due in 10 minutes, done 1 time"
    minutes = round(delay / timedelta(minutes=1))
    return Check(
        "a task that fails", expected, f"failed {failed.attempt} time, due in {minutes} minutes, done {done} time"
    )


def repair_once(url: str, folder: Path) -> Check:
    """Several entries cannot be indexed. One singleton task repairs all of them."""
    with replica(url, folder, Settings()) as (service, processor):
        service.vectors.fail_for("conversation")
        for number in range(ENTRIES):
            service.remember("conversation", f"note {number}")
        created = service.tasks.counts()["pending"]
        service.vectors.recover()
        processor.run_once()
        indexed = ENTRIES - service.entries.count_pending()
    expected = f"1 task, {ENTRIES} entries indexed"
    return Check(f"{ENTRIES} entries that could not be indexed", expected, f"{created} task, {indexed} entries indexed")


def outlive_a_crash(url: str, folder: Path) -> Check:
    """A processor claims a batch and dies. Another one runs it."""
    with replica(url, folder, Settings()) as (service, processor):
        app = service.tasks.app
        groups = [f"orphan {number}" for number in range(CLAIMED)]
        for group in groups:
            service.evict(group)
        app.claim(CLAIMED, queues=[QUEUE], lease=Settings().stale_claim_timeout, worker="dead")
        processor.run_once()
        before = len(service.vectors.deletions)
        app.store.clock.move(Settings().stale_claim_timeout)
        processor.run_once()
        app.store.clock.move(timedelta(seconds=2))  # rescued jobs are spread over two seconds
        processor.run_once()
        after = len(service.vectors.deletions)
    return Check("tasks of a processor that died, done by another in five minutes", CLAIMED, after - before)
