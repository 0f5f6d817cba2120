"""Blockers, dependents and chains over HTTP, on each store."""

from __future__ import annotations

from uuid import uuid4

from windlass import Windlass

from .conftest import Client


async def test_what_a_job_waits_for_and_what_waits_for_it(app: Windlass, client: Client) -> None:
    http = client()
    one = await app.aenqueue("greet", {"name": "Ada"})
    bad = await app.aenqueue("fail")
    answer = await http.post(
        "/v1/jobs",
        json={"type": "greet", "input": {"name": "x"}, "after": [str(one.id), str(bad.id)], "if_failed": "run"},
    )
    job = answer.json()
    assert (answer.status_code, job["state"], job["if_failed"]) == (201, "blocked", "run")
    await app.arun_worker(until_idle=True)
    blockers = (await http.get(f"/v1/jobs/{job['id']}/blockers")).json()["blockers"]
    assert [(each["id"], each["done"], each["failed"], each["output"]) for each in blockers] == [
        (str(one.id), True, False, "hello Ada"),
        (str(bad.id), True, True, None),
    ]
    assert [each["job"]["state"] for each in blockers] == ["completed", "failed"]
    page = (await http.get(f"/v1/jobs/{one.id}/dependents")).json()
    assert ([each["id"] for each in page["jobs"]], page["next_cursor"]) == ([job["id"]], None)
    for path in ("blockers", "dependents"):
        assert (await http.get(f"/v1/jobs/{uuid4()}/{path}")).status_code == 404


async def test_pages_of_dependents(app: Windlass, client: Client) -> None:
    http = client()
    one = await app.aenqueue("greet", {"name": "Ada"}, delay="1h")
    jobs = [str((await app.aenqueue("greet", {"name": "x"}, after=[one])).id) for _ in range(3)]
    first = (await http.get(f"/v1/jobs/{one.id}/dependents?limit=2")).json()
    second = (await http.get(f"/v1/jobs/{one.id}/dependents?limit=2&cursor={first['next_cursor']}")).json()
    assert [each["id"] for each in first["jobs"] + second["jobs"]] == jobs
    assert second["next_cursor"] is None
    assert (await http.get(f"/v1/jobs/{one.id}/dependents?cursor=x")).status_code == 422


async def test_chains(app: Windlass, client: Client) -> None:
    http = client()
    done, bad = await app.aenqueue("greet", {"name": "Ada"}), await app.aenqueue("fail")
    await app.arun_worker(until_idle=True)
    page = (await http.get("/v1/chains")).json()
    assert [(each["id"], each["state"], each["steps"]) for each in page["chains"]] == [
        (str(bad.id), "failed", 1),
        (str(done.id), "completed", 1),
    ]
    (chain,) = (await http.get("/v1/chains?state=failed&type=fail")).json()["chains"]
    assert (chain["job"]["error"], chain["job"]["id"]) == ("ValueError: broken", str(bad.id))
    first = (await http.get("/v1/chains?limit=1")).json()
    assert (await http.get(f"/v1/chains?cursor={first['next_cursor']}")).json()["chains"][0]["id"] == str(done.id)
    for wrong in ("state=lost", "limit=0", "cursor=x", "status=failed"):
        assert (await http.get(f"/v1/chains?{wrong}")).status_code == 422


async def test_a_tenant_sees_its_own(app: Windlass, client: Client) -> None:
    http = client("of-acme")
    other = await app.aenqueue("greet", {"name": "Eve"}, tenant="other")
    mine = await app.aenqueue("greet", {"name": "Ada"}, tenant="acme", after=[other])
    theirs = await app.aenqueue("greet", {"name": "Eve"}, tenant="other", after=[mine])
    (blocker,) = (await http.get(f"/v1/jobs/{mine.id}/blockers")).json()["blockers"]
    assert (blocker["output"], blocker["job"]) == (None, None)
    assert (await http.get(f"/v1/jobs/{mine.id}/dependents")).json()["jobs"] == []
    assert [each["id"] for each in (await http.get("/v1/chains")).json()["chains"]] == [str(mine.id)]
    assert (await http.get("/v1/chains?tenant=other")).status_code == 403
    for path in ("blockers", "dependents"):
        assert (await http.get(f"/v1/jobs/{theirs.id}/{path}")).status_code == 404
    assert (await http.delete(f"/v1/jobs/{mine.id}?cascade=true")).status_code == 403


async def test_a_job_is_deleted_with_what_it_waited_for(app: Windlass, client: Client) -> None:
    http = client()
    one = await app.aenqueue("greet", {"name": "Ada"}, delay="1h")
    jobs = [await app.aenqueue("greet", {"name": "x"}, after=[one]) for _ in range(2)]
    assert (await http.delete(f"/v1/jobs/{one.id}?cascade=true")).status_code == 409
    assert (await http.delete(f"/v1/jobs/{jobs[0].id}?cascade=true")).status_code == 204
    assert {job.id for job in await app.alist()} == {one.id, jobs[1].id}
    assert (await http.delete(f"/v1/jobs/{jobs[1].id}?cascade=true")).status_code == 204
    assert len(await app.alist()) == 0
    assert (await http.delete(f"/v1/jobs/{one.id}?cascade=maybe")).status_code == 422
