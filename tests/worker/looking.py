"""Jobs as they are now, in tests of workers."""

from __future__ import annotations

from windlass import Job, Windlass


async def look(app: Windlass, job: Job) -> Job:
    """It must be there."""
    found = await app.aget(job.id)
    assert found is not None
    return found
