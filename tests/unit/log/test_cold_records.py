"""Stories of records that are not in the page cache: who reads them from the disk, and who is given them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from minikafka.files import File, OsFiles
from minikafka.log.segment.fetch_data import ColdRead, ColdRecords, FetchData
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.batch import iterate_headers
from minikafka.types import Buffer
from tests.unit.log.log_helpers import LOG_END, append, batch, open_log, small_config

PAGE_BYTES = 4096
VALUE_BYTES = 9_000
BATCHES = 40
PIECE_BYTES = 50_000
"""Five batches, and a part of another."""
SEGMENT_BYTES = 200_000


class PageCache(OsFiles):
    """Knows which pages of files are in memory, and what a loop that must not wait has asked it for."""

    def __init__(self) -> None:
        self.pages: set[tuple[str, int]] = set()
        self.asked: list[int] = []
        """Bytes."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> Any:
        return CachedFile(super().open(path, create=create, read_only=read_only), self)

    def evict(self) -> None:
        self.pages.clear()

    @property
    def asked_for_records(self) -> list[int]:
        """Without those that look at headers, or at one byte."""
        return [size for size in self.asked if size > PAGE_BYTES]


class CachedFile:
    def __init__(self, file: File, cache: PageCache) -> None:
        self._file = file
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def _pages(self, size: int, position: int) -> set[tuple[str, int]]:
        return {
            (self._file.path, page)
            for page in range(position // PAGE_BYTES, -(-(position + size) // PAGE_BYTES))
        }

    def write(self, buffers: Sequence[Buffer], position: int) -> int:
        self._cache.pages |= self._pages(sum(map(len, buffers)), position)
        return self._file.write(buffers, position)

    def read(self, size: int, position: int) -> bytes:
        self._cache.pages |= self._pages(size, position)
        return self._file.read(size, position)

    def read_cached(self, size: int, position: int) -> bytearray | None:
        self._cache.asked.append(size)
        return (
            self._file.read_cached(size, position)
            if self._pages(size, position) <= self._cache.pages
            else None
        )


@pytest.fixture
def cache() -> PageCache:
    return PageCache()


@pytest.fixture
def log(tmp_path: Path, cache: PageCache) -> UnifiedLog:
    """Two segments and a bit, none of it in memory."""
    config = small_config(segment_bytes=SEGMENT_BYTES, index_interval_bytes=4096)
    log = open_log(tmp_path / "t-0", config=config, files=cache)
    for number in range(BATCHES):
        append(log, batch([b"%d" % (number % 10) * VALUE_BYTES]))
    assert len(log.segments) == 2
    cache.evict()
    cache.asked.clear()
    return log


def read(
    log: UnifiedLog, offset: int, *, brought: ColdRead | None = None, max_bytes: int = PIECE_BYTES
) -> FetchData:
    return log.read(offset, max_bytes=max_bytes, min_one_message=True, isolation=LOG_END, brought=brought)


def fetched(log: UnifiedLog, offset: int) -> ColdRecords:
    """The records at ``offset``, which were cold, as a disk thread has brought them."""
    while True:
        with pytest.raises(ColdRead) as cold:
            read(log, offset)
        cold.value.fetch()
        if isinstance(cold.value, ColdRecords):
            return cold.value


def values(records: Buffer) -> list[bytes]:
    """The first digit of each whole batch's record."""
    view = memoryview(records)
    return [bytes(view[at : at + header.size][-2:-1]) for at, header in iterate_headers(records)]


def read_warm(log: UnifiedLog, offset: int) -> Buffer:
    """One batch."""
    return log.read(offset, max_bytes=1, min_one_message=True, isolation=LOG_END, cached_only=False).records


def consume(log: UnifiedLog, offset: int = 0, *, max_bytes: int = PIECE_BYTES) -> list[bytes]:
    """As a fetch does it: what is cold is fetched, and the same is read again."""
    found: list[bytes] = []
    while offset < log.log_end_offset:
        brought: ColdRead | None = None
        rounds = 0
        while True:
            try:
                data = read(log, offset, brought=brought, max_bytes=max_bytes)
                break
            except ColdRead as cold:
                rounds += 1
                assert rounds <= 3, "else the loop would read the disk itself"
                cold.fetch()
                brought = cold
        found += values(data.records)
        offset += len(values(data.records))
    return found


def test_cold_records_are_read_by_disk_threads_alone(log: UnifiedLog, cache: PageCache) -> None:
    assert consume(log) == [b"%d" % (number % 10) for number in range(BATCHES)]
    assert len(cache.asked_for_records) == 1, (
        "to find that the first ones are cold; no others were looked for"
    )


@pytest.mark.parametrize("more_bytes", [-1, 0, 1, 20, 40, 60, 100])
def test_a_piece_may_end_anywhere_in_a_batch(log: UnifiedLog, cache: PageCache, more_bytes: int) -> None:
    three_batches = 3 * len(read_warm(log, 0))
    cache.evict()
    cache.asked.clear()
    found = consume(log, max_bytes=three_batches + more_bytes)
    assert found == [b"%d" % (number % 10) for number in range(BATCHES)]
    assert len(cache.asked_for_records) == 1


@pytest.mark.parametrize("max_bytes", [1, 60, 5_000])
def test_batches_that_are_larger_than_their_reader_wants_come_one_by_one(
    log: UnifiedLog, max_bytes: int
) -> None:
    assert consume(log, max_bytes=max_bytes) == [b"%d" % (number % 10) for number in range(BATCHES)]


def test_who_has_come_to_the_end_of_cold_records_reads_from_memory_again(
    log: UnifiedLog, cache: PageCache
) -> None:
    consume(log)
    for _ in range(3):
        offset = append(log, batch([b"x" * VALUE_BYTES])).first_offset
        assert values(read(log, offset).records) == [b"x"]


def test_what_follows_cold_records_is_left_to_disk_threads_though_it_is_in_memory(
    log: UnifiedLog, cache: PageCache
) -> None:
    read(log, 0, brought=fetched(log, 0))
    first = log.segments[0]
    cache.open(first.path, read_only=True).read(first.size, 0)  # the kernel has read ahead
    cache.asked.clear()
    assert consume(log)[:10] == [b"%d" % number for number in range(10)]
    assert len(cache.asked_for_records) == 1  # what lies before it


def cut_and_fill(log: UnifiedLog) -> None:
    """As a follower whose records the new leader has not."""
    log.truncate_to(3)
    for _ in range(10):
        append(log, batch([b"x" * VALUE_BYTES]), epoch=1)


def start_over(log: UnifiedLog) -> None:
    log.truncate_fully_and_start_at(0)
    for _ in range(10):
        append(log, batch([b"x" * VALUE_BYTES]), epoch=1)


@pytest.mark.parametrize("change", [cut_and_fill, start_over])
def test_records_that_were_truncated_while_they_were_read_are_shown_to_none(
    log: UnifiedLog, change: Callable[[UnifiedLog], None]
) -> None:
    piece = fetched(log, 3)
    change(log)
    assert values(piece.records)[0] == b"3"
    assert set(values(read(log, 3, brought=piece).records)) == {b"x"}


def test_of_what_was_brought_only_so_much_is_taken_as_the_reader_may_have(log: UnifiedLog) -> None:
    piece = fetched(log, 0)
    assert len(read(log, 0, brought=piece, max_bytes=20_000).records) == 20_000
    whole = read(log, 0, brought=piece, max_bytes=1).records
    assert values(whole) == [b"0"] and len(whole) < 2 * VALUE_BYTES
    left_out = log.read(0, max_bytes=1, min_one_message=False, isolation=LOG_END, brought=piece)
    assert (left_out.records, left_out.first_entry_incomplete) == (b"", True)


def test_a_file_that_is_gone_when_it_is_to_be_read_brings_nothing(log: UnifiedLog) -> None:
    with pytest.raises(ColdRead):
        read(log, 0)
    piece = fetched(log, 0)
    log.segments[0].path += ".gone"
    with pytest.raises(ColdRecords) as cold:
        read(log, 5, brought=None)
    cold.value.fetch()
    assert cold.value.records == b"" and piece.records


def test_indexes_of_a_log_that_was_opened_again_are_fetched_beside_its_records(
    log: UnifiedLog, cache: PageCache, tmp_path: Path
) -> None:
    log.close()
    again = open_log(tmp_path / "t-0", config=log.config, files=cache, clean=True)
    cache.evict()
    cache.asked.clear()
    assert consume(again) == [b"%d" % (number % 10) for number in range(BATCHES)]
    assert len(cache.asked_for_records) == 1
