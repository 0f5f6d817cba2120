"""The document describes what is there, and nothing that fits it, or does not, breaks the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from windlass import Windlass
from windlass.web import create_app
from windlass.web.endpoints import ENDPOINTS

from .conftest import Client, with_tasks

TOKEN = {"Authorization": "Bearer master"}
ENDLESS = "/v1/events"
CHECKS: Any = [not_a_server_error, response_schema_conformance, status_code_conformance]


@pytest.fixture
def operations(fresh_sqlite_url: str) -> Iterator[list[Any]]:
    app = with_tasks(fresh_sqlite_url)
    web = create_app(app, token="master")
    document = schemathesis.openapi.from_asgi("/openapi.json", web, headers=TOKEN)
    yield [found.ok() for found in document.exclude(path=ENDLESS).get_all_operations()]  # type: ignore[union-attr]
    app.close()


@pytest.mark.timeout(300)
def test_nothing_that_is_sent_breaks_it(operations: list[Any]) -> None:
    """What the document allows, and what it does not: never a 5xx, and always what the document says."""
    assert len(operations) == len(ENDPOINTS) - 1
    for operation in operations:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            try:
                cases = operation.as_strategy(generation_mode=mode)
            except Unsatisfiable:
                continue

            @given(case=cases)
            @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), database=None)
            def send(case: Any) -> None:
                case.call_and_validate(headers=TOKEN, checks=CHECKS)

            send()


async def test_the_document_names_every_endpoint(app: Windlass, client: Client) -> None:
    document = (await client().get("/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    promised = """/v1/jobs /v1/jobs/{id} /v1/jobs/{id}/retry /v1/jobs/{id}/cancel /v1/jobs/{id}/run-now
        /v1/jobs/{id}/complete /v1/jobs/{id}/explain /v1/jobs/{id}/blockers /v1/jobs/{id}/dependents
        /v1/chains /v1/chains/{id} /v1/queues /v1/workers /v1/schedules /v1/stats
        /v1/queues/{name}/pause /v1/queues/{name}/resume
        /v1/schedules/{name}/pause /v1/schedules/{name}/resume /v1/schedules/{name}/run
        /v1/triggers/{name} /v1/events /healthz""".split()
    assert set(document["paths"]) == set(promised)
    page = (await client().get("/docs")).text
    assert all(path in page for path in promised)
