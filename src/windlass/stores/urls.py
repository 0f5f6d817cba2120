"""Database URLs."""

from __future__ import annotations

import re

# Options that hold a secret, also as the end of a longer name: sslpassword, oauth_client_secret.
SECRETS = r"password=|secret=|scram_client_key=|scram_server_key=|SESSION_TOKEN(?::|%3A)"


def without_password(url: str) -> str:
    """The URL without secrets. Up to the last @, since a password that was not escaped may contain one."""
    shown = re.sub(r"(?<=://)([^/@:]*):.*@", r"\1:***@", url)
    return re.sub(rf"(?i)({SECRETS})[^&\s]+", r"\1***", shown)
