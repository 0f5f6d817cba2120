"""Procrastinate: psycopg, concurrent async jobs, with LISTEN/NOTIFY."""

from __future__ import annotations

from common import Handle, Payload, Peer, main
from procrastinate import App, PsycopgConnector

CONCURRENCY = 20
PIECE = 5_000


class ProcrastinatePeer(Peer):
    def __init__(self) -> None:
        super().__init__()
        self.app = App(connector=PsycopgConnector(conninfo=self.url, min_size=4, max_size=20))
        self.handle: Handle = print

        @self.app.task(name="noop")
        async def noop(userId: str, text: str, n: int) -> None:
            self.handle(n)

        self.noop = noop

    async def prepare(self) -> None:
        await self.open()
        await self.app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await self.app.open_async()

    async def add_many(self, payloads: list[Payload]) -> None:
        for start in range(0, len(payloads), PIECE):
            await self.noop.batch_defer_async(*payloads[start : start + PIECE])

    async def add_one(self, one: Payload) -> None:
        await self.noop.defer_async(**one)

    async def work(self, handle: Handle) -> None:
        self.handle = handle
        await self.open()
        await self.app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)


if __name__ == "__main__":
    main(ProcrastinatePeer())
