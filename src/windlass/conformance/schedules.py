"""Schedules: each tick makes one job, even if many schedulers fire it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from ..cron import read_cron, read_zone
from ..job import Job
from ..schedule import NO_ID, Firing, Schedule, Timetable, call_json, decide_firing, tick_id
from ..stores.store import Enqueued
from ..unique import Unique
from .bench import Bench, new_job

SCHEDULERS = 5


def put(bench: Bench, cron: str = "* * * * *", *, name: str = "nightly", **fields: Any) -> Schedule:
    """Store a schedule as an app declares it. Its next tick is the first tick after now."""
    own = {field: fields.pop(field) for field in ("timezone", "catch_up", "declared") if field in fields}
    schedule = Schedule(name=name, cron=cron, call=call_json(new_job(id=NO_ID, id_given=False, **fields)), **own)
    now = bench.run(bench.store.schedules).now
    written = msgspec.structs.replace(schedule, next_at=schedule.ticks.after(now))
    bench.run(lambda: bench.store.put_schedules([written]))
    return look(bench, name)


def timetable(bench: Bench) -> Timetable:
    return bench.run(bench.store.schedules)


def look(bench: Bench, name: str = "nightly") -> Schedule:
    (found,) = [schedule for schedule in timetable(bench).schedules if schedule.name == name]
    return found


def due(bench: Bench, limit: int = 100) -> Timetable:
    return bench.run(lambda: bench.store.due_schedules(limit))


def fire(bench: Bench, firing: Firing) -> Sequence[Enqueued] | None:
    return bench.run(lambda: bench.store.fire(firing))


def fire_due(bench: Bench) -> int:
    """Fire all due schedules, as a scheduler does in one round. Return the number of new jobs."""
    made = 0
    while (found := due(bench)).schedules:
        for schedule in found.schedules:
            made += len(fire(bench, decide_firing(schedule, found.now)) or ())
    return made


def pass_ticks(bench: Bench, count: int = 1, name: str = "nightly") -> datetime:
    """Move the clock until `count` more ticks are due. Return the last of them."""
    schedule, now = look(bench, name), timetable(bench).now
    tick = [*schedule.upcoming(count)][-1]
    bench.store.clock.move(tick - now + timedelta(milliseconds=5))
    return tick


def begin_hour(bench: Bench) -> None:
    """Move the clock to just after a full hour. Then the next tick of every schedule here is a minute away: enough time
    for a slow machine."""
    now = timetable(bench).now
    bench.store.clock.move(read_cron("@hourly").after(now) - now + timedelta(milliseconds=5))


class Timetables:
    def test_what_was_put_is_found(self, bench: Bench) -> None:
        before = timetable(bench)
        assert before.schedules == []
        assert abs(before.now - datetime.now(UTC)) < timedelta(minutes=5)
        put(bench, "0 3 * * *", timezone="Europe/Berlin", catch_up="all", declared="jobs:3", type="report", priority=5)
        found = look(bench)
        assert (found.cron, found.timezone, found.catch_up) == ("0 3 * * *", "Europe/Berlin", "all")
        assert (found.declared, found.type, found.job.rank) == ("jobs:3", "report", -5)
        assert (found.paused_at, found.last_at) == (None, None)
        assert found.next_at == read_cron("0 3 * * *", "Europe/Berlin").after(before.now)
        assert found.declared_at is not None
        assert abs(found.declared_at - before.now) < timedelta(minutes=1)

    def test_all_by_name(self, bench: Bench) -> None:
        for name in ("b", "$a", "c"):
            put(bench, name=name)
        assert [schedule.name for schedule in timetable(bench).schedules] == ["$a", "b", "c"]

    def test_text_that_means_something_elsewhere_is_kept_as_it_is(self, bench: Bench) -> None:
        put(bench, name="$name.of'it\"", declared="$declared", input='{"$a":"$$NOW; --"}', type="$type")
        found = look(bench, "$name.of'it\"")
        assert (found.declared, found.input, found.type) == ("$declared", {"$a": "$$NOW; --"}, "$type")

    def test_put_again_it_keeps_its_next_tick_and_its_pause(self, bench: Bench) -> None:
        first = put(bench, "*/5 * * * *")
        bench.run(lambda: bench.store.pause_schedule("nightly"))
        bench.pass_time(hours=1)
        second = put(bench, "*/5 * * * *", type="other", catch_up="skip", declared="elsewhere")
        assert second.next_at == first.next_at
        assert second.paused
        assert (second.type, second.catch_up, second.declared) == ("other", "skip", "elsewhere")

    @pytest.mark.parametrize("change", [{"cron": "7 * * * *"}, {"timezone": "Asia/Kathmandu"}])
    def test_put_with_another_line_or_timezone_it_begins_anew(self, bench: Bench, change: dict[str, str]) -> None:
        begin_hour(bench)
        put(bench, "*/5 * * * *")
        bench.pass_time(hours=5)
        assert due(bench).schedules != []
        put(bench, **{"cron": "*/5 * * * *", **change})
        assert due(bench).schedules == []

    def test_many_who_put_the_same_at_once_put_it_once(self, bench: Bench) -> None:
        bench.at_once(8, lambda _: put(bench))
        assert len(timetable(bench).schedules) == 1

    def test_what_is_due_is_found_longest_due_first(self, bench: Bench) -> None:
        begin_hour(bench)
        for name, cron in (("hourly", "@hourly"), ("minutely", "* * * * *"), ("yearly", "@yearly")):
            put(bench, cron, name=name)
        assert due(bench).schedules == []
        assert due(bench).next_at == look(bench, "minutely").next_at
        bench.pass_time(hours=1, minutes=1)
        found = due(bench)
        names = {schedule.name for schedule in found.schedules}
        assert {"minutely", "hourly"} <= names
        moments = [schedule.next_at for schedule in found.schedules]
        assert moments == sorted(moment for moment in moments if moment and moment <= found.now)
        assert found.next_at == moments[0]
        assert [schedule.name for schedule in due(bench, 1).schedules] == [found.schedules[0].name]

    def test_pause_resume_and_delete(self, bench: Bench) -> None:
        store = bench.store
        put(bench)
        assert bench.run(lambda: store.pause_schedule("nightly"))
        paused_at = look(bench).paused_at
        bench.pass_time(hours=1)
        assert (due(bench).schedules, due(bench).next_at) == ([], None)
        assert bench.run(lambda: store.pause_schedule("nightly"))
        assert look(bench).paused_at == paused_at is not None
        soon = read_cron("* * * * *").after(timetable(bench).now)
        assert bench.run(lambda: store.resume_schedule("nightly", soon))
        assert (look(bench).paused, look(bench).next_at) == (False, soon)
        assert bench.run(lambda: store.resume_schedule("nightly", soon + timedelta(hours=1)))
        assert look(bench).next_at == soon
        assert bench.run(lambda: store.delete_schedule("nightly"))
        assert timetable(bench).schedules == []

    def test_there_is_no_such_schedule(self, bench: Bench) -> None:
        store, now = bench.store, timetable(bench).now
        assert not bench.run(lambda: store.pause_schedule("no"))
        assert not bench.run(lambda: store.resume_schedule("no", now))
        assert not bench.run(lambda: store.delete_schedule("no"))
        assert timetable(bench).schedules == []


class Firings:
    def test_a_tick_makes_its_job_and_the_next_is_due(self, bench: Bench) -> None:
        put(bench, type="report", queue="mail", input='{"a":1}', priority=7, labels='{"b":"c"}')
        tick = pass_ticks(bench)
        assert fire_due(bench) == 1
        (job,) = bench.find()
        assert (job.type, job.queue, job.input, job.priority, job.labels) == ("report", "mail", {"a": 1}, 7, {"b": "c"})
        assert (job.run_at, job.id) == (tick, tick_id("nightly", tick))
        assert bench.claim_one(queue="mail").job == job
        after = look(bench)
        assert (after.last_at, after.next_at) == (tick, tick + timedelta(minutes=1))

    def test_a_delay_counts_from_the_tick(self, bench: Bench) -> None:
        put(bench, delay_seconds=30)
        tick = pass_ticks(bench)
        fire_due(bench)
        assert [job.run_at for job in bench.find()] == [tick + timedelta(seconds=30)]

    def test_nothing_is_made_before_its_time(self, bench: Bench) -> None:
        begin_hour(bench)
        put(bench, "@hourly")
        assert fire_due(bench) == 0
        assert bench.find() == []

    def test_who_comes_late_does_nothing(self, bench: Bench) -> None:
        put(bench)
        pass_ticks(bench)
        firing = decide_firing(due(bench).schedules[0], timetable(bench).now)
        assert len(fire(bench, firing) or ()) == 1
        after = look(bench)
        assert fire(bench, firing) is None
        assert (look(bench), bench.counts().total) == (after, 1)

    @pytest.mark.parametrize("gone", ["kept no longer", "deleted", "never kept"])
    def test_who_comes_late_does_nothing_also_when_the_job_is_gone(self, bench: Bench, gone: str) -> None:
        put(bench, keep_seconds=0 if gone == "never kept" else 3600)
        pass_ticks(bench)
        firing = decide_firing(due(bench).schedules[0], timetable(bench).now)
        fire(bench, firing)
        held = bench.claim_one()
        bench.accept(held.completes())
        if gone == "deleted":
            bench.delete(held)
        bench.pass_time(hours=3)
        bench.prune()
        assert bench.get(held.id) == []
        assert fire(bench, firing) is None
        assert bench.find() == []

    def test_a_tick_that_was_set_back_does_not_run_again(self, bench: Bench) -> None:
        """A wrong clock may set a schedule back. The tick's job exists already, because its id comes from the tick."""
        put(bench)
        pass_ticks(bench)
        firing = decide_firing(due(bench).schedules[0], timetable(bench).now)
        fire(bench, firing)
        bench.accept(bench.claim_one().completes())
        bench.run(lambda: bench.store.delete_schedule("nightly"))
        back = Schedule(name="nightly", cron="* * * * *", call=call_json(new_job(id=NO_ID)), next_at=firing.due_at)
        bench.run(lambda: bench.store.put_schedules([back]))
        again = decide_firing(due(bench).schedules[0], firing.due_at)
        assert again.due_at == firing.due_at
        assert [answer.created for answer in fire(bench, again) or ()] == [False]
        assert bench.counts().total == bench.counts().completed == 1

    @pytest.mark.parametrize("change", ["paused", "deleted", "renewed"])
    def test_what_was_changed_meanwhile_is_not_fired(self, bench: Bench, change: str) -> None:
        put(bench)
        pass_ticks(bench)
        firing = decide_firing(due(bench).schedules[0], timetable(bench).now)
        if change == "paused":
            bench.run(lambda: bench.store.pause_schedule("nightly"))
        elif change == "deleted":
            bench.run(lambda: bench.store.delete_schedule("nightly"))
        else:
            put(bench, "@hourly")
        assert fire(bench, firing) is None
        assert bench.find() == []

    def test_a_firing_without_jobs_moves_the_tick_and_no_more(self, bench: Bench) -> None:
        schedule = put(bench)
        assert schedule.next_at is not None
        later = schedule.next_at + timedelta(minutes=9)
        firing = Firing(name="nightly", due_at=schedule.next_at, next_at=later, last_at=None, jobs=[])
        assert fire(bench, firing) == []
        assert (look(bench).next_at, look(bench).last_at) == (later, None)

    def test_a_unique_key_lets_a_tick_pass_while_the_job_before_is_not_finished(self, bench: Bench) -> None:
        put(bench, unique=Unique("report"))
        for _ in range(3):
            pass_ticks(bench)
            fire_due(bench)
        assert bench.counts().total == 1
        bench.accept(bench.claim_one().completes())
        tick = pass_ticks(bench)
        fire_due(bench)
        assert [job.run_at for job in bench.find(state="pending")] == [tick]

    @pytest.mark.parametrize(("catch_up", "ticks"), [("all", [1, 2, 3, 4, 5]), ("one", [5]), ("skip", [])])
    def test_ticks_that_were_missed(self, bench: Bench, catch_up: str, ticks: list[int]) -> None:
        first = put(bench, "@hourly", catch_up=catch_up).next_at
        assert first is not None
        pass_ticks(bench, 5)
        bench.pass_time(minutes=20)
        fire_due(bench)
        assert [job.run_at for job in jobs(bench)] == [first + timedelta(hours=number - 1) for number in ticks]
        assert look(bench).next_at == first + timedelta(hours=5)
        tick = pass_ticks(bench)
        fire_due(bench)
        assert jobs(bench)[-1].run_at == tick

    def test_more_missed_ticks_than_go_in_at_once(self, bench: Bench) -> None:
        put(bench, catch_up="all")
        pass_ticks(bench, 250)
        assert fire_due(bench) == 250
        assert len({job.run_at for job in bench.find()}) == 250


