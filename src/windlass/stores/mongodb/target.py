"""The server and database of a MongoDB URL."""

from __future__ import annotations

from typing import Any

from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri

from ...errors import InvalidInput, StoreUnavailable
from .errors import STANDALONE

SELECTION_MILLISECONDS = 5000
ANSWER_SECONDS = 30.0  # for an answer, on the client and on the server, where the URL does not say


class Target:
    """The target of a URL. `place` names it without the password."""

    def __init__(self, url: str, default_database: str = "windlass") -> None:
        try:
            # Parsed as a plain URL, since the other kind would ask a name server now.
            parsed = parse_uri(url.replace("mongodb+srv://", "mongodb://", 1))
        except (PyMongoError, ValueError) as error:
            raise InvalidInput(f"this MongoDB URL cannot be read: {error}") from None
        self.url = url
        self.database: str = parsed["database"] or default_database
        self.selection_given = "serverSelectionTimeoutMS" in parsed["options"]
        says = {option.lower() for option in parsed["options"]} & {"timeoutms", "sockettimeoutms"}
        self.answer_seconds = None if says else ANSWER_SECONDS
        scheme = url.partition("://")[0]
        hosts = ",".join(host if port is None else f"{host}:{port}" for host, port in parsed["nodelist"])
        self.place = f"{scheme}://{hosts}/{self.database}"

    @property
    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"retryWrites": True, "appname": "windlass"}
        if not self.selection_given:
            options["serverSelectionTimeoutMS"] = SELECTION_MILLISECONDS
        return options

    def check_server(self, hello: dict[str, Any]) -> None:
        """A member of a replica set, or the router of a sharded cluster, which consists of such."""
        if "setName" not in hello and hello.get("msg") != "isdbgrid":
            raise StoreUnavailable(f"MongoDB at {self.place} {STANDALONE}")
