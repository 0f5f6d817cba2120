"""Acting on jobs, one or many: the part of the public face that needs no task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid4

from msgspec.structs import replace

from .call import check_id
from .errors import Conflict, InvalidInput, JobNotFound
from .job import Job
from .lifecycle import CANCELLED, COMPLETED, FAILED, LIVE, Event, why_not
from .maintenance import Maintenance
from .operation import Operation
from .outcome import Continue, Settlement, describe_error, encode_error, next_of_chain
from .policy import UNSET
from .reading import make_filter
from .stores.store import Bookmark, Change, Filter, Store
from .stores.wakeup import Hint
from .sweeping import Chunk, Sweep
from .twins import joining_twins

CHUNK = 500  # jobs that are acted on in one transaction


class Acting(Maintenance):
    """Part of `Windlass`."""

    max_blockers: int
    make_id: Callable[[], UUID]

    # Acting on one

    def _act(self, event: Event, id: UUID | str, **options: Any) -> Operation[Change]:
        operation = _OPERATIONS[event](self.store)
        (change,) = yield from operation([check_id(id)], **options)
        if change.state is None:
            raise JobNotFound(f"there is no job {id}: it never was, was deleted, or is no longer kept")
        if not change.done and not (event == "cancel" and change.state == "cancelled"):
            taken = event == "bring back" and change.state in ("failed", "cancelled")
            reason = "another job holds its unique key by now" if taken else why_not(event, change.state)
            raise Conflict(f"job {id}: {change.reason or reason}")
        yield from self._tell(event, [change])
        return change

    def _tell(self, event: Event, changes: Sequence[Change]) -> Operation[None]:
        """Hints for what became due, and for workers that should stop."""
        if event in ("bring back", "run now"):
            hints = {Hint("ready", change.queue) for change in changes if change.done and change.queue}
        elif event == "cancel":
            hints = {Hint("told", str(change.id)) for change in changes if change.done and change.state == "running"}
        else:
            return
        yield from self.store.hint(sorted(hints, key=Hint.encode))

    def _cancel(self, id: UUID | str, *, connection: Any = UNSET) -> Operation[Job]:
        """Not to run, or not any more. For a running job it is a request, which its worker carries out."""
        before = yield from self._require(id)
        yield from self._act("cancel", id)
        # What is kept for no time is gone by now.
        return (yield from self._get(id)) or self.bind(replace(before, state=CANCELLED))

    cancel, acancel = joining_twins(_cancel)

    def _retry(self, id: UUID | str, *, connection: Any = UNSET) -> Operation[Job]:
        """Bring a failed or cancelled job back, due now, with all its attempts."""
        yield from self._act("bring back", id)
        return (yield from self._require(id))

    retry, aretry = joining_twins(_retry)

    def _run_now(self, id: UUID | str, *, connection: Any = UNSET) -> Operation[Job]:
        """Do not wait for its time."""
        yield from self._act("run now", id)
        return (yield from self._require(id))

    run_now, arun_now = joining_twins(_run_now)

    def _complete(self, id: UUID | str, output: Any = None, *, connection: Any = UNSET) -> Operation[Job]:
        """Complete a job without a worker, for a person or a webhook; a worker that runs it is told to stop.
        `Continue(call)` as the output creates the next job of its chain. With `connection`, in that transaction."""
        job = yield from self._require(id)
        if isinstance(output, Continue):
            following = next_of_chain(job, output.call, self.make_id, self.max_blockers)
            ended = Settlement(id=job.id, token=None, state=COMPLETED, continues=following)
        else:
            ended = Settlement(id=job.id, token=None, state=COMPLETED, output=self._encode_output(job, output))
        return (yield from self._end(job, "complete", ended))

    complete, acomplete = joining_twins(_complete)

    def _fail(self, id: UUID | str, error: BaseException | str, *, connection: Any = UNSET) -> Operation[Job]:
        """Fail a job for good, without a worker; a worker that runs it is told to stop."""
        job = yield from self._require(id)
        ended = Settlement(id=job.id, token=None, state=FAILED, error=encode_error(describe_error(error)))
        return (yield from self._end(job, "fail", ended))

    fail, afail = joining_twins(_fail)

    def _end(self, job: Job, event: Event, ended: Settlement) -> Operation[Job]:
        """A worker that runs the job loses it first; a job that waits is ended as it is."""
        token = uuid4()
        seized = yield from self.store.seize([job.id], token)
        settlement = replace(ended, token=token) if seized else ended
        refusals = yield from self.store.settle([settlement])
        if refusals:
            now = yield from self._require(job.id)
            raise Conflict(f"job {job.id}: {why_not(event, now.state)}")
        hints = [Hint("told", str(job.id))] if seized else []
        if ended.continues is not None:
            hints.append(Hint("ready", ended.continues.queue))
        yield from self.store.hint(hints)
        if job.policy is not None and job.policy.keep_seconds == 0:
            return self.bind(replace(job, state=ended.state, output_json=ended.output))
        return (yield from self._require(job.id))

    def _encode_output(self, job: Job, output: Any) -> str:
        raise NotImplementedError

    def _delete(self, id: UUID | str, *, cascade: bool = False, connection: Any = UNSET) -> Operation[None]:
        """Remove its chain and the unique keys that it holds. Not while it runs, nor while another chain waits for it.
        `cascade`: the chains that it waited for, too, and so on, where they do not run and nothing else waits for
        them."""
        yield from self._act("delete", id, cascade=cascade)

    delete, adelete = joining_twins(_delete)

    # Acting on many: chunk by chunk, each a transaction of its own

    def _chunk(self, event: Event, sweep: Sweep) -> Operation[Chunk]:
        jobs = yield from self.store.list(sweep.filters[0], CHUNK, sweep.before)
        changes = yield from _OPERATIONS[event](self.store)(sorted(job.id for job in jobs))
        yield from self._tell(event, changes)
        waited_for = sum(not change.done and change.reason is not None for change in changes)
        last = Bookmark.of(jobs[-1]) if len(jobs) == CHUNK else None
        return Chunk(sum(change.done for change in changes), waited_for, last)

    def _all(self, event: Event, filters: Sequence[Filter]) -> int:
        sweep = Sweep(filters)
        while sweep.filters:
            sweep.took(self.run_operation(lambda: self._chunk(event, sweep)))
        return sweep.done

    async def _aall(self, event: Event, filters: Sequence[Filter]) -> int:
        sweep = Sweep(filters)
        while sweep.filters:
            sweep.took(await self.arun_operation(lambda: self._chunk(event, sweep)))
        return sweep.done

    def cancel_many(self, **filter: Any) -> int:
        """Cancel all that match (state, type, queue, tenant, chain, since; or all=True): how many."""
        return self._all("cancel", _filters(filter, sorted(LIVE)))

    async def acancel_many(self, **filter: Any) -> int:
        return await self._aall("cancel", _filters(filter, sorted(LIVE)))

    def retry_many(self, **filter: Any) -> int:
        """Bring back all that match; the failed ones if no state is given."""
        return self._all("bring back", _filters(filter, ["failed"]))

    async def aretry_many(self, **filter: Any) -> int:
        return await self._aall("bring back", _filters(filter, ["failed"]))

    def run_now_many(self, **filter: Any) -> int:
        return self._all("run now", _filters(filter, ["pending"]))

    async def arun_now_many(self, **filter: Any) -> int:
        return await self._aall("run now", _filters(filter, ["pending"]))

    def delete_many(self, **filter: Any) -> int:
        """Delete all that match, are not running, and are waited for by none but each other."""
        return self._all("delete", _filters(filter, [None]))

    async def adelete_many(self, **filter: Any) -> int:
        return await self._aall("delete", _filters(filter, [None]))


_OPERATIONS: dict[Event, Callable[[Store], Callable[..., Operation[list[Change]]]]] = {
    "cancel": lambda store: store.cancel,
    "bring back": lambda store: store.retry,
    "run now": lambda store: store.run_now,
    "delete": lambda store: store.delete,
}


def _filters(given: dict[str, Any], states: Sequence[str | None]) -> list[Filter]:
    names = ("state", "type", "queue", "tenant", "chain", "since", "unique")
    unknown = given.keys() - {*names, "all"}
    if unknown:
        raise InvalidInput(f"unknown filter {', '.join(sorted(unknown))}; there are: {', '.join(names)}, all")
    every = given.get("all", False)
    if not isinstance(every, bool):
        raise InvalidInput(f"all is True or False, not {every!r}")
    if every == any(given.get(name) is not None for name in names):
        said = (
            "give a filter or all=True, not both" if every else "no filter is given: to act on all jobs, say all=True"
        )
        raise InvalidInput(said)
    chosen = [given["state"]] if given.get("state") is not None else states
    return [make_filter(state, *(given.get(name) for name in names[1:])) for state in chosen]