class Schedulers:
    """Five schedulers that work at the same time."""

    def fire_at_once(self, bench: Bench) -> None:
        bench.at_once(SCHEDULERS, lambda _: fire_due(bench))

    def test_five_of_them_make_sixty_jobs_of_sixty_ticks(self, bench: Bench) -> None:
        put(bench)
        ticks = []
        for _ in range(60):
            ticks.append(pass_ticks(bench))
            self.fire_at_once(bench)
        assert [job.run_at for job in jobs(bench)] == ticks

    def test_jobs_that_run_and_go_meanwhile_are_not_made_again(self, bench: Bench) -> None:
        put(bench, keep_seconds=0)
        ran: list[UUID] = []
        for _ in range(20):
            pass_ticks(bench)

            def fire_and_run(number: int) -> list[UUID]:
                fire_due(bench)
                held = bench.claim() if number % 2 else []
                bench.accept(*(one.completes() for one in held))
                return [one.id for one in held]

            ran += [id for ids in bench.at_once(SCHEDULERS, fire_and_run) for id in ids]
        held = bench.claim()
        assert len(ran) + len(held) == len({*ran, *(one.id for one in held)}) == 20

    @pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
    def test_through_a_year_with_both_days_on_which_clocks_are_moved(self, bench: Bench, zone: str) -> None:
        """A fixed time is skipped on one day and occurs twice on another. The schedule is due once on each day."""
        where, began = read_zone(zone), timetable(bench).now
        put(bench, "30 2 * * *" if zone == "Europe/Berlin" else "30 1,2 * * *", timezone=zone, catch_up="all")
        moved = 0
        while timetable(bench).now < began + timedelta(days=366):
            local = timetable(bench).now.astimezone(where)
            near = any(
                local.utcoffset() != (local.astimezone(UTC) + timedelta(days=days)).astimezone(where).utcoffset()
                for days in (-3, 12)
            )
            moved += near
            bench.pass_time(hours=11 if near else 24 * 9)
            self.fire_at_once(bench)
        assert moved > 10
        days = [job.run_at.astimezone(where) for job in jobs(bench)]
        per_day = 1 if zone == "Europe/Berlin" else 2
        dates = [day.date() for day in days]
        assert len(dates) == len(set(days))
        whole = {date for date in dates if min(dates) < date < max(dates)}
        assert all(dates.count(date) == per_day for date in whole)
        assert len(whole) == (max(dates) - min(dates)).days - 1 >= 364


def jobs(bench: Bench) -> list[Job]:
    """All jobs, in the order of their ticks."""
    return sorted((job for page in bench.pages(500) for job in page), key=lambda job: job.run_at)
