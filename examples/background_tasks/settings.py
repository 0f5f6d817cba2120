"""How tasks are processed: from a TOML file, then from the environment, and checked before anything starts."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

from windlass import InvalidInput
from windlass.duration import to_timedelta

PREFIX = "TASKS_"


class SettingsError(ValueError):
    """A setting that makes no sense, by its name."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`retry-delay` in the file's table `[tasks]`, `TASKS_RETRY_DELAY` in the environment; durations as `"PT10M"` or
    `"10m"`."""

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
    """What the environment says counts, then what the file says, then the default."""
    from_file = {} if file is None else _read(file)
    from_environment = {
        name.removeprefix(PREFIX).lower().replace("_", "-"): value
        for name, value in environment.items()
        if name.startswith(PREFIX)
    }
    known = [field.name for field in fields(Settings)]
    given = from_file | from_environment
    unknown = given.keys() - {_shown(name) for name in known}
    if unknown:
        raise SettingsError(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(map(_shown, known))}")
    return Settings(**{name: _parse(name, given[_shown(name)]) for name in known if _shown(name) in given})


def _read(file: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(file.read_text()).get("tasks", {})
    except (OSError, ValueError) as error:
        raise SettingsError(f"{file}: {error}") from None
    if not isinstance(table, dict):
        raise SettingsError(f"{file}: [tasks] is a table")
    return table


def _parse(name: str, value: Any) -> Any:
    try:
        if name != "batch_size":
            return to_timedelta(value)
        if isinstance(value, str | int) and not isinstance(value, bool):
            return int(value)
    except (InvalidInput, ValueError) as error:
        raise SettingsError(f"{_shown(name)}: {error}") from None
    raise SettingsError(f"{_shown(name)} is a whole number, not {value!r}")


def _shown(name: str) -> str:
    return name.replace("_", "-")
