"""The HTTP API: failures, plans, messages, webhooks."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any
from uuid import uuid4

import httpx
import pytest
import uvicorn

from examples.agent_platform.platform import Platform
from examples.agent_platform.web import create_web
from windlass.web import sign

from .conftest import REMOTE_TOKEN, SECRET, TOKEN, Replicas

Http = httpx.AsyncClient
PROBLEM = "application/problem+json"


async def work(replicas: Replicas, **options: Any) -> None:
    await replicas.app.arun_worker(until_idle=True, **options)


async def test_the_newest_failures_with_their_errors(replicas: Replicas, http: Http) -> None:
    """GET /v1/jobs?status=failed&limit=20."""
    replicas.model.fails_for = "bad"
    for number in range(22):
        replicas.turn(f"bad {number}", max_attempts=1)
    replicas.turn("good")
    await work(replicas, concurrency=1)  # one after the other, so that they end in that order
    jobs = (await http.get("/v1/jobs?status=failed&limit=20")).json()["jobs"]
    assert [job["error"] for job in jobs] == [f"ConnectionError: no answer about 'bad {n}'" for n in range(21, 1, -1)]
    assert {(job["type"], job["state"], job["attempt"]) for job in jobs} == {("agent-turn", "failed", 1)}


async def test_a_plan_is_started_and_its_answer_awaited(replicas: Replicas, http: Http) -> None:
    """POST /v1/orchestrate answers with an id, by which the answer can be waited for."""
    started = await http.post("/v1/orchestrate", json={"goal": "Sail", "subtasks": 2})
    id = started.json()["id"]
    assert (started.status_code, started.headers["location"]) == (202, f"/v1/orchestrate/{id}")
    waiting = await http.get(f"/v1/orchestrate/{id}")
    assert (waiting.status_code, waiting.json()) == (202, {"id": id, "state": "running"})
    awaited = asyncio.create_task(http.get(f"/v1/orchestrate/{id}?wait=60"))
    await asyncio.sleep(0.1)
    assert not awaited.done()
    while not awaited.done():  # who begins to wait for a job writes to it, and a claim steps over it meanwhile
        await work(replicas)
    answer = await awaited
    assert (answer.status_code, answer.json()["state"]) == (200, "completed")
    assert answer.json()["answer"].splitlines()[0] == "Sail:"
    assert len(answer.json()["answer"].splitlines()) == 3
    by_the_settings = (await http.post("/v1/orchestrate", json={"goal": "Sail"})).json()["id"]
    assert (await http.get(f"/v1/jobs/{by_the_settings}")).json()["input"]["subtasks"] == replicas.settings.subtasks


async def test_a_plan_that_failed_says_so(replicas: Replicas, http: Http) -> None:
    """Whoever waits is told, and why."""
    job = replicas.jobs.enqueue("orchestrator-plan", {"goal": "Sail", "subtasks": 2})
    await replicas.app.afail(job.id, "no wind")
    answer = await http.get(f"/v1/orchestrate/{job.id}?wait=20")
    assert (answer.status_code, answer.json()["state"]) == (200, "failed")
    assert "no wind" in answer.json()["error"]


BAD = [
    ("/v1/orchestrate", b"", 400),
    ("/v1/orchestrate", b"{", 400),
    ("/v1/orchestrate", b"\xff\xfe", 400),
    ("/v1/orchestrate", b'{"goal": "\\ud800"}', 400),
    ("/v1/orchestrate", b'{"goal": "\xff"}', 400),
    ("/v1/orchestrate", b'{"\xff": 1}', 400),
    ("/v1/orchestrate", b"[]", 422),
    ("/v1/orchestrate", b"[" * 90_000, 422),
    ("/v1/orchestrate", b"{}", 422),
    ("/v1/orchestrate", b'{"goal": ""}', 422),
    ("/v1/orchestrate", b'{"goal": 5}', 422),
    ("/v1/orchestrate", b'{"goal": "nul \\u0000"}', 422),
    ("/v1/orchestrate", b'{"goal": "x", "subtasks": 0}', 422),
    ("/v1/orchestrate", b'{"goal": "x", "subtasks": 21}', 422),
    ("/v1/orchestrate", b'{"goal": "x", "surprise": 1}', 422),
    ("/v1/orchestrate", b'{"goal": "x", "dedupe_key": ""}', 422),
    ("/v1/orchestrate", b'{"goal": "' + b"x" * 20_001 + b'"}', 422),
    ("/v1/orchestrate", b" " * 100_001, 413),
    ("/v1/messages", b'{"session": "s", "text": "\xff"}', 400),
    ("/v1/messages", b'{"session": "s"}', 422),
    ("/v1/messages", b'{"session": "s", "text": "\\u0000"}', 422),
    ("/v1/nothing", b"{}", 404),
]


@pytest.mark.parametrize("replicas", ["sqlite"], indirect=True)
async def test_a_bad_request_is_refused_and_changes_nothing(replicas: Replicas, http: Http) -> None:
    """A problem document of the four hundreds."""
    for path, body, status in BAD:
        answer = await http.post(path, content=body)
        assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM), (body[:50], answer.text)
        assert answer.json()["status"] == status
    assert (await replicas.app.acounts()).total == 0


@pytest.mark.parametrize("replicas", ["sqlite"], indirect=True)
async def test_bad_questions(replicas: Replicas, http: Http) -> None:
    """An id that is none, or not a plan's; a wait that makes no sense; no token, or another's."""
    turn, plan = replicas.turn("hello"), (await http.post("/v1/orchestrate", json={"goal": "Sail"})).json()["id"]
    expected = {
        "/v1/orchestrate/none-such": 404,
        f"/v1/orchestrate/{uuid4()}": 404,
        f"/v1/orchestrate/{turn.id}": 404,
        f"/v1/orchestrate/{plan}?wait=-1": 422,
        f"/v1/orchestrate/{plan}?wait=61": 422,
        f"/v1/orchestrate/{plan}?wait=nan": 422,
        f"/v1/orchestrate/{plan}?wait=soon": 422,
        f"/v1/orchestrate/{plan}?patience=1": 422,
        "/v1/orchestrate": 404,
        "/v1/jobs?status=lost": 422,
    }
    answers = {path: await http.get(path) for path in expected}
    assert {path: answer.status_code for path, answer in answers.items()} == expected
    assert {answer.headers["content-type"] for answer in answers.values()} == {PROBLEM}
    for token in ("", "Bearer", "Bearer wrong", f"Bearer {REMOTE_TOKEN}", f"Basic {TOKEN}", "Bearer ä"):
        headers = {b"Authorization": token.encode()}
        for answer in (
            await http.post("/v1/orchestrate", json={"goal": "Sail"}, headers=headers),
            await http.post("/v1/messages", json={"session": "s", "text": "t"}, headers=headers),
            await http.get(f"/v1/orchestrate/{plan}", headers=headers),
        ):
            assert (answer.status_code, answer.headers["content-type"]) == (401, PROBLEM)
    assert (await replicas.app.acounts()).total == 2


async def test_a_message_that_is_delivered_twice_is_one_turn(replicas: Replicas, http: Http) -> None:
    """The gateway's id of the message is the dedupe key."""
    message = {"session": "s", "text": "hello", "channel": "slack", "dedupe_key": "slack:C1:17"}
    first, second = [(await http.post("/v1/messages", json=message)).json() for _ in range(2)]
    assert (first["id"], first["created"], second["created"]) == (second["id"], True, False)
    await work(replicas)
    (turn,) = replicas.records.all("turn").values()
    assert (turn["text"], turn["channel"]) == ("hello", "slack")


