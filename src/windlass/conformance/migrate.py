"""`migrate`, `check_schema`, `script`: create and check the schema."""

from __future__ import annotations

import pytest

from ..errors import SchemaMismatch
from ..stores.store import Store
from .bench import Bench


class Migrating:
    def test_the_first_applies_all_and_the_second_finds_nothing_to_do(self, bare_store: Store) -> None:
        bench = Bench(bare_store)
        assert not bench.run(bare_store.check_schema)
        assert bench.run(bare_store.migrate)
        assert bench.run(bare_store.check_schema)
        assert bench.run(bare_store.migrate) == []
        bench.add()

    def test_of_ten_who_start_at_once_one_does_the_work(self, bare_store: Store) -> None:
        bench = Bench(bare_store)
        applied = bench.at_once(10, lambda _: (bench.run(bare_store.migrate), bench.add())[0])
        assert len([names for names in applied if names]) == 1
        assert bench.counts().pending == 10

    def test_without_a_schema_the_error_says_so(self, bare_store: Store) -> None:
        with pytest.raises(SchemaMismatch, match="migrate"):
            Bench(bare_store).add()

    def test_a_second_migration_loses_nothing(self, bench: Bench) -> None:
        jobs = [bench.add(), bench.hold().job, bench.finish()]
        bench.run(bench.store.migrate)
        assert bench.find() == jobs[::-1]

    def test_the_script_can_be_read(self, bare_store: Store) -> None:
        assert "jobs" in bare_store.script()
