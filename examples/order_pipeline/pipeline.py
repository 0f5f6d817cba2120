"""The pipeline: the steps of an order.

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

APPROVAL = "approve"  # there is no task of this name, so no worker claims it: a person completes it
PATIENT = Exponential(base="10s", cap="5m", jitter=False)  # with max_attempts=None: an order is never given up


class Pipeline:
    """The steps are tasks of `app`. Any worker of the app runs them."""

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
        app.middleware(self._log_stop)

    # The operations of the shop

    async def order(self, order: Order, connection: Any = None) -> Job:
        """Enqueue an order, once for its number, in the caller's transaction if one is given. `await job.aresult()`
        returns its `Outcome`."""
        once = Unique(f"order {order.number}", until="forever")
        place = self.place.using(unique=once, tenant=order.customer)
        return await (place if connection is None else place.using(connection=connection)).aenqueue(order)

    async def approvals(self) -> list[Job]:
        """The large orders that wait for an approval."""
        return list(await self.app.alist(type=APPROVAL, state="pending"))

    async def decide(self, approval: UUID, granted: bool) -> None:
        await self.app.acomplete(approval, granted)

    async def forget(self, customer: str) -> int:
        """Delete all jobs of a customer, even if they wait for each other, but not those of a running chain."""
        return await self.app.adelete_many(tenant=customer)

    async def count(self, article: str) -> Job:
        """Count the stock of an article. While a count of that article is not finished, that job is returned."""
        once = Unique(f"count {article}", until="finished")
        return await self.stocktake.using(unique=once).aenqueue(article)

    async def _log_stop(self, attempt: Attempt, call_next: Callable[[], Awaitable[Any]]) -> Any:
        """Log why a step was stopped. After a lost lease the reason is: taken by another, not found, or already
        finished."""
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
        """Enqueue payment and picking, in parallel, and return the shipping, which waits for both. This runs in the
        block of `place`, so all of these jobs are created, or none."""
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
        try:  # outside of the transaction: it may take long, and the worker renews the lease
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
        await self.app.arun_now_many(type="wait_for_stock")  # if this is lost, these jobs run later by themselves

    async def _stocktake(self, article: str) -> int:
        return (await asyncio.to_thread(self.books.stock)).get(article, 0)