async def test_a_signed_webhook_fires_a_trigger(replicas: Replicas, http: Http) -> None:
    """No token but a signature, once; then a turn."""
    body = json.dumps({"trigger": "deploy", "text": "release 7 is out"}).encode()
    del http.headers["Authorization"]
    assert (await http.post("/v1/triggers/agent", content=body)).status_code == 401
    forged = sign("another-secret-of-16", body)
    assert (await http.post("/v1/triggers/agent", content=body, headers=forged)).status_code == 401
    assert (await replicas.app.acounts()).total == 0
    signed = sign(SECRET, body)
    answer = await http.post("/v1/triggers/agent", content=body, headers=signed)
    assert (answer.status_code, answer.json()["type"]) == (202, "trigger-fire")
    assert (await http.post("/v1/triggers/agent", content=body, headers=signed)).status_code == 409
    await work(replicas)
    (turn,) = replicas.records.all("turn").values()
    assert (turn["session"], turn["text"]) == ("trigger deploy", "release 7 is out")


@contextmanager
def remote_agent() -> Iterator[tuple[str, Queue[dict[str, Any]]]]:
    """A server elsewhere that takes questions; what it was sent is in the queue."""
    questions: Queue[dict[str, Any]] = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(202)
            self.end_headers()
            questions.put({"agent": self.path.strip("/"), **json.loads(body)})

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", questions
        server.shutdown()


