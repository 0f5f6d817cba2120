"""The HTTP API and its page, as an ASGI app to mount in one's own, or to be served by `windlass dashboard`.

A request goes a straight way: the gate (whose host, who asks, how much), the route, the endpoint's own types, the app.
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
