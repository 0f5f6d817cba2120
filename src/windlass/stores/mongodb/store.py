"""The MongoDB store: its parts, put together over one context. Each part is in the file of its name."""

from __future__ import annotations

from ...clock import Clock
from ..columns import COLUMNS, Columns
from ..names import check_name
from .actions import Actions
from .admission import Admission
from .chains import Chains
from .claim import Claims
from .connections import MongoConnections
from .context import Context
from .delete import Deletions
from .dependents import Dependents
from .enqueue import Enqueue
from .examination import Examination
from .leases import Leases
from .maintenance import Maintenance
from .migrations import Migrations
from .order_keys import OrderKeys
from .reads import Reads
from .schedules import Schedules
from .settle import Settlements
from .tallies import Tallies
from .target import Target
from .wakeup import MongoWakeup
from .workers import Workers


class MongoStore:
    """A `Store` in a database of a MongoDB replica set; the URL's path names the database."""

    def __init__(
        self, client_url: str, *, prefix: str = "windlass_", clock: Clock | None = None, columns: Columns = COLUMNS
    ) -> None:
        self.context = context = Context(check_name("prefix", prefix), columns, clock or Clock())
        self.connections = MongoConnections(Target(client_url), context.migrations)
        self.wakeup = MongoWakeup(self.connections, context.hints)

        enqueue, order_keys, tallies = Enqueue(context), OrderKeys(context), Tallies(context)
        dependents = Dependents(context, enqueue, order_keys)
        settlements = Settlements(context, dependents, tallies)
        self.enqueue, self.free_own_key = enqueue.enqueue, enqueue.free_own_key
        self.settle, self.hand_over = settlements.settle, settlements.hand_over
        reads = Reads(context)
        self.get, self.list, self.counts = reads.get, reads.list, reads.counts
        self.paused, self.live_queues = reads.paused, reads.live_queues
        self.head, self.blockers = reads.head, reads.blockers
        self.ends, self.watch = reads.ends, reads.watch

        claims = Claims(context)
        self.claim, self.adopt = claims.claim, claims.adopt
        leases = Leases(context, settlements)
        self.begin, self.note, self.renew, self.hold = leases.begin, leases.note, leases.renew, leases.hold
        self.seize, self.anyone_lost = leases.seize, leases.anyone_lost
        self.rescue, self.expire = leases.rescue, leases.expire
        self.admit = Admission(context, settlements, dependents, order_keys).admit
        self.delete = Deletions(context, order_keys, tallies).delete
        actions = Actions(context, settlements, tallies)
        self.cancel, self.retry, self.run_now = actions.cancel, actions.retry, actions.run_now
        self.pause, self.resume = actions.pause, actions.resume

        chains = Chains(context)
        self.dependents, self.chains = chains.dependents, chains.chains
        schedules = Schedules(context, enqueue)
        self.schedules, self.due_schedules = schedules.schedules, schedules.due_schedules
        self.put_schedules, self.fire = schedules.put_schedules, schedules.fire
        self.pause_schedule, self.resume_schedule = schedules.pause_schedule, schedules.resume_schedule
        self.delete_schedule = schedules.delete_schedule
        workers = Workers(context)
        self.now, self.next_due, self.stuck = workers.now, workers.next_due, workers.stuck
        self.beat, self.farewell, self.workers = workers.beat, workers.farewell, workers.workers

        migrations = Migrations(context)
        self.migrate, self.check_schema, self.script = migrations.migrate, migrations.check_schema, migrations.script
        maintenance = Maintenance(context, tallies)
        self.prune, self.vacuum = maintenance.prune, maintenance.vacuum
        self.examine = Examination(context).examine
        self.hint, self.name_tenant = context.hint, context.name_tenant

    @property
    def clock(self) -> Clock:
        return self.context.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self.context.clock = clock

    @property
    def notify(self) -> bool:
        return self.context.notify

    @notify.setter
    def notify(self, notify: bool) -> None:
        self.context.notify = notify
