"""Schedules, and the decision which jobs a due schedule enqueues. This module does no I/O."""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import islice
from typing import Any, Literal, TypeAlias, get_args
from uuid import UUID

import msgspec

from .clock import EPOCH, to_microseconds
from .cron import MILLISECOND, Cron, read_cron, read_zone
from .errors import InvalidInput
from .job import NewJob

CatchUp: TypeAlias = Literal["skip", "one", "all"]

LATE = timedelta(seconds=10)  # a tick that is later than this counts as missed
MOST_AT_ONCE, MOST_BYTES = 100, 4 * 1024 * 1024  # limits of one firing: its jobs, and the size of their inputs
NO_ID = UUID(int=0)


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a schedule. `next_at` is its next tick, `last_at` the last tick that made a job."""

    name: str
    cron: str
    timezone: str = "UTC"
    catch_up: CatchUp = "one"
    call: str  # JSON of the job that each tick makes
    declared: str = ""  # module and line of the declaration
    declared_at: datetime | None = None
    paused_at: datetime | None = None
    next_at: datetime | None = None
    last_at: datetime | None = None

    @property
    def ticks(self) -> Cron:
        return read_cron(self.cron, self.timezone)

    @property
    def paused(self) -> bool:
        return self.paused_at is not None

    @property
    def next_runs(self) -> tuple[datetime, ...]:
        """The next five ticks, in the schedule's timezone; none while it is paused."""
        return self.upcoming(5)

    def upcoming(self, count: int) -> tuple[datetime, ...]:
        if self.paused or self.next_at is None:
            return ()
        following = islice(self.ticks.following(self.next_at), count - 1)
        zone = read_zone(self.timezone)
        return tuple(tick.astimezone(zone) for tick in (self.next_at, *following))

    @property
    def job(self) -> NewJob:
        """The job that each tick enqueues, without its id and time."""
        try:
            return msgspec.json.decode(self.call, type=NewJob)
        except msgspec.MsgspecError as error:
            raise InvalidInput(
                f"the schedule {self.name!r} has a call that cannot be read: {error}. Declare the schedule again"
            ) from None

    @property
    def type(self) -> str:
        return self.job.type

    @property
    def queue(self) -> str:
        return self.job.queue

    @property
    def input(self) -> Any:
        return msgspec.json.decode(self.job.input)


class Timetable(msgspec.Struct, frozen=True):
    """Schedules, the store's current time, and the earliest next tick of those that are not paused."""

    now: datetime
    schedules: list[Schedule]
    next_at: datetime | None = None


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a due schedule, and its new next tick. The store writes them only while the schedule's next tick is
    still `due_at`: so one scheduler fires it, not two."""

    name: str
    due_at: datetime
    next_at: datetime
    last_at: datetime | None  # None: no tick made a job
    jobs: list[NewJob]


def check_catch_up(value: object) -> CatchUp:
    if value not in get_args(CatchUp):
        raise InvalidInput(f"catch_up is 'skip', 'one' or 'all', not {value!r}")
    return value  # type: ignore[return-value]


def call_json(job: NewJob) -> str:
    """The job as JSON without the fields that are None, so that later versions can add fields."""
    given = {name: value for name, value in msgspec.structs.asdict(job).items() if value is not None}
    return msgspec.json.encode(given).decode()


def decide_firing(schedule: Schedule, now: datetime, since: datetime | None = None) -> Firing:
    """Decide which jobs a due schedule makes. `since` is the time of this scheduler's last check: a tick after that
    time is not missed, even if there were many."""
    if schedule.next_at is None:
        raise InvalidInput(f"the schedule {schedule.name!r} has no next tick")
    job = schedule.job
    ticks = _due_ticks(schedule, schedule.next_at, now, since, max(1, min(MOST_AT_ONCE, MOST_BYTES // len(job.input))))
    behind = schedule.catch_up == "all" and ticks
    return Firing(
        name=schedule.name,
        due_at=schedule.next_at,
        next_at=schedule.ticks.after(ticks[-1] if behind else now),
        last_at=ticks[-1] if ticks else None,
        jobs=[
            msgspec.structs.replace(job, id=tick_id(schedule.name, tick), id_given=True, run_at=tick, of_tick=True)
            for tick in ticks
        ],
    )


def decide_repair(schedule: Schedule, now: datetime) -> Firing | None:
    """Correct a next tick that is too far in the future, because the store's clock was wrong when it was written.

    The second tick from now is not too far: the clock may have been set back a little, across a tick that has already
    made its job.
    """
    if schedule.next_at is None or schedule.paused:
        return None
    next_at = schedule.ticks.after(now)
    if schedule.next_at <= schedule.ticks.after(next_at):
        return None
    return Firing(name=schedule.name, due_at=schedule.next_at, next_at=next_at, last_at=None, jobs=[])


def _due_ticks(
    schedule: Schedule, first: datetime, now: datetime, since: datetime | None, limit: int
) -> list[datetime]:
    before_first = first - MILLISECOND
    if schedule.catch_up == "all":
        return schedule.ticks.between(before_first, now, limit) or [first]
    in_time = max(since or now, now - LATE, before_first)
    if ticks := schedule.ticks.between(in_time, now, limit):
        return ticks
    last = schedule.ticks.last(now, before_first) or first
    return [last] if schedule.catch_up == "one" or now - last <= LATE else []


def tick_id(name: str, tick: datetime) -> UUID:
    """The id of a tick's job. All schedulers compute the same id, so a tick makes one job.

    It is a UUIDv7 of the tick's time, so that lists stay in order of time. Its other bits are a hash of the schedule's
    name.
    """
    milliseconds = (tick - EPOCH) // MILLISECOND
    rest = blake2b(f"{to_microseconds(tick)} {name}".encode(), digest_size=10).digest()
    value = milliseconds << 80 | int.from_bytes(rest, "big")
    value = value & ~(0xF << 76) | 7 << 76
    value = value & ~(0b11 << 62) | 0b10 << 62
    return UUID(int=value)
