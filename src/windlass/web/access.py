"""Access to the HTTP API: tokens, scopes, tenants."""

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
SCOPES: tuple[Scope, ...] = get_args(Scope)  # each includes those before it

WRONG_AT_ONCE = 20  # wrong tokens that one address may send at once; after that, one a second
ADDRESSES = 10_000  # the most addresses that are remembered


@dataclass(frozen=True, slots=True)
class Access:
    """The rights of a token. With a tenant, they hold only for that tenant's jobs."""

    scope: Scope = "admin"
    tenant: str | None = None

    def __post_init__(self) -> None:
        if self.scope not in SCOPES:
            raise InvalidInput(f"scope {self.scope!r} does not exist; give one of {', '.join(SCOPES)}")
        if self.tenant is not None and (not isinstance(self.tenant, str) or not self.tenant):
            raise InvalidInput(f"tenant is the name of a tenant, or None for all, not {self.tenant!r}")

    def allows(self, scope: Scope) -> bool:
        return SCOPES.index(scope) <= SCOPES.index(self.scope)


class Tokens:
    """The known tokens, kept as hashes."""

    def __init__(self, token: str | None, tokens: Mapping[str, Access | Scope] | None, *, read_only: bool) -> None:
        given = {token: Access()} if token is not None else {}
        for text, access in (tokens or {}).items():
            given[text] = access if isinstance(access, Access) else Access(access)
        for text in given:
            if not isinstance(text, str) or not text or not text.isascii() or not text.isprintable() or " " in text:
                raise InvalidInput("a token is a string of printable ASCII characters without spaces")
        self._known = [(_digest(text), _limited(access, read_only)) for text, access in given.items()]
        self.anonymous = None if given else _limited(Access(), read_only)

    def find(self, authorization: str) -> Access | None:
        """The rights of the token in this header. It compares all known tokens, each in constant time, so that the time
        of the answer tells nothing about them."""
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
    """The bearer token; or the password, because a browser can only ask its user for a name and a password."""
    kind, _, rest = authorization.partition(" ")
    rest = rest.strip()
    if kind.lower() != "basic":
        return rest if kind.lower() == "bearer" else ""
    try:
        return base64.b64decode(rest, validate=True).decode().partition(":")[2]
    except ValueError:  # not Base64, or not UTF-8
        return ""


class WrongTokens:
    """Limits wrong tokens for each address, with a token bucket that gains one try a second."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[float, float]] = {}

    def may_try(self, address: str) -> bool:
        return self._tries(address) >= 1

    def add(self, address: str) -> None:
        left = self._tries(address)
        self._left.pop(address, None)
        self._left[address] = (left - 1, time.monotonic())
        if len(self._left) > ADDRESSES:
            del self._left[next(iter(self._left))]

    def _tries(self, address: str) -> float:
        left, at = self._left.get(address, (WRONG_AT_ONCE, 0.0))
        return min(WRONG_AT_ONCE, left + time.monotonic() - at)
