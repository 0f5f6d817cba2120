"""Codecs that the caller has set on his asyncpg connection are his: ids come back as he wants them, and are read."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.caller_transactions.place import Place


async def as_text(connection: Any) -> None:
    await connection.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=str)


async def as_hex(connection: Any) -> None:
    await connection.set_type_codec(
        "uuid", schema="pg_catalog", encoder=lambda id: UUID(str(id)).hex, decoder=lambda text: UUID(text).hex
    )


async def as_bytes(connection: Any) -> None:
    await connection.set_type_codec(
        "uuid", schema="pg_catalog", encoder=lambda id: UUID(str(id)).bytes, decoder=bytes, format="binary"
    )


@pytest.mark.parametrize("codec", [as_text, as_hex, as_bytes])
async def test_ids_in_another_form(postgres_place: Place, codec: Any) -> None:
    app, task, id, key = postgres_place.app, postgres_place.new_task(), uuid4(), uuid4().hex
    connection = await asyncpg.connect(postgres_place.url)
    await codec(connection)
    lent = task.using(connection=connection)
    async with connection.transaction():
        jobs = [await lent.aenqueue(1)]
        jobs += await app.aenqueue_many([task.call(number) for number in range(50)], connection)
        jobs += [await lent.using(id=id).aenqueue(1), await lent.using(id=id).aenqueue(2)]
        jobs += [await lent.using(unique=key).aenqueue(1), await lent.using(unique=key).aenqueue(2)]
        await lent.using(after=[jobs[0]]).aenqueue(3)
    assert all(type(job.id) is UUID for job in jobs)
    assert [job.created for job in jobs[-4:]] == [True, False, True, False]
    assert len(postgres_place.jobs()) == 54
    attempts = await app.aclaim(2, queues=[postgres_place.queue])
    async with connection.transaction():
        for attempt in attempts:
            await attempt.acomplete(1, connection=connection)
    assert [(await attempt.job.arefresh()).state for attempt in attempts] == ["completed"] * 2
    await connection.close()