@asynccontextmanager
async def served(platform: Platform, door: socket.socket) -> AsyncIterator[None]:
    """The platform as the remote agents see it."""
    server = uvicorn.Server(uvicorn.Config(create_web(platform), log_level="warning"))
    serving = asyncio.create_task(server.serve(sockets=[door]))
    while not server.started:  # noqa: ASYNC110  (it has no event to wait for)
        await asyncio.sleep(0.01)
    yield
    server.should_exit = True
    await serving


async def test_remote_agents_are_asked_and_call_back(replicas: Replicas) -> None:
    """Dispatch-execute asks over HTTP; dispatch-synthesize comes when all have called back, and not before."""
    with remote_agent() as (address, questions), socket.create_server(("127.0.0.1", 0)) as door:
        own = f"http://127.0.0.1:{door.getsockname()[1]}"
        remotes = {name: f"{address}/{name}" for name in ("tokyo", "lima")}
        platform = replicas.another(remotes=remotes, public_url=own)
        async with served(platform, door), platform.app.worker(), Http(timeout=20) as client:
            turn = {"session": "s", "text": "ask tokyo, lima: is it raining?"}
            job = await platform.app.aenqueue("agent-turn", turn)
            await job.aresult(20)
            asked = [await asyncio.to_thread(questions.get, timeout=20) for _ in range(2)]
            assert {one["agent"]: one["question"] for one in asked} == dict.fromkeys(
                ("tokyo", "lima"), "is it raining?"
            )
            client.headers["Authorization"] = f"Bearer {REMOTE_TOKEN}"
            tokyo, lima = sorted(asked, key=lambda one: str(one["agent"]), reverse=True)
            assert (await client.post(tokyo["callback"], json={"output": "It is."})).status_code == 200
            assert (await client.post(tokyo["callback"], json={"output": "Or not."})).status_code == 409
            (execute,) = await platform.app.alist(type="dispatch-execute")
            with pytest.raises(TimeoutError):
                await execute.aresult(0.3)
            assert (await client.post(lima["callback"], json={"output": "Never."})).status_code == 200
            assert await execute.aresult(20) == "is it raining?:\n- It is.\n- Never."
            for id in (job.id, execute.id):  # that token is for replies, and opens nothing else
                assert (await client.get(f"{own}/v1/jobs/{id}")).status_code == 404


async def test_an_unknown_agent_is_a_failure_at_once(replicas: Replicas, http: Http) -> None:
    """With a reason that can be read, and without a reply that would be waited for."""
    replicas.turn("ask atlantis: are you there?")
    await work(replicas)
    (failed,) = (await http.get("/v1/jobs?status=failed&limit=20")).json()["jobs"]
    assert (failed["type"], failed["attempt"]) == ("dispatch-execute", 1)
    assert failed["error"] == "Fail: there is no remote agent atlantis; add it to AGENTS_REMOTES"
    assert len(await replicas.app.alist(type="dispatch-reply")) == 0
