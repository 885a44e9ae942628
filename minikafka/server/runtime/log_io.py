"""The disk threads: everything that may wait for a disk and therefore never runs on the loop.

Appends go to the page cache on the loop (``UnifiedLog``); what is left for here are fsyncs, checkpoints,
removals and the reading of cold ranges. What writes into a log directory has one thread there, so that a long
fsync of one log never makes two of them fight for the disk, and a disk that hangs holds up no other one. One
more thread is for what belongs to no directory alone: start, shutdown, compaction. Readers have threads of
their own, so that a consumer of old records does not wait for a flush (Kafka: ``background.threads``,
``num.io.threads``, and the ``ioExecutor`` of each log directory in ``LogManager``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from minikafka.log.segment.fetch_data import ColdRead


T = TypeVar("T")

READER_THREADS_MAX = 4
"""Cold reads under way at once; more would only queue at the disk."""


class LogIo:
    """A thread for each log directory's writes, one for other work, some for cold reads. They start on first
    use."""

    def __init__(self) -> None:
        self._writer = _one_thread()
        self._writers: dict[str, ThreadPoolExecutor] = {}
        """By log directory."""
        self._readers = ThreadPoolExecutor(
            max_workers=READER_THREADS_MAX, thread_name_prefix="minikafka-disk-reader"
        )

    async def run(self, work: Callable[[], T], *, log_directory: str | None = None) -> T:
        """Run ``work`` on the thread of ``log_directory``, or on that for what belongs to none alone, after
        all that was handed in there before it."""
        writer = self._writer
        if log_directory is not None:
            writer = self._writers.get(log_directory) or self._writers.setdefault(
                log_directory, _one_thread()
            )
        return await asyncio.get_running_loop().run_in_executor(writer, work)

    def warm(self, range_: ColdRead, *, then: Callable[[], None]) -> None:
        """Fetch a range of a file, also into the page cache, then call ``then`` on the loop.

        A read that fails is not reported here: the next read of the range meets the same failure and
        knows what it means, and a file that was closed meanwhile (its segment is gone) is no failure at
        all.
        """

        def fetch() -> None:
            try:
                range_.fetch()
            except OSError:
                pass

        future = asyncio.get_running_loop().run_in_executor(self._readers, fetch)
        future.add_done_callback(lambda done: None if done.cancelled() else then())

    async def warmed(self, range_: ColdRead) -> ColdRead:
        """The same for those who can await; returns ``range_``, for the read that follows."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.warm(range_, then=lambda: None if done.done() else done.set_result(None))
        await done
        return range_

    async def all_warmed(self, ranges: Collection[ColdRead]) -> None:
        """Several at once."""
        if not ranges:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        missing = len(ranges)

        def warmed() -> None:
            nonlocal missing
            missing -= 1
            if not missing and not done.done():
                done.set_result(None)

        for range_ in ranges:
            self.warm(range_, then=warmed)
        await done

    def close(self) -> None:
        """Wait for what is under way; blocks, so call it when the broker stops."""
        for writer in (self._writer, *self._writers.values()):
            writer.shutdown(wait=True)
        self._readers.shutdown(wait=True, cancel_futures=True)


def _one_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="minikafka-disk-writer")
