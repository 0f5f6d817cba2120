"""An attempt without a job: for a task that is called as a plain function, in a test or by other code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from .attempt import Attempt
from .block import Block
from .errors import WindlassError
from .job import Notes

if TYPE_CHECKING:
    from datetime import datetime

    from .app import Windlass


class DetachedAttempt(Attempt):
    """The first attempt, of no tenant and without blockers. Its progress and its log are not stored. It refuses all
    that needs a job."""

    __slots__ = ("_of",)

    def __init__(self, app: Windlass | None, task: str) -> None:
        self._of = task
        if app is not None:
            self.app = app
        self._notes = Notes()
        self.cancel_requested = self.settled = self.ended = False
        self.stop = self.why = self.task = self.interrupter = None
        self.block = self.renewal = self.unconfirmed_settlement = self._renewed_until = None
        self.waited_for = ()

    def __getattr__(self, name: str) -> Any:
        """`job` and `token`, which it does not have; nor an `app`, if its task belongs to none yet."""
        if name in ("job", "token", "app"):
            self._refuse(name)
        raise AttributeError(name)

    def __repr__(self) -> str:
        return f"<Attempt of {self._of} that has no job>"

    @property
    def number(self) -> int:
        return 1

    @property
    def tenant(self) -> str:
        return ""

    @property
    def lease_expires_at(self) -> datetime | None:
        return None

    def transaction(self) -> Block:
        self._refuse("transaction()")

    def _refuse(self, what: str) -> NoReturn:
        raise WindlassError(
            f"{self._of} was called as a function, so its attempt has no job and no {what}: enqueue it, and a worker "
            "calls it with one that has"
        )
