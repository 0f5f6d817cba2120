"""Who may do what: tokens, scopes, tenants, hosts, origins."""

from __future__ import annotations

import base64
from typing import Any
from uuid import uuid4

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from windlass import Continue, InvalidInput, Windlass
from windlass.web import Access, Trigger, create_app
from windlass.web.access import WRONG_AT_ONCE
from windlass.web.endpoints import ENDPOINTS
from windlass.web.pages import PAGES

from .conftest import Client

pytestmark = pytest.mark.one_store  # most of this does not depend on which

ROUTES = [(one.method, one.path) for one in ENDPOINTS] + [("GET", path) for path in PAGES]
JOB = {"type": "greet", "input": {"name": "Ada"}}


def filled(path: str) -> str:
    return path.replace("{id}", "0" * 32).replace("{name:path}", "mail").replace("{name}", "deploy")


@pytest.mark.parametrize("credential", [None, "Bearer wrong", "Bearer ", "Basic bWFzdGVyOg==", "master"])
async def test_every_route_wants_a_token(web: Starlette, credential: str | None) -> None:
    routes = {(method, route.path) for route in web.routes for method in route.methods - {"HEAD"}}  # type: ignore[attr-defined]
    assert routes == set(ROUTES)
    for method, path in ROUTES:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://localhost") as http:
            headers = {} if credential is None else {"Authorization": credential}
            answer = await http.request(method, filled(path), headers=headers)
            assert answer.status_code in ((401,) if credential is None else (401, 429)), (method, path)
            assert answer.headers["content-type"] == "application/problem+json"


async def test_an_unknown_path_is_not_revealed_without_a_token(client: Client) -> None:
    assert (await client(None).get("/v1/anything")).status_code == 401


async def test_a_browser_may_ask_for_a_password(client: Client) -> None:
    http = client(None)
    refused = await http.get("/", headers={"Accept": "text/html"})
    assert refused.headers["www-authenticate"].startswith("Basic")
    password = base64.b64encode(b"anybody:master").decode()
    assert (await http.get("/", headers={"Authorization": f"Basic {password}"})).status_code == 200


async def test_scopes(client: Client) -> None:
    reader, operator = client("reader"), client("operator")
    assert (await reader.get("/v1/jobs")).status_code == 200
    assert (await reader.post("/v1/jobs", json=JOB)).status_code == 403
    job = (await operator.post("/v1/jobs", json=JOB)).json()
    assert (await operator.delete(f"/v1/jobs/{job['id']}")).status_code == 403
    assert (await client().delete(f"/v1/jobs/{job['id']}")).status_code == 204


async def test_read_only(app: Windlass, client: Client) -> None:
    http = client(to=create_app(app, token="master", read_only=True))
    assert (await http.get("/v1/jobs")).status_code == 200
    assert (await http.post("/v1/jobs", json=JOB)).status_code == 403


@pytest.mark.every_store
async def test_a_tenant_sees_its_own_jobs_only(app: Windlass, client: Client) -> None:
    acme, http = client("of-acme"), client()
    own = (await acme.post("/v1/jobs", json=JOB)).json()
    other, unknown = (await http.post("/v1/jobs", json=JOB | {"tenant": "other"})).json(), str(uuid4())
    assert own["tenant"] == "acme"
    assert [job["id"] for job in (await acme.get("/v1/jobs")).json()["jobs"]] == [own["id"]]
    assert (await acme.get("/v1/jobs?tenant=other")).status_code == 403
    assert (await acme.post("/v1/jobs", json=JOB | {"tenant": "other"})).status_code == 403
    assert (await acme.post("/v1/jobs", json=JOB | {"id": other["id"]})).status_code == 409
    for method, path in ROUTES:
        if "{id}" in path:
            answer, missing = [await acme.request(method, path.replace("{id}", id)) for id in (other["id"], unknown)]
            assert (answer.status_code, missing.status_code) == (404, 404), (method, path)
            assert answer.json()["detail"].replace(other["id"], unknown) == missing.json()["detail"], (method, path)
        if path in ("/v1/queues", "/v1/stats", "/v1/workers", "/v1/schedules", "/v1/events"):
            assert (await acme.get(path)).status_code == 403
    assert other["id"] not in (await acme.get("/")).text
    assert (await app.arequire(other["id"])).state == "pending"


@pytest.mark.every_store
async def test_a_tenant_cannot_wait_for_anothers_job_nor_see_it_in_a_chain(app: Windlass, client: Client) -> None:
    @app.task
    def theirs() -> str:
        return "a secret of theirs"

    @app.task
    def ours() -> Continue:
        return Continue(theirs.using(tenant="other").call())

    acme = client("of-acme")
    other = (await client().post("/v1/jobs", json=JOB | {"tenant": "other"})).json()
    unknown, foreign = [await acme.post("/v1/jobs", json=JOB | {"after": [id]}) for id in (str(uuid4()), other["id"])]
    assert (unknown.status_code, foreign.status_code) == (404, 404)
    assert unknown.json()["detail"].partition(":")[2] == foreign.json()["detail"].partition(":")[2]
    job = await ours.using(tenant="acme").aenqueue()
    await app.arun_worker(until_idle=True)
    chain = (await acme.get(f"/v1/chains/{job.id}")).json()
    assert (chain["state"], chain["output"], [one["type"] for one in chain["jobs"]]) == ("completed", None, ["ours"])
    assert (await acme.delete(f"/v1/jobs/{job.id}")).status_code == 403
    assert (await client().get(f"/v1/chains/{job.id}")).json()["output"] == "a secret of theirs"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://["},
        {"Authorization": "Basic \u00e9"},
        {"Authorization": "Basic ===="},
        {"Content-Length": "\u00b2"},
        {"Content-Length": "-1"},
        {"Host": "["},
    ],
)
async def test_headers_that_make_no_sense_are_refused(web: Starlette, headers: dict[str, str]) -> None:
    """As they come from the line, without what a client would do to them."""
    given = {"Host": "localhost", "Content-Type": "application/json"} | headers
    scope = {
        "type": "http", "method": "POST", "path": "/v1/jobs", "raw_path": b"/v1/jobs", "query_string": b"",
        "root_path": "", "scheme": "http", "http_version": "1.1", "client": ("10.0.0.9", 1), "server": ("h", 80),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()],
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await web(scope, receive, send)
    assert 400 <= sent[0]["status"] < 500


