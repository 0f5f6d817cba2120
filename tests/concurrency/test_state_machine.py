"""Whatever is done to a queue, in whatever order: each store answers as the model does.

WINDLASS_TEST_EXAMPLES and WINDLASS_TEST_STEPS make the run longer, WINDLASS_TEST_SEED makes it another one.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from windlass.stores.store import Store

from .machine import Queue

EXAMPLES = int(os.environ.get("WINDLASS_TEST_EXAMPLES", "12"))
STEPS = int(os.environ.get("WINDLASS_TEST_STEPS", "100"))
PHASES = list(Phase) if EXAMPLES > 100 else [Phase.explicit, Phase.generate]
SEED = int(os.environ.get("WINDLASS_TEST_SEED", "1"))


@pytest.mark.timeout(3600 if EXAMPLES > 100 else 600)  # a failing example is made as small as can be, which takes time
def test_each_store_does_what_the_model_does(shared_store: Store) -> None:
    chosen = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        # The story of a failing example is told, and its seed replays it: to make it smaller takes many minutes.
        phases=PHASES,
        suppress_health_check=list(HealthCheck),
    )
    queues: list[Queue] = []

    @seed(SEED)
    def begin() -> Queue:
        queues[:] = [Queue(shared_store)]
        return queues[0]

    try:
        run_state_machine_as_test(begin, settings=chosen)  # type: ignore[arg-type]
    except Exception as error:
        error.add_note("What happened:\n" + "\n".join(queues[0].story))
        error.add_note(
            f"Replay: WINDLASS_TEST_SEED={SEED} WINDLASS_TEST_EXAMPLES={EXAMPLES} WINDLASS_TEST_STEPS={STEPS}"
        )
        raise
