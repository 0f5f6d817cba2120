"""The parts by themselves: settings, rules, hashed words, the tour, the command."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from examples.memory_extraction.batch import run_batch
from examples.memory_extraction.embedders import HashedWords, normalised
from examples.memory_extraction.extractors import Memory, RuleExtractor, Transaction
from examples.memory_extraction.memories import SqliteMemories
from examples.memory_extraction.settings import Settings, SettingsError
from examples.memory_extraction.tour import tour

from .conftest import opened

ROOT = Path(__file__).parents[3]

WRONG_SETTINGS: list[tuple[dict[str, str], str]] = [
    ({"MEMORY_BATCH_SIZE": "0"}, "MEMORY_BATCH_SIZE is a number from 1 to 1000, not 0"),
    ({"MEMORY_BATCH_SIZE": "ten"}, "MEMORY_BATCH_SIZE is a number, not 'ten'"),
    ({"MEMORY_BATCH_SIZE": "2.5"}, "MEMORY_BATCH_SIZE is a number"),
    ({"MEMORY_POLL_SECONDS": "-1"}, "MEMORY_POLL_SECONDS"),
    ({"MEMORY_POLL_SECONDS": "nan"}, "MEMORY_POLL_SECONDS"),
    ({"MEMORY_POLL_SECONDS": "inf"}, "MEMORY_POLL_SECONDS"),
    ({"MEMORY_LEASE_SECONDS": "0"}, "MEMORY_LEASE_SECONDS"),
    ({"MEMORY_DIMENSIONS": "100000"}, "MEMORY_DIMENSIONS"),
    ({"MEMORY_EXTRACTOR_URL": "localhost:1234", "MEMORY_EXTRACTOR_MODEL": "m"}, "MEMORY_EXTRACTOR_URL is http"),
    ({"MEMORY_EXTRACTOR_URL": "http://", "MEMORY_EXTRACTOR_MODEL": "m"}, "MEMORY_EXTRACTOR_URL is http"),
    ({"MEMORY_EXTRACTOR_URL": "http://h:99999/v1", "MEMORY_EXTRACTOR_MODEL": "m"}, "MEMORY_EXTRACTOR_URL is http"),
    ({"MEMORY_EXTRACTOR_URL": "http://h/v1"}, "without MEMORY_EXTRACTOR_MODEL"),
    ({"MEMORY_EMBEDDER_MODEL": "m"}, "without MEMORY_EMBEDDER_URL"),
    (
        {"MEMORY_EXTRACTOR_URL": "http://me:pw@h/v1", "MEMORY_EXTRACTOR_MODEL": "m"},
        "without a key; put the key into MEMORY_ENDPOINT_KEY",
    ),
    ({"MEMORY_ENDPOINT_KEY": "two\nlines"}, "MEMORY_ENDPOINT_KEY"),
    ({"MEMORY_TENANTS": "acme"}, "MEMORY_TENANTS is name=token"),
    ({"MEMORY_TENANTS": "acme=short"}, "8 to 200"),
    ({"MEMORY_TENANTS": "=long-enough"}, "MEMORY_TENANTS"),
    ({"MEMORY_TENANTS": "a=the-same-one,b=the-same-one"}, "a and b have the same token"),
    ({"MEMORY_BATCHSIZE": "10"}, "MEMORY_BATCHSIZE is no setting; there are MEMORY_TENANTS, MEMORY_BATCH_SIZE"),
    ({"WINDLASS_URL": "mysql://host/x"}, "WINDLASS_URL begins with"),
    ({"WINDLASS_URL": "sqlite://"}, "names no file"),
]


@pytest.mark.parametrize(("environment", "words"), WRONG_SETTINGS)
def test_settings_that_make_no_sense_are_refused(environment: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        Settings.from_environment(environment)


def test_settings_come_from_the_environment() -> None:
    assert Settings.from_environment({"PATH": "/bin"}) == Settings()
    given = {"MEMORY_POLL_SECONDS": "0.5", "MEMORY_BATCH_SIZE": "3", "MEMORY_TENANTS": "acme=12345678, b.c=87654321"}
    settings = Settings.from_environment(given | {"WINDLASS_URL": "postgresql://host/x"})
    assert (settings.poll_seconds, settings.batch_size, settings.url) == (0.5, 3, "postgresql://host/x")
    assert settings.tenants_by_token() == {"12345678": "acme", "87654321": "b.c"}
    assert "12345678" not in repr(settings)


async def test_other_dimensions_than_those_of_the_memories_are_refused(store_url: str) -> None:
    async with opened(store_url, dimensions=16) as memory:
        await memory.enqueue("acme", "ada", Transaction("I am here.", ""), "request-1")
        assert await run_batch(memory) == 1
        with pytest.raises(SettingsError, match=r"MEMORY_DIMENSIONS is 8, but .* have 16"):
            async with opened(store_url, dimensions=8):
                pass


def test_memories_in_a_file_wait_for_another_writer(fresh_sqlite_url: str) -> None:
    """Longer than the five seconds that Python's driver would."""
    with closing(SqliteMemories(fresh_sqlite_url, 16).connect()) as connection:
        assert connection.execute("PRAGMA busy_timeout").fetchall() == [(30_000,)]


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "examples.memory_extraction", *arguments]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"} | variables
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)


