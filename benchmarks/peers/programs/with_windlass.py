"""Windlass from this checkout. WINDLASS_KEEP is the retention of the task: 7d by default, 0 for no history."""

from __future__ import annotations

import os

from common import Handle, Payload, Peer, main

from windlass import Windlass

CONCURRENCY = 50
PIECE = 10_000


class WindlassPeer(Peer):
    def __init__(self) -> None:
        super().__init__()
        self.app = Windlass(self.url)
        self.handle: Handle = print
        keep = os.environ.get("WINDLASS_KEEP", "7d")

        @self.app.task(keep=0 if keep == "0" else keep)
        async def noop(userId: str, text: str, n: int) -> None:
            self.handle(n)

        self.noop = noop

    async def prepare(self) -> None:
        self.app.migrate()
        self.app.close()

    async def open(self) -> None:
        self.app.prepare()

    async def add_many(self, payloads: list[Payload]) -> None:
        for start in range(0, len(payloads), PIECE):
            self.app.enqueue_many([self.noop.call(**one) for one in payloads[start : start + PIECE]])

    async def add_one(self, one: Payload) -> None:
        self.noop.enqueue(**one)

    async def work(self, handle: Handle) -> None:
        self.handle = handle
        await self.app.arun_worker(concurrency=CONCURRENCY)


if __name__ == "__main__":
    main(WindlassPeer())
