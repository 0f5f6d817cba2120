"""Database URLs."""

from __future__ import annotations

import re

# Options, and properties of one, that hold a secret; sslpassword, oauth_client_secret and the like among them.
SECRETS = r"password=|secret=|scram_client_key=|scram_server_key=|SESSION_TOKEN(?::|%3A)"


def without_password(url: str) -> str:
    """As it may be shown. Up to the last @: a password that was not escaped as it should be may hold some."""
    shown = re.sub(r"(?<=://)([^/@:]*):.*@", r"\1:***@", url)
    return re.sub(rf"(?i)({SECRETS})[^&\s]+", r"\1***", shown)
