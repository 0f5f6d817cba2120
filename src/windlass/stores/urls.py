"""Database URLs."""

from __future__ import annotations

import re


def without_password(url: str) -> str:
    """As it may be shown."""
    shown = re.sub(r"(?<=://)([^/@:]*):[^@/]*@", r"\1:***@", url)
    return re.sub(r"(?i)(password=)[^&\s]+", r"\1***", shown)
