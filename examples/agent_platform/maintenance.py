"""The scheduled jobs: provider-refresh every five minutes, embed-memories every hour."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .platform import Platform


def register(platform: Platform) -> None:
    app, model, records = platform.app, platform.model, platform.records

    @app.schedule("@every 5m", catch_up="skip")
    @platform.kind("provider-refresh")
    def provider_refresh() -> str:
        """Record the state of the model's provider."""
        status = model.check()
        seen = {"status": status, "checked_at": datetime.now(UTC).isoformat(timespec="seconds")}
        records.put("provider", platform.settings.model, seen)
        return status

    @app.schedule("@hourly")
    @platform.kind("embed-memories")
    def embed_memories() -> int:
        """Make vectors for the memories that have none. Return their number."""
        memories = records.all("memory")
        missing = memories.keys() - records.all("vector").keys()
        for key in missing:
            records.put("vector", key, model.embed(memories[key]))
        return len(missing)
