"""What is told of a queue comes as it was, whatever the queue is called."""

from __future__ import annotations

import threading

from windlass import Windlass
from windlass.stores.wakeup import Hint

NAMES = ["it's", 'say "so"', "back\\slash", "\\'); NOTIFY x, '", "$1 %s {}", "größe", "✓", "x" * 3000]


def test_names_that_look_like_statements_are_heard(fresh_postgres_url: str) -> None:
    app = Windlass(fresh_postgres_url)
    heard: set[Hint] = set()
    listening, complete = threading.Event(), threading.Event()

    def hear(hint: Hint | None) -> None:
        listening.set()
        if hint is not None:
            heard.add(hint)
        if len(heard) >= len(NAMES):
            complete.set()

    app.store.wakeup.listen(hear)
    assert listening.wait(30)
    app.store.wakeup.send([Hint("ready", name) for name in NAMES])
    assert complete.wait(30)
    assert heard == {Hint("ready", name) for name in NAMES}
    app.close()
