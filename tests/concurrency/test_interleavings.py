"""Whatever two operations do to each other, step by step, on two connections: what must hold afterwards, holds.

All interleavings are played: of the pairs in `IN_FULL` always; of others that have more than WINDLASS_TEST_SCHEDULES
(8 if that is not set), all with few changes of turn and a sample of the rest. WINDLASS_TEST_SCHEDULE=ABBA replays
one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import pytest

from windlass.stores.store import Store

from . import dependent_pairs, failing_pairs, key_pairs, schedule_pairs  # noqa: F401 - they add their pairs
from .empty_store import empty
from .interleaving import Performance, explore
from .pairs import PAIRS
from .scene import Scene
from .venues import Venue, venue_of

LIMIT = int(os.environ.get("WINDLASS_TEST_SCHEDULES", "8"))
REPLAY = os.environ.get("WINDLASS_TEST_SCHEDULE")
SEED = 1
IN_FULL = ("complete/enqueue after", "settle/enqueue with an order key")
MANY = {"delete/enqueue after": 40, "retry/complete of a blocker": 40}  # of the 210 schedules of each


@pytest.fixture(scope="module")
def venue(shared_store: Store) -> Iterator[Venue]:
    venue = venue_of(shared_store)
    yield venue
    venue.close()


def limit_of(name: str) -> float:
    return math.inf if name in IN_FULL else max(LIMIT, MANY.get(name, 0))


@pytest.mark.timeout(600)  # hundreds of schedules, each of a dozen commits
@pytest.mark.parametrize("name", PAIRS)
def test_every_interleaving(
    name: str, shared_store: Store, venue: Venue, request: pytest.FixtureRequest, record_property
) -> None:
    def play(beginning: str) -> Performance:
        empty(shared_store)
        scene = Scene(shared_store)
        pair = PAIRS[name](scene)
        makes = next(pair)
        performance = Performance([venue.driven(make) for make in makes], venue.links(), venue.waits)
        try:
            performance.play(beginning)
            with pytest.raises(StopIteration):
                pair.send(performance)
            scene.check_consistency()
        except BaseException as error:
            error.add_note(
                f"{name}, in this order:\n{performance}\nanswers: {performance.answers}\n"
                f"Replay: WINDLASS_TEST_SCHEDULE={performance.schedule} pytest '{request.node.nodeid}'"
            )
            raise
        return performance

    if REPLAY is not None:
        print(play(REPLAY))
        return
    count, complete = explore(play, limit_of(name), SEED)
    assert complete or name not in IN_FULL
    record_property("schedules", count)
    print(f"{name}: {count} schedules, {'all there are' if complete else 'a sample'}")
