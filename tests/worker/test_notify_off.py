"""`notify=False`: no hint is sent, whatever is done."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from pymongo import MongoClient

from windlass import Windlass
from windlass.stores.postgres.store import channel_name

CHANNEL = channel_name("public", "windlass_")


def enqueue(app: Windlass) -> None:
    app.enqueue("some", queue="own")


def enqueue_joining(app: Windlass) -> None:
    with app.store.connections.transaction() as connection:
        app.enqueue("some", queue="borrowed", connection=connection)


def cancel_what_runs(app: Windlass) -> None:
    (attempt,) = app.claim(1, queues=["own"])
    app.cancel(attempt.job.id)


def complete_a_blocker(app: Windlass) -> None:
    blocker = app.enqueue("some", queue="own")
    app.enqueue("some", queue="freed", after=[blocker])
    app.complete(blocker.id)


def delete_the_first_of_a_line(app: Windlass) -> None:
    first, _ = (app.enqueue("some", queue="line", order_key="k") for _ in range(2))
    app.delete(first.id)


def delete_many(app: Windlass) -> None:
    app.enqueue("some", queue="line", order_key="k")
    app.delete_many(queue="line")


def schedule(app: Windlass) -> None:
    app.schedule("@daily", app.call("some"), name="daily")


def pause_and_resume(app: Windlass) -> None:
    app.pause("held")
    app.resume("held")
    app.pause_schedule("daily")
    app.resume_schedule("daily")


STEPS: list[tuple[Callable[[Windlass], None], str]] = [
    (enqueue, "ready:own"),
    (enqueue_joining, "ready:borrowed"),
    (cancel_what_runs, "told:"),
    (complete_a_blocker, "ready:freed"),
    (delete_the_first_of_a_line, "ready:line"),
    (delete_many, "ready:line"),
    (schedule, "scheduled:daily"),
    (pause_and_resume, "ready:held"),
]


def check(app: Windlass, heard: Callable[[], list[str]]) -> None:
    for step, expected in STEPS:
        step(app)
        app.store.wakeup.flush(30.0)
        hints = heard()
        if app.notify:
            assert any(hint.startswith(expected) for hint in hints), (step.__name__, hints)
        else:
            assert hints == [], step.__name__
    app.close()


@pytest.mark.parametrize("notify", [True, False])
def test_on_postgres(fresh_postgres_url: str, notify: bool) -> None:
    app = Windlass(fresh_postgres_url, notify=notify)
    app.store.wakeup.answer_seconds = 30.0  # type: ignore[attr-defined]
    app.migrate()
    with psycopg.connect(fresh_postgres_url, autocommit=True) as listener:
        listener.execute(f'LISTEN "{CHANNEL}"')

        def heard() -> list[str]:
            listener.execute("SELECT pg_notify(%s, 'end')", [CHANNEL])
            notices = listener.notifies()
            hints = list(iter(lambda: next(notices).payload, "end"))
            notices.close()
            return hints

        check(app, heard)


@pytest.mark.parametrize("notify", [True, False])
def test_on_mongodb(fresh_mongodb_url: str, notify: bool) -> None:
    app = Windlass(fresh_mongodb_url, notify=notify)
    app.migrate()
    with MongoClient[dict[str, str]](fresh_mongodb_url) as client:
        sent = client.get_default_database()["windlass_hints"]

        def heard() -> list[str]:
            hints = [document["text"] for document in sent.find()]
            sent.delete_many({})
            return hints

        check(app, heard)
