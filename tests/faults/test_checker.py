"""The checker finds what it is there to find: a history in which all is well, and each violation planted once."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from .checker import check
from .history import Event, Final, History

PLAIN, DIED, FAILED, LATE = (UUID(int=number) for number in (1, 2, 3, 4))
FIRST, SECOND, THIRD = (UUID(int=number) for number in (11, 12, 13))


def event(kind: Any, id: UUID, attempt: int = 0, token: UUID | None = None, state: Any = None) -> Event:
    return Event(kind=kind, id=id, attempt=attempt, token=token, state=state)


def good_history() -> tuple[list[Event], list[Final], int]:
    """One job that goes through, one whose worker dies, one that fails, one whose first worker comes too late."""
    events = [event(kind, id) for id in (PLAIN, DIED, FAILED, LATE) for kind in ("sent", "acknowledged")]
    events += [
        event("started", PLAIN, 1, FIRST),
        event("ended", PLAIN, 1, FIRST),
        event("accepted", PLAIN, 1, FIRST, "completed"),
        event("started", DIED, 1, FIRST),
        event("started", DIED, 2, SECOND),
        event("ended", DIED, 2, SECOND),
        event("accepted", DIED, 2, SECOND, "completed"),
        event("started", FAILED, 1, FIRST),
        event("started", FAILED, 2, SECOND),
        event("accepted", FAILED, 2, SECOND, "failed"),
        event("started", LATE, 1, FIRST),
        event("started", LATE, 3, THIRD),
        event("ended", LATE, 1, FIRST),
        event("refused", LATE, 1, FIRST, "completed"),
        event("ended", LATE, 3, THIRD),
    ]
    final = [
        Final(id=PLAIN, state="completed", attempt=1, max_attempts=20, token=FIRST),
        Final(id=DIED, state="completed", attempt=2, max_attempts=None, token=SECOND),
        Final(id=FAILED, state="failed", attempt=2, max_attempts=2, token=uuid4()),
        Final(id=LATE, state="completed", attempt=3, max_attempts=20, token=THIRD),
    ]
    return events, final, 3


def changed(final: list[Final], id: UUID, **fields: Any) -> list[Final]:
    return [msgspec.structs.replace(job, **fields) if job.id == id else job for job in final]


def test_a_history_in_which_all_is_well_has_no_violation() -> None:
    assert check(*good_history()) == []


def planted(what: str) -> tuple[list[Event], list[Final], int]:
    events, final, effects = good_history()
    match what:
        case "lost":
            final = [job for job in final if job.id != FAILED]
        case "left behind":
            final = changed(final, FAILED, state="running")
        case "from nowhere":
            final.append(Final(id=UUID(int=99), state="failed", attempt=1, max_attempts=20, token=None))
            events.append(event("started", UUID(int=99), 1, FIRST))
        case "twice":
            final.append(next(job for job in final if job.id == FAILED))
        case "accepted twice":
            events.append(event("accepted", PLAIN, 1, FIRST, "completed"))
        case "accepted and undone":
            events.append(event("accepted", FAILED, 1, FIRST, "completed"))
        case "completed by nobody":
            events = [one for one in events if (one.kind, one.id) not in (("ended", PLAIN), ("accepted", PLAIN))]
        case "an effect too many":
            effects += 1
        case "an effect too few":
            effects -= 1
        case "an old token":
            final = changed(final, LATE, token=FIRST)
        case "a stranger's completion":
            events.append(event("accepted", LATE, 1, FIRST, "completed"))
        case "an attempt too many":
            final = changed(final, FAILED, attempt=3)
        case "an attempt that does not count":
            final = changed(final, FAILED, attempt=1)
        case "a death that does not count":
            events.append(event("started", FAILED, 2, THIRD))
        case "failed without having run":
            events = [one for one in events if (one.kind, one.id) != ("started", FAILED)]
        case "overdue":
            events.append(event("overdue", FAILED))
        case _:
            raise AssertionError(what)
    return events, final, effects


@pytest.mark.parametrize(
    ("what", "rule"),
    [
        ("lost", "C1"),
        ("left behind", "C1"),
        ("from nowhere", "C2"),
        ("twice", "C2"),
        ("accepted twice", "C3"),
        ("accepted and undone", "C3"),
        ("completed by nobody", "C3"),
        ("an effect too many", "C3"),
        ("an effect too few", "C3"),
        ("an old token", "C4"),
        ("a stranger's completion", "C4"),
        ("an attempt too many", "C5"),
        ("an attempt that does not count", "C5"),
        ("a death that does not count", "C5"),
        ("failed without having run", "C5"),
        ("overdue", "C10"),
    ],
)
def test_each_violation_is_found(what: str, rule: str) -> None:
    rules = [violation.rule for violation in check(*planted(what))]
    assert rules == [rule]


def test_a_history_is_read_as_it_was_written_by_many(tmp_path: Path) -> None:
    one, other = History(tmp_path / "history"), History(tmp_path / "history")
    written = [event("started", uuid4(), number, uuid4()) for number in range(50)]
    for position, each in enumerate(written):
        (one, other)[position % 2].note(each)
    found = one.read()
    assert [(each.id, each.attempt, each.token) for each in found] == [(e.id, e.attempt, e.token) for e in written]
    assert sorted(each.at for each in found) == [each.at for each in found]
    one.close()
    other.close()


def test_half_a_line_of_one_that_was_killed_hides_no_other(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    before, after = event("started", uuid4(), 1, uuid4()), event("started", uuid4(), 2, uuid4())
    history.note(before)
    whole = history.path.read_bytes()
    history.path.write_bytes(whole + whole[: len(whole) // 3])
    history.note(after)
    assert [each.id for each in history.read()] == [before.id, after.id]
    history.close()
