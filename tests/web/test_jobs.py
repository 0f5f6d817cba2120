"""Jobs, chains, queues and the rest over HTTP, on each store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest
from uuid_utils.compat import uuid7

from windlass import Continue, Windlass

from .conftest import Client


async def enqueue(client: Any, **job: Any) -> dict[str, Any]:
    answer = await client.post("/v1/jobs", json={"type": "greet", "input": {"name": "Ada"}} | job)
    assert answer.status_code in (200, 201), answer.text
    facts: dict[str, Any] = answer.json()
    return facts


async def test_a_job_is_enqueued_run_and_read(app: Windlass, client: Client) -> None:
    http = client()
    job = await enqueue(http, queue="letters", priority=7, labels={"a": "b"})
    assert (job["state"], job["created"], job["queue"], job["priority"]) == ("pending", True, "letters", 7)
    await app.arun_worker(until_idle=True)
    answer = await http.get(f"/v1/jobs/{job['id']}")
    assert answer.headers["content-type"] == "application/json"
    done = answer.json()
    assert (done["state"], done["output"], done["labels"]) == ("completed", "hello Ada", {"a": "b"})


async def test_sent_twice_it_is_one(client: Client) -> None:
    http, id = client(), str(uuid4())
    first = await http.post("/v1/jobs", json={"type": "greet", "input": {"name": "x"}, "id": id})
    second = await http.post("/v1/jobs", json={"type": "greet", "input": {"name": "y"}, "id": id})
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json()["input"] == {"name": "x"}
    unique = {"unique": {"key": "k", "until": "finished"}}
    once, again = await enqueue(http, **unique), await enqueue(http, **unique)
    assert (again["id"], again["created"]) == (once["id"], False)


async def test_all_options_reach_the_job(app: Windlass, client: Client) -> None:
    http = client()
    before = await enqueue(http)
    run_at = datetime.now(UTC) + timedelta(days=1)
    job = await enqueue(
        http, run_at=run_at.isoformat(), order_key="o", after=[before["id"]], max_attempts=None, backoff="10s",
        timeout="1m", lease=90, expires="2d", keep="forever", tenant="acme", unique="u",
    )  # fmt: skip
    assert (job["state"], job["order_key"], job["max_attempts"], job["unique_key"]) == ("blocked", "o", None, "u")
    stored = await app.arequire(job["id"])
    assert stored.policy is not None
    assert (stored.policy.timeout_seconds, stored.policy.lease_seconds, stored.tenant) == (60, 90, "acme")
    assert abs(stored.run_at - run_at) < timedelta(milliseconds=2)


async def test_a_job_expires_at_a_moment_or_after_a_while(app: Windlass, client: Client) -> None:
    http = client()
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
    elsewhere = moment.astimezone(timezone(timedelta(hours=-3)))
    for text in (moment.isoformat(), f"{moment:%Y-%m-%dT%H:%M:%SZ}", elsewhere.isoformat()):
        assert (await app.arequire((await enqueue(http, expires=text))["id"])).expires_at == moment
    for length in ("PT2H", "2h", "7200", 7200):
        job = await app.arequire((await enqueue(http, expires=length))["id"])
        assert job.expires_at is not None
        assert abs(job.expires_at - job.created_at - timedelta(hours=2)) < timedelta(minutes=1)
    document = (await http.get("/openapi.json")).json()
    expires = document["components"]["schemas"]["JobRequest"]["properties"]["expires"]
    number, text = expires["anyOf"]
    assert (number["type"], text["type"], text["anyOf"][1]["format"]) == ("number", "string", "date-time")
    assert "moment with a timezone" in expires["description"]


async def test_the_newest_failures_with_their_errors(app: Windlass, client: Client) -> None:
    """The first that was enqueued is the last to fail."""
    late = await app.aenqueue("fail", {"reason": "late"}, delay="1h")
    for number in range(25):
        await app.aenqueue("fail", {"reason": f"reason {number}"})
    await app.aenqueue("greet", {"name": "Ada"})
    await app.arun_worker(until_idle=True, concurrency=1)
    await late.arun_now()
    await app.arun_worker(until_idle=True, concurrency=1)
    page = (await client("reader").get("/v1/jobs?status=failed&limit=20")).json()
    assert [job["error"] for job in page["jobs"]] == [
        f"ValueError: {reason}" for reason in ("late", *(f"reason {n}" for n in range(24, 5, -1)))
    ]
    rest = (await client().get("/v1/jobs", params={"status": "failed", "cursor": page["next_cursor"]})).json()
    assert [job["error"] for job in rest["jobs"]] == [f"ValueError: reason {n}" for n in range(5, -1, -1)]
    assert rest["next_cursor"] is None
    other = await client().get("/v1/jobs", params={"status": "failed", "cursor": late.id.hex})
    assert (other.status_code, other.json()["detail"].startswith("cursor")) == (422, True)


async def test_filters(client: Client) -> None:
    http = client()
    await enqueue(http, queue="a", tenant="acme")
    await enqueue(http, queue="b")

    async def found(**query: str) -> int:
        return len((await http.get("/v1/jobs", params=query)).json()["jobs"])

    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert [await found(queue="a"), await found(tenant="acme"), await found(type="greet")] == [1, 1, 2]
    assert [await found(type="other"), await found(status="running"), await found(since=tomorrow)] == [0, 0, 0]
    assert [await found(state="pending"), await found(state="failed")] == [2, 0]
    assert (await http.get("/v1/jobs", params={"state": "failed", "status": "pending"})).status_code == 422


async def test_a_job_is_cancelled_brought_back_made_due_completed_and_deleted(client: Client) -> None:
    http = client()
    job = await enqueue(http, delay="1h")
    path = f"/v1/jobs/{job['id']}"
    assert "not due until" in (await http.get(f"{path}/explain")).json()["explanation"]
    due = (await http.post(f"{path}/run-now")).json()
    assert due["run_at"] < job["run_at"]
    assert (await http.post(f"{path}/cancel")).json()["state"] == "cancelled"
    refused = await http.post(f"{path}/run-now")
    assert (refused.status_code, refused.headers["content-type"]) == (409, "application/problem+json")
    assert (await http.post(f"{path}/retry")).json()["state"] == "pending"
    done = await http.post(f"{path}/complete", json={"output": "by hand"})
    assert (done.json()["state"], done.json()["output"]) == ("completed", "by hand")
    assert (await http.post(f"{path}/complete", json={"output": "again"})).status_code == 409
    assert (await http.delete(path)).status_code == 204
    assert [(await http.get(path)).status_code, (await http.delete(path)).status_code] == [404, 404]


async def test_a_job_that_others_wait_for_is_not_deleted(client: Client) -> None:
    http = client()
    job = await enqueue(http)
    await enqueue(http, after=[job["id"]])
    refused = await http.delete(f"/v1/jobs/{job['id']}")
    assert refused.status_code == 409
    assert "waits" in refused.json()["detail"]


async def test_a_chain(app: Windlass, client: Client) -> None:
    @app.task
    def begin(n: int) -> int | Continue:
        return Continue(begin.call(n - 1)) if n else 7

    first = await begin.aenqueue(4)
    await app.arun_worker(until_idle=True)
    http = client()
    chain = (await http.get(f"/v1/chains/{first.id}?limit=2")).json()
    assert (chain["state"], chain["output"], [job["chain_index"] for job in chain["jobs"]]) == ("completed", 7, [4, 3])
    rest = (await http.get(f"/v1/chains/{first.id}", params={"cursor": chain["next_cursor"]})).json()
    assert [job["chain_index"] for job in rest["jobs"]] == [2, 1, 0]


async def test_a_chain_whose_ids_were_made_by_clocks_that_differ(app: Windlass, client: Client) -> None:
    @app.task
    def last() -> int:
        return 7

    @app.task
    def first() -> Continue:
        return Continue(last.call())

    ahead = UUID(int=uuid7().int + (60_000 << 80))  # by a minute
    job = await first.using(id=ahead).aenqueue()
    await app.arun_worker(until_idle=True)
    chain = (await client().get(f"/v1/chains/{job.id}")).json()
    assert (chain["output"], [one["type"] for one in chain["jobs"]]) == (7, ["last", "first"])


async def test_queues_workers_schedules_stats(app: Windlass, client: Client) -> None:
    http = client()
    app.schedule("0 3 * * *", app.tasks["greet"].call("Ada"), name="nightly")
    job = await enqueue(http)
    assert (await http.post("/v1/queues/mail/pause")).json() == {"name": "mail", "paused": True}
    assert (await http.post("/v1/queues/a%2Fb c/pause")).json() == {"name": "a/b c", "paused": True}
    queues = {one["name"]: one for one in (await http.get("/v1/queues")).json()["queues"]}
    assert (queues["mail"]["paused"], queues["mail"]["pending"], queues["a/b c"]["paused"]) == (True, 1, True)
    assert (await http.post("/v1/queues/mail/resume")).json()["paused"] is False
    async with app.worker(concurrency=3):
        await app.aresults([job["id"]], timeout=20)
        workers = (await http.get("/v1/workers")).json()["workers"]
    assert [worker["concurrency"] for worker in workers] == [3]
    (schedule,) = (await http.get("/v1/schedules")).json()["schedules"]
    assert (schedule["name"], len(schedule["next"])) == ("nightly", 5)
    stats = (await http.get("/v1/stats")).json()
    assert stats["types"]["greet"]["completed"] == 1
    assert (await http.get("/healthz")).json() == {"status": "ok"}


@pytest.mark.one_store
@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ('{"type": "greet", "input": {"name": 5}}', 422, "name"),
        ('{"type": "greet", "input": {"name": "x", "nobody": 1}}', 422, "nobody"),
        ('{"type": "greet", "input": [1]}', 422, "object"),
        ('{"type": "greet", "input": {"name": "a", "name": "b"}}', 422, "name"),
        ('{"type": "greet", "input": {"name": "\\u0000"}}', 422, "NUL"),
        ('{"type": "greet", "input": {"name": NaN}}', 400, "JSON"),
        ('{"type": "", "input": {}}', 422, "type"),
        ('{"type": "greet", "surprise": 1}', 422, "surprise"),
        ('{"type": "greet", "input": {"name": "x"}, "priority": 101}', 422, "priority"),
        ('{"type": "greet", "input": {"name": "x"}, "run_at": "2026-01-01T00:00:00"}', 422, "run_at"),
        ('{"type": "greet", "input": {"name": "x"}, "run_at": "0001-01-01T00:00:00+23:59"}', 422, "1 to 9999"),
        ('{"type": "greet", "input": {"name": "x"}, "run_at": "9999-12-31T23:59:59-23:59"}', 422, "1 to 9999"),
        ('{"type": "greet", "input": {"name": "x"}, "delay": "soon"}', 422, "soon"),
        ('{"type": "greet", "input": {"name": "x"}, "expires": "2099-01-01T00:00:00"}', 422, "expires"),
        ('{"type": "greet", "input": {"name": "x"}, "expires": "2099-01-01"}', 422, "expires"),
        ('{"type": "greet", "input": {"name": "x"}, "expires": "9999-12-31T23:59:59-23:59"}', 422, "1 to 9999"),
        ('{"type": "greet", "input": {"name": "x"}, "expires": "-1h"}', 422, "duration"),
        ('{"type": "greet", "input": {"name": "x"}, "delay": 1e300}', 422, "duration"),
        ('{"type": "greet", "input": {"name": "x"}, "after": ["00000000-0000-4000-8000-000000000000"]}', 404, "exist"),
        ('{"type": "other", "input": {"n": 123456789012345678901234567890}}', 422, "64"),
        ("[" * 100_000, 422, "array"),
        ('{"type": "other", "input": ' + '{"a":' * 100_000 + "1" + "}" * 100_001, 400, ""),
        ("{", 400, "JSON"),
        ("", 422, "type"),
    ],
)
async def test_a_bad_request_is_refused_and_changes_nothing(
    app: Windlass, client: Client, body: str, status: int, says: str
) -> None:
    answer = await client().post("/v1/jobs", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == status
    assert says in problem["detail"]
    assert (await app.acounts()).total == 0


BODIES = [
    ("application/json", b'{"surprise": 1}', 422),
    ("application/json", b"[1]", 422),
    ("application/json", b"{", 400),
    ("application/json", b'{"\xff": 1}', 400),
    ("text/plain", b"{{{", 415),
]


@pytest.mark.one_store
async def test_a_body_where_none_is_taken_is_refused_and_changes_nothing(app: Windlass, client: Client) -> None:
    http = client()
    pending, cancelled = await enqueue(http, delay="1h"), await enqueue(http)
    await app.acancel(cancelled["id"])
    await app.apause("held")
    changes = [
        ("POST", f"/v1/jobs/{pending['id']}/run-now"),
        ("POST", f"/v1/jobs/{pending['id']}/cancel"),
        ("POST", f"/v1/jobs/{cancelled['id']}/retry"),
        ("POST", "/v1/queues/mail/pause"),
        ("POST", "/v1/queues/held/resume"),
        ("DELETE", f"/v1/jobs/{cancelled['id']}"),
    ]
    for method, path in changes:
        for media, body, status in BODIES:
            answer = await http.request(method, path, content=body, headers={"content-type": media})
            assert (answer.status_code, answer.json()["status"]) == (status, status), (path, body, answer.text)
    unchanged = await app.arequire(pending["id"])
    assert (unchanged.state, unchanged.run_at.isoformat()[:19]) == ("pending", pending["run_at"][:19])
    assert (await app.arequire(cancelled["id"])).state == "cancelled"
    assert list(await app.apaused()) == ["held"]
    for method, path in changes:
        media, body = ("application/json", b"{}") if "run-now" in path else ("text/plain", b"")
        answer = await http.request(method, path, content=body, headers={"content-type": media})
        assert answer.status_code in (200, 204), (path, answer.text)


@pytest.mark.one_store
async def test_bad_questions(app: Windlass, client: Client) -> None:
    http = client()
    unknown = f"/v1/jobs/{uuid4()}"
    expected = {
        "/v1/jobs?status=lost": 422,
        "/v1/jobs?limit=0": 422,
        "/v1/jobs?limit=1001": 422,
        "/v1/jobs?limit=many": 422,
        "/v1/jobs?surprise=1": 422,
        "/v1/stats?surprise=1": 422,
        "/v1/jobs?limit=1&limit=2": 400,
        "/v1/jobs?cursor=nonsense": 422,
        "/v1/jobs?queue=" + "q" * 9000: 414,
        "/v1/jobs?since=yesterday": 422,
        "/v1/jobs?queue=%00": 422,
        "/v1/jobs/none-such": 404,
        unknown: 404,
        f"{unknown}/explain": 404,
        f"/v1/chains/{uuid4()}": 404,
        "/v1/nothing": 404,
    }
    assert {path: (await http.get(path)).status_code for path in expected} == expected
    for action in ("retry", "cancel", "run-now", "complete"):
        assert (await http.post(f"{unknown}/{action}")).status_code == 404
    not_allowed = await http.delete("/v1/jobs")
    assert (not_allowed.status_code, not_allowed.json()["status"]) == (405, 405)
    assert (await http.post("/v1/jobs", content="type=greet")).status_code == 415
    too_large = await http.post("/v1/jobs", json={"type": "other", "input": {"text": "x" * 2_000_000}})
    assert too_large.status_code == 413
    large = await http.post("/v1/jobs", json={"type": "other", "input": {"text": "x" * 1_100_000}})
    assert large.status_code == 422
    assert (await http.post(f"/v1/queues/{'q' * 201}/pause")).status_code == 422
    assert (await app.acounts()).total == 0


async def test_schedules_are_paused_resumed_and_run(app: Windlass, client: Client) -> None:
    await app.aschedule("0 3 * * *", app.call("nightly"), name="a/b")
    http = client()
    assert (await http.post("/v1/schedules/a%2Fb/pause")).json() == {"name": "a/b", "paused": True}
    assert (await http.get("/v1/schedules")).json()["schedules"][0]["paused"] is True
    assert (await http.post("/v1/schedules/a%2Fb/resume")).json() == {"name": "a/b", "paused": False}
    run = await http.post("/v1/schedules/a%2Fb/run")
    assert (run.status_code, run.json()["type"], run.json()["state"]) == (201, "nightly", "pending")
    for act in ("pause", "resume", "run"):
        assert (await http.post(f"/v1/schedules/none/{act}")).status_code == 404
