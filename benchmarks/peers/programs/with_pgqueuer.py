"""PgQueuer: asyncpg, batches of 500, with the vacuum settings of its own command."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
from common import Handle, Payload, Peer, main
from pgqueuer import PgQueuer
from pgqueuer.queries import Queries

PIECE = 5_000
BATCH = 500


class PgQueuerPeer(Peer):
    async def prepare(self) -> None:
        await self.open()
        await self.queries.install()
        await self.queries.optimize_autovacuum()

    async def open(self) -> None:
        self.queries = Queries.from_asyncpg_connection(await asyncpg.connect(self.url))

    async def add_many(self, payloads: list[Payload]) -> None:
        for start in range(0, len(payloads), PIECE):
            piece: list[bytes | None] = [json.dumps(one).encode() for one in payloads[start : start + PIECE]]
            await self.queries.enqueue(["noop"] * len(piece), piece, [0] * len(piece))

    async def add_one(self, one: Payload) -> None:
        await self.queries.enqueue("noop", json.dumps(one).encode())

    async def work(self, handle: Handle) -> None:
        # A pool, so that dequeueing and logging do not wait for each other.
        pool = await asyncpg.create_pool(self.url, min_size=4, max_size=4)
        queuer = PgQueuer.from_asyncpg_pool(pool)

        @queuer.entrypoint("noop")
        async def noop(job: Any) -> None:
            handle(json.loads(job.payload)["n"])  # the other systems decode the payload themselves

        await queuer.run(batch_size=BATCH)


if __name__ == "__main__":
    main(PgQueuerPeer())
