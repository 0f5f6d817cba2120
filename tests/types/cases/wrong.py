"""Code that type checkers refuse: in each line that says so, and in no other."""

from __future__ import annotations

from windlass import Attempt, Continue, Defaults, Job, Task, Tasks, Windlass

app = Windlass("sqlite://")
tasks = Tasks()


@app.task
async def send(user_id: int) -> str:
    return ""


@app.task(queue="sums")
def add(a: int, b: int = 1) -> int:
    return a + b


@tasks.task
async def with_attempt(attempt: Attempt, user_id: int) -> int:
    return 1


@app.task
async def goes_on() -> Continue[str] | str:
    return ""


# Arguments

send.enqueue("42")  # wrong
send.enqueue()  # wrong
send.enqueue(1, 2)  # wrong
send.enqueue(user=1)  # wrong
send.call("42")  # wrong
send.using(delay=1).enqueue("42")  # wrong
send("42")  # wrong
add.enqueue(1, b="2")  # wrong
with_attempt.enqueue("42")  # wrong
with_attempt.enqueue(1)


async def later() -> None:
    await send.aenqueue("42")  # wrong
    await add.aenqueue(1, 2, 3)  # wrong
    number: int = await send.enqueue(1).aresult()  # wrong
    print(number)


# Results

text: str = add.enqueue(1).result()  # wrong
number: int = send.enqueue(1).result()  # wrong
job: Job[int] = send.enqueue(1)  # wrong
end: int = goes_on.enqueue().result()  # wrong
jobs: list[Job[int]] = app.enqueue_many([send.call(1)])  # wrong
task: Task[[str], str] = send  # wrong
other: Task[[int], int] = send  # wrong
add.enqueue(1).result().upper()  # wrong

# Continuations


@app.task
async def to_text() -> Continue[int]:
    return Continue(send.call(1))  # wrong


@app.task
async def to_wrong_argument() -> Continue[str]:
    return Continue(send.call("1"))  # wrong


@app.task
async def to_another_chain() -> Continue[int] | int:
    return Continue(goes_on.call())  # wrong


@app.task
async def to_no_call() -> Continue[int]:
    return Continue(1)  # wrong


# Options

app.task(fail_on=3)  # wrong
app.task(max_attempts="3")  # wrong
app.include([send])  # wrong
Defaults(lease=b"1")  # wrong
Windlass("sqlite://", defaults={"lease": 1})  # wrong
