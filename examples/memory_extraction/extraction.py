"""The system: it enqueues a job for each completion, and its handler extracts the memories.

The queue needs four lines here: a unique key, a tenant, a lease and a transaction.
"""

from __future__ import annotations

import asyncio
from typing import Any

from windlass import Attempt, InvalidInput, Job, Unique, Windlass

from .embedders import Embedder, HashedWords
from .extractors import Extractor, RuleExtractor, Transaction
from .memories import Hit, open_memories
from .settings import Settings

QUEUE = "memory-extraction"


class MemoryExtraction:
    """Enqueue, extract, search. The API and each worker have their own object, on the same database."""

    def __init__(
        self, settings: Settings, *, extractor: Extractor | None = None, embedder: Embedder | None = None
    ) -> None:
        self.settings = settings
        self.extractor = extractor or choose_extractor(settings)
        self.embedder = embedder or choose_embedder(settings)
        self.memories = open_memories(settings.url, settings.dimensions)
        self.app = Windlass(settings.url)

        @self.app.task(queue=QUEUE, lease=settings.lease_seconds)
        async def extract_memories(attempt: Attempt, user: str, transaction: Transaction) -> None:
            await self.process(attempt, user, transaction)

        self.task = extract_memories

    def prepare(self) -> None:
        """Create the tables. Call it first."""
        self.app.migrate()
        self.memories.prepare()

    async def close(self) -> None:
        self.memories.close()
        await self.app.aclose()

    async def enqueue(self, tenant: str, user: str, transaction: Transaction, request_id: str) -> Job:
        """Enqueue a job for this request of this tenant. A request that is sent again makes no second job, ever."""
        if not tenant:
            raise InvalidInput("the tenant is empty; give the tenant that the memories belong to")
        once = self.task.using(tenant=tenant, unique=Unique(request_id, until="forever"))
        return await once.aenqueue(user, transaction)

    async def process(self, attempt: Attempt, user: str, transaction: Transaction) -> None:
        """Process one claim. The slow work comes first. Then one transaction writes memories and completion."""
        found = await self.extractor.extract(transaction)
        vectors = await self.embedder.embed([memory.text for memory in found]) if found else []
        async with attempt.transaction() as connection:
            await self.memories.add(connection, attempt.tenant, user, list(zip(found, vectors, strict=True)))
            attempt.complete()

    def worker_options(self) -> dict[str, Any]:
        """The options of `app.run_worker`. Notifications wake it; it polls because one may be lost."""
        settings = self.settings
        return {"queues": [QUEUE], "concurrency": settings.batch_size, "poll_interval": settings.poll_seconds}

    async def search(self, tenant: str, text: str, *, user: str | None = None, limit: int = 10) -> list[Hit]:
        (vector,) = await self.embedder.embed([text])
        return await asyncio.to_thread(self.memories.search, tenant, vector, user=user, limit=limit)


def choose_extractor(settings: Settings) -> Extractor:
    if not settings.extractor_url:
        return RuleExtractor()
    from .endpoints import Endpoint, EndpointExtractor

    return EndpointExtractor(Endpoint(settings.extractor_url, settings.endpoint_key), settings.extractor_model)


def choose_embedder(settings: Settings) -> Embedder:
    if not settings.embedder_url:
        return HashedWords(settings.dimensions)
    from .endpoints import Endpoint, EndpointEmbedder

    endpoint = Endpoint(settings.embedder_url, settings.endpoint_key)
    return EndpointEmbedder(endpoint, settings.embedder_model, settings.dimensions)
