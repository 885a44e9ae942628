"""Transactions of several producers in one log, against a model of what readers of committed records may see.

I9: log start <= LSO <= high watermark <= log end. I10: nothing aborted or open, no transaction halved.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.log.producers.append import AppendOrigin
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.batch import iterate_headers
from minikafka.protocol.records.records import ControlRecordType, iterate_records
from minikafka.types import LeaderEpoch
from tests.unit.log.log_helpers import COMMITTED, append, batch, idempotent, marker, open_log

ABORT, COMMIT = ControlRecordType.ABORT, ControlRecordType.COMMIT
PRODUCERS = range(1, 5)


def read_committed(log: UnifiedLog, start: int, *, max_bytes: int = 300) -> list[int]:
    """Offsets of the records that a consumer shows, fetching as consumers do: it drops what the list of
    aborted transactions covers, from a transaction's first offset to its producer's marker."""
    found: list[int] = []
    offset = start
    while True:
        data = log.read(
            offset, max_bytes=max_bytes, min_one_message=True, isolation=COMMITTED, cached_only=False
        )
        assert data.aborted_transactions is not None
        coming = sorted(data.aborted_transactions, key=lambda each: each[1])
        dropped: set[int] = set()
        next_offset = offset
        for position, header in iterate_headers(data.records):
            if header.last_offset >= offset:
                while coming and coming[0][1] <= header.last_offset:
                    dropped.add(coming.pop(0)[0])
                records = memoryview(data.records)[position : position + header.size]
                if header.is_control:
                    dropped.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in dropped):
                    found += [each.offset for each in iterate_records(records) if each.offset >= offset]
            next_offset = header.next_offset
        if next_offset == offset:
            return found
        offset = next_offset


class Partition:
    """The log, and what each of its offsets holds: a producer's record, a marker, or a plain record."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = open_log(directory)
        self.entries: list[tuple[int, ControlRecordType | None]] = []
        self.ends = [0]
        """Of batches: where a high watermark may be."""

    def _append(self, records: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        self.ends.append(self.log.append_as_leader(records, LeaderEpoch(0), origin).last_offset + 1)

    def plain(self) -> None:
        self._append(batch([b"x" * 40]))
        self.entries.append((0, None))

    def write(self, producer: int, *, records: int) -> None:
        entry = self.log.producers.last_entry(producer)
        sequence = 0 if entry is None else entry.last_sequence + 1
        self._append(idempotent(sequence, producer_id=producer, count=records, transactional=True))
        self.entries += [(producer, None)] * records

    def end(self, producer: int, kind: ControlRecordType) -> None:
        self._append(marker(kind, producer_id=producer), AppendOrigin.COORDINATOR)
        self.entries.append((producer, kind))

    def truncate(self, offset: int) -> None:
        self.log.truncate_to(offset)
        del self.entries[self.log.log_end_offset :]
        self.ends = [each for each in self.ends if each <= self.log.log_end_offset]

    def later_end(self, rng: random.Random) -> int:
        """The high watermark, or the end of a batch behind it."""
        return rng.choice([each for each in self.ends if each >= self.log.high_watermark])

    def restart(self, *, clean: bool) -> None:
        high_watermark, log_start = self.log.high_watermark, self.log.log_start_offset
        recovery_point = self.log.log_end_offset if clean else 0
        self.log.close()
        self.log = open_log(
            self.directory, clean=clean, log_start_offset=log_start, recovery_point=recovery_point
        )
        self.log.update_high_watermark(high_watermark)

    # The model

    def transactions(self) -> Iterator[tuple[int, list[int], int | None, ControlRecordType | None]]:
        """Producer, offsets, and the marker's offset and kind."""
        open_ones: dict[int, list[int]] = {}
        for offset, (producer, kind) in enumerate(self.entries):
            if producer == 0:
                continue
            if kind is None:
                open_ones.setdefault(producer, []).append(offset)
            elif producer in open_ones:
                yield producer, open_ones.pop(producer), offset, kind
        for producer, offsets in open_ones.items():
            yield producer, offsets, None, None

    def stable_offset(self, *, above_log_start: bool) -> int:
        """``above_log_start``: of a transaction that began with records which are deleted, those count that
        are left; a log that is loaded knows no others."""
        log = self.log
        unstable = [
            offset
            for _, offsets, end, _ in self.transactions()
            if end is None or end >= log.high_watermark
            for offset in offsets
            if offset >= log.log_start_offset or not above_log_start
        ]
        return max(min([*unstable, log.high_watermark]), log.log_start_offset)

    def committed(self, start: int) -> list[int]:
        """What a reader may see from ``start`` on."""
        gone = {
            offset for _, offsets, _, kind in self.transactions() if kind is not COMMIT for offset in offsets
        }
        return [
            offset
            for offset, (_, kind) in enumerate(self.entries)
            if start <= offset < self.log.last_stable_offset and kind is None and offset not in gone
        ]

    def check(self, rng: random.Random) -> None:
        log = self.log
        assert log.log_end_offset == len(self.entries)
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
        assert log.last_stable_offset >= self.stable_offset(above_log_start=False)
        assert log.last_stable_offset <= self.stable_offset(above_log_start=True)
        for start in {log.log_start_offset, rng.randint(log.log_start_offset, log.log_end_offset)}:
            assert read_committed(log, start, max_bytes=rng.choice((100, 700, 5000))) == self.committed(start)


_numbers = count()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_reader_of_committed_records_sees_those_and_no_others(directory: Path, seed: int) -> None:
    rng = random.Random(seed)
    partition = Partition(directory / f"t-{next(_numbers)}")
    for _ in range(rng.randint(5, 60)):
        _step(partition, rng)
        partition.check(rng)
    partition.log.validate()
    partition.log.close()


def _step(partition: Partition, rng: random.Random) -> None:
    log = partition.log
    match rng.randrange(12):
        case 0 | 1:
            partition.plain()
        case 2 | 3 | 4:
            partition.write(rng.choice(PRODUCERS), records=rng.randint(1, 3))
        case 5 | 6:
            partition.end(rng.choice(PRODUCERS), rng.choice((ABORT, COMMIT)))
        case 7 | 8:
            log.update_high_watermark(partition.later_end(rng))
        case 9:
            log.increment_log_start_offset(rng.randint(log.log_start_offset, log.high_watermark))
        case 10:
            partition.truncate(partition.later_end(rng) + rng.randint(0, 1))
        case 11:
            log.update_high_watermark(log.log_end_offset)
            partition.restart(clean=rng.random() < 0.5)


def test_a_truncated_log_is_as_stable_as_its_high_watermark(tmp_path: Path) -> None:
    """Its producer state is built again from the log: what is decided below the high watermark stays so."""
    partition = Partition(tmp_path / "t-0")
    for _ in range(3):
        partition.write(1, records=1)
        partition.end(1, COMMIT)
    partition.log.update_high_watermark(6)
    partition.write(1, records=2)
    assert partition.log.last_stable_offset == 6
    partition.truncate(6)
    assert partition.log.last_stable_offset == 6


def test_what_begins_after_the_read_is_not_listed(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, idempotent(0, producer_id=1, transactional=True))
    append(log, marker(ABORT, producer_id=1), origin=AppendOrigin.COORDINATOR)
    for _ in range(40):
        append(log, batch([b"x" * 90]))
    append(log, idempotent(0, producer_id=2, transactional=True))
    append(log, marker(ABORT, producer_id=2), origin=AppendOrigin.COORDINATOR)
    data = log.read(0, max_bytes=200, min_one_message=True, isolation=COMMITTED)
    assert data.aborted_transactions == [(1, 0)]
