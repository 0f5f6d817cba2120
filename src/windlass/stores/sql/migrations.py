"""The schema in SQL: numbered migrations, and a table that records the applied ones."""

from __future__ import annotations

from dataclasses import replace

from ...errors import SchemaMismatch
from ...operation import Operation, Rows, Statement
from .dialect import Part
from .query import Query, migrations

# The oldest code, by the newest migration that it knows, that can work beside each version.
MIN_COMPATIBLE = {1: 1, 2: 2, 3: 2}


class Migrations(Part):
    """Operations `migrate`, `check_schema`, `script`."""

    def check_schema(self) -> Operation[bool]:
        exists = yield self.statement("schema_exists", alone=True)
        if not exists[0][0]:
            return False
        return self._is_current((yield self.statement("schema_version", alone=True)))

    def _is_current(self, versions: Rows) -> bool:
        known = max(migrations(self.queries.library.package))[0]
        if versions and versions[-1][1] > known:
            raise SchemaMismatch(
                f"the database's schema (version {versions[-1][0]}) no longer admits this version of Windlass, which "
                f"knows schema {known}: upgrade Windlass here"
            )
        return bool(versions) and versions[-1][0] >= known

    def migrate(self) -> Operation[list[str]]:
        yield replace(self.statement("schema_lock"), patient=True)
        versions = yield self.statement("schema_version")
        self._is_current(versions)
        applied = {row[0] for row in versions}
        names = []
        for version, name, text in migrations(self.queries.library.package):
            if version not in applied:
                yield Statement(self.queries.library.render(name, text), patient=True)
                yield self.statement(
                    "schema_record", version=version, name=name, min_compatible=MIN_COMPATIBLE[version]
                )
                names.append(name)
        return names

    def script(self) -> str:
        """All in one transaction, with the records that `check_schema` reads."""
        parts: list[Query] = [self.queries.library["schema_lock"]]
        for version, name, text in migrations(self.queries.library.package):
            record = self.queries.library["schema_record"].statements[0]
            record = record.replace(":version", str(version)).replace(":name", f"'{name}'")
            record = record.replace(":min_compatible", str(MIN_COMPATIBLE[version]))
            parts += [self.queries.library.render(name, text), Query(f"{name} is applied", record)]
        listed = [f"-- {part.name}\n" + ";\n\n".join(part.statements) + ";" for part in parts]
        return "\n\n".join(["BEGIN;", *listed, "COMMIT;"])
