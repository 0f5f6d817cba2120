"""An app with two tasks, and clients that have different tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from starlette.applications import Starlette

from windlass import Attempt, Windlass
from windlass.web import Access, Trigger, create_app

SECRET = "a secret of a trigger"
TOKENS = {"reader": Access("read"), "operator": Access("operate"), "of-acme": Access("admin", tenant="acme")}

Client = Callable[..., httpx.AsyncClient]


def with_tasks(url: str) -> Windlass:
    app = Windlass(url)

    @app.task(queue="mail")
    def greet(name: str) -> str:
        return f"hello {name}"

    @app.task(max_attempts=1)
    def fail(attempt: Attempt, reason: str = "broken") -> None:
        raise ValueError(reason)

    return app


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[Windlass]:
    app = with_tasks(store_url)
    yield app
    await app.aclose()


@pytest.fixture
def web(app: Windlass) -> Starlette:
    triggers = {"deploy": Trigger("greet", SECRET), "nightly": Trigger("greet", SECRET, {"queue": "night"})}
    return create_app(app, token="master", tokens=TOKENS, triggers=triggers)


@pytest.fixture
async def client(web: Starlette) -> AsyncIterator[Client]:
    clients: list[httpx.AsyncClient] = []

    def make(token: str | None = "master", address: str = "127.0.0.1", to: Starlette = web) -> httpx.AsyncClient:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        transport = httpx.ASGITransport(to, raise_app_exceptions=False, client=(address, 1234))
        clients.append(httpx.AsyncClient(transport=transport, base_url="http://localhost:8023", headers=headers))
        return clients[-1]

    yield make
    for one in clients:
        await one.aclose()
