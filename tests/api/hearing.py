"""Waiting for a hint."""

from __future__ import annotations

import asyncio

from windlass.stores.wakeup import Hint


async def until_heard(hint: Hint | None, heard: list[Hint | None]) -> None:
    """Until a listener has noted it."""
    async with asyncio.timeout(60):
        while hint not in heard:  # noqa: ASYNC110  (it is noted on another thread)
            await asyncio.sleep(0.01)
