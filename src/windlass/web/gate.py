"""The gate checks every request before its route: host, origin, token and size.

It protects against foreign web pages that make a user's browser send requests here (CSRF, DNS rebinding). Such a page
cannot add our header and cannot hide its origin. A host name that an attacker points at this machine has a dot in it;
local names have none.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .access import Tokens, WrongTokens
from .problems import Problem

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
CHANGE_HEADER = "x-windlass"
MOST_QUERY_BYTES = 8192
TRIGGER_PATH = "/v1/triggers/"  # requests to this path have a signature instead of a token
PROTECTION = [
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]

Headers: TypeAlias = dict[str, str]  # the first value, if a header was sent twice


class Gate:
    """ASGI middleware. It puts `access` into the request's state."""

    def __init__(self, app: ASGIApp, *, tokens: Tokens, hosts: Collection[str], most_bytes: int) -> None:
        self.app, self.tokens, self.most_bytes = app, tokens, most_bytes
        self.hosts = {host.lower() for host in hosts}
        self.wrong_tokens = WrongTokens()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        send = _protected(send)
        try:
            given = reversed(list(scope["headers"]))
            headers: Headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in given}
            self._check_host(headers.get("host", ""))
            self._check_origin(scope, headers)
            if len(scope.get("query_string", b"")) > MOST_QUERY_BYTES:
                detail = f"the query has more than {MOST_QUERY_BYTES} bytes; send fewer parameters"
                raise Problem(HTTPStatus.REQUEST_URI_TOO_LONG, detail)
            scope.setdefault("state", {})["access"] = self._access(scope, headers)
            await self.app(scope, self._bounded(headers, receive), send)
        except Problem as problem:
            await problem.response()(scope, receive, send)

    def _check_host(self, host: str) -> None:
        name = _host_name(host)
        if name in self.hosts or _is_local_name(name):
            return
        detail = f"{name or 'no host'!r} is not a name of this server; add it to allowed_hosts (--allow-host)"
        raise Problem(HTTPStatus.MISDIRECTED_REQUEST, detail)

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        """A browser may send a change only from our own page, with our header."""
        if scope["method"] in SAFE_METHODS:
            return
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is None and site is None:
            return  # the client is no browser
        foreign = site not in (None, "same-origin", "none")
        if origin is not None and _authority(origin) != headers.get("host", "").lower():
            foreign = True
        if foreign or (CHANGE_HEADER not in headers and "authorization" not in headers):
            detail = f"a browser's change must be same-origin and have the header {CHANGE_HEADER}"
            raise Problem(HTTPStatus.FORBIDDEN, detail)

    def _access(self, scope: Scope, headers: Headers) -> Any:
        address = str((scope.get("client") or ("", 0))[0])
        given = headers.get("authorization")
        if self.tokens.anonymous is not None:
            if _is_remote(address):
                raise _unauthorized(
                    headers, "the server has no token, so it answers only its own machine; start it with a token"
                )
            return self.tokens.anonymous
        if given is None:
            if _path_in_app(scope).startswith(TRIGGER_PATH) and scope["method"] == "POST":
                return None
            raise _unauthorized(headers, "the request has no token; send the header Authorization: Bearer …")
        if not self.wrong_tokens.may_try(address):
            detail = "too many wrong tokens from this address; wait a second"
            raise Problem(HTTPStatus.TOO_MANY_REQUESTS, detail, headers={"Retry-After": "1"})
        access = self.tokens.find(given)
        if access is None:
            self.wrong_tokens.add(address)
            raise _unauthorized(headers, "this token is not known; check it")
        return access

    def _bounded(self, headers: Headers, receive: Receive) -> Receive:
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or len(length) > 15 or int(length) > self.most_bytes:
            raise self._too_large()
        received = 0

        async def bounded() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.most_bytes:
                raise self._too_large()
            return message

        return bounded

    def _too_large(self) -> Problem:
        return Problem(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is too large; send at most {self.most_bytes} bytes"
        )


def _protected(send: Send) -> Send:
    async def protected(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = message["headers"]
            names = {name for name, _ in given}
            message["headers"] = [*given, *(one for one in PROTECTION if one[0] not in names)]
        await send(message)

    return protected


def _unauthorized(headers: Headers, detail: str) -> Problem:
    """For a browser the scheme is Basic: then it asks its user for a password."""
    scheme = "Basic" if "text/html" in headers.get("accept", "") else "Bearer"
    return Problem(HTTPStatus.UNAUTHORIZED, detail, headers={"WWW-Authenticate": f'{scheme} realm="windlass"'})


def _authority(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _path_in_app(scope: Scope) -> str:
    """The path without the prefix under which this app is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] if root and path.startswith(root) else path


def _host_name(host: str) -> str:
    """The host without its port. An IPv6 address has brackets."""
    if host.startswith("["):
        return host[1 : host.find("]")].lower()
    return host.partition(":")[0].lower().rstrip(".")


def _is_local_name(name: str) -> bool:
    """Whether it is an address or a name that cannot be registered. No foreign page can have such an origin."""
    return bool(name) and ("." not in name or name.endswith(".localhost") or _address(name) is not None)


def _is_remote(client: str) -> bool:
    address = _address(client)
    return address is not None and not address.is_loopback


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
