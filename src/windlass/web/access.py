"""Who asks, and what that one may do: tokens, scopes, tenants."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from ..errors import InvalidInput

Scope: TypeAlias = Literal["read", "operate", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)  # each may do what those before it may

WRONG_AT_ONCE = 20  # wrong tokens from one address; after that, one a second
ADDRESSES = 10_000  # that are remembered


@dataclass(frozen=True, slots=True)
class Access:
    """What the bearer of a token may do; with a tenant, only to that tenant's jobs."""

    scope: Scope = "admin"
    tenant: str | None = None

    def __post_init__(self) -> None:
        if self.scope not in SCOPES:
            raise InvalidInput(f"scope {self.scope!r}: one of {', '.join(SCOPES)}")
        if self.tenant is not None and (not isinstance(self.tenant, str) or not self.tenant):
            raise InvalidInput("tenant is the name of a tenant, or None for all")

    def allows(self, scope: Scope) -> bool:
        return SCOPES.index(scope) <= SCOPES.index(self.scope)


class Tokens:
    """Those that are known, by their hashes."""

    def __init__(self, token: str | None, tokens: Mapping[str, Access | Scope] | None, *, read_only: bool) -> None:
        given = {token: Access()} if token is not None else {}
        for text, access in (tokens or {}).items():
            given[text] = access if isinstance(access, Access) else Access(access)
        for text in given:
            if not isinstance(text, str) or not text or not text.isascii() or not text.isprintable() or " " in text:
                raise InvalidInput("a token is a string of printable ASCII characters without spaces")
        self._known = [(_digest(text), _limited(access, read_only)) for text, access in given.items()]
        self.everybody = None if given else _limited(Access(), read_only)

    def find(self, authorization: str) -> Access | None:
        """Whose it is. All are compared, each in constant time."""
        digest, found = _digest(_credential(authorization)), None
        for known, access in self._known:
            if hmac.compare_digest(known, digest):
                found = access
        return found


def _limited(access: Access, read_only: bool) -> Access:
    return replace(access, scope="read") if read_only else access


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def _credential(authorization: str) -> str:
    """A bearer's token; or, for browsers, which ask for a name and a password, the password."""
    kind, _, rest = authorization.partition(" ")
    rest = rest.strip()
    if kind.lower() != "basic":
        return rest if kind.lower() == "bearer" else ""
    try:
        return base64.b64decode(rest, validate=True).decode().partition(":")[2]
    except ValueError:  # not Base64, or not UTF-8
        return ""


class Attempts:
    """How often an address has been wrong of late: a bucket of tries that fills up again, one a second."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}

    def may_try(self, address: str) -> bool:
        return self._tries(address) >= 1

    def was_wrong(self, address: str) -> None:
        left = self._tries(address)
        self._left.pop(address, None)
        self._left[address] = (left - 1, time.monotonic())
        if len(self._left) > ADDRESSES:
            del self._left[next(iter(self._left))]

    def _tries(self, address: str) -> float:
        left, at = self._left.get(address, (WRONG_AT_ONCE, 0.0))
        return min(WRONG_AT_ONCE, left + time.monotonic() - at)
