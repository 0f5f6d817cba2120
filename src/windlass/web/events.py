"""Server-sent events: the store's notifications, and the stats when they change.

One listener and one poll of the stats serve all clients. They run only while a client is connected. A notification is a
hint and may be lost: a client that must know the truth reads the jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from http import HTTPStatus

import msgspec
from starlette.responses import StreamingResponse

from ..app import Windlass
from ..insight import stat_facts
from ..logs import Log
from ..stores.wakeup import Hint
from .endpoints import Context, endpoint
from .problems import Problem

log = Log("windlass.web")

POLL_SECONDS = 2.0  # between two reads of the stats
GATHER_SECONDS = 0.1  # equal hints within this time become one event
ALIVE_SECONDS = 15.0  # after this silence a comment keeps the connection open
MOST_QUEUED = 100  # events that wait for one client; when its queue is full it loses new ones
MOST_CLIENTS = 1000

NAMES = {"ready": "queue", "finished": "chain_id", "told": "job_id", "scheduled": "schedule"}


class Events:
    def __init__(self, app: Windlass) -> None:
        self.app = app
        self.clients: set[asyncio.Queue[bytes]] = set()
        self._gathered: dict[bytes, None] = {}
        self._polling: asyncio.Task[None] | None = None
        self._stop_listening: Callable[[], None] | None = None

    async def stream(self) -> AsyncIterator[bytes]:
        queue: asyncio.Queue[bytes] = asyncio.Queue(MOST_QUEUED)
        self.clients.add(queue)
        try:
            if self._polling is None:
                self._begin()
            else:
                yield await self._stats()
            while True:
                try:
                    async with asyncio.timeout(ALIVE_SECONDS):
                        event = await queue.get()
                except TimeoutError:
                    event = b": still here\n\n"
                yield event
        finally:
            self.clients.discard(queue)
            if not self.clients:
                await self._end()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()

        def heard(hint: Hint | None) -> None:  # on the listener's thread
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._gather, hint)

        self._stop_listening = self.app.store.wakeup.listen(heard)
        self._polling = asyncio.create_task(self._poll())

    async def _end(self) -> None:
        polling, stop_listening = self._polling, self._stop_listening
        self._polling = self._stop_listening = None
        if polling is not None:
            polling.cancel()
        if stop_listening is not None:
            await asyncio.to_thread(stop_listening)

    def _gather(self, hint: Hint | None) -> None:
        if not self._gathered:
            asyncio.get_running_loop().call_later(GATHER_SECONDS, self._send_gathered)
        if hint is None:
            self._gathered[_event("changed", {})] = None
        else:
            self._gathered[_event(hint.kind, {NAMES[hint.kind]: hint.name})] = None

    def _send_gathered(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for event in gathered:
            self._send(event)

    def _send(self, event: bytes) -> None:
        for queue in self.clients:
            with suppress(asyncio.QueueFull):
                queue.put_nowait(event)

    async def _poll(self) -> None:
        last = b""
        while True:
            try:
                stats = await self._stats()
            except Exception as error:  # the next poll may succeed
                log.warning("the stats cannot be read: %s", error)
            else:
                if stats != last:
                    self._send(stats)
                last = stats
            await asyncio.sleep(POLL_SECONDS)

    async def _stats(self) -> bytes:
        return _event("stats", stat_facts(await self.app.acounts()))


def _event(name: str, data: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


class EventStream(StreamingResponse):
    media_type = "text/event-stream"


@endpoint("GET", "/v1/events", "read", across_tenants=True)
async def listen(context: Context) -> EventStream:
    """Stream server-sent events: `ready` (a queue has work), `finished` (a chain that a client waits for has ended),
    `told`, `scheduled`, `changed` (anything may have happened), and `stats` when the stats have changed."""
    events: Events = context.request.app.state.events
    if len(events.clients) >= MOST_CLIENTS:
        raise Problem(HTTPStatus.TOO_MANY_REQUESTS, f"{MOST_CLIENTS} clients are connected already; try again later")
    stream = iter(()) if context.request.method == "HEAD" else events.stream()
    return EventStream(stream, headers={"X-Accel-Buffering": "no"})
