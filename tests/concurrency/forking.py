"""A program that uses an app, forks, and uses it on both sides at once: `python -m tests.concurrency.forking URL`."""

from __future__ import annotations

import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from windlass import Windlass

JOBS = 40
THREADS = 8


def use(app: Windlass, queue: str) -> None:
    """From enqueueing to completion, many times over."""
    jobs = [app.enqueue("greet", {"queue": queue}, queue=queue) for _ in range(JOBS)]
    attempts = app.claim(JOBS, queues=[queue])
    assert {attempt.job.id for attempt in attempts} == {job.id for job in jobs}
    for attempt in attempts:
        attempt.complete(queue)
    assert all(app.result(job) == queue for job in jobs)


def use_in_threads(app: Windlass, queue: str) -> None:
    """Several threads of the child need its first connection at once."""
    sys.setswitchinterval(1e-6)
    with ThreadPoolExecutor(THREADS) as threads:
        for answer in [threads.submit(use, app, f"{queue}-{number}") for number in range(THREADS)]:
            answer.result(60)


def main(url: str) -> None:
    logging.getLogger("windlass.wakeup").setLevel(logging.ERROR)  # a hint that a slow machine has lost is no failure
    app = Windlass(url)
    use(app, "before")
    stop_listening = app.store.wakeup.listen(lambda hint: None)
    child = os.fork()
    if child == 0:
        try:
            use_in_threads(app, "child")
            app.store.wakeup.listen(lambda hint: None)()
            app.close()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    use(app, "parent")
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "the child failed"
    use(app, "after")
    assert app.counts().completed == app.counts().total == (3 + THREADS) * JOBS
    stop_listening()
    app.close()


if __name__ == "__main__":
    main(sys.argv[1])
