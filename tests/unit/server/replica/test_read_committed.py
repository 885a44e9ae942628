"""Readers of committed records: what they get, what they wait for, and where the log ends for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minikafka.log.producers.append import BY_COORDINATOR
from minikafka.log.segment.fetch_data import FetchIsolation
from minikafka.protocol.records.batch import iterate_headers
from minikafka.protocol.records.records import (
    ControlRecordType,
    EndTransactionMarker,
    Record,
    build_batch,
    marker_batch,
)
from minikafka.server.replica.partition import LATEST_TIMESTAMP, MAX_TIMESTAMP
from tests.unit.server.replicas import TP, Replicas, batch

COMMITTED = FetchIsolation.TXN_COMMITTED
ABORT, COMMIT = ControlRecordType.ABORT, ControlRecordType.COMMIT


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """Leads a partition that broker 2 follows, in sync."""
    made = Replicas(tmp_path)
    made.lead(epoch=3, isr=[1, 2])
    yield made
    made.close()


def in_transaction(replicas: Replicas, *, producer_id: int, sequence: int = 0, timestamp: int = 0) -> bytes:
    record = Record(0, timestamp or replicas.clock.now_ms(), None, b"v", ())
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
    )


def end(replicas: Replicas, kind: ControlRecordType, *, producer_id: int) -> None:
    records = marker_batch(
        EndTransactionMarker(kind, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=replicas.clock.now_ms(),
    )
    replicas.manager.append(TP, records, required_acks=1, terms=BY_COORDINATOR)


def replicate(replicas: Replicas) -> None:
    replicas.follower_fetch(2, replicas.partition().log.log_end_offset)


def offsets(read: Any) -> list[int]:
    return [header.base_offset for _, header in iterate_headers(read.records)]


def test_a_reader_waits_for_the_last_stable_offset_and_for_nothing_else(replicas: Replicas) -> None:
    replicas.append(in_transaction(replicas, producer_id=7))
    reader = replicas.fetch(isolation=COMMITTED)
    plain = replicas.fetch()
    replicate(replicas)
    assert not plain.is_waiting, "the high watermark has moved"
    assert reader.is_waiting, "the last stable offset has not"
    replicas.append(batch(2))
    replicate(replicas)
    assert reader.is_waiting, "records behind an open transaction are not for it"
    end(replicas, COMMIT, producer_id=7)
    assert reader.is_waiting, "the marker is on one replica only"
    replicate(replicas)
    assert not reader.is_waiting
    ((read,),) = replicas.answers[1:]
    assert offsets(read) == [0, 1, 3]
    assert (read.last_stable_offset, read.high_watermark) == (4, 4)
    assert read.aborted_transactions == []


def test_of_two_transactions_the_older_one_is_what_is_waited_for(replicas: Replicas) -> None:
    replicas.append(in_transaction(replicas, producer_id=7))
    replicas.append(in_transaction(replicas, producer_id=8))
    reader = replicas.fetch(isolation=COMMITTED)
    end(replicas, COMMIT, producer_id=8)
    replicate(replicas)
    assert reader.is_waiting
    end(replicas, ABORT, producer_id=7)
    replicate(replicas)
    (read,) = replicas.answers.pop()
    assert offsets(read) == [0, 1, 2, 3]
    assert read.aborted_transactions == [(7, 0)]


def test_a_reader_that_waits_too_long_is_told_where_it_stands(replicas: Replicas) -> None:
    replicas.append(in_transaction(replicas, producer_id=7))
    replicate(replicas)
    reader = replicas.fetch(isolation=COMMITTED)
    replicas.pass_time(501)
    assert not reader.is_waiting
    (read,) = replicas.answers.pop()
    assert (offsets(read), read.last_stable_offset, read.high_watermark) == ([], 0, 1)


def test_the_end_for_such_a_reader_is_the_last_stable_offset(replicas: Replicas) -> None:
    """ListOffsets: what lies behind it is not there, whatever its time."""
    now_ms = replicas.clock.now_ms()
    replicas.append(batch(1))
    replicas.append(in_transaction(replicas, producer_id=7, timestamp=now_ms + 5000))
    replicate(replicas)
    partition = replicas.partition()

    def found(timestamp_ms: int, isolation: FetchIsolation) -> int | None:
        place = partition.offset_for_timestamp(timestamp_ms, isolation=isolation, cached_only=True)
        return None if place is None else place.offset

    plain = FetchIsolation.HIGH_WATERMARK
    assert (found(LATEST_TIMESTAMP, COMMITTED), found(LATEST_TIMESTAMP, plain)) == (1, 2)
    assert (found(now_ms + 5000, COMMITTED), found(now_ms + 5000, plain)) == (None, 1)
    assert (found(MAX_TIMESTAMP, COMMITTED), found(MAX_TIMESTAMP, plain)) == (None, 1)
    end(replicas, COMMIT, producer_id=7)
    replicate(replicas)
    assert found(LATEST_TIMESTAMP, COMMITTED) == 3 and found(now_ms + 5000, COMMITTED) == 1


def test_records_of_an_open_transaction_may_be_deleted(replicas: Replicas) -> None:
    """KIP-107: the last stable offset is not below what is left (I9)."""
    replicas.append(in_transaction(replicas, producer_id=7))
    replicas.append(batch(2))
    replicate(replicas)
    replicas.manager.delete_records(TP, replicas.partition().log.high_watermark)
    log = replicas.partition().log
    assert (log.log_start_offset, log.last_stable_offset, log.high_watermark) == (3, 3, 3)
    replicas.append(batch(1))
    replicate(replicas)
    assert log.last_stable_offset == 3, "its marker is still to come"
    end(replicas, ABORT, producer_id=7)
    replicate(replicas)
    assert log.last_stable_offset == 5


def test_a_follower_knows_the_transactions_of_its_leader(tmp_path: Path, replicas: Replicas) -> None:
    replicas.append(in_transaction(replicas, producer_id=7))
    replicas.append(in_transaction(replicas, producer_id=8))
    end(replicas, ABORT, producer_id=8)
    led = replicas.partition().log
    follower = Replicas(tmp_path / "follower")
    log = follower.follow(leader=1, epoch=3).log
    copied = led.read(0, max_bytes=1 << 20, min_one_message=True, isolation=FetchIsolation.LOG_END)
    log.append_as_follower(copied.records)
    assert log.producers.active_producers() == led.producers.active_producers()
    log.update_high_watermark(2)
    assert log.last_stable_offset == 0
    log.update_high_watermark(3)
    assert log.last_stable_offset == 0, "one of them is open"
    follower.lead(leader=1, epoch=4)
    end(follower, COMMIT, producer_id=7)
    assert follower.partition().log.producers.first_undecided_offset is None
    follower.close()
