"""The whole suite as one class. Give it one fixture, and all tests run on your store."""

from __future__ import annotations

import pytest

from ..stores.store import Store
from .asynchronous import Asynchronous
from .begin import Beginning
from .bench import Bench
from .blockers import Blocking, DeletingBlockers
from .cancel import Cancelling
from .chains import Chains
from .claim import Bounds, Claims, Order, Policies, Prefetching
from .counts import Counting
from .crowd import Crowding
from .delete import Deleting
from .enqueue import Enqueueing, Ids
from .expire import Expiring
from .fencing import Fencing, Rescued, SentAgain
from .graph import Cascades, ChainLists, Dependents
from .hand_over import HandingOver
from .if_failed import FailingBlockers
from .kept_keys import KeptKeys
from .migrate import Migrating
from .moments import OneMoment, PastMoments
from .note import Noting
from .options import GivenOptions
from .order_keys import OrderKeys
from .pause import LiveQueues, Pausing
from .payload import Names, Payloads
from .prune import Pruning
from .reading import Getting, Listing
from .renew import Renewing
from .rescue import Rescuing
from .retry import Retrying
from .run_now import RunningNow
from .schedules import Firings, Schedulers, Timetables
from .scopes import OwnKeys, UniqueScopes
from .settle import Batches, Ending, SendingBack
from .stuck import Stuck
from .unique import Replacing, UniqueBatches, UniqueKeys
from .wakeup import WakingUp


class Conformance:
    """All promises of a store. Write a subclass that pytest collects, with the fixture `store`."""

    @pytest.fixture
    def store(self) -> Store:
        """A store on an empty database. It may be not migrated. The fixture also closes it."""
        raise NotImplementedError("the suite has no fixture `store`; define one: a store on an empty database")

    @pytest.fixture
    def bare_store(self, store: Store) -> Store:
        """A store that is not migrated. Define it only if your `store` is migrated already, to save time."""
        return store

    @pytest.fixture
    def bench(self, store: Store) -> Bench:
        if not store.connections.run(store.check_schema):
            store.connections.run(store.migrate)
        return Bench(store)

    TestMigrating = Migrating

    TestEnqueueing = Enqueueing
    TestIds = Ids
    TestPayloads = Payloads
    TestNames = Names
    TestUniqueKeys = UniqueKeys
    TestUniqueBatches = UniqueBatches
    TestReplacing = Replacing
    TestKeptKeys = KeptKeys
    TestUniqueScopes = UniqueScopes
    TestOwnKeys = OwnKeys
    TestPastMoments = PastMoments
    TestOneMoment = OneMoment

    TestStuck = Stuck

    TestOrder = Order
    TestClaims = Claims
    TestPolicies = Policies
    TestGivenOptions = GivenOptions
    TestBounds = Bounds
    TestPrefetching = Prefetching

    TestEnding = Ending
    TestSendingBack = SendingBack
    TestBatches = Batches
    TestFencing = Fencing
    TestSentAgain = SentAgain
    TestBeginning = Beginning
    TestRenewing = Renewing
    TestNoting = Noting
    TestRescuing = Rescuing
    TestRescued = Rescued
    TestExpiring = Expiring

    TestChains = Chains
    TestHandingOver = HandingOver
    TestBlocking = Blocking
    TestFailingBlockers = FailingBlockers
    TestDeletingBlockers = DeletingBlockers
    TestDependents = Dependents
    TestChainLists = ChainLists
    TestCascades = Cascades
    TestOrderKeys = OrderKeys

    TestGetting = Getting
    TestListing = Listing
    TestCounting = Counting

    TestCancelling = Cancelling
    TestRetrying = Retrying
    TestRunningNow = RunningNow
    TestDeleting = Deleting
    TestPausing = Pausing
    TestLiveQueues = LiveQueues
    TestPruning = Pruning

    TestTimetables = Timetables
    TestFirings = Firings
    TestSchedulers = Schedulers

    TestWakingUp = WakingUp
    TestCrowding = Crowding
    TestAsynchronous = Asynchronous