async def test_wrong_tokens_are_slowed_down(client: Client) -> None:
    guesser = client("wrong", address="10.0.0.1")
    answers: list[int] = []
    while 429 not in answers and len(answers) < WRONG_AT_ONCE + 100:  # each second that this takes allows one more
        answers.append((await guesser.get("/v1/jobs")).status_code)
    assert answers[:WRONG_AT_ONCE] == [401] * WRONG_AT_ONCE
    assert answers[-1] == 429
    assert (await client(address="10.0.0.2").get("/v1/jobs")).status_code == 200


async def test_without_a_token_only_this_machine_is_answered(
    app: Windlass, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WINDLASS_TOKEN", raising=False)
    open_to_us = create_app(app)
    assert (await client(None, to=open_to_us).get("/v1/jobs")).status_code == 200
    assert (await client(None, address="192.0.2.1", to=open_to_us).get("/v1/jobs")).status_code == 401
    monkeypatch.setenv("WINDLASS_TOKEN", "from-outside")
    closed = create_app(app)
    assert (await client(None, to=closed).get("/v1/jobs")).status_code == 401
    assert (await client("from-outside", to=closed).get("/v1/jobs")).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:80", 200),
        ("127.0.0.1:8023", 200),
        ("[::1]:8023", 200),
        ("jobs", 200),
        ("jobs.example.org", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
async def test_a_host_that_is_not_ours_is_not_served(app: Windlass, client: Client, host: str, status: int) -> None:
    http = client(to=create_app(app, token="master", allowed_hosts=["jobs.example.org"]))
    assert (await http.get("/v1/jobs", headers={"Host": host})).status_code == status


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"Origin": "http://localhost:8023", "X-Windlass": "1"}, True),
        ({"Sec-Fetch-Site": "same-origin", "X-Windlass": "1"}, True),
        ({"Origin": "http://localhost:8023"}, False),
        ({"Origin": "http://evil.example", "X-Windlass": "1"}, False),
        ({"Origin": "null", "X-Windlass": "1"}, False),
        ({"Sec-Fetch-Site": "cross-site", "X-Windlass": "1"}, False),
        ({"Sec-Fetch-Site": "same-site", "X-Windlass": "1"}, False),
    ],
)
async def test_a_foreign_page_changes_nothing(
    app: Windlass, client: Client, headers: dict[str, str], allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WINDLASS_TOKEN", raising=False)
    answer = await client(None, to=create_app(app)).post("/v1/jobs", json=JOB, headers=headers)
    assert answer.status_code == (201 if allowed else 403)
    assert (await app.acounts()).total == int(allowed)


async def test_what_every_answer_carries(client: Client) -> None:
    for answer in (await client().get("/"), await client(None).get("/"), await client().get("/v1/jobs")):
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers


async def test_it_can_be_mounted_under_a_path(app: Windlass, web: Starlette, client: Client) -> None:
    http = client(to=Starlette(routes=[Mount("/queue", web)]))
    assert (await http.get("/queue/v1/jobs")).status_code == 200
    assert "href='/queue/style.css'" in (await http.get("/queue/")).text
    assert (await http.get("/queue/openapi.json")).json()["servers"] == [{"url": "/queue"}]
    outside = client(None, to=Starlette(routes=[Mount("/queue", web)]))
    assert (await outside.post("/queue/v1/triggers/deploy")).json()["detail"].startswith("the name of the trigger")


HOSTILE = [
    "<script>alert(1)</script>",
    "'\"><img src=x onerror=alert(1)>",
    "javascript:alert(1)",
    "\u202e\u0007\u001b[31m",
]


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_strings_are_text(app: Windlass, client: Client, text: str) -> None:
    http = client()
    job = (await http.post("/v1/jobs", json={"type": "fail", "input": {"reason": text}, "queue": text})).json()
    await app.arun_worker(until_idle=True)
    page = (await http.get("/")).text
    assert "<script" not in page
    assert "<img" not in page
    assert (await http.get(f"/v1/jobs/{job['id']}")).json()["queue"] == text
    assert (await http.get("/v1/jobs", params={"queue": text})).json()["jobs"][0]["id"] == job["id"]


@pytest.mark.parametrize(
    "options",
    [
        {"token": ""},
        {"token": "with space"},
        {"tokens": {"x": "everything"}},
        {"tokens": {"": "read"}},
        {"triggers": {"deploy": "greet"}},
        {"read_only": True, "triggers": {"deploy": Trigger("greet", "x" * 20)}},
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], tmp_path: Any) -> None:
    with pytest.raises(InvalidInput):
        create_app(Windlass(f"sqlite:///{tmp_path}/jobs.db"), **options)
    with pytest.raises(InvalidInput):
        Access("read", tenant="")
    with pytest.raises(InvalidInput):
        Trigger("greet", "short")
    with pytest.raises(InvalidInput):
        Trigger("greet", "x" * 20, {"unique": "key"})
