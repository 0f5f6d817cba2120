"""Settings from the environment: what makes no sense is refused before anything starts."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from examples.agent_platform.platform import Platform
from examples.agent_platform.settings import Settings, SettingsError, load_settings
from examples.agent_platform.web import create_web

ROOT = Path(__file__).parents[3]


def test_the_defaults() -> None:
    assert load_settings({"PATH": "/bin"}) == Settings()


def test_all_from_the_environment() -> None:
    environment = {
        "WINDLASS_URL": "postgresql://localhost/agents",
        "WINDLASS_TOKEN": "a-token-of-the-platform",
        "AGENTS_RECORDS": "r.db",
        "AGENTS_MODEL": "tests.examples.agent_platform.patient:Patient",
        "AGENTS_SUBTASKS": "7",
        "AGENTS_REPLICAS": "3",
        "AGENTS_CONCURRENCY": "20",
        "AGENTS_RETRY_BASE": "PT1M",
        "AGENTS_WEBHOOK_SECRET": "a-secret-of-the-webhook",
        "AGENTS_REMOTES": "tokyo=https://tokyo.example/ask, lima=http://10.0.0.7:99",
        "AGENTS_REMOTE_TOKEN": "a-token-of-the-remotes",
        "AGENTS_REMOTE_DEADLINE": "2h",
        "AGENTS_PUBLIC_URL": "https://agents.example",
    }
    assert load_settings(environment) == Settings(
        url="postgresql://localhost/agents",
        token="a-token-of-the-platform",
        records="r.db",
        model="tests.examples.agent_platform.patient:Patient",
        subtasks=7,
        replicas=3,
        concurrency=20,
        retry_base=timedelta(minutes=1),
        webhook_secret="a-secret-of-the-webhook",
        remotes={"tokyo": "https://tokyo.example/ask", "lima": "http://10.0.0.7:99"},
        remote_token="a-token-of-the-remotes",
        remote_deadline=timedelta(hours=2),
        public_url="https://agents.example",
    )


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("AGENTS_REPLICAS", "0", "AGENTS_REPLICAS: Expected `int` >= 1"),
        ("AGENTS_REPLICAS", "4", "AGENTS_REPLICAS: Expected `int` <= 3"),
        ("AGENTS_REPLICAS", "some", "AGENTS_REPLICAS: Expected `int`"),
        ("AGENTS_SUBTASKS", "21", "AGENTS_SUBTASKS: Expected `int` <= 20"),
        ("AGENTS_CONCURRENCY", "", "AGENTS_CONCURRENCY: Expected `int`"),
        ("AGENTS_MODEL", "big", "AGENTS_MODEL: Expected `str` matching"),
        ("AGENTS_RETRY_BASE", "soon", "AGENTS_RETRY_BASE: 'soon': not a duration"),
        ("AGENTS_REMOTE_DEADLINE", "0", "AGENTS_REMOTE_DEADLINE must be longer than zero"),
        ("AGENTS_WEBHOOK_SECRET", "short", "AGENTS_WEBHOOK_SECRET: Expected `str` of length >= 16"),
        ("WINDLASS_TOKEN", "short", "WINDLASS_TOKEN: Expected `str` of length >= 16"),
        ("WINDLASS_TOKEN", "with a space or two in it", "WINDLASS_TOKEN: Expected `str` matching"),
        ("AGENTS_REMOTES", "tokyo", "AGENTS_REMOTES: '' is not the address of a web server"),
        ("AGENTS_REMOTES", "tokyo=file:///etc", "AGENTS_REMOTES: 'file:///etc' is not the address"),
        ("AGENTS_REMOTES", "a=http://x,a=http://y", "AGENTS_REMOTES: a is given twice"),
        ("AGENTS_PUBLIC_URL", "localhost", "AGENTS_PUBLIC_URL: 'localhost' is not the address"),
        ("AGENTS_URL", "sqlite:///x.db", "AGENTS_URL is not a setting; use WINDLASS_URL"),
        ("AGENTS_REPLICA", "2", "AGENTS_REPLICA is not a setting"),
    ],
)
def test_what_makes_no_sense_is_refused(variable: str, text: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({variable: text})
    assert message in str(caught.value)
    assert text != "short" or text not in str(caught.value)


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    settings = Settings(url="sqlite://", records=str(tmp_path / "r.db"))
    for model in (
        "nowhere.to_be:Found",
        "examples.agent_platform.model:Nothing",
        "examples.agent_platform.model:Reply",
    ):
        with pytest.raises(SettingsError, match="AGENTS_MODEL: there is no model"):
            Platform(replace(settings, model=model))


def test_no_http_without_a_token(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="WINDLASS_TOKEN is missing"):
        create_web(Platform(Settings(url="sqlite://", records=str(tmp_path / "r.db"))))


@pytest.mark.parametrize(
    ("command", "wrong", "message"),
    [
        (["examples.agent_platform", "work"], {"AGENTS_REPLICAS": "4"}, "AGENTS_REPLICAS: Expected `int` <= 3"),
        (["examples.agent_platform", "serve"], {"WINDLASS_URL": "mysql://x"}, "mysql://x: no such kind of store"),
        (["examples.agent_platform", "serve"], {}, "WINDLASS_TOKEN is missing"),
        (
            ["windlass", "worker", "examples.agent_platform.worker:app"],
            {"AGENTS_SUBTASKS": "0"},
            "AGENTS_SUBTASKS: Expected `int` >= 1",
        ),
    ],
)
def test_nothing_starts_with_a_wrong_setting(
    tmp_path: Path, command: list[str], wrong: dict[str, str], message: str
) -> None:
    """Exit code 2, and a line that says which."""
    environment = os.environ | {"AGENTS_RECORDS": str(tmp_path / "r.db"), "WINDLASS_URL": "sqlite://"} | wrong
    run = [sys.executable, "-m", *command]
    done = subprocess.run(run, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
