"""huey's SqliteHuey and its consumer. HUEY_OPTIONS (JSON) are those of the storage."""

from __future__ import annotations

import json
import logging
import os

from common import Handle, Payload, Peer, main
from huey import SqliteHuey

WORKERS = 1  # its one connection has a lock: more threads only wait for each other


class HueyPeer(Peer):
    def __init__(self) -> None:
        super().__init__()
        logging.getLogger("huey").setLevel(logging.WARNING)
        # As Windlass with keep=0: a no-op's result is None, and huey stores none of those by default.
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
        for one in payloads:  # there is no bulk call
            self.noop(**one)

    async def add_one(self, one: Payload) -> None:
        self.noop(**one)

    async def work(self, handle: Handle) -> None:
        self.handle = handle
        # The shortest delays that its docs give: by default an idle worker looks less and less often, up to 10 s.
        self.huey.create_consumer(workers=WORKERS, periodic=False, initial_delay=0.01, max_delay=0.01).run()


if __name__ == "__main__":
    main(HueyPeer())
