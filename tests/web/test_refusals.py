"""What the state of a job refuses, over HTTP."""

from __future__ import annotations

from .conftest import Client
from .test_jobs import enqueue


async def test_a_blocked_job_cannot_be_run_now(client: Client) -> None:
    http = client()
    first = await enqueue(http, delay="1h")
    blocked = await enqueue(http, after=[first["id"]])
    refused = await http.post(f"/v1/jobs/{blocked['id']}/run-now")
    assert refused.status_code == 409
    assert "blocked" in refused.json()["detail"]
    assert (await http.get(f"/v1/jobs/{blocked['id']}")).json()["state"] == "blocked"
