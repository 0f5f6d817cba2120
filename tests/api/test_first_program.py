"""The first program that anyone will run, as it is written in the documents."""

from __future__ import annotations

from pathlib import Path

from tests.api.program import run

HELLO = """\
# jobs.py
from windlass import Windlass

app = Windlass("sqlite:///jobs.db")        # no argument: $WINDLASS_URL, else sqlite:///windlass.db

@app.task(queue="mail", max_attempts=5)
async def send_welcome(user_id: int) -> str:
    return f"sent to {user_id}"

if __name__ == "__main__":
    job = send_welcome.enqueue(user_id=42)  # a plain call works too: await send_welcome(42)
    app.run_worker(until_idle=True)         # or, in a shell: windlass worker jobs:app
    print(job.result())
"""


def greets(program: str, folder: Path, **environment: str) -> bool:
    (folder / "jobs.py").write_text(program, encoding="utf-8")
    done = run("-W", "default", "jobs.py", folder=folder, **environment)
    assert (done.stdout, done.stderr) == ("sent to 42\n", "")
    return done.returncode == 0


def test_hello_world_verbatim(tmp_path: Path) -> None:
    assert greets(HELLO, tmp_path)
    assert (tmp_path / "jobs.db").exists()
    assert greets(HELLO, tmp_path)


def test_hello_world_on_each_store_by_its_url_alone(store_url: str, tmp_path: Path) -> None:
    assert greets(HELLO.replace("sqlite:///jobs.db", store_url), tmp_path)


def test_hello_world_by_the_environment(store_url: str, tmp_path: Path) -> None:
    assert greets(HELLO.replace('"sqlite:///jobs.db"', ""), tmp_path, WINDLASS_URL=store_url)


def test_hello_world_without_a_url(tmp_path: Path) -> None:
    assert greets(HELLO.replace('"sqlite:///jobs.db"', ""), tmp_path)
    assert (tmp_path / "windlass.db").exists()


def test_hello_world_in_memory(tmp_path: Path) -> None:
    assert greets(HELLO.replace("sqlite:///jobs.db", "sqlite://"), tmp_path)
    assert list(tmp_path.glob("*.db")) == []
