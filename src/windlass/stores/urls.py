"""Database URLs."""

from __future__ import annotations

import re


def without_password(url: str) -> str:
    """As it may be shown. Up to the last @: a password that was not escaped as it should be may hold some."""
    shown = re.sub(r"(?<=://)([^/@:]*):.*@", r"\1:***@", url)
    return re.sub(r"(?i)(password=)[^&\s]+", r"\1***", shown)
