"""The settings, from the environment: `MEMORY_BATCH_SIZE=20` and so on. A wrong value is an error at the start."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

PREFIX = "MEMORY_"


class SettingsError(ValueError):
    """A setting has a wrong value. The message names the setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    url: str = "sqlite:///memories.db"
    """The database of the queue and the memories: `WINDLASS_URL`."""
    tenants: str = field(default="", repr=False)
    """The tenants and their tokens: `acme=token,globex=token`."""
    batch_size: int = 10
    """The most jobs that a worker runs at once."""
    poll_seconds: float = 5.0
    """The time between a worker's polls when no notification comes."""
    lease_seconds: float = 60.0
    """The lease: a worker that is silent for longer loses its jobs."""
    dimensions: int = 512
    """The number of dimensions of an embedding."""
    extractor_url: str = ""
    """An endpoint with OpenAI's protocol, up to and including /v1. Empty: rules, and no network."""
    extractor_model: str = ""
    embedder_url: str = ""
    """The same for embeddings. Empty: hashed words."""
    embedder_model: str = ""
    endpoint_key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        self._check_url()
        _check_number("batch_size", self.batch_size, 1, 1000)
        _check_number("poll_seconds", self.poll_seconds, 0.05, 3600)
        _check_number("lease_seconds", self.lease_seconds, 1, 86_400)
        _check_number("dimensions", self.dimensions, 8, 2000)
        for name in ("extractor", "embedder"):
            _check_endpoint(name, getattr(self, f"{name}_url"), getattr(self, f"{name}_model"))
        if not re.fullmatch(r"[!-~]*", self.endpoint_key):
            raise SettingsError(f"{PREFIX}ENDPOINT_KEY has other than visible ASCII characters; remove them")
        self.tenants_by_token()

    def _check_url(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("sqlite", "postgresql", "postgres", "mongodb", "mongodb+srv"):
            raise SettingsError(
                f"WINDLASS_URL begins with sqlite:///, postgresql:// or mongodb://, not with {parts.scheme!r}"
            )
        if parts.scheme == "sqlite" and len(parts.path) < 2:
            raise SettingsError(
                "WINDLASS_URL names no file, and API and worker share one: give it as in sqlite:///memories.db"
            )

    def tenants_by_token(self) -> dict[str, str]:
        """The tenant that each token stands for."""
        found: dict[str, str] = {}
        for entry in filter(None, self.tenants.split(",")):
            tenant, _, token = entry.strip().partition("=")
            if not re.fullmatch(r"[\w.-]{1,100}", tenant) or not re.fullmatch(r"[!-~]{8,200}", token):
                raise SettingsError(
                    f"{PREFIX}TENANTS is name=token,name=token, a token having 8 to 200 visible characters; "
                    f"correct the entry of {tenant[:100]!r}"
                )
            if token in found:
                raise SettingsError(f"{PREFIX}TENANTS: {found[token]} and {tenant} have the same token; change one")
            found[token] = tenant
        return found

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        kinds = {one.name: type(one.default) for one in fields(cls) if one.default is not MISSING}
        values: dict[str, Any] = {}
        if environment.get("WINDLASS_URL"):
            values["url"] = environment["WINDLASS_URL"]
        for variable in sorted(name for name in environment if name.startswith(PREFIX)):
            name = variable.removeprefix(PREFIX).lower()
            if name not in kinds or name == "url":
                known = ", ".join(PREFIX + one.upper() for one in kinds if one != "url")
                raise SettingsError(f"{variable} is no setting; there are {known}")
            try:
                values[name] = kinds[name](environment[variable])
            except ValueError:
                raise SettingsError(f"{variable} is a number, not {environment[variable]!r}") from None
        return cls(**values)


def _check_number(name: str, value: float, least: float, most: float) -> None:
    if not math.isfinite(value) or not least <= value <= most:
        raise SettingsError(f"{PREFIX}{name.upper()} is a number from {least} to {most}, not {value}")


def _check_endpoint(name: str, url: str, model: str) -> None:
    variable = f"{PREFIX}{name.upper()}"
    if not url:
        if model:
            raise SettingsError(f"{variable}_MODEL is given without {variable}_URL: give the endpoint of the model")
        return
    try:
        parts = urlsplit(url)
        right = (
            parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
        )
    except ValueError:
        right = False
    if not right or not re.fullmatch(r"[!-~]+", url):
        raise SettingsError(
            f"{variable}_URL is http://host/v1 or https://host/v1, without a key; put the key into {PREFIX}ENDPOINT_KEY"
        )
    if not model:
        raise SettingsError(f"{variable}_URL is given without {variable}_MODEL: give the name of the model")