def test_the_command_refuses_them_at_start(fresh_sqlite_url: str) -> None:
    for arguments, variables, words in (
        (["worker"], {"MEMORY_BATCH_SIZE": "none"}, "MEMORY_BATCH_SIZE is a number"),
        (["serve"], {"MEMORY_TENANTS": ""}, "MEMORY_TENANTS is empty"),
        (["worker"], {"WINDLASS_URL": "sqlite:////nowhere/memories.db"}, "/nowhere/memories.db"),
    ):
        done = run(*arguments, **({"WINDLASS_URL": fresh_sqlite_url} | variables))
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr


async def test_the_command_works_off_one_batch(fresh_sqlite_url: str) -> None:
    async with opened(fresh_sqlite_url) as memory:
        for number in range(3):
            await memory.enqueue("acme", "ada", Transaction("I am here.", ""), f"request-{number}")
        done = await asyncio.to_thread(run, "--url", fresh_sqlite_url, "batch", MEMORY_BATCH_SIZE="2")
        assert (done.returncode, done.stdout) == (0, "2 jobs\n")
        assert (await memory.app.acounts()).completed == 2


def test_the_tour_finds_all_as_it_should_be(store_url: str) -> None:
    told: list[tuple[int, int]] = []
    checks = tour(store_url, lambda done, total: told.append((done, total)))
    assert 2 <= len(checks) <= 4
    assert [check for check in checks if not check.right] == []
    assert told[-1] == (10, 10)


def test_the_tour_needs_no_more_than_windlass_does() -> None:
    program = (
        "import sys; import examples.memory_extraction.tour; "
        "print([name for name in ('starlette', 'uvicorn', 'httpx', 'psycopg', 'pymongo') if name in sys.modules])"
    )
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


async def test_rules_find_facts_preferences_and_instructions() -> None:
    prompt = "Hello! I live in Lisbon. We prefer trains.\nNever call before nine! Do I like tea? I live in lisbon."
    found = await RuleExtractor().extract(Transaction(prompt, "Noted. My name is Echo."))
    assert found == [
        Memory("fact", "I live in Lisbon"),
        Memory("preference", "We prefer trains"),
        Memory("instruction", "Never call before nine"),
        Memory("fact", "My name is Echo"),
    ]
    assert await RuleExtractor().extract(Transaction("my " * 100_000, "I am " + "very " * 50_000)) == []


async def test_hashed_words_are_alike_where_words_are_shared() -> None:
    embedder = HashedWords(512)
    one, same, near, far = await embedder.embed(["Red wine", "wine, RED!", "red apples", "a slow car"])
    assert one == same
    assert sum(number**2 for number in one) == pytest.approx(1)
    assert [round(sum(a * b for a, b in zip(one, other, strict=True)), 2) for other in (same, near, far)] == [1, 0.5, 0]
    assert all(map(any, await embedder.embed(["", "?!", "\ud800"])))
    with pytest.raises(ValueError, match="no direction"):
        normalised([0.0, 0.0])
