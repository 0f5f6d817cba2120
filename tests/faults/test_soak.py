"""The soak, for a short while on each store; and its verdict, which finds what was planted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from .history import Event
from .soak.faults import FAULTS
from .soak.scene import WAITS, Sent
from .soak.verdict import Evidence, judge

ROOT = Path(__file__).parents[2]
SECONDS = 20  # a minute in all
# These need more time than there is here: to find that a line is dead, to wait for a call that does not end.
LONG = {"half-open", "deaf"}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("store", sorted(FAULTS))
def test_nothing_is_lost_or_done_twice_and_none_hangs(store: str, tmp_path: Path) -> None:
    faults = ",".join(fault for fault in FAULTS[store] if fault not in LONG)
    command = [sys.executable, "-m", "tests.faults.soak", "--store", store, "--seconds", str(SECONDS), "--workers", "2"]
    with subprocess.Popen(
        [*command, "--faults", faults], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as soak:
        try:
            said, _ = soak.communicate(timeout=330)
        finally:
            soak.terminate()
    print(said)
    assert soak.returncode == 0, said


# The verdict


def row(id: UUID, type: str = "plain", state: str = "completed", **more: Any) -> tuple[Any, ...]:
    given = {"attempt": 1, "most": 20, "token": None, "chain": id, "index": 0, "error": None, "attempts": None} | more
    return (
        *(id, state, given["attempt"], given["most"], given["token"], type, given["chain"], given["index"]),
        *(given["error"], given["attempts"]),
    )


class Story:
    """A small history in which all is well, until something is planted."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.rows: list[tuple[Any, ...]] = []
        self.sent: dict[UUID, Sent] = {}
        self.entries: list[str] = []
        self.enqueues: list[tuple[float, float]] = [(0.0, 0.1)]
        self.windows: list[tuple[float, float]] = []
        self.faults: set[str] = {"slow-commit"}
        self.kills = 0
        for number in range(3):
            self.add("ordered", 1.0 + number, line="a", number=number)
        self.effect = self.add("effect", 2.0)
        self.entries.append(str(self.effect))
        self.root = self.add("link", 2.5, length=2)
        self.rows.append(row(uuid4(), "link", chain=self.root, index=1))
        self.end(self.rows[-1][0], 3.0)
        self.plain = self.add("plain", 4.0)
        self.add("plain", 4.5, length=WAITS)

    def add(self, kind: str, at: float, *, came: float = 0.0, **about: Any) -> UUID:
        id = uuid4()
        self.sent[id] = Sent(id, kind, **about)
        self.events += [Event(kind="sent", id=id, at=came), Event(kind="acknowledged", id=id, at=came)]
        self.rows.append(row(id, kind))
        self.end(id, at)
        return id

    def end(self, id: UUID, at: float, attempt: int = 1) -> None:
        self.events += [Event(kind="started", id=id, attempt=attempt, at=at)]
        self.events += [Event(kind="ended", id=id, attempt=attempt, at=at + 0.1)]

    def change(self, id: UUID, **more: Any) -> None:
        (position,) = [number for number, one in enumerate(self.rows) if one[0] == id]
        self.rows[position] = row(id, self.rows[position][5], **more)

    def move(self, id: UUID, at: float) -> None:
        self.events = [event for event in self.events if event.id != id or event.kind not in ("started", "ended")]
        self.end(id, at)

    def judged(self) -> list[str]:
        completed = sum(one[1] == "completed" for one in self.rows)
        evidence = Evidence(
            *(self.events, self.rows, self.sent, completed, self.entries, self.windows, 20.0, self.enqueues),
            *(self.faults, self.kills),
        )
        return sorted({violation.rule for violation in judge(evidence)})


def lose_a_link(story: Story) -> None:
    story.rows = [one for one in story.rows if one[7] == 0]


def overtake(story: Story) -> None:
    last = max(story.sent.values(), key=lambda sent: (bool(sent.line), sent.number))
    story.move(last.id, 0.5)


def write_twice(story: Story) -> None:
    story.entries *= 2


def write_nothing(story: Story) -> None:
    story.entries.clear()


def write_for_none(story: Story) -> None:
    story.entries.append(str(uuid4()))


def stall(story: Story) -> None:
    story.move(story.plain, 18.0)


def start_twice(story: Story) -> None:
    story.change(story.plain, attempt=2)
    story.end(story.plain, 4.2, attempt=2)


def give_up(story: Story) -> None:
    story.change(story.plain, state="failed", attempt=1)


def wait_to_enqueue(story: Story) -> None:
    story.enqueues.append((3.0, 12.0))


def blame_a_child(story: Story) -> None:
    died = '[{"number":1,"error":{"type":"ProcessDied"}}]'
    id = story.add("in_child", 5.0)
    story.events = [event for event in story.events if event.id != id or event.kind in ("sent", "acknowledged")]
    story.end(id, 6.0, attempt=2)
    story.change(id, attempt=2, attempts=died)


def test_a_history_without_faults_is_accepted() -> None:
    assert Story().judged() == []


@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        (lose_a_link, "S1"),
        (overtake, "S2"),
        (write_twice, "S3"),
        (write_nothing, "S3"),
        (write_for_none, "S3"),
        (blame_a_child, "S4"),
        (stall, "S5"),
        (start_twice, "S7"),
        (give_up, "S8"),
        (wait_to_enqueue, "S10"),
    ],
)
def test_each_violation_is_found(plant: Callable[[Story], None], rule: str) -> None:
    story = Story()
    plant(story)
    assert story.judged() == [rule]


@pytest.mark.parametrize("plant", [stall, wait_to_enqueue])
def test_a_store_that_was_away_is_an_excuse(plant: Callable[[Story], None]) -> None:
    story = Story()
    plant(story)
    story.windows.append((5.0, 10.0))
    assert story.judged() == []


@pytest.mark.parametrize(("lost", "judged"), [(1, []), (2, ["C5"])])
def test_each_kill_excuses_one_last_attempt_that_was_marked_and_never_ran(lost: int, judged: list[str]) -> None:
    story = Story()
    story.kills = 1
    for _ in range(lost):
        id = story.add("last", 5.0, came=19.0)  # it stalls nothing
        story.events = [event for event in story.events if event.id != id or event.kind in ("sent", "acknowledged")]
        story.change(id, state="failed", most=1)
    assert story.judged() == judged
