"""Pairs of operations that race for a schedule's tick."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from windlass.schedule import Firing, Schedule, call_json, decide_firing

from .pairs import Pair, pair, succeeded
from .scene import Scene, new_job

NAME = "often"
TICK = datetime.now(UTC).replace(microsecond=0, second=0) - timedelta(minutes=3)


def put(scene: Scene, count: int = 1) -> Firing:
    """A schedule with so many ticks that are due, and what is to be done about them."""
    job = new_job(id=UUID(int=0))
    schedule = Schedule(name=NAME, cron="* * * * *", catch_up="all", call=call_json(job), next_at=TICK)
    scene.do("put_schedules", [schedule])
    return decide_firing(schedule, TICK + timedelta(minutes=count - 1))


def look(scene: Scene) -> Schedule:
    (schedule,) = scene.do("schedules").schedules
    assert isinstance(schedule, Schedule)
    return schedule


def fire_fire(scene: Scene, count: int) -> Pair:
    firing = put(scene, count)
    assert len(firing.jobs) == count
    performance = yield lambda: scene.store.fire(firing), lambda: scene.store.fire(firing)
    answers = succeeded(performance)
    assert [answer is None for answer in answers].count(True) == 1, "a tick was fired twice, or not at all"
    assert {job.id for job in scene.all()} == {job.id for job in firing.jobs}
    assert look(scene).next_at == firing.next_at


pair("fire/fire")(lambda scene: fire_fire(scene, 1))
pair("fire/fire, of many ticks")(lambda scene: fire_fire(scene, 3))


@pair("fire/fire, seen at different times")
def fire_behind(scene: Scene) -> Pair:
    """One has seen more of what is due than the other."""
    one, three = put(scene), put(scene, 3)
    performance = yield lambda: scene.store.fire(one), lambda: scene.store.fire(three)
    first, second = succeeded(performance)
    assert (first is None) != (second is None)
    done = one if second is None else three
    assert [job.run_at for job in reversed(scene.all())] == [job.run_at for job in done.jobs]
    assert look(scene).next_at == done.next_at


@pair("fire/pause schedule")
def fire_pause(scene: Scene) -> Pair:
    firing = put(scene)
    performance = yield lambda: scene.store.fire(firing), lambda: scene.store.pause_schedule(NAME)
    fired, paused = succeeded(performance)
    assert paused
    assert look(scene).paused
    assert len(scene.all()) == len(fired or ())
    assert look(scene).next_at == (firing.due_at if fired is None else firing.next_at)


@pair("fire/delete schedule")
def fire_delete(scene: Scene) -> Pair:
    firing = put(scene)
    performance = yield lambda: scene.store.fire(firing), lambda: scene.store.delete_schedule(NAME)
    fired, deleted = succeeded(performance)
    assert deleted
    assert scene.do("schedules").schedules == []
    assert len(scene.all()) == len(fired or ())


@pair("fire/put schedule")
def fire_put(scene: Scene) -> Pair:
    """Another line, from another version of the code: it is not moved by a tick of the old one."""
    firing, later = put(scene), TICK + timedelta(hours=9)
    other = msgspec.structs.replace(look(scene), cron="@hourly", next_at=later)
    performance = yield lambda: scene.store.fire(firing), lambda: scene.store.put_schedules([other])
    fired, _ = succeeded(performance)
    assert len(scene.all()) == len(fired or ())
    assert (look(scene).cron, look(scene).next_at) == ("@hourly", later)


@pair("put schedule/put schedule")
def put_put(scene: Scene) -> Pair:
    schedules = [
        Schedule(name=NAME, cron="* * * * *", call=call_json(new_job(id=UUID(int=0))), next_at=TICK, declared=declared)
        for declared in ("A", "B")
    ]
    performance = yield (
        lambda: scene.store.put_schedules(schedules[:1]),
        lambda: scene.store.put_schedules(schedules[1:]),
    )
    succeeded(performance)
    assert look(scene).declared in ("A", "B")
