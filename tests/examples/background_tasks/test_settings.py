"""Settings, from a file and from the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from examples.background_tasks.settings import Settings, SettingsError, load_settings

ROOT = Path(__file__).parents[3]


def test_the_defaults() -> None:
    """Retry-delay PT10M, processor-interval 1m, batch-size 100, stale-claim-timeout PT5M."""
    assert load_settings(None, {"PATH": "/bin"}) == Settings(
        retry_delay=timedelta(minutes=10),
        processor_interval=timedelta(minutes=1),
        batch_size=100,
        stale_claim_timeout=timedelta(minutes=5),
    )


def test_from_a_file_and_from_the_environment(tmp_path: Path) -> None:
    """A TOML file; what the environment says counts more."""
    file = tmp_path / "settings.toml"
    file.write_text('[tasks]\nretry-delay = "PT30S"\nprocessor-interval = "2m"\nbatch-size = 7\n')
    assert load_settings(file, {}) == Settings(
        retry_delay=timedelta(seconds=30), processor_interval=timedelta(minutes=2), batch_size=7
    )
    environment = {
        "TASKS_RETRY_DELAY": "1h",
        "TASKS_PROCESSOR_INTERVAL": "5",
        "TASKS_BATCH_SIZE": "9",
        "TASKS_STALE_CLAIM_TIMEOUT": "PT1M",
    }
    assert load_settings(file, environment) == load_settings(None, environment) == Settings(
        retry_delay=timedelta(hours=1),
        processor_interval=timedelta(seconds=5),
        batch_size=9,
        stale_claim_timeout=timedelta(minutes=1),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"TASKS_RETRY_DELAY": "soon"}, "retry-delay: 'soon': not a duration"),
        ({"TASKS_RETRY_DELAY": "0"}, "retry-delay must be longer than zero"),
        ({"TASKS_PROCESSOR_INTERVAL": "-1m"}, "processor-interval: '-1m': not a duration"),
        ({"TASKS_STALE_CLAIM_TIMEOUT": "PT0S"}, "stale-claim-timeout must be longer than zero"),
        ({"TASKS_BATCH_SIZE": "0"}, "batch-size is a number from 1 to 1000, not 0"),
        ({"TASKS_BATCH_SIZE": "1001"}, "batch-size is a number from 1 to 1000, not 1001"),
        ({"TASKS_BATCH_SIZE": "many"}, "batch-size: invalid literal"),
        ({"TASKS_BATCHSIZE": "9"}, "unknown: batchsize; there are: retry-delay, processor-interval, batch-size"),
    ],
)
def test_what_makes_no_sense_is_refused(environment: dict[str, str], message: str) -> None:
    """With the name of the setting."""
    with pytest.raises(SettingsError) as caught:
        load_settings(None, environment)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tasks]\nbatch-size = 2.5", "batch-size is a whole number, not 2.5"),
        ("[tasks]\nbatch-size = true", "batch-size is a whole number, not True"),
        ("[tasks]\nretry-delay = []", "retry-delay: []: not a duration"),
        ("[tasks]\nretries = 3", "unknown: retries"),
        ("tasks = 3", "tasks is no table"),
        ("[tasks", "settings.toml: "),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """And so is one that cannot be read."""
    file = tmp_path / "settings.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(file, {})
    assert message in str(caught.value)
    with pytest.raises(SettingsError, match=r"none\.toml"):
        load_settings(tmp_path / "none.toml", {})


def test_the_program_does_not_start_with_a_wrong_setting(tmp_path: Path) -> None:
    """Exit code 2, one clear line, and no database was touched."""
    url = f"sqlite:///{tmp_path}/tasks.db"
    done = subprocess.run(
        [sys.executable, "-m", "examples.background_tasks", "--url", url, "process", "--folder", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"TASKS_BATCH_SIZE": "0"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "settings: batch-size is a number from 1 to 1000, not 0" in done.stderr
    assert list(tmp_path.iterdir()) == []
