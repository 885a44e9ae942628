"""``until``: how a scenario waits for what must come about by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

HEAL_WITHIN_MS = 30_000
"""I16."""


async def until(condition: Callable[[], bool], what: str, *, within_ms: int = HEAL_WITHIN_MS) -> None:
    """Look every 50 ms of virtual time. Raises TimeoutError."""
    for _ in range(within_ms // 50):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(f"not within {within_ms} ms: {what}")
