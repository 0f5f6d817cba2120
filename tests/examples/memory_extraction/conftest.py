from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
import uvicorn

from examples.memory_extraction.extraction import MemoryExtraction
from examples.memory_extraction.extractors import Transaction
from examples.memory_extraction.settings import Settings
from examples.memory_extraction.web import create_web
from windlass import Job

TOKENS = {"acme": "token-of-acme", "globex": "token-of-globex"}
TEA = "I prefer green tea. I live in Lisbon."
TEA_MEMORIES = ["I live in Lisbon", "I prefer green tea"]


def settings(url: str, **changes: Any) -> Settings:
    tenants = ",".join(f"{tenant}={token}" for tenant, token in TOKENS.items())
    return Settings(url=url, tenants=tenants, **changes)


@asynccontextmanager
async def opened(url: str, *, extractor: Any = None, **changes: Any) -> AsyncIterator[MemoryExtraction]:
    memory = MemoryExtraction(settings(url, **changes), extractor=extractor)
    await asyncio.to_thread(memory.prepare)
    try:
        yield memory
    finally:
        await memory.close()


@pytest.fixture
async def memory(store_url: str) -> AsyncIterator[MemoryExtraction]:
    async with opened(store_url) as memory:
        yield memory


async def ask(memory: MemoryExtraction, tenant: str, request_id: str, prompt: str = TEA, user: str = "ada") -> Job:
    return await memory.enqueue(tenant, user, Transaction(prompt, "I see."), request_id)


async def texts(memory: MemoryExtraction, tenant: str, **options: Any) -> list[str]:
    """All that a tenant has in memory, as a search finds it."""
    return sorted(hit.text for hit in await memory.search(tenant, "whatever", limit=100, **options))


@asynccontextmanager
async def serving(memory: MemoryExtraction, tenant: str = "acme") -> AsyncIterator[httpx.AsyncClient]:
    """The API, over TCP."""
    server = uvicorn.Server(uvicorn.Config(create_web(memory), port=0, log_level="warning"))
    running = asyncio.create_task(server.serve())
    while not server.started:
        assert not running.done(), running.exception()
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    headers = {"Authorization": f"Bearer {TOKENS[tenant]}"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=20) as client:
        yield client
    server.should_exit = True
    await running


Answer = tuple[int, dict[str, str], str]


class Endpoint:
    """A server that speaks as much of OpenAI's protocol as is needed; `answers` are given first, one by one."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: queue.Queue[tuple[str, dict[str, Any], Any]] = queue.Queue()
        self.go_on = threading.Event()  # nothing is answered while it is not set
        self.go_on.set()
        self.usual: Callable[[str, Any], Answer] = found
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.put((self.path, dict(self.headers), body))
                outer.go_on.wait(30)
                status, headers, text = outer.answers.pop(0) if outer.answers else outer.usual(self.path, body)
                content = text.encode()
                try:
                    self.send_response(status)
                    for name, value in (headers | {"Content-Length": str(len(content))}).items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(content)
                except ConnectionError:
                    pass  # it was killed meanwhile

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.go_on.set()
        self.server.shutdown()
        self.server.server_close()


def chat(content: str) -> Answer:
    return 200, {}, json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]})


def found(path: str, body: Any) -> Answer:
    """Two memories of any conversation; an embedding that says how long each text is."""
    if path == "/v1/chat/completions":
        memories = [{"kind": "preference", "text": TEA_MEMORIES[1]}, {"kind": "fact", "text": TEA_MEMORIES[0]}]
        return chat(json.dumps({"memories": memories}))
    vectors = [[float(len(text)), 1.0] + [0.0] * (body["dimensions"] - 2) for text in body["input"]]
    data = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return 200, {}, json.dumps({"data": list(reversed(data))})


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()
