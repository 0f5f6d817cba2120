"""Names that become part of a statement are checked; all other values are parameters."""

from __future__ import annotations

import re

from ..errors import InvalidInput

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}")


def check_name(what: str, name: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{what} {name!r}: use small letters, digits and underscores, 40 characters at the most, no digit first"
        )
    return name
