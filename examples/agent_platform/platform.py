"""The platform: the queue, the model, the records, the calls to remote agents, and the kinds of jobs that use them."""

from __future__ import annotations

import json
from typing import Protocol
from urllib.request import Request, urlopen
from uuid import UUID

from windlass import Polynomial, Windlass
from windlass.task import Decorator

from . import agents, dispatch, maintenance, orchestrator
from .jobs import MAX_ATTEMPTS, JobsClient
from .model import Model, load_model
from .records import Records
from .settings import Settings, SettingsError

LEASE = "5m"  # a worker that is silent for longer counts as dead, and its jobs are rescued


class Ask(Protocol):
    """Send a question to a remote agent. The agent answers later: it completes the job `reply`."""

    def __call__(self, agent: str, question: str, reply: UUID) -> None: ...


class Platform:
    """One replica of the platform. All replicas share one database, and need no other connection."""

    def __init__(self, settings: Settings, *, model: Model | None = None) -> None:
        self.settings = settings
        self.app = Windlass(settings.url)
        self.jobs = JobsClient(self.app)
        try:
            self.model = model or load_model(settings.model)
        except ValueError as error:
            raise SettingsError(f"AGENTS_MODEL: {error}") from None
        self.records = Records(settings.records)
        self.ask: Ask = self._ask_over_http
        for kinds in (agents, dispatch, orchestrator, maintenance):
            kinds.register(self)

    def kind(self, name: str) -> Decorator:
        """A decorator for the task of that name. Its backoff is base · attempt²."""
        backoff = Polynomial(base=self.settings.retry_base, power=2)
        return self.app.task(name, max_attempts=MAX_ATTEMPTS, backoff=backoff, lease=LEASE)

    def _ask_over_http(self, agent: str, question: str, reply: UUID) -> None:
        callback = f"{self.settings.public_url}/v1/jobs/{reply}/complete"
        body = json.dumps({"question": question, "callback": callback}).encode()
        request = Request(self.settings.remotes[agent], body, {"Content-Type": "application/json"})
        with urlopen(request, timeout=10):
            pass
