"""The gate, before any route: which host was asked for, who asks, from where, and how much they send.

A page elsewhere can make a browser send requests here. It cannot make it send a header of ours, nor hide where the
request comes from; and a name that it has pointed at this machine has a dot in it, unlike those that are only ours.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from http import HTTPStatus
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .access import Attempts, Tokens
from .problems import Problem

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
CHANGE_HEADER = "x-windlass"
MOST_QUERY_BYTES = 8192
SIGNED = "/v1/triggers/"  # whoever comes here brings a signature instead of a token
PROTECTION = [
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]

Headers: TypeAlias = dict[str, str]  # of what is given twice, the first


class Gate:
    """ASGI middleware. Puts `access` into the request's state."""

    def __init__(self, app: ASGIApp, *, tokens: Tokens, hosts: Collection[str], most_bytes: int) -> None:
        self.app, self.tokens, self.most_bytes = app, tokens, most_bytes
        self.hosts = {host.lower() for host in hosts}
        self.attempts = Attempts()

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
                raise Problem(HTTPStatus.REQUEST_URI_TOO_LONG, f"more than {MOST_QUERY_BYTES} bytes of query")
            scope.setdefault("state", {})["access"] = self._access(scope, headers)
            await self.app(scope, self._bounded(headers, receive), send)
        except Problem as problem:
            await problem.response()(scope, receive, send)

    def _check_host(self, host: str) -> None:
        name = _host_name(host)
        if name in self.hosts or _is_ours(name):
            return
        detail = f"{name or 'no host'!r} is not a name of this server; allowed_hosts (--allow-host) says which are"
        raise Problem(HTTPStatus.MISDIRECTED_REQUEST, detail)

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        """A change that a browser sends comes from our own page, and says so."""
        if scope["method"] in SAFE_METHODS:
            return
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is None and site is None:
            return  # no browser
        foreign = site not in (None, "same-origin", "none")
        if origin is not None and _authority(origin) != headers.get("host", "").lower():
            foreign = True
        if foreign or (CHANGE_HEADER not in headers and "authorization" not in headers):
            raise Problem(HTTPStatus.FORBIDDEN, f"a browser's change must be same-origin and carry {CHANGE_HEADER}")

    def _access(self, scope: Scope, headers: Headers) -> Any:
        address = str((scope.get("client") or ("", 0))[0])
        given = headers.get("authorization")
        if self.tokens.everybody is not None:
            if _is_remote(address):
                raise _unauthorized(headers, "there is no token, so only this machine may ask")
            return self.tokens.everybody
        if given is None:
            if _path_below(scope).startswith(SIGNED) and scope["method"] == "POST":
                return None
            raise _unauthorized(headers, "a token is needed: Authorization: Bearer …")
        if not self.attempts.may_try(address):
            raise Problem(HTTPStatus.TOO_MANY_REQUESTS, "too many wrong tokens from here", headers={"Retry-After": "1"})
        access = self.tokens.find(given)
        if access is None:
            self.attempts.was_wrong(address)
            raise _unauthorized(headers, "this token is not known")
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
        return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has {self.most_bytes} bytes at the most")


def _protected(send: Send) -> Send:
    async def protected(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = message["headers"]
            names = {name for name, _ in given}
            message["headers"] = [*given, *(one for one in PROTECTION if one[0] not in names)]
        await send(message)

    return protected


def _unauthorized(headers: Headers, detail: str) -> Problem:
    """A browser asks its user for a password, if it is told to."""
    scheme = "Basic" if "text/html" in headers.get("accept", "") else "Bearer"
    return Problem(HTTPStatus.UNAUTHORIZED, detail, headers={"WWW-Authenticate": f'{scheme} realm="windlass"'})


def _authority(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _path_below(scope: Scope) -> str:
    """The path below where this app is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] if root and path.startswith(root) else path


def _host_name(host: str) -> str:
    """Without the port; IPv6 addresses have brackets."""
    if host.startswith("["):
        return host[1 : host.find("]")].lower()
    return host.partition(":")[0].lower().rstrip(".")


def _is_ours(name: str) -> bool:
    """An address, or a name that nobody can register: no stranger's page has such an origin."""
    return bool(name) and ("." not in name or name.endswith(".localhost") or _address(name) is not None)


def _is_remote(client: str) -> bool:
    address = _address(client)
    return address is not None and not address.is_loopback


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
