"""A TCP proxy that can be told to misbehave: to fall silent without a word, to lose answers, to cut, to turn newcomers
away."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any, Self


class Line:
    """One client's connection, and the server's that belongs to it."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client, self.server = client, server
        self.silent = self.mute = False
        self.said = b""  # by the client

    def close(self) -> None:
        for writer in (self.client, self.server):
            writer.transport.abort()


class Proxy:
    """Stands before host and port, on a thread of its own. Each connection is passed on until told otherwise."""

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.lines: list[Line] = []
        self.arrivals: list[float] = []  # when somebody tried to connect
        self.refusing = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._in_loop(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._in_loop(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def before(self, url: str) -> str:
        """The URL of the server, through the proxy."""
        return url.replace(f"{self.target[0]}:{self.target[1]}", f"127.0.0.1:{self.port}")

    # What can happen

    def silence(self, which: Callable[[Line], bool] = lambda line: True) -> int:
        """Half-open: from now on these lines swallow all that is sent, and stay open. How many there were."""
        chosen = [line for line in self.lines if which(line) and not line.silent]
        for line in chosen:
            line.silent = True
        return len(chosen)

    def cut(self, which: Callable[[Line], bool] = lambda line: True) -> int:
        """Both ends are told at once, by a reset."""
        chosen = [line for line in self.lines if which(line)]
        for line in chosen:
            self._loop.call_soon_threadsafe(line.close)
        return len(chosen)

    def lose_answers(self, which: Callable[[Line], bool] = lambda line: True, seconds: float = 0.3) -> int:
        """What is asked arrives, and is done; the answer never comes, and after a while the line is cut."""
        chosen = [line for line in self.lines if which(line) and not line.silent]
        for line in chosen:
            line.mute = True
            self._loop.call_soon_threadsafe(self._loop.call_later, seconds, line.close)
        return len(chosen)

    # How it works

    def _in_loop(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.arrivals.append(time.monotonic())
        if self.refusing:
            writer.transport.abort()
            return
        try:
            from_server, to_server = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        line = Line(writer, to_server)
        self.lines.append(line)
        try:
            await asyncio.gather(
                self._copy(reader, to_server, line, from_client=True), self._copy(from_server, writer, line)
            )
        except OSError:
            pass
        finally:
            self.lines.remove(line)
            line.close()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: Line, *, from_client: bool = False
    ) -> None:
        while data := await reader.read(1 << 16):
            if from_client:
                line.said = (line.said + data)[-10_000:]
            if not line.silent and (from_client or not line.mute):
                writer.write(data)
                await writer.drain()
        if not line.silent:  # of one that is silent, neither end hears that the other has left
            writer.close()

    async def _end(self) -> None:
        self._server.close()
        for line in self.lines:
            line.close()
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=5)
