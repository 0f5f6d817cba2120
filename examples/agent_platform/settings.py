"""The settings of the platform, from the environment. They are checked at the start."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from windlass import InvalidInput
from windlass.duration import to_timedelta

from .model import STAND_IN

PREFIX = "AGENTS_"
SHARED = {"url": "WINDLASS_URL", "token": "WINDLASS_TOKEN"}  # the commands of Windlass read these variables too
DURATIONS = ("retry_base", "remote_deadline")

Secret = Annotated[str, Meta(min_length=16, pattern=r"^[!-~]+\Z")]


class SettingsError(ValueError):
    """A setting has a wrong value. The message names the setting."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The variables are `WINDLASS_URL`, `WINDLASS_TOKEN`, then `AGENTS_RECORDS` and so on."""

    url: str = "sqlite:///agents.db"
    token: Secret | None = None  # it allows everything; without it there is no HTTP API
    records: str = "agents-records.db"
    model: Annotated[str, Meta(pattern=r"^[\w.]+:\w+\Z")] = STAND_IN
    subtasks: Annotated[int, Meta(ge=1, le=20)] = 3
    replicas: Annotated[int, Meta(ge=1, le=3)] = 1
    concurrency: Annotated[int, Meta(ge=1, le=100)] = 10  # of each replica
    retry_base: timedelta = timedelta(seconds=10)
    webhook_secret: Secret | None = None
    remotes: dict[str, str] = {}
    remote_token: Secret | None = None
    remote_deadline: timedelta = timedelta(hours=1)
    public_url: str = "http://127.0.0.1:8000"


def load_settings(environment: Mapping[str, str]) -> Settings:
    """Read the environment. A missing variable gives the default."""
    given: dict[str, Any] = {
        name.removeprefix(PREFIX).lower(): text for name, text in environment.items() if name.startswith(PREFIX)
    }
    for name in given:
        if name in SHARED:
            raise SettingsError(f"{PREFIX}{name.upper()} is not a setting; use {SHARED[name]}")
        if name not in Settings.__struct_fields__:
            raise SettingsError(f"{PREFIX}{name.upper()} is not a setting; remove it, or correct its name")
    for name, variable in SHARED.items():
        if environment.get(variable):
            given[name] = environment[variable]
    for name in DURATIONS:
        if name in given:
            given[name] = _duration(name, given[name])
    if "remotes" in given:
        given["remotes"] = _addresses(given["remotes"])
    if "public_url" in given:
        _check_address("public_url", given["public_url"])
    try:
        return msgspec.convert(given, Settings, strict=False)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$.")
        raise SettingsError(f"{_variable(path.rstrip('`'))}: {what}") from None


def _variable(name: str) -> str:
    return SHARED.get(name, PREFIX + name.upper())


def _duration(name: str, text: str) -> timedelta:
    try:
        length = to_timedelta(text)
    except InvalidInput as error:
        raise SettingsError(f"{_variable(name)}: {error}") from None
    if not length:
        raise SettingsError(f"{_variable(name)} must be longer than zero")
    return length


def _addresses(text: str) -> dict[str, str]:
    """`tokyo=https://…,berlin=https://…`"""
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, address = part.partition("=")
        if name in found:
            raise SettingsError(f"{_variable('remotes')}: {name} is given twice; keep one of them")
        _check_address("remotes", address)
        found[name] = address
    return found


def _check_address(name: str, text: str) -> None:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(f"{_variable(name)}: {text!r} is not the address of a web server, as in https://host/path")
