"""Arrays for settlements, encoded here, since psycopg inspects each element twice before it sends it.

On connections of the caller they are plain lists.
"""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import psycopg
from psycopg import pq
from psycopg.adapt import Dumper
from psycopg.types.string import ByteaBinaryLoader, TextBinaryLoader

UUID_OID, UUIDS_OID = 2950, 2951
TEXT_OID, TEXTS_OID = 25, 1009

_HEADER = struct.Struct("!iiIii")
_LENGTH = struct.Struct("!i")
_UUID_LENGTH = _LENGTH.pack(16)
_NULL = _LENGTH.pack(-1)


class Uuids(list["UUID | None"]):
    """Ids or tokens."""


class Texts(list["str | None"]):
    """Payloads."""


class UuidsDumper(Dumper):
    format = pq.Format.BINARY
    oid = UUIDS_OID

    def dump(self, obj: Uuids) -> bytes:
        parts = [_header(UUID_OID, obj)]
        last, part = None, _NULL  # a token comes many times in a row
        for one in obj:
            if one is not last:
                last = one
                part = _NULL if one is None else _UUID_LENGTH + one.int.to_bytes(16, "big")
            parts.append(part)
        return b"".join(parts)


class TextsDumper(Dumper):
    format = pq.Format.BINARY
    oid = TEXTS_OID

    def dump(self, obj: Texts) -> bytes:
        encoded: dict[str | None, bytes] = {None: _NULL}
        parts = [_header(TEXT_OID, obj)]
        for one in obj:
            part = encoded.get(one)
            if part is None:
                raw = one.encode()  # type: ignore[union-attr]
                part = encoded[one] = _LENGTH.pack(len(raw)) + raw
            parts.append(part)
        return b"".join(parts)


def _header(element: int, values: list[Any]) -> bytes:
    if not values:
        return _HEADER.pack(0, 0, element, 0, 0)[:12]
    return _HEADER.pack(1, 1, element, len(values), 1)


def register(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    connection.adapters.register_dumper(Uuids, UuidsDumper)
    connection.adapters.register_dumper(Texts, TextsDumper)
    connection.adapters.register_loader("json", TextBinaryLoader)  # a payload is decoded by its task
    # A timestamp as its eight bytes: most are never looked at.
    connection.adapters.register_loader("timestamptz", ByteaBinaryLoader)
