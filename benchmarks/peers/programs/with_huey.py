"""huey's SqliteHuey and its consumer. HUEY_OPTIONS (JSON) has the options of the storage."""

from __future__ import annotations

import json
import logging
import os

from common import Handle, Payload, Peer, main
from huey import SqliteHuey

WORKERS = 1  # it has one connection with a lock, so more threads would only wait for each other


class HueyPeer(Peer):
    def __init__(self) -> None:
        super().__init__()
        logging.getLogger("huey").setLevel(logging.WARNING)
        # Comparable to Windlass with keep=0: the result of a no-op is None, and huey does not store None by default.
        self.huey = SqliteHuey(filename=self.url, **json.loads(os.environ.get("HUEY_OPTIONS", "{}")))
        self.handle: Handle = print

        @self.huey.task()
        def noop(userId: str, text: str, n: int) -> None:
            self.handle(n)

        self.noop = noop

    async def prepare(self) -> None:
        self.huey.storage.initialize_schema()

    async def open(self) -> None: ...

    async def add_many(self, payloads: list[Payload]) -> None:
        for one in payloads:  # huey has no bulk call
            self.noop(**one)

    async def add_one(self, one: Payload) -> None:
        self.noop(**one)

    async def work(self, handle: Handle) -> None:
        self.handle = handle
        # The shortest delays in its docs. By default an idle worker polls less and less often, up to every 10 s.
        self.huey.create_consumer(workers=WORKERS, periodic=False, initial_delay=0.01, max_delay=0.01).run()


if __name__ == "__main__":
    main(HueyPeer())
