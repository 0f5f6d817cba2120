"""The catalogue of columns: a made-up option that is declared once travels from enqueue to history on each store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from tests.conformance.stores import closing
from windlass.conformance.bench import Bench, Held, new_job
from windlass.job import Job, NewJob
from windlass.operation import Operation, Request, Statement
from windlass.stores.columns import COLUMNS, OPTION, Column, Columns, Use
from windlass.stores.mongodb import MongoStore
from windlass.stores.postgres.store import PostgresStore
from windlass.stores.sql.store import SqlStore
from windlass.stores.sqlite.store import SqliteStore
from windlass.stores.store import Store
from windlass.unique import Unique

WITH_FLAVOUR = Columns(*COLUMNS.all, Column("flavour", "text", "text", None, OPTION | Use.REPLACE))


class Flavoured(NewJob, kw_only=True, gc=False):
    flavour: str | None = None


def flavoured(flavour: str, **fields: Any) -> NewJob:
    return Flavoured(**msgspec.structs.asdict(new_job(**fields)), flavour=flavour)


def open_with_flavour(url: str) -> Store:
    if url.startswith("sqlite"):
        return SqliteStore(url.removeprefix("sqlite:///"), columns=WITH_FLAVOUR)
    if url.startswith("postgres"):
        return PostgresStore(url, columns=WITH_FLAVOUR)
    return MongoStore(url, columns=WITH_FLAVOUR)


def add_column(store: Store) -> Operation[None]:
    if isinstance(store, SqlStore):
        for table in ("jobs", "history"):
            yield Statement(store.sql.render("add a column", f"ALTER TABLE {{{table}}} ADD COLUMN flavour text"))


@pytest.fixture
def bench(empty_store_url: str) -> Iterator[Bench]:
    with closing(open_with_flavour(empty_store_url)) as store:
        store.connections.run(store.migrate)
        store.connections.run(lambda: add_column(store))
        yield Bench(store)


def flavours(bench: Bench, *, finished: bool) -> dict[UUID, str | None]:
    return bench.run(lambda: read_flavours(bench.store, finished))


def read_flavours(store: Store, finished: bool) -> Operation[dict[UUID, str | None]]:
    if isinstance(store, SqlStore):
        table = "history" if finished else "jobs"
        rows = yield Statement(store.sql.render("flavours", f"SELECT id, flavour FROM {{{table}}}"))
        return {UUID(str(id)): flavour for id, flavour in rows}
    rows = yield Request("windlass_jobs", "find", ({"finished_at": {"$exists": finished}},))
    return {row["_id"]: row.get("flavour") for row in rows}


def test_the_catalogue_has_the_fields_of_a_job_in_their_order() -> None:
    fields = tuple(column.field for column in COLUMNS.read)
    assert fields == Job.__struct_fields__[: len(fields)]
    assert {column.name for column in COLUMNS.used(Use.GIVEN)} <= {*NewJob.__struct_fields__}


@pytest.mark.parametrize("count", [1, 3, 30])
@pytest.mark.parametrize("resent", [False, True])
def test_it_is_enqueued_and_kept_in_history(bench: Bench, count: int, resent: bool) -> None:
    jobs = [flavoured(f"flavour {number}") for number in range(count)]
    wanted = {job.id: f"flavour {number}" for number, job in enumerate(jobs)}
    bench.enqueue(*jobs, resent=resent)
    assert flavours(bench, finished=False) == wanted
    bench.accept(*(held.completes() for held in bench.claim(count)))
    assert flavours(bench, finished=True) == wanted


def next_job(held: Held) -> NewJob:
    fields = {"chain_id": held.job.chain_id, "chain_index": 1}
    return flavoured("next", **fields)


def test_the_next_job_of_a_chain_has_it(bench: Bench) -> None:
    bench.enqueue(flavoured("first"))
    held = bench.claim_one()
    continues = next_job(held)
    bench.accept(msgspec.structs.replace(held.completes(), output=None, continues=continues))
    assert flavours(bench, finished=False) == {continues.id: "next"}


def test_the_next_job_of_a_chain_has_it_when_it_is_handed_over(bench: Bench) -> None:
    bench.enqueue(flavoured("first"))
    held = bench.claim_one()
    continues = next_job(held)
    settlement = msgspec.structs.replace(held.completes(), output=None, continues=continues)
    handed = bench.run(lambda: bench.store.hand_over(settlement, uuid4(), "worker"))
    assert handed.job is not None
    assert handed.job.id == continues.id
    assert flavours(bench, finished=False) == {continues.id: "next"}


def test_a_retry_keeps_it(bench: Bench) -> None:
    job = flavoured("plum")
    bench.enqueue(job)
    bench.accept(bench.claim_one().ends("failed"))
    assert flavours(bench, finished=True) == {job.id: "plum"}
    assert bench.run(lambda: bench.store.retry([job.id]))[0].done
    assert flavours(bench, finished=False) == {job.id: "plum"}


def test_a_job_that_replaces_another_rewrites_it(bench: Bench) -> None:
    unique = Unique("key", until="claimed", on_conflict="replace")
    first = flavoured("plum", unique=unique)
    bench.enqueue(first)
    bench.enqueue(flavoured("pear", unique=unique))
    assert flavours(bench, finished=False) == {first.id: "pear"}
