"""Stores that are written elsewhere: given to an app, or found by the scheme of a URL."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windlass import Conflict, InvalidInput, MissingExtra, Windlass
from windlass.stores.sqlite.store import SqliteStore

DOCUMENT = Path(__file__).parents[2] / "docs" / "stores-of-your-own.md"
PLAIN = """
from windlass.stores.sqlite.store import SqliteStore

def open_it(url, *, schema, prefix, pool_size):
    return SqliteStore(url.partition("://")[2], prefix=prefix)
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package of one module: its code, and its entry points."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def write(package: str, code: str, entry_points: str) -> None:
        (tmp_path / f"{package}.py").write_text(code)
        information = tmp_path / f"{package}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[windlass.stores]\n{entry_points}\n")

    return write


def test_an_app_takes_a_store(tmp_path: Path) -> None:
    app = Windlass(store=SqliteStore(str(tmp_path / "jobs.db")))

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    job = add.enqueue(1, 2)
    app.run_worker(until_idle=True)
    assert job.result() == 3
    assert repr(app) == "<Windlass SqliteStore>"
    app.close()


def test_a_store_has_its_own_url_and_options(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"))
    for options in ({"url": "sqlite://"}, {"prefix": "other_"}, {"schema": "other"}, {"pool_size": 3}):
        with pytest.raises(InvalidInput, match="do not go with store="):
            Windlass(store=store, **options)


def test_a_store_that_lacks_a_method_is_refused() -> None:
    class Half:
        connections = wakeup = clock = None

        def enqueue(self, jobs: Any) -> None: ...

    with pytest.raises(
        InvalidInput, match=r"is not a store: it has no admit, .*settle.*windlass\.stores\.store\.Store"
    ):
        Windlass(store=Half())  # type: ignore[arg-type]


def test_a_scheme_finds_the_store_of_a_package(install: Install) -> None:
    install("plain_store", PLAIN, "plain = plain_store:open_it")
    app = Windlass("plain://jobs.db", prefix="other_")
    assert app.enqueue("anything").state == "pending"
    assert isinstance(app.store, SqliteStore)
    assert app.store.prefix == "other_"
    app.close()


def test_an_unknown_scheme_names_all_that_there_are(install: Install) -> None:
    install("plain_store", PLAIN, "plain = plain_store:open_it")
    with pytest.raises(
        InvalidInput, match=r"plein://x: no such kind of store.*mongodb://….*plain://….*windlass\.stores"
    ):
        Windlass("plein://x")


def test_two_packages_for_one_scheme_are_refused(install: Install) -> None:
    for package in ("one_store", "two_store"):
        install(package, PLAIN, f"plain = {package}:open_it")
    with pytest.raises(InvalidInput, match="one_store and two_store both add a store for plain://"):
        Windlass("plain://jobs.db")


@pytest.mark.parametrize(
    ("code", "reason"), [("import no_such_driver\n", "no_such_driver"), ("", "open_it")], ids=["driver", "factory"]
)
def test_a_package_that_cannot_be_imported_is_named(install: Install, code: str, reason: str) -> None:
    name = f"broken_{reason}"
    install(name, code, f"broken = {name}:open_it")
    with pytest.raises(MissingExtra, match=rf"{name} adds a store for broken://, but {name}:open_it .*{reason}"):
        Windlass("broken://jobs.db")


def test_a_factory_that_returns_no_store_is_refused(install: Install) -> None:
    install("empty_store", "def open_it(url, **options): return None\n", "empty = empty_store:open_it")
    with pytest.raises(InvalidInput, match="None is not a store"):
        Windlass("empty://jobs.db")


def test_no_package_replaces_our_own_stores(install: Install, tmp_path: Path) -> None:
    install("rival_store", "def open_it(url, **options): raise AssertionError\n", "sqlite = rival_store:open_it")
    Windlass("sqlite:///jobs.db").close()


def test_the_code_of_the_page_runs(install: Install) -> None:
    text = DOCUMENT.read_text()
    build, use, factory, suite = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (entry,) = re.findall(r'^\[project\.entry-points\."windlass\.stores"\]\n(\w+) = "(.*)"$', text, re.MULTILINE)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(build + use + suite, DOCUMENT.name, "exec"), names)
    assert names["refusal"] == "2 jobs are pending; 2 at the most"
    install("capped_store", build + factory, f"{entry[0]} = {entry[1]}")
    app = Windlass("capped:///other.db?most=1")
    app.enqueue("anything")
    with pytest.raises(Conflict, match="1 at the most"):
        app.enqueue("anything")
    app.close()
