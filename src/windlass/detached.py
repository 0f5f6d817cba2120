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

    name_of_task: str = ""

    @staticmethod
    def of(app: Windlass | None, task: str) -> DetachedAttempt:
        nothing: Any = None  # stands for a missing field: to read it raises
        return DetachedAttempt(
            app or nothing, nothing, nothing, notes=Notes(), _cancel_requested=False, name_of_task=task
        )

    def __getattribute__(self, name: str) -> Any:
        """It has no `job` and no `token`; nor an `app`, if its task belongs to none yet."""
        value = super().__getattribute__(name)
        if value is None and name in ("job", "token", "app"):
            self._refuse(name)
        return value

    def __repr__(self) -> str:
        return f"<Attempt of {self.name_of_task} that has no job>"

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
            f"{self.name_of_task} was called as a function, so its attempt has no job and no {what}: enqueue it, and a "
            "worker calls it with one that has"
        )
