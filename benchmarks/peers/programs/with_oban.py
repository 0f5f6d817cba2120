"""Oban for Python: one queue, 100 jobs at a time."""

from __future__ import annotations

import asyncio
from typing import Any

from common import Handle, Payload, Peer, main
from oban import Oban, worker
from oban.schema import install

LIMIT = 100
PIECE = 1_000

handled: Handle = print


@worker(queue="default")
class Noop:
    async def process(self, job: Any) -> None:
        handled(job.args["n"])


class ObanPeer(Peer):
    async def prepare(self) -> None:
        pool = await self.pool()
        await install(pool)

    async def pool(self) -> Any:
        return await Oban.create_pool(self.url, min_size=2, max_size=10)

    async def open(self) -> None:
        self.oban = Oban(pool=await self.pool())

    async def add_many(self, payloads: list[Payload]) -> None:
        for start in range(0, len(payloads), PIECE):
            await self.oban.enqueue_many(Noop.new(one) for one in payloads[start : start + PIECE])

    async def add_one(self, one: Payload) -> None:
        await self.oban.enqueue(Noop.new(one))

    async def work(self, handle: Handle) -> None:
        global handled
        handled = handle
        async with Oban(pool=await self.pool(), queues={"default": LIMIT}):
            await asyncio.Event().wait()


if __name__ == "__main__":
    main(ObanPeer())
