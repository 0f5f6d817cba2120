"""The files of Windlass that one job passes through, from `app.enqueue` to `job.result`, its worker included.

A job passes through a file if a function there is given the job or returns it, in any form: its id, its arguments, its
output, or an object that holds one of these. Other files run beside it: they wait, count, plan or wake.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from inspect import CO_VARARGS, CO_VARKEYWORDS
from pathlib import Path
from types import CodeType, CoroutineType, FrameType, FunctionType, GeneratorType
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import msgspec

import windlass
from windlass import Job, Windlass
from windlass.job import NewJob

PACKAGE = str(Path(windlass.__file__).parent)
JOBS = 50  # a file counts if each of them passes through it: so caches and accidents of timing do not count
NEVER = 3600  # seconds: no poll and no maintenance of the worker during the walk
DEEP = 5  # levels of an object that are searched for the job
PARTS = {"app", "engine", "place", "next_place"}  # fields that lead to the worker or the app, which know all jobs


class Walk(NamedTuple):
    passed: list[str]
    beside: list[str]


class Tracer:
    """Notes the files of the functions that are called while it is on, in order. For all threads."""

    def __init__(self) -> None:
        self.on = False

    def start(self, mark: str) -> None:
        """`mark`: a text in the arguments of the job."""
        self.marks = {mark}
        self.passed: dict[str, None] = {}
        self.ran: dict[str, None] = {}
        self.on = True

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if not self.on or event not in ("call", "return") or code.co_name == "<module>":
            return
        if not code.co_filename.startswith(PACKAGE):
            return
        name = code.co_filename[len(PACKAGE) + 1 :]
        self.ran[name] = None
        values = [argument] if event == "return" else [frame.f_locals.get(name) for name in _parameters(code)]
        if any(self._has_job(value, DEEP) for value in values):
            self.passed[name] = None
            if isinstance(argument, Job | NewJob):
                self.marks |= {str(argument.id), argument.id.hex}

    def _has_job(self, value: Any, depth: int) -> bool:
        if isinstance(value, str):
            return any(mark in value for mark in list(self.marks))
        if isinstance(value, bytes):
            return any(mark.encode() in value for mark in list(self.marks))
        if isinstance(value, UUID):
            return value.hex in self.marks
        return depth > 0 and any(self._has_job(one, depth - 1) for one in _inside(value))

    @contextmanager
    def on_all_threads(self) -> Iterator[None]:
        """Threads that exist already stay out: there is no worker yet."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def _parameters(code: CodeType) -> tuple[str, ...]:
    stars = bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars]


def _inside(value: Any) -> Iterable[Any]:
    """The values that an object holds. Parts of the worker and of the app are no containers of the job."""
    if isinstance(value, tuple | list | set | frozenset):
        return list(value)
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name, None) for name in value.__struct_fields__ if name not in PARTS]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value) if field.name not in PARTS]
    if isinstance(value, GeneratorType):
        return _locals(value.gi_frame)
    if isinstance(value, CoroutineType):
        return _locals(value.cr_frame)
    if isinstance(value, FunctionType):
        return [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
    if isinstance(value, functools.partial):
        return [value.args, value.keywords]
    return ()


def _locals(frame: FrameType | None) -> list[Any]:
    return [] if frame is None else [value for name, value in list(frame.f_locals.items()) if name != "self"]


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def walk(app: Windlass) -> Walk:
    """The files of each job, in the order in which the last one came to them."""

    @app.task
    async def greet(name: str) -> str:
        return f"hello {name}"

    app.migrate()
    tracer = Tracer()
    with tracer.on_all_threads(), _working(app):
        walks = [_walk_once(app, tracer) for _ in range(JOBS)]
    passed = [name for name in walks[-1].passed if all(name in one.passed for one in walks)]
    ran = [name for name in walks[-1].beside if all(name in one.beside for one in walks)]
    return Walk(passed, [name for name in ran if name not in passed])


def _walk_once(app: Windlass, tracer: Tracer) -> Walk:
    mark = uuid4().hex
    tracer.start(mark)
    try:
        assert app.enqueue("greet", {"name": mark}).result(timeout=30) == f"hello {mark}"
        return Walk(list(tracer.passed), list(tracer.ran))
    finally:
        tracer.on = False


@contextmanager
def _working(app: Windlass) -> Iterator[None]:
    """A worker in a thread of its own."""
    started, loops = threading.Event(), []
    stop = asyncio.Event()

    async def work() -> None:
        loops.append(asyncio.get_running_loop())
        async with app.worker(concurrency=1, poll_interval=NEVER, rescue_interval=NEVER):
            started.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()
    try:
        assert started.wait(60)
        yield
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join()


def walk_alone(url: str) -> Walk:
    """In a process of its own: a profile function and the greenlets of other tests do not go together."""
    command = [sys.executable, "-m", "tests.walk.trace", url]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=90, check=True
    )
    return Walk(*json.loads(done.stdout))


if __name__ == "__main__":
    walked = Windlass(sys.argv[1])
    print(json.dumps(walk(walked)))
    walked.close()
