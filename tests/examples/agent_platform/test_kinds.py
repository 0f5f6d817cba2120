"""The ten kinds, each seen by what it leaves behind."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from examples.agent_platform.model import StandIn
from windlass import LeaseLost

from .conftest import Replicas

KINDS = {
    "agent-turn", "trigger-fire", "analytics-write", "provider-refresh", "orchestrator-plan", "orchestrator-subtask",
    "orchestrator-synthesize", "dispatch-execute", "dispatch-synthesize", "embed-memories",
}  # fmt: skip


def fire(replicas: Replicas, schedule: str) -> None:
    """Let its next tick come, and the workers with it."""
    replicas.app.resume_schedule(schedule)
    found = next(one for one in replicas.app.schedules() if one.name == schedule)
    now = replicas.app.run_operation(replicas.app.store.now)
    replicas.app.store.clock.move(found.next_runs[0] - now + timedelta(seconds=1))
    replicas.work()


def test_the_ten_kinds_are_registered(replicas: Replicas) -> None:
    """The ten, and the one that stands for a reply which is awaited."""
    assert set(replicas.app.tasks) == KINDS | {"dispatch-reply"}


def test_a_turn_is_answered_recorded_and_its_tools_are_used(replicas: Replicas) -> None:
    """Agent-turn records the turn; a tool that it uses is counted by analytics-write."""
    job = replicas.turn("remember that Ada likes tea")
    replicas.work()
    (turn,) = replicas.records.all("turn").values()
    assert (turn["text"], turn["reply"]) == ("remember that Ada likes tea", job.result(5))
    assert list(replicas.records.all("memory").values()) == ["that Ada likes tea"]
    assert list(replicas.records.all("event").values()) == [{"event": "tool remember", "session": "s"}]


def test_a_turn_that_runs_twice_enqueues_once(replicas: Replicas) -> None:
    """A worker that was taken for dead and goes on leaves nothing in the queue."""
    job = replicas.turn("remember the milk")
    (lost,) = replicas.app.claim(1, lease=None, worker="lost")
    replicas.pass_time(minutes=5)
    assert replicas.app.rescue() == 1
    with pytest.raises(LeaseLost):
        replicas.app.tasks["agent-turn"].function(lost, **lost.job.input)
    assert replicas.app.counts().total == 1
    replicas.pass_time(seconds=12)
    replicas.work()
    assert job.refresh().state == "completed"
    assert [len(replicas.records.all(kind)) for kind in ("turn", "memory", "event")] == [1, 1, 1]


def test_memories_are_embedded(replicas: Replicas) -> None:
    """Embed-memories by hand, and by the clock; each memory once."""
    replicas.turn("remember the milk")
    replicas.work()
    by_hand = [replicas.jobs.enqueue("embed-memories", {}) for _ in range(2)]
    replicas.work(concurrency=1)
    assert [job.result(5) for job in by_hand] == [1, 0]
    replicas.turn("remember the bread")
    replicas.work()
    fire(replicas, "embed-memories")
    memories, vectors = replicas.records.all("memory"), replicas.records.all("vector")
    assert {memories[key]: vector for key, vector in vectors.items()} == {
        text: StandIn().embed(text) for text in ("the milk", "the bread")
    }


def test_the_clock_fires_a_trigger(replicas: Replicas) -> None:
    """Trigger-fire by cron, and the turn that follows from it."""
    fire(replicas, "daily digest")
    (turn,) = replicas.records.all("turn").values()
    assert (turn["session"], turn["text"]) == ("trigger daily digest", "what happened since yesterday?")
    (fired,) = replicas.app.list(type="trigger-fire")
    assert {job.type for job in replicas.app.list(chain=fired.id)} == {"agent-turn", "trigger-fire"}


def test_the_provider_is_looked_at(replicas: Replicas) -> None:
    """Provider-refresh by the clock."""
    fire(replicas, "provider-refresh")
    (provider,) = replicas.records.all("provider").values()
    assert provider["status"] == "ready"


def test_a_plan_its_subtasks_and_the_whole(replicas: Replicas) -> None:
    """N subtasks, and the synthesis of their results in order when all are done."""
    plan = replicas.jobs.enqueue("orchestrator-plan", {"goal": "Sail", "subtasks": 4})
    replicas.work()
    assert replicas.app.counts()["completed"] == 6
    parts = [f"- About 'Sail, part {n} of 4': 5 words, and well said." for n in range(1, 5)]
    assert plan.result(5) == "\n".join(["Sail:", *parts])


def test_the_synthesis_waits_for_all_subtasks(replicas: Replicas) -> None:
    """One that fails holds it up, visibly; when it has been brought back, there is the answer."""
    replicas.model.fails_for = "part 2"
    plan = replicas.jobs.enqueue("orchestrator-plan", {"goal": "Sail", "subtasks": 3})
    for _ in range(3):
        replicas.work()
        replicas.pass_time(minutes=2)
    (synthesis,) = replicas.app.list(type="orchestrator-synthesize")
    (failed,) = replicas.app.list(state="failed")
    assert (synthesis.state, failed.type) == ("blocked", "orchestrator-subtask")
    assert str(failed.id) in replicas.app.explain(synthesis.id)
    replicas.model.fails_for = None
    failed.retry()
    replicas.work()
    assert plan.result(5).count("part") == 3


def test_a_remote_agent_that_does_not_answer_is_not_waited_for_for_ever(replicas: Replicas) -> None:
    """Dispatch-synthesize comes when all have called back, or the deadline has."""
    platform = replicas.another(remotes=dict.fromkeys(("tokyo", "lima"), "http://localhost"))
    asked: dict[str, object] = {}
    platform.ask = lambda agent, question, reply: asked.__setitem__(agent, reply)
    replicas.turn("ask tokyo, lima: is it raining?")
    platform.app.run_worker(until_idle=True)
    (execute,) = replicas.app.list(type="dispatch-execute")
    assert set(asked) == {"tokyo", "lima"}
    replicas.app.complete(str(asked["tokyo"]), "It is.")
    replicas.pass_time(minutes=59)
    replicas.work()
    (synthesis,) = replicas.app.list(type="dispatch-synthesize")
    assert synthesis.state == "blocked"
    replicas.pass_time(minutes=1)
    replicas.work()
    assert execute.result(5) == "is it raining?:\n- It is.\n- lima has not answered"


def test_a_question_that_could_not_be_put_is_put_again_to_those_who_are_silent(replicas: Replicas) -> None:
    """A second attempt of dispatch-execute makes no second reply, and lets alone who has answered."""
    platform = replicas.another(remotes=dict.fromkeys(("tokyo", "lima"), "http://localhost"))
    asked: list[str] = []

    def ask(agent: str, question: str, reply: UUID) -> None:
        asked.append(agent)
        if agent == "lima" and asked.count("lima") == 1:
            raise ConnectionError("lima is out")
        platform.app.complete(reply, f"{agent} says no")

    platform.ask = ask
    job = replicas.jobs.enqueue("dispatch-execute", {"question": "Rain?", "agents": ["tokyo", "lima"]})
    platform.app.run_worker(until_idle=True)
    assert (job.refresh().state, str(job.refresh().error)) == ("pending", "ConnectionError: lima is out")
    replicas.pass_time(seconds=10)
    platform.app.run_worker(until_idle=True)
    assert job.result(5) == "Rain?:\n- tokyo says no\n- lima says no"
    assert asked == ["tokyo", "lima", "lima"]
    assert len(replicas.app.list(type="dispatch-reply")) == 2
