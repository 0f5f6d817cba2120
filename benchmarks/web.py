"""The HTTP API on PostgreSQL, with the server of `windlass dashboard`: pages of a list with a million finished jobs,
enqueueing from one client, and a hundred clients that listen to events."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click
import psutil
import psycopg
from rich.console import Console

from tests.servers import POSTGRES_VARIABLE, server_url
from windlass import Windlass

from .measure import Figure
from .reporting import table

RESULTS = Path(__file__).parent / "results" / "web.json"
TOKEN = {"Authorization": "Bearer measured"}
JOB = json.dumps({"type": "mail", "input": {"user": 7}}).encode()
JOB_HEADERS = TOKEN | {"Content-Type": "application/json"}

# Finished jobs as after weeks of work: ids in the order of time, spread over eight day slots of the history.
FILL = """
INSERT INTO windlass_history (id, run_at, created_at, finished_at, purge_at, state, attempt, slot, rank, chain_index,
    chain_id, queue, type, tenant, input, output, error)
SELECT made.id, now(), now(), now(), now() + interval '7 days',
    (CASE WHEN n % 100 = 0 THEN 'failed' ELSE 'completed' END)::windlass_state, 1, n * 8 / %(jobs)s, 0, 0, made.id,
    'queue' || n % 5, 'type' || n % 10, 'tenant' || n % 20, '{"user": 7}', '"done"',
    CASE WHEN n % 100 = 0 THEN '{"type":"ValueError","message":"broken"}' END
FROM generate_series(0, %(jobs)s - 1) AS n,
    LATERAL (SELECT (lpad(to_hex(1700000000000 + n), 12, '0') || '7000' || '8'
        || lpad(to_hex(n), 15, '0'))::uuid AS id) AS made
"""

FILTERS: dict[str, dict[str, str]] = {
    "all": {},
    "failed": {"status": "failed"},
    "completed": {"status": "completed"},
    "one type": {"type": "type3"},
    "one tenant": {"tenant": "tenant7"},
    "failed of one type": {"status": "failed", "type": "type0"},
}


def fill(url: str, jobs: int) -> int:
    """Fill the history. Return the time at which all these jobs ended, in microseconds since 1970."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        app = Windlass(url)
        app.migrate()
        app.close()
        connection.execute(FILL.replace("%(jobs)s", str(jobs)))
        connection.execute("VACUUM ANALYZE windlass_history")
        row = connection.execute(
            "SELECT (extract(epoch FROM finished_at) * 1000000)::bigint FROM windlass_history LIMIT 1"
        ).fetchone()
        return int(row[0]) if row else 0


@contextmanager
def serving(url: str) -> Iterator[tuple[int, psutil.Process]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    environment = os.environ | {"WINDLASS_TOKEN": "measured"}
    command = [sys.executable, "-m", "windlass", "dashboard", "--url", url, "--port", str(port)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            for _ in range(200):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            yield port, psutil.Process(process.pid)
        finally:
            process.terminate()


def get(connection: HTTPConnection, query: dict[str, str]) -> tuple[float, Any]:
    began = time.perf_counter()
    connection.request("GET", f"/v1/jobs?{urlencode(query)}", headers=TOKEN)
    answer = connection.getresponse()
    body = answer.read()
    took = time.perf_counter() - began
    assert answer.status == 200, body
    return took, json.loads(body)


def pages(port: int, jobs: int, rounds: int, ended: int) -> list[Figure]:
    """Read pages from the start of the list and from its middle. `ended` is the time at which all jobs ended."""
    figures = []
    connection = HTTPConnection("127.0.0.1", port)
    for name, query in FILTERS.items():
        times: list[float] = []
        middle = f"{1700000000000 + jobs // 2:012x}70008000000000000000"
        if query.get("status") == "failed":
            middle += f"-{ended}"
        for start in (None, middle):
            cursor = start
            for _ in range(rounds):
                took, page = get(connection, query | {"limit": "20"} | ({"cursor": cursor} if cursor else {}))
                times.append(took * 1000)
                cursor = page["next_cursor"] or start
        slow = statistics.quantiles(times, n=20)[-1]
        figures.append(Figure("postgres", f"GET /v1/jobs, {name}, p95", slow, "ms", wanted=50.0, at_most=True))
    return figures


def enqueueing(port: int, jobs: int, connections: int) -> Figure:
    """Enqueue from one client. Each of its connections sends the next request after the last answer."""

    async def send(count: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        headers = "".join(f"{name}: {value}\r\n" for name, value in JOB_HEADERS.items())
        request = (
            f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {len(JOB)}\r\n\r\n".encode() + JOB
        )
        for _ in range(count):
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 201"), head
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length.partition(b":")[2]))
        writer.close()

    async def run() -> float:
        began = time.perf_counter()
        await asyncio.gather(*(send(jobs // connections) for _ in range(connections)))
        return time.perf_counter() - began

    kept = "one connection" if connections == 1 else f"{connections} connections"
    return Figure("postgres", f"POST /v1/jobs, one client, {kept}", jobs / asyncio.run(run()), wanted=1_000)


def listening(port: int, process: psutil.Process, clients: int, seconds: float) -> Figure:
    async def listen() -> asyncio.StreamWriter:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: {TOKEN['Authorization']}\r\n\r\n".encode()
        )
        await reader.readuntil(b"event: ")
        return writer

    async def run() -> float:
        writers = [await listen() for _ in range(clients)]
        await asyncio.sleep(1)
        before = process.cpu_times()
        await asyncio.sleep(seconds)
        after = process.cpu_times()
        for writer in writers:
            writer.close()
        return (after.user + after.system - before.user - before.system) / seconds * 100

    return Figure("postgres", f"CPU with {clients} idle listeners", asyncio.run(run()), "%", wanted=5.0, at_most=True)


@click.command()
@click.option("--finished", default=1_000_000, show_default=True, help="jobs in the history")
@click.option(
    "--rounds", default=100, show_default=True, help="pages of each filter, from the start and from the middle"
)
@click.option("--jobs", default=5_000, show_default=True, help="jobs to enqueue")
@click.option("--seconds", default=10.0, show_default=True, help="how long the CPU of the listeners is measured")
@click.option("--output", type=click.Path(path_type=Path), default=RESULTS)
def main(finished: int, rounds: int, jobs: int, seconds: float, output: Path) -> None:
    with server_url(POSTGRES_VARIABLE) as server, psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS windlass_web WITH (FORCE)")
        connection.execute("CREATE DATABASE windlass_web")
        where = f"{server.rpartition('/')[0]}/windlass_web"
        ended = fill(where, finished)
        with serving(where) as (port, process):
            figures = pages(port, finished, rounds, ended)
            figures += [enqueueing(port, jobs, connections) for connections in (1, 8)]
            figures.append(listening(port, process, 100, seconds))
        connection.execute("DROP DATABASE windlass_web WITH (FORCE)")
    Console().print(table(figures, f"HTTP, {finished:,} finished jobs"))
    load = round(os.getloadavg()[0], 1)
    output.write_text(json.dumps({"load": load, "figures": [one.to_json() for one in figures]}, indent=2) + "\n")


if __name__ == "__main__":
    main()
