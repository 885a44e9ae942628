"""A partition knows its leader, its epochs, and how far readers may go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode, InvariantError
from minikafka.log.segment.fetch_data import FetchIsolation
from minikafka.protocol.records.records import Record, build_batch
from minikafka.server.replica.partition import (
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    Partition,
)
from minikafka.types import Offset
from tests.unit.server.replicas import Replicas, code, state_of

COMMITTED = FetchIsolation.HIGH_WATERMARK


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(tmp_path, TopicConfig(message_timestamp_after_max_ms=2**62))
    yield made
    made.close()


@pytest.fixture
def partition(replicas: Replicas) -> Partition:
    """Led by the only replica."""
    return replicas.lead(isr=[1], replicas=[1])


def write(partition: Partition, *timestamps: int) -> None:
    for timestamp in timestamps:
        partition.append_as_leader(build_batch([Record(0, timestamp, b"k", b"v", ())]), required_acks=-1)


def lead(partition: Partition, epoch: int) -> bool:
    return partition.make_leader(state_of(epoch=epoch, isr=[1], replicas=[1]), now_ms=0)


def test_with_no_other_replica_what_is_appended_is_committed(partition: Partition) -> None:
    write(partition, 10, 20)
    assert [partition.end_offset(isolation) for isolation in FetchIsolation] == [2, 2, 2]
    assert partition.is_leader and "high_watermark=2" in repr(partition)


def test_an_epoch_is_news_only_once(partition: Partition) -> None:
    assert lead(partition, 3)
    assert not lead(partition, 3)


def test_an_epoch_never_goes_back(partition: Partition) -> None:
    lead(partition, 4)
    with pytest.raises(InvariantError, match="epoch 3 after 4"):
        partition.make_leader(state_of(epoch=3, version=99), now_ms=0)


def test_a_peer_with_another_epoch_is_told_whether_it_is_behind_or_ahead(partition: Partition) -> None:
    lead(partition, 3)
    partition.check_leader_epoch(3)
    partition.check_leader_epoch(-1)
    assert code(partition.check_leader_epoch, 2) is ErrorCode.FENCED_LEADER_EPOCH
    assert code(partition.check_leader_epoch, 4) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_where_a_readers_history_leaves_this_one(partition: Partition) -> None:
    write(partition, 1, 2)
    lead(partition, 3)
    write(partition, 3)

    def diverging(epoch: int, offset: int) -> Any:
        return partition.diverging_epoch(last_fetched_epoch=epoch, fetch_offset=Offset(offset))

    assert diverging(-1, 9) is None  # it does not say
    assert diverging(0, 2) is None and diverging(3, 3) is None
    assert diverging(0, 3) == (0, 2)  # it has a record of epoch 0 that was never here
    assert diverging(2, 3) == (0, 2)  # an unknown epoch: the one before it
    assert code(diverging, 4, 3) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_places_and_times(partition: Partition) -> None:
    write(partition, 1_000, 5_000, 3_000)

    def at(timestamp: int) -> Any:
        return partition.offset_for_timestamp(timestamp, isolation=COMMITTED, cached_only=False)

    assert at(EARLIEST_TIMESTAMP) == (0, -1, 0)
    assert at(LATEST_TIMESTAMP) == (3, -1, 0)
    assert at(MAX_TIMESTAMP) == (1, 5_000, 0)
    assert at(LATEST_TIERED_TIMESTAMP) == (-1, -1, -1)
    assert at(1_001) == (1, 5_000, 0)
    assert at(5_001) is None


def test_what_is_not_committed_does_not_exist_for_a_consumer(partition: Partition) -> None:
    write(partition, 1_000)
    partition.log.append_as_leader(
        build_batch([Record(0, 9_000, b"k", b"v", ())]), leader_epoch=partition.leader_epoch
    )
    found = partition.offset_for_timestamp(5_000, isolation=COMMITTED, cached_only=False)
    assert found is None and partition.end_offset(COMMITTED) == 1
    everything = partition.offset_for_timestamp(5_000, isolation=FetchIsolation.LOG_END, cached_only=False)
    assert everything == (1, 9_000, 0)
