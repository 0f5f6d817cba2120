"""Server-sent events: what hints tell, and how many jobs there are, for as long as somebody listens.

One listener and one look at the figures serve all clients. As with all hints, one may be lost: whoever must know asks.
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
from .endpoints import Asked, endpoint
from .problems import Problem

log = Log("windlass.web")

LOOK_SECONDS = 2.0  # between looks at the figures
GATHER_SECONDS = 0.1  # in which hints that say the same become one
ALIVE_SECONDS = 15.0  # after which a comment keeps a silent connection open
MOST_WAITING = 100  # events for one client; a slower one loses those that follow
MOST_CLIENTS = 1000

NAMES = {"ready": "queue", "finished": "chain_id", "told": "job_id", "scheduled": "schedule"}


class Events:
    def __init__(self, app: Windlass) -> None:
        self.app = app
        self.clients: set[asyncio.Queue[bytes]] = set()
        self._gathered: dict[bytes, None] = {}
        self._looking: asyncio.Task[None] | None = None
        self._deafen: Callable[[], None] | None = None

    async def stream(self) -> AsyncIterator[bytes]:
        waiting: asyncio.Queue[bytes] = asyncio.Queue(MOST_WAITING)
        self.clients.add(waiting)
        try:
            if self._looking is None:
                self._begin()
            else:
                yield await self._figures()
            while True:
                try:
                    yield await asyncio.wait_for(waiting.get(), ALIVE_SECONDS)
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self.clients.discard(waiting)
            if not self.clients:
                await self._end()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()

        def heard(hint: Hint | None) -> None:  # on the listener's thread
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._gather, hint)

        self._deafen = self.app.store.wakeup.listen(heard)
        self._looking = asyncio.create_task(self._look())

    async def _end(self) -> None:
        looking, deafen = self._looking, self._deafen
        self._looking = self._deafen = None
        if looking is not None:
            looking.cancel()
        if deafen is not None:
            await asyncio.to_thread(deafen)

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
        for waiting in self.clients:
            with suppress(asyncio.QueueFull):
                waiting.put_nowait(event)

    async def _look(self) -> None:
        last = b""
        while True:
            try:
                figures = await self._figures()
            except Exception as error:  # one bad look is not the last
                log.warning("the figures cannot be had: %s", error)
            else:
                if figures != last:
                    self._send(figures)
                last = figures
            await asyncio.sleep(LOOK_SECONDS)

    async def _figures(self) -> bytes:
        return _event("stats", stat_facts(await self.app.acounts()))


def _event(name: str, data: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


class EventStream(StreamingResponse):
    media_type = "text/event-stream"


@endpoint("GET", "/v1/events", "read", across_tenants=True)
async def listen(asked: Asked) -> EventStream:
    """Server-sent events: `ready` (a queue has work), `finished` (a chain that somebody waits for has ended), `told`,
    `scheduled`, `changed` (anything may have happened), and `stats` whenever the figures have changed."""
    events: Events = asked.request.app.state.events
    if len(events.clients) >= MOST_CLIENTS:
        raise Problem(HTTPStatus.TOO_MANY_REQUESTS, f"{MOST_CLIENTS} are listening already")
    stream = iter(()) if asked.request.method == "HEAD" else events.stream()
    return EventStream(stream, headers={"X-Accel-Buffering": "no"})
