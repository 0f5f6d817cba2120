"""Generic types mean nothing at run time. (Annotations are evaluated here: there is no import from __future__.)"""

from typing import Any, get_origin

import pytest

from windlass import Attempt, Call, Continue, Job, Task, Windlass

pytestmark = pytest.mark.one_store  # nothing here depends on which


def test_every_generic_type_can_be_written_with_its_parameters() -> None:
    aliases = (Job[int], Call[str], Continue[str], Task[[int], str], Task[..., Any], Task[[int, str], None])
    assert [get_origin(alias) for alias in aliases] == [Job, Call, Continue, Task, Task, Task]


def test_a_handler_that_says_what_its_chain_ends_with(store_url: str) -> None:
    app = Windlass(store_url)

    @app.task
    async def end(n: int) -> str:
        return f"end {n}"

    @app.task
    async def either(attempt: Attempt, n: int) -> Continue[str] | str:
        return Continue(end.call(n)) if n else "nothing"

    @app.task
    def always(n: int) -> Continue[str]:
        return Continue(either.call(n))

    jobs = [either.enqueue(0), either.enqueue(1), always.enqueue(2)]
    app.run_worker(until_idle=True)
    assert [job.result(20) for job in jobs] == ["nothing", "end 1", "end 2"]
    app.close()


def test_a_task_may_be_handed_on_as_an_argument_of_its_type(store_url: str) -> None:
    app = Windlass(store_url)

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    def spread(task: Task[[int], int], numbers: list[int]) -> list[Job[int]]:
        return app.enqueue_many([task.call(n) for n in numbers])

    jobs = spread(double, [1, 2])
    app.run_worker(until_idle=True)
    assert [job.result(20) for job in jobs] == [2, 4]
    app.close()
