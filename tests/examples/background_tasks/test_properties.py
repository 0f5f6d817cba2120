"""Settings under the property names of the design, and the line that a success leaves in the log."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path

import pytest

from examples.background_tasks.settings import Settings, SettingsError, load_settings

from .conftest import Replicas

DESIGNED = {
    "memory-service.tasks.retry-delay": "PT3M",
    "memory-service.tasks.processor-interval": "2m",
    "memory-service.tasks.batch-size": "7",
    "memory-service.tasks.stale-claim-timeout": "PT4M",
}
MEANT = Settings(
    retry_delay=timedelta(minutes=3),
    processor_interval=timedelta(minutes=2),
    batch_size=7,
    stale_claim_timeout=timedelta(minutes=4),
)


def test_the_properties_of_the_design_in_the_environment() -> None:
    """As they are, and as a shell can spell them."""
    assert load_settings(None, DESIGNED) == MEANT
    spelled = {name.upper().replace("-", "_").replace(".", "_"): value for name, value in DESIGNED.items()}
    assert "MEMORY_SERVICE_TASKS_RETRY_DELAY" in spelled
    assert load_settings(None, spelled) == MEANT


def test_the_properties_of_the_design_in_a_file(tmp_path: Path) -> None:
    """Line by line or as a table; what the environment says counts more, whatever name it uses."""
    file = tmp_path / "settings.toml"
    file.write_text("".join(f'{name} = "{value}"\n' for name, value in DESIGNED.items()))
    assert load_settings(file, {}) == MEANT
    file.write_text(
        '[memory-service.tasks]\nretry-delay = "PT3M"\nbatch-size = 7\n[tasks]\nprocessor-interval = "2m"\n'
    )
    assert load_settings(file, {"TASKS_STALE_CLAIM_TIMEOUT": "PT4M"}) == MEANT
    assert load_settings(file, {"TASKS_RETRY_DELAY": "1h"}).retry_delay == timedelta(hours=1)
    assert load_settings(file, {"memory-service.tasks.retry-delay": "1h"}).retry_delay == timedelta(hours=1)


@pytest.mark.parametrize(
    ("environment", "text", "message"),
    [
        ({"MEMORY_SERVICE_TASKS_RETRIES": "3"}, "", "unknown: retries"),
        ({"memory-service.tasks.batch_size": "3"}, "", "unknown: batch_size"),
        (
            {"TASKS_BATCH_SIZE": "3", "MEMORY_SERVICE_TASKS_BATCH_SIZE": "4"},
            "",
            "batch-size is '3' by TASKS_BATCH_SIZE and '4' by MEMORY_SERVICE_TASKS_BATCH_SIZE",
        ),
        ({}, "tasks.batch-size = 3\nmemory-service.tasks.batch-size = 4", "3 by tasks.batch-size and 4 by memory-serv"),
        ({}, "memory-service = 3", "memory-service.tasks is no table"),
        ({}, "memory-service.tasks = 3", "memory-service.tasks is no table"),
    ],
)
def test_properties_that_make_no_sense_are_refused(
    tmp_path: Path, environment: dict[str, str], text: str, message: str
) -> None:
    """Unknown ones, and two names of one setting that differ."""
    file = tmp_path / "settings.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(file, environment)
    assert message in str(caught.value)


def test_two_names_that_say_the_same_are_fine() -> None:
    environment = {"TASKS_BATCH_SIZE": "7", "MEMORY_SERVICE_TASKS_BATCH_SIZE": "7"}
    assert load_settings(None, environment).batch_size == 7


def test_a_success_and_a_failure_each_leave_a_line_in_the_log(
    replicas: Replicas, caplog: pytest.LogCaptureFixture
) -> None:
    """After the row is gone, its type and id are still in the log."""
    caplog.set_level(logging.INFO, "examples.background_tasks")
    replicas.vectors.fail_for("b")
    done, failed = replicas.service.evict("a"), replicas.service.evict("b")
    replicas.processor().run_once()
    lines = {(record.levelname, record.getMessage()) for record in caplog.records}
    assert ("INFO", f"task vector_store_delete {done.id}: completed") in lines
    assert [text for level, text in lines if level == "WARNING"] == [
        f"task vector_store_delete {failed.id}: VectorStoreDown: the vector store does not answer for b"
    ]
    assert not any(str(failed.id) in text for level, text in lines if level == "INFO")
