"""A look at several documents sees no one moment: some as they were, some as they became meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest

from windlass import Continue, Windlass


@pytest.fixture
def app(fresh_mongodb_url: str) -> Windlass:
    return Windlass(fresh_mongodb_url)


def test_a_chain_that_continues_during_the_read_has_not_ended(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> None:
    following = app.task("following")(lambda: "the end")
    first = app.task("first")(lambda: None).enqueue()
    (attempt,) = app.claim(1)
    attempt.complete(Continue(following.call()))
    store: Any = app.store
    find_chains, looks = store.context.find_chains, []

    def sees_the_first_alone(chains: Sequence[UUID], projection: Mapping[str, Any], *, alone: bool) -> Any:
        """What a look saw that passed the place of the next job before it was there."""
        looks.append(chains)
        if len(looks) == 1:
            return store.context.find_jobs({"_id": {"$in": chains}}, projection, size=len(chains), alone=alone)
        return find_chains(chains, projection, alone=alone)

    monkeypatch.setattr(store.context, "find_chains", sees_the_first_alone)
    with pytest.raises(TimeoutError):
        first.result(0)
    app.run_worker(until_idle=True)
    looks.clear()
    assert first.result(10) == "the end"
    app.close()
