"""What a worker writes to the log: no password, no forged line, a job's facts as fields."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from windlass import Cancel, Fail, Job, StoreUnavailable, Windlass
from windlass.embedded import free_port
from windlass.stores.urls import without_password

from .conftest import until

SECRET = "hunter2"
HOSTILE = "mail\r\n2031-01-01 ERROR forged\x1b[2J"


class Json(logging.Formatter):
    """As simple as such a formatter can be: whatever the record has that is not standard."""

    STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}

    def format(self, record: logging.LogRecord) -> str:
        more = {name: value for name, value in record.__dict__.items() if name not in self.STANDARD}
        return json.dumps({"message": record.getMessage(), "level": record.levelname} | more)


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(Json().format(record)) for record in caplog.records if record.name.startswith("windlass")]


async def run_all(app: Windlass, *jobs: Job) -> None:
    async with app.worker(poll_interval="100ms", rescue_interval="1h") as worker:
        await until(lambda: worker.completed + worker.failed >= len(jobs))


async def test_records_carry_the_facts_of_their_job(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "windlass.worker")
    failures = iter([ValueError("first"), Fail("for good")])

    @app.task(queue="mail", backoff="0s")
    async def send() -> None:
        raise next(failures)

    @app.task(queue="mail")
    async def drop() -> None:
        raise Cancel("not wanted")

    @app.task(queue="other")
    async def well() -> None: ...

    jobs = [await send.aenqueue(), await drop.aenqueue(), await well.aenqueue()]
    await run_all(app, *jobs)
    said = {(line["job_type"], line["level"], line["attempt"]): line for line in lines(caplog) if "job_type" in line}
    assert set(said) == {("send", "WARNING", 1), ("send", "ERROR", 2), ("drop", "INFO", 1), ("well", "DEBUG", 1)}
    for (type, _, _), line in said.items():
        job = next(job for job in jobs if job.type == type)
        assert line["job_id"] == str(job.id)
        assert line["queue"] == job.queue
        assert line["worker"] == (await job.arefresh()).worker
    assert "ValueError: first" in said["send", "WARNING", 1]["message"]
    assert "for good" in said["send", "ERROR", 2]["message"]
    start, *_, end = [line for line in lines(caplog) if "job_type" not in line and line["level"] == "INFO"]
    assert "serves all queues" in start["message"]
    assert "1 done, 1 retried, 1 failed, 1 cancelled" in end["message"]
    assert start["worker"] == end["worker"] == said["well", "DEBUG", 1]["worker"]


async def test_by_default_what_goes_well_is_not_logged(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "windlass")

    @app.task
    async def well() -> None: ...

    await run_all(app, await well.aenqueue())
    assert [line for line in lines(caplog) if "job_type" in line] == []


async def test_names_and_errors_cannot_forge_a_line(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "windlass")
    seen: list[str] = []

    @app.task(HOSTILE, queue=HOSTILE)
    async def bad() -> None:
        raise Fail(HOSTILE)

    @app.on("failed")
    def hook(event: Any) -> None:
        seen.append(event.name)
        raise RuntimeError(HOSTILE)

    job = await bad.aenqueue()
    async with app.worker(queues=[HOSTILE], poll_interval="100ms") as worker:
        await until(lambda: worker.failed and seen)
    formatter = logging.Formatter("%(levelname)s %(message)s")
    texts = [formatter.format(record) for record in caplog.records if record.name.startswith("windlass")]
    assert any("has failed" in text and "forged" in text for text in texts)
    for line in "\n".join(texts).split("\n"):
        assert line.startswith(("DEBUG ", "INFO ", "WARNING ", "ERROR ", "    "))
        assert "\r" not in line
        assert "\x1b" not in line
    assert (await job.arefresh()).queue == HOSTILE  # data stays what it was


def with_password(url: str) -> str:
    """The same place; the server asks nobody for a password, so that any will do."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{parts.username}:{SECRET}@{host}").geturl()


def shown_of(app: Windlass) -> str:
    return " ".join(map(repr, (app, app.store, app.store.connections, app.store.wakeup, app.worker(), vars(app.store))))


async def test_a_worker_never_shows_the_password(fresh_postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    app = Windlass(with_password(fresh_postgres_url))
    assert SECRET in app.url

    @app.task
    async def well() -> None: ...

    await run_all(app, await well.aenqueue())
    assert "postgres:***@" in caplog.text
    assert "postgres:***@" in repr(app)
    assert SECRET not in caplog.text + shown_of(app)
    await app.aclose()


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{SECRET}@127.0.0.1:PORT/jobs?sslpassword={SECRET}",
        f"mongodb://user:{SECRET}@127.0.0.1:PORT/jobs?serverSelectionTimeoutMS=500",
    ],
    ids=["postgres", "mongodb"],
)
async def test_a_server_that_is_gone_is_named_without_the_password(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "windlass")
    app = Windlass(url.replace("PORT", str(free_port())))
    stop = app.store.wakeup.listen(lambda hint: None)
    try:
        await until(lambda: "lost its connection" in caplog.text)
    finally:
        stop()
    with pytest.raises(StoreUnavailable) as caught:
        await app.worker().run()
    told = "".join(traceback.format_exception(caught.value))
    assert "127.0.0.1" in told
    assert SECRET not in told + caplog.text + shown_of(app)
    await app.aclose()


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{SECRET}@host/db",
        f"postgresql://user:{SECRET}@x:{SECRET}/{SECRET}@host/db",
        f"postgresql://user@host/db?password={SECRET}&sslmode=require",
        f"postgresql://user@host/db?sslpassword={SECRET}",
        f"postgresql://user@host/db?oauth_client_secret={SECRET},{SECRET}",
        f"postgresql://user@host/db?scram_client_key={SECRET}",
        f"mongodb://user:{SECRET}@one,two/db?tlsCertificateKeyFilePassword={SECRET}",
        f"mongodb://user:{SECRET}@host/?authMechanismProperties=AWS_SESSION_TOKEN:{SECRET}",
        f"mongodb://user:{SECRET}@host/?authMechanismProperties=AWS_SESSION_TOKEN%3A{SECRET}",
    ],
)
def test_no_secret_of_a_url_is_shown(url: str) -> None:
    assert SECRET not in without_password(url)
    assert "user" in without_password(url)


def test_the_shell_shows_no_password_and_no_escape_sequence(fresh_postgres_url: str, tmp_path: Path) -> None:
    """A worker process that starts, works and ends; and one whose server is not there."""
    url = with_password(fresh_postgres_url)
    command = [sys.executable, "-m", "windlass", "worker", "tests.worker.program:app", "--until-idle"]
    gone = f"postgresql://user:{SECRET}@127.0.0.1:{free_port()}/jobs"
    said = ""
    for one in (url, gone):
        environment = os.environ | {"WINDLASS_URL": one, "NOTES": str(tmp_path / "notes")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == (0 if one == url else 1)
        said += done.stdout + done.stderr
    assert "serves all queues" in said
    assert "cannot be reached" in said
    assert said.count(":***@") >= 2
    assert SECRET not in said
    assert "\x1b" not in said


async def test_a_worker_logs_its_end_once(app: Windlass, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "windlass")
    async with app.worker():
        await asyncio.sleep(0.2)
    assert sum("has ended" in line["message"] for line in lines(caplog)) == 1
