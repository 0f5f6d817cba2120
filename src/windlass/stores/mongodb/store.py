"""The MongoDB store: the operations, put together.

Each file beside this one has those of one kind, with what they decide as plain functions below.
"""

from __future__ import annotations

from ...clock import Clock
from ..names import check_name
from .actions import Actions
from .admission import Admission
from .chains import Chains
from .claim import Claims
from .connections import MongoConnections
from .deletion import Deletions
from .graph import Graph
from .leases import Leases
from .migrations import Migrations
from .presence import Presence
from .reads import Reads
from .schedules import Schedules
from .target import Target
from .upkeep import Upkeep
from .wakeup import MongoWakeup


class MongoStore(
    Migrations, Schedules, Admission, Chains, Claims, Leases, Actions, Deletions, Reads, Graph, Presence, Upkeep
):
    """A `Store` in a database of a MongoDB replica set; the URL's path names the database."""

    def __init__(self, client_url: str, *, prefix: str = "windlass_", clock: Clock | None = None) -> None:
        super().__init__(check_name("prefix", prefix), clock)
        self.connections = MongoConnections(Target(client_url), self.migrations)
        self.wakeup = MongoWakeup(self.connections, self.hints)
