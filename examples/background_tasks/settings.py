"""The settings, from a TOML file and the environment. They are checked at the start."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

from windlass import InvalidInput
from windlass.duration import to_timedelta

TABLES = (("tasks",), ("memory-service", "tasks"))
PREFIXES = ("TASKS_", "MEMORY_SERVICE_TASKS_")
PROPERTY = "memory-service.tasks."  # the full name of a property; some systems pass such names to a process unchanged


class SettingsError(ValueError):
    """A setting has a wrong value. The message names the setting."""


@dataclass(frozen=True, slots=True)
class Settings:
    """A setting has several names: `retry-delay` in the file's table `[tasks]`, `TASKS_RETRY_DELAY` in the environment.
    In both, `memory-service.tasks.retry-delay` is the same setting. The environment also accepts
    `MEMORY_SERVICE_TASKS_RETRY_DELAY`. Durations are `"PT10M"` or `"10m"`."""

    retry_delay: timedelta = timedelta(minutes=10)
    processor_interval: timedelta = timedelta(minutes=1)
    batch_size: int = 100
    stale_claim_timeout: timedelta = timedelta(minutes=5)

    def __post_init__(self) -> None:
        for name in ("retry_delay", "processor_interval", "stale_claim_timeout"):
            if getattr(self, name) <= timedelta():
                raise SettingsError(f"{_shown(name)} must be longer than zero")
        if not 1 <= self.batch_size <= 1000:
            raise SettingsError(f"batch-size is a number from 1 to 1000, not {self.batch_size}")


def load_settings(file: Path | None, environment: Mapping[str, str]) -> Settings:
    """Read the settings. The environment overrides the file, and the file overrides the defaults."""
    given = ({} if file is None else _from_file(file)) | _from_environment(environment)
    known = [field.name for field in fields(Settings)]
    unknown = given.keys() - {_shown(name) for name in known}
    if unknown:
        raise SettingsError(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(map(_shown, known))}")
    return Settings(**{name: _parse(name, given[_shown(name)]) for name in known if _shown(name) in given})


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found = [
        (variable, _in_file(variable.removeprefix(prefix)), value)
        for variable, value in environment.items()
        for prefix in PREFIXES
        if variable.startswith(prefix)
    ]
    whole = [
        (name, name.removeprefix(PROPERTY), value) for name, value in environment.items() if name.startswith(PROPERTY)
    ]
    return _each_once(found + whole)


def _from_file(file: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise SettingsError(f"{file}: {error}") from None
    found = []
    for path in TABLES:
        table: Any = content
        for name in path:
            table = table.get(name, {}) if isinstance(table, dict) else None
        if not isinstance(table, dict):
            raise SettingsError(f"{file}: {'.'.join(path)} is no table; write it as [{'.'.join(path)}]")
        found += [(".".join([*path, name]), name, value) for name, value in table.items()]
    return _each_once(found)


def _each_once(found: Iterable[tuple[str, str, Any]]) -> dict[str, Any]:
    """The values by the setting's name. Two names of one setting with different values are an error."""
    given: dict[str, tuple[str, Any]] = {}
    for source, name, value in found:
        before, other = given.setdefault(name, (source, value))
        if other != value:
            raise SettingsError(f"{name} is {other!r} by {before} and {value!r} by {source}: keep one of them")
    return {name: value for name, (_, value) in given.items()}


def _parse(name: str, value: Any) -> Any:
    try:
        if name != "batch_size":
            return to_timedelta(value)
        if isinstance(value, str | int) and not isinstance(value, bool):
            return int(value)
    except (InvalidInput, ValueError) as error:
        raise SettingsError(f"{_shown(name)}: {error}") from None
    raise SettingsError(f"{_shown(name)} is a whole number, not {value!r}")


def _in_file(variable: str) -> str:
    return _shown(variable.lower())


def _shown(name: str) -> str:
    return name.replace("_", "-")
