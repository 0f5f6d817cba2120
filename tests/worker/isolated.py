"""Tasks that end in unusual ways. A child process imports this module; a thread may run the same functions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from types import MappingProxyType
from typing import Any

from windlass import Attempt, Cancel, Continue, Fail, Retry, Snooze, Windlass

app = Windlass("sqlite://")


class Gone(Fail):
    pass


class Missing(Fail):
    def __init__(self, code: int, place: str) -> None:
        super().__init__(f"{code} at {place}")
        self.code = code


class Unneeded(Cancel):
    pass


class Busy(Retry):
    def __init__(self, host: str) -> None:
        super().__init__(f"{host} is busy", after="1h")


class Unwilling(Retry):
    """It does not call the constructor of its base, so it has no `after`."""

    def __init__(self) -> None:
        Exception.__init__(self, "not now")


class Closed(Snooze):
    pass


class OddZone(tzinfo):
    """It cannot be pickled."""

    def __init__(self, hours: int) -> None:
        self.hours = hours

    def utcoffset(self, _moment: datetime | None) -> timedelta:
        return timedelta(hours=self.hours)

    def dst(self, _moment: datetime | None) -> timedelta:
        return timedelta(0)

    def tzname(self, _moment: datetime | None) -> str:
        return "odd"

    def __reduce__(self) -> Any:
        raise TypeError("this timezone cannot be pickled")


class Mute(Fail):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Hidden(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("no class")


class Detailed(Exception):
    """It can be pickled, and not be unpickled."""

    def __init__(self, code: int, *, place: str) -> None:
        super().__init__(f"{code} at {place}")


LATER = datetime(2100, 1, 1, 12, tzinfo=UTC)

ENDS: dict[str, Callable[[], BaseException]] = {
    "Fail": lambda: Fail("no"),
    "Gone": lambda: Gone("no such page"),
    "Gone without a reason": Gone,
    "Missing": lambda: Missing(404, "here"),
    "Unneeded": lambda: Unneeded("another has done it"),
    "Busy": lambda: Busy("example.org"),
    "Unwilling": Unwilling,
    "Closed": lambda: Closed("at night", at=LATER),
    "OddZone": lambda: Closed("at night", at=LATER.astimezone(OddZone(3))),
    "Mute": Mute,
}


@app.task(isolation="process")
def ends(how: str) -> None:
    raise ENDS[how]()


@app.task(isolation="process")
def hidden() -> None:
    raise Hidden


@app.task(isolation="process")
def joined(attempt: Attempt) -> list[Any]:
    return attempt.blockers


@app.task(isolation="process")
def continues_after(url: str) -> Continue[Any]:
    """With a job that has its app, as `enqueue` returns it."""
    other = Windlass(url)
    job = other.enqueue("part", {"n": 7})
    other.close()
    expires = LATER.astimezone(OddZone(3))
    return Continue(joined.using(after=[job], labels=MappingProxyType({"kind": "odd"}), expires=expires).call())


@app.task(isolation="process")
def continues_in_odd_queue() -> Continue[Any]:
    class Name(str):
        """No other process can import it."""

        __slots__ = ()

    return Continue(joined.using(queue=Name("odd")).call())


@app.task(isolation="process")
def settles_oddly(attempt: Attempt, url: str) -> None:
    """It retries the job itself, at a moment that cannot be pickled."""
    attempt.app = Windlass(url)
    attempt.progress(0.75, "almost")
    attempt.retry("later", at=LATER.astimezone(OddZone(3)))
    attempt.app.close()


@app.task(isolation="process")
def reports(attempt: Attempt) -> str:
    attempt.log(Detailed(404, place="here"))  # type: ignore[arg-type]
    refused = []
    wrong: list[tuple[Any, ...]] = [("half",), (None,), (0.5, 7)]
    for arguments in wrong:
        try:
            attempt.progress(*arguments)
        except (TypeError, ValueError) as error:
            refused.append(type(error).__name__)
    attempt.progress(0.25, "a quarter")
    return ", ".join(refused)
