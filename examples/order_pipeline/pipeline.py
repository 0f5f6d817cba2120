"""The pipeline: what happens to an order, step by step.

place ─┬─ refused
       ├─ wait_for_stock ── back to place
       └─ ship, after ─┬─ charge, until paid or tried often enough ─┐
                       └─ pick ─────────────────────────────────────┴─ large ones: both after an approval
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from windlass import Attempt, Call, Continue, Exponential, Job, Retry, Unique, Windlass

from .bank import Bank, Closed, PlayBank
from .books import open_books
from .orders import Order, Outcome, Settings

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())

APPROVAL = "approve"  # no function has this name, so no worker takes it: a person completes it
PATIENT = Exponential(base="10s", cap="5m", jitter=False)  # and for ever: an order is not given up


class Pipeline:
    """The steps are tasks of `app`; run them with any worker of it."""

    def __init__(self, url: str | None = None, bank: Bank | None = None, settings: Settings | None = None) -> None:
        self.app = app = Windlass(url)
        self.books = open_books(app.url)
        self.bank: Bank = bank or PlayBank()
        self.settings = settings or Settings()
        self.place = app.task("place", max_attempts=None, backoff=PATIENT)(self._place)
        self.wait_for_stock = app.task("wait_for_stock", max_attempts=None, backoff=PATIENT)(self._wait_for_stock)
        self.charge = app.task("charge", max_attempts=None, backoff=PATIENT)(self._charge)
        self.pick = app.task("pick", max_attempts=None, backoff=PATIENT)(self._pick)
        self.ship = app.task("ship", max_attempts=None, backoff=PATIENT)(self._ship)
        self.reorder = app.task("reorder", max_attempts=None, backoff=PATIENT)(self._reorder)
        self.goods_in = app.task("goods_in", max_attempts=None, backoff=PATIENT)(self._goods_in)
        self.stocktake = app.task("stocktake", max_attempts=None, backoff=PATIENT)(self._stocktake)
        app.middleware(self._say_why)

    # What the shop does

    async def order(self, order: Order, connection: Any = None) -> Job:
        """Take an order, once for its number, in the caller's transaction if there is one. `await job.aresult()` is
        its `Outcome`."""
        once = Unique(f"order {order.number}", until="forever")
        place = self.place.using(unique=once, tenant=order.customer)
        return await (place if connection is None else place.using(connection=connection)).aenqueue(order)

    async def approvals(self) -> list[Job]:
        """The large orders that somebody has to look at."""
        return list(await self.app.alist(type=APPROVAL, state="pending"))

    async def decide(self, approval: UUID, granted: bool) -> None:
        await self.app.acomplete(approval, granted)

    async def forget(self, customer: str) -> int:
        """Delete all jobs of a customer, whatever waits for whatever, save those of a chain that is running."""
        return await self.app.adelete_many(tenant=customer)

    async def count(self, article: str) -> Job:
        """Count what is on the shelf. As long as a count of that article is not finished, that one is the answer."""
        once = Unique(f"count {article}", until="finished")
        return await self.stocktake.using(unique=once).aenqueue(article)

    async def _say_why(self, attempt: Attempt, call_next: Callable[[], Awaitable[Any]]) -> Any:
        """A step that lost its lease is stopped: its job was taken by another, is not found, or is already finished."""
        try:
            return await call_next()
        except asyncio.CancelledError:
            log.warning("%s %s was stopped: %s", attempt.job.type, attempt.job.id, attempt.why or attempt.stop)
            raise

    # The steps

    async def _place(self, attempt: Attempt, order: Order) -> Outcome | Continue | None:
        if order.quantity < 1:
            return Outcome("refused", "nothing was ordered")
        async with attempt.transaction() as connection:
            match await self.books.take(connection, order.article, order.quantity):
                case "taken":
                    await self.books.enter(connection, order.number, "reserved", order.quantity)
                    attempt.complete(Continue(await self._fulfilment(order)))
                case "too few":
                    letter = Unique(f"reorder {order.article}", until="1d")
                    await self.reorder.using(unique=letter).aenqueue(order.article)
                    pause = self.settings.stock_pause_seconds
                    attempt.complete(Continue(self.wait_for_stock.using(delay=pause).call(order)))
                case "unknown":
                    attempt.complete(Outcome("refused", f"there is no {order.article}"))
        return None

    async def _fulfilment(self, order: Order) -> Call:
        """Payment and picking, side by side, and the shipping that waits for both. In the block of `place`: all of
        these jobs are there, or none."""
        needed = order.cents >= self.settings.approval_from_cents
        details = {"order": order.number, "cents": order.cents}
        approval = [await self.app.aenqueue(APPROVAL, details, tenant=order.customer)] if needed else []
        payment = await self.charge.using(after=approval, tenant=order.customer).aenqueue(order)
        picking = await self.pick.using(after=approval, tenant=order.customer).aenqueue(order)
        return self.ship.using(after=[payment, picking], run_at=order.not_before).call(order)

    async def _wait_for_stock(self, order: Order) -> Continue:
        return Continue(self.place.call(order))

    async def _charge(self, attempt: Attempt, order: Order, tries: int = 1) -> bool | Continue | None:
        if False in attempt.blockers:
            return False
        try:  # outside of the transaction, however long it takes: the lease is renewed meanwhile
            good = await self.bank.charge(f"{order.number}/{tries}", order.cents, order.card)
        except Closed as closed:
            raise Retry("the bank is closed", at=closed.until) from closed
        if not good and tries < self.settings.payment_tries:
            return Continue(self.charge.using(delay=self.settings.payment_pause_seconds).call(order, tries + 1))
        async with attempt.transaction() as connection:
            if good:
                await self.books.enter(connection, order.number, "paid", order.cents)
            attempt.complete(good)
        return None

    async def _pick(self, attempt: Attempt, order: Order) -> str | None:
        return None if False in attempt.blockers else f"{order.quantity} × {order.article}"

    async def _ship(self, attempt: Attempt, order: Order) -> Outcome | None:
        paid, parcel = attempt.blockers
        async with attempt.transaction() as connection:
            if paid:
                await self.books.enter(connection, order.number, "shipped", order.quantity)
                attempt.complete(Outcome("shipped", parcel))
            else:
                await self.books.put(connection, order.article, order.quantity)
                await self.books.enter(connection, order.number, "returned", order.quantity)
                attempt.complete(Outcome("unpaid"))
        return None

    async def _reorder(self, article: str) -> str:
        return f"Dear supplier, we are out of {article}."

    async def _goods_in(self, attempt: Attempt, article: str, quantity: int) -> None:
        async with attempt.transaction() as connection:
            await self.books.put(connection, article, quantity)
        await self.app.arun_now_many(type="wait_for_stock")  # if this gets lost, they look again by themselves

    async def _stocktake(self, article: str) -> int:
        return (await asyncio.to_thread(self.books.stock)).get(article, 0)
