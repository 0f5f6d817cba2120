"""The servers that the other tests stand on are real, durable, and leave nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from pymongo import MongoClient

from tests.servers import MEMORY, MONGODB_VARIABLE, POSTGRES_VARIABLE, SPARE_BYTES
from windlass.embedded import MongodbServer, PostgresServer, Server, ServerError

ROOT = Path(__file__).parent.parent
SHOW_URLS = f"import os; print(os.environ['{POSTGRES_VARIABLE}'], os.environ['{MONGODB_VARIABLE}'])"


def run_with_servers(*command: str, **environment: str) -> subprocess.Popen[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in (POSTGRES_VARIABLE, MONGODB_VARIABLE)}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.servers", "--", *command],
        cwd=ROOT,
        env={**inherited, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def mongodb_client(url: str) -> MongoClient[Any]:
    return MongoClient(url, serverSelectionTimeoutMS=30_000)


def test_postgres_is_real_and_durable(fresh_postgres_url: str) -> None:
    with psycopg.connect(fresh_postgres_url) as connection:
        (version,) = connection.execute("SELECT version()").fetchone() or ("",)
        durability = connection.execute("SELECT current_setting('fsync'), current_setting('synchronous_commit')")
        assert durability.fetchone() == ("on", "on")
    assert version.startswith("PostgreSQL ")


def test_mongodb_has_transactions(fresh_mongodb_url: str) -> None:
    with mongodb_client(fresh_mongodb_url) as client:
        jobs = client.get_default_database()["jobs"]
        jobs.insert_one({"_id": "before"})
        with client.start_session() as session, session.start_transaction():
            jobs.insert_one({"_id": "aborted"}, session=session)
            session.abort_transaction()
        with client.start_session() as session, session.start_transaction():
            jobs.insert_one({"_id": "committed"}, session=session)
        assert {job["_id"] for job in jobs.find()} == {"before", "committed"}


@pytest.mark.parametrize("attempt", ["first", "second"])
def test_each_test_has_a_database_of_its_own(empty_store_url: str, attempt: str) -> None:
    store_url = empty_store_url
    if store_url.startswith("sqlite:"):
        assert not Path(store_url.removeprefix("sqlite:///")).exists()
    elif store_url.startswith("postgresql:"):
        with psycopg.connect(store_url) as connection:
            connection.execute("CREATE TABLE jobs ()")
    else:
        with mongodb_client(store_url) as client:
            assert client.get_default_database().list_collection_names() == []
            client.get_default_database().create_collection("jobs")


def test_a_killed_postgres_comes_back_with_all_commits() -> None:
    with PostgresServer(settings={"work_mem": "5MB"}) as server:
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE jobs AS SELECT 1 AS id")
        with psycopg.connect(server.url) as connection:
            connection.execute("INSERT INTO jobs VALUES (2)")
            server.kill()
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
        server.restart()
        with psycopg.connect(server.url) as connection:
            assert connection.execute("SELECT id FROM jobs").fetchall() == [(1,)]
            assert connection.execute("SHOW work_mem").fetchone() == ("5MB",)
        folder = server.folder
    assert not folder.exists()


def test_a_killed_mongodb_comes_back_with_all_acknowledged_writes() -> None:
    with MongodbServer() as server:
        with mongodb_client(server.url) as client:
            client["test"]["jobs"].insert_one({"_id": 1})
        server.kill()
        server.restart()
        with mongodb_client(server.url) as client:
            assert client["test"]["jobs"].find_one() == {"_id": 1}
        folder = server.folder
    assert not folder.exists()


@pytest.mark.parametrize("kind", [PostgresServer, MongodbServer])
def test_a_server_does_not_pass_for_another_on_its_port(kind: type[Server]) -> None:
    second = kind()
    with kind() as first:
        second.port = first.port
        with pytest.raises(ServerError, match="is in use"), second:
            pass


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(ServerError, match="unrecognized configuration parameter"), PostgresServer({"fsnyc": "off"}):
        pass


def test_the_runner_passes_urls_and_exit_code() -> None:
    runner = run_with_servers(sys.executable, "-c", f"{SHOW_URLS}; raise SystemExit(7)")
    output, _ = runner.communicate()
    assert output.startswith("postgresql://postgres@127.0.0.1:")
    assert "?replicaSet=rs0" in output
    assert runner.returncode == 7


def test_the_runner_starts_no_server_where_one_is_named() -> None:
    named = {POSTGRES_VARIABLE: "postgresql://one", MONGODB_VARIABLE: "mongodb://two"}
    output, _ = run_with_servers(sys.executable, "-c", SHOW_URLS, **named).communicate()
    assert output == "postgresql://one mongodb://two\n"


@pytest.mark.parametrize("kind_of_end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_however_the_runner_ends(kind_of_end: signal.Signals, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    command = f"import os, time; open({str(ready)!r}, 'x')\nwhile os.path.exists({str(ready)!r}): time.sleep(0.05)"
    runner = run_with_servers(sys.executable, "-c", command)
    while not ready.exists():
        assert runner.poll() is None
        time.sleep(0.02)
    try:
        descendants = psutil.Process(runner.pid).children(recursive=True)
        folders = {Path(process.cwd()) for process in descendants if process.name() in ("postgres", "mongod")}
        assert len(folders) >= 2
        runner.send_signal(kind_of_end)
    finally:
        ready.unlink()
    runner.communicate()
    _, alive = psutil.wait_procs(descendants, timeout=30)
    assert alive == []
    assert not any(folder.exists() for folder in folders)


def test_in_memory_their_files_are_where_there_is_room_and_are_removed() -> None:
    show = "import os, windlass.embedded as e; print(os.environ.get('TMPDIR'), e.temporary_folder())"
    environment = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    urls = {POSTGRES_VARIABLE: "postgresql://unused", MONGODB_VARIABLE: "mongodb://unused"}
    command = [sys.executable, "-m", "tests.servers", "--in-memory", "--", sys.executable, "-c", show]
    done = subprocess.run(command, cwd=ROOT, env=environment | urls, capture_output=True, text=True, check=True)
    folder, file = done.stdout.split()
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 2 * SPARE_BYTES:
        assert file.startswith(f"{folder}/")
        assert Path(folder).parent == MEMORY
        assert not Path(folder).exists()
    given = subprocess.run(
        command, cwd=ROOT, env=environment | urls | {"TMPDIR": "/tmp"}, capture_output=True, text=True, check=True
    )
    assert given.stdout.startswith("/tmp ")
    shutil.rmtree(given.stdout.split()[1])
