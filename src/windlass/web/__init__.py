"""The HTTP API and its page, as an ASGI app. Mount it in your own app, or serve it with `windlass dashboard`.

A request passes the gate (host, token, size), the route and the endpoint, which calls the app.
"""

from __future__ import annotations

from ..errors import MissingExtra

try:
    import starlette as starlette
except ImportError as error:
    raise MissingExtra("windlass.web needs Starlette: pip install 'windlass[web]'") from error

from .access import Access, Scope
from .app import create_app
from .triggers import Trigger, sign

__all__ = ["Access", "Scope", "Trigger", "create_app", "sign"]
