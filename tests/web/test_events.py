"""Server-sent events, and the server that `windlass dashboard` starts."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from windlass import Windlass


@pytest.fixture
async def server(web: Starlette) -> AsyncIterator[str]:
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(web, port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(60):
        while not server.started:  # noqa: ASYNC110, it has no event for that
            await asyncio.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = server.force_exit = True
    await serving


async def events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, Any]]:
    name = ""
    async for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


async def test_events_tell_of_work_and_figures(app: Windlass, web: Starlette, server: str) -> None:
    headers = {"Authorization": "Bearer reader"}
    async with httpx.AsyncClient(base_url=server, headers=headers, timeout=20) as http:
        async with http.stream("GET", "/v1/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            heard = events(stream.aiter_lines())
            async for name, data in heard:
                if name == "stats":
                    assert data["total"] == 0
                    break
            await app.aenqueue("greet", {"name": "Ada"})
            seen = {}
            async for name, data in heard:
                seen[name] = data
                if seen.get("stats") and len(seen) > 1:
                    break
            assert seen["stats"]["states"]["pending"] == 1
            assert seen.get("ready", {"queue": "mail"}) == {"queue": "mail"}
            assert {"ready", "changed"} & set(seen)
        for _ in range(500):
            if not web.state.events.clients:
                break
            await asyncio.sleep(0.01)
        assert not web.state.events.clients
        assert web.state.events._polling is None


async def test_who_only_asks_for_the_head_is_not_kept(web: Starlette, server: str) -> None:
    async with httpx.AsyncClient(base_url=server, headers={"Authorization": "Bearer reader"}, timeout=20) as http:
        answer = await http.head("/v1/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert not web.state.events.clients


PROGRAM = """
from windlass import Windlass
app = Windlass()

@app.task
def greet(name: str) -> str:
    return f"hello {name}"
"""


def test_the_dashboard_serves(tmp_path: Path, fresh_sqlite_url: str, unused_tcp_port: int) -> None:
    (tmp_path / "jobs.py").write_text(PROGRAM)
    environment = os.environ | {"WINDLASS_URL": fresh_sqlite_url, "WINDLASS_TOKEN": "master"}
    command = [sys.executable, "-m", "windlass", "dashboard", "jobs:app", "--port", str(unused_tcp_port)]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert str(unused_tcp_port) in process.stdout.readline()
            url = f"http://127.0.0.1:{unused_tcp_port}"
            with httpx.Client(base_url=url, timeout=30) as http:
                for _ in range(600):
                    try:
                        assert http.get("/healthz").status_code == 401
                        break
                    except httpx.TransportError:
                        time.sleep(0.05)
                http.headers["Authorization"] = "Bearer master"
                assert http.get("/healthz").json() == {"status": "ok"}
                job = http.post("/v1/jobs", json={"type": "greet", "input": {"name": "Ada"}})
                assert job.status_code == 201
                with http.stream("GET", "/v1/events") as stream:
                    next(stream.iter_lines())
                    process.terminate()  # though somebody listens
                    process.wait(30)
        finally:
            process.kill()
    assert process.returncode in (0, -15)


def test_it_is_not_opened_to_others_without_a_token(fresh_sqlite_url: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "WINDLASS_TOKEN"}
    command = [sys.executable, "-m", "windlass", "dashboard", "--url", fresh_sqlite_url, "--host", "0.0.0.0"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "--token" in done.stderr
