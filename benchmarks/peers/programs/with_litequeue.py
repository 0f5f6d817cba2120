"""litequeue: a library without a worker, so the loop follows its README. LITEQUEUE_PRAGMAS override its own."""

from __future__ import annotations

import asyncio
import json
import os

from common import Handle, Payload, Peer, main
from litequeue import LiteQueue

IDLE_SECONDS = 0.005


class LitequeuePeer(Peer):
    async def prepare(self) -> None:
        await self.open()

    async def open(self) -> None:
        self.queue = LiteQueue(self.url, timeout=30)
        for pragma in filter(None, os.environ.get("LITEQUEUE_PRAGMAS", "").split(";")):
            self.queue.conn.execute(f"PRAGMA {pragma}")

    async def add_many(self, payloads: list[Payload]) -> None:
        with self.queue.transaction(mode="IMMEDIATE"):
            for one in payloads:
                self.queue.put(json.dumps(one))

    async def add_one(self, one: Payload) -> None:
        self.queue.put(json.dumps(one))

    async def work(self, handle: Handle) -> None:
        await self.open()
        while True:
            message = self.queue.pop()
            if message is None:
                await asyncio.sleep(IDLE_SECONDS)
                continue
            handle(json.loads(message.data)["n"])
            self.queue.done(message.message_id)


if __name__ == "__main__":
    main(LitequeuePeer())
