"""Deletion of chains in SQL. A chain stays while one of its jobs runs, or while other jobs wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from ...lifecycle import RUNNING
from ...operation import Current, Operation, Row
from ..blockers import chains_to_delete
from ..store import Change
from ..wakeup import Hint
from .dialect import Dialect, Part, SendHints
from .order_keys import OrderKeys

TRIES = 5  # a job can be moving between the live table and history


class Deletions(Part):
    """Operation `delete`."""

    def __init__(self, dialect: Dialect, order_keys: OrderKeys, hint: SendHints) -> None:
        super().__init__(dialect)
        self.order_keys, self.hint = order_keys, hint

    def delete(self, ids: Sequence[UUID], *, cascade: bool = False) -> Operation[list[Change]]:
        yield Current("others may wait for a job that is deleted, or for their turn behind it")
        answers: dict[UUID, Change] = {}
        left = sorted(set(ids))
        for _ in range(TRIES):
            answers |= yield from self._delete(left, cascade)
            left = [id for id in left if id not in answers]
            if not left:
                break
        return [answers.get(id) or Change(id, False, None) for id in ids]

    def _delete(self, ids: Sequence[UUID], cascade: bool) -> Operation[dict[UUID, Change]]:
        """Answers for the jobs that exist, without those that were moved meanwhile."""
        to_uuid = self.rows.to_uuid
        rows = yield self.statement("find_chains", ids=self.array(ids))
        chain_of = {to_uuid(id): to_uuid(chain) for id, chain in rows}
        gone = {id: Change(id, False, None) for id in ids if id not in chain_of}
        asked = set(chain_of.values())
        blockers = (yield from self._blockers_of(asked)) if cascade else {}
        chains = asked | blockers.keys()
        members = yield self.dialect.members(sorted(chains), locked=False)
        keys = sorted({(tenant, key) for *_, lane, tenant, key in members if lane is not None})
        yield from self.order_keys.lock(keys)
        members = yield self.dialect.members(sorted(chains), locked=True)
        refused = yield from self._refused(chains, members)
        done = yield from self.dialect.remove(sorted(chains_to_delete(asked, blockers, refused.keys())))
        queues = yield from self.order_keys.promote(keys)
        yield from self.hint([Hint("ready", queue) for queue in queues])
        stay = {id: _renamed(refused[chain], id) for id, chain in chain_of.items() if chain in refused}
        return gone | stay | {id: change for id, change in done.items() if id in chain_of}

    def _blockers_of(self, chains: Iterable[UUID]) -> Operation[dict[UUID, set[UUID]]]:
        """The chains that these chains wait or have waited for, and the chains that those wait for, and so on."""
        blockers: dict[UUID, set[UUID]] = {chain: set() for chain in chains}
        left = sorted(blockers)
        while left:
            rows = yield self.statement("blockers_of_chains", ids=self.array(left))
            pairs = [(self.rows.to_uuid(chain), self.rows.to_uuid(awaited)) for chain, awaited in rows]
            left = sorted({awaited for _, awaited in pairs} - blockers.keys())
            blockers |= {chain: set() for chain in left}
            for chain, awaited in pairs:
                blockers[chain].add(awaited)
        return blockers

    def _refused(self, chains: set[UUID], members: Sequence[Row]) -> Operation[dict[UUID, Change]]:
        """The chains that must stay, and with each of them the chains that it waits for."""
        to_uuid = self.rows.to_uuid
        refused = {to_uuid(row[1]): Change(to_uuid(row[0]), False, RUNNING) for row in members if row[4]}
        states = {to_uuid(row[1]): row[2] for row in members}
        rows = yield self.statement("waiting_jobs", ids=self.array(sorted(chains)))
        waiting = [(to_uuid(chain), to_uuid(id), to_uuid(own), type) for chain, id, own, type in rows]
        ended = {chain for chain, *_ in waiting} - states.keys()
        if ended:
            rows = yield self.statement("chain_ends", ids=self.array(sorted(ended)))
            states |= {to_uuid(chain): state for chain, state, *_ in rows}
        while True:
            more = {
                chain: Change(chain, False, states.get(chain, "failed"), None, f"job {id} ({type}) waits for it")
                for chain, id, own, type in waiting
                if chain not in refused and (own not in chains or own in refused)
            }
            if not more:
                return refused
            refused |= more


def _renamed(change: Change, id: UUID) -> Change:
    return Change(id, change.done, change.state, change.queue, change.reason)
