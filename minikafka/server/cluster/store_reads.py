"""Many reads of the store at once, but not too many."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")

CONCURRENT_READS_MAX = 100
"""A task costs the loop 0.05 ms, and nobody else gets a turn while they all start."""


async def gather_some(reads: Iterator[Coroutine[Any, Any, T]]) -> list[T]:
    """What ``reads`` return, in their order."""
    results: list[T] = []
    while some := list(islice(reads, CONCURRENT_READS_MAX)):
        results += await asyncio.gather(*some)
    return results
