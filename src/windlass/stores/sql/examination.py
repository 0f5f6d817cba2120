"""The part of an examination that the SQL stores share: whether all indexes of the schema are there."""

from __future__ import annotations

import re
from collections.abc import Collection

from ..store import Finding
from .query import Library, migrations

INDEX = re.compile(r"(CREATE|DROP) (?:UNIQUE )?INDEX (?:\"[^\"]*\"\.)?\"?(\w+)\"?")


def indexes_of(library: Library) -> list[str]:
    """The names of the indexes that the migrations make."""
    names: dict[str, None] = {}
    for _, name, text in migrations(library.package):
        for statement in library.render(name, text).statements:
            found = INDEX.search(statement)
            if found is not None and found[1] == "CREATE":
                names[found[2]] = None
            elif found is not None:
                names.pop(found[2], None)
    return list(names)


def missing_indexes(library: Library, there: Collection[str]) -> Finding:
    wanted = indexes_of(library)
    missing = [name for name in wanted if name not in there]
    if not missing:
        return Finding("indexes", True, f"all {len(wanted)} are there")
    remedy = "windlass sql prints the statements that make them: run those of the missing ones"
    return Finding("indexes", False, f"missing or invalid: {', '.join(missing)}", remedy)
