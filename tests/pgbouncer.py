"""PgBouncer before a PostgreSQL server, in a mode of one's choice. It is the system's own: no wheel carries it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from windlass.embedded import Server, ServerError, unprivileged_identity


class PgBouncer(Server):
    """The server that `url` names, through a pooler. Two server connections for all clients: they have to share."""

    name = "PgBouncer"

    def __init__(self, url: str, mode: str = "transaction", settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        parts = urlsplit(url)
        self.behind = parts
        self.url = f"postgresql://{parts.username or 'postgres'}@127.0.0.1:{self.port}{parts.path}"
        self.settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": str(self.port),
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": mode,
            "default_pool_size": "2",
            **(settings or {}),
        }

    def _prepare(self) -> None:
        path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
        program = shutil.which("pgbouncer", path=path)
        if program is None:
            raise ServerError(
                "pgbouncer is not installed: apt-get install pgbouncer, or whatever your system calls it."
            )
        self._program, self._identity = program, unprivileged_identity()
        server = {
            "host": self.behind.hostname,
            "port": self.behind.port or 5432,
            "user": self.behind.username or "postgres",
            "password": self.behind.password,
        }
        line = " ".join(f"{name}={value}" for name, value in server.items() if value)
        settings = "\n".join(f"{name} = {value}" for name, value in self.settings.items())
        self._file = self.folder / "pgbouncer.ini"
        self._file.write_text(f"[databases]\n* = {line}\n\n[pgbouncer]\n{settings}\n")
        self._file.chmod(0o644)

    def _command(self) -> list[str | Path]:
        return [self._program, self._file]

    def _spawn(self, command: list[str | Path], **options: Any) -> subprocess.Popen[bytes]:
        return super()._spawn(command, **self._identity, **options)

    def _is_ready(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True
