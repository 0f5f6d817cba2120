"""The SQL store: its parts, put together over one dialect."""

from __future__ import annotations

from collections.abc import Sequence

from ...clock import Clock
from ...operation import Operation
from ..wakeup import Hint
from .actions import Actions
from .admission import Admission
from .attempts import Claims, Leases, Settlements
from .chains import Chains
from .delete import Deletions
from .dependents import Dependents
from .dialect import Dialect
from .enqueue import Enqueue
from .migrations import Migrations
from .order_keys import OrderKeys
from .query import Library
from .reads import Reads
from .schedules import Schedules
from .status import Statuses
from .workers import Workers


class SqlStore:
    """The operations of `windlass.stores.store.Store`, which has their contracts. A subclass adds the connections."""

    notify = True

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        statuses, reads, order_keys = Statuses(dialect), Reads(dialect), OrderKeys(dialect)
        enqueue = Enqueue(dialect, reads)
        dependents = Dependents(dialect, statuses, enqueue, order_keys, self.hint)
        settlements = Settlements(dialect, statuses, dependents)

        self.enqueue, self.free_own_key = enqueue.enqueue, enqueue.free_own_key
        self.settle, self.hand_over = settlements.settle, settlements.hand_over
        self.get, self.list, self.counts = reads.get, reads.list, reads.counts
        self.paused, self.live_queues = reads.paused, reads.live_queues
        self.head, self.blockers = reads.head, reads.blockers
        self.ends, self.watch = reads.ends, reads.watch

        claims = Claims(dialect)
        self.claim, self.adopt = claims.claim, claims.adopt
        leases = Leases(dialect, statuses, settlements)
        self.begin, self.note, self.renew, self.hold = leases.begin, leases.note, leases.renew, leases.hold
        self.seize, self.anyone_lost = leases.seize, leases.anyone_lost
        self.rescue, self.expire = leases.rescue, leases.expire
        self.admit = Admission(dialect, statuses, dependents, order_keys, self.hint).admit
        self.delete = Deletions(dialect, order_keys, self.hint).delete
        actions = Actions(dialect, statuses, settlements)
        self.cancel, self.retry, self.run_now = actions.cancel, actions.retry, actions.run_now
        self.pause, self.resume = actions.pause, actions.resume

        chains = Chains(dialect, reads)
        self.dependents, self.chains = chains.dependents, chains.chains
        schedules = Schedules(dialect, enqueue)
        self.schedules, self.due_schedules = schedules.schedules, schedules.due_schedules
        self.put_schedules, self.fire = schedules.put_schedules, schedules.fire
        self.pause_schedule, self.resume_schedule = schedules.pause_schedule, schedules.resume_schedule
        self.delete_schedule = schedules.delete_schedule
        workers = Workers(dialect)
        self.now, self.next_due, self.stuck = workers.now, workers.next_due, workers.stuck
        self.beat, self.farewell, self.workers = workers.beat, workers.farewell, workers.workers

        migrations = Migrations(dialect)
        self.migrate, self.check_schema, self.script = migrations.migrate, migrations.check_schema, migrations.script
        self.prune, self.vacuum, self.examine = dialect.prune, dialect.vacuum, dialect.examine
        self.name_tenant = dialect.name_tenant

    def hint(self, hints: Sequence[Hint]) -> Operation[None]:
        if hints and self.notify:
            yield from self.dialect.hint(hints)

    @property
    def sql(self) -> Library:
        return self.dialect.queries.library

    @property
    def clock(self) -> Clock:
        return self.dialect.queries.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self.dialect.queries.clock = clock
