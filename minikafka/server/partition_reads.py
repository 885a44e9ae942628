"""Reading several partitions for one fetch: who gets how many bytes, and what each has to say.

Kafka's ``ReplicaManager.readFromLog``. The request's byte limit is spent in the order of the partitions;
the first record batch found is returned even when it is larger than every limit, so that a consumer never
stalls (KIP-74).

A range that is not in the page cache is not read here. All such ranges of a fetch are collected, the disk
thread warms them, and then the whole fetch is read again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.fetch_data import (
    ColdRead,
    FetchedAbortedTransaction,
    FetchIsolation,
    LogOffsetMetadata,
)
from minikafka.protocol.fast_paths import EpochEndOffset
from minikafka.server.partition import Partition
from minikafka.server.replica_manager import ReplicaManager
from minikafka.types import NO_OFFSET, Buffer, Offset, TopicPartition


class FetchParams(NamedTuple):
    """What a fetch request asks for as a whole (Kafka's ``FetchParams``)."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: FetchIsolation


class WantedPartition(NamedTuple):
    """What a fetch request asks of one partition (Kafka's ``FetchRequest.PartitionData``).

    ``topic_id`` is None in requests that name their topics. An empty topic name stands for an id that this
    broker does not know (yet).
    """

    topic_partition: TopicPartition
    topic_id: UUID | None
    fetch_offset: Offset
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int


class PartitionRead(NamedTuple):
    """What one partition answers (Kafka's ``LogReadResult``)."""

    wanted: WantedPartition
    error: ErrorCode = ErrorCode.NONE
    records: Buffer = b""
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    aborted_transactions: list[FetchedAbortedTransaction] | None = None
    diverging_epoch: EpochEndOffset | None = None
    preferred_read_replica: int = -1
    start: LogOffsetMetadata | None = None
    """Where the read began in the log's files, for counting what has come since."""


class Reads(NamedTuple):
    """All answers of one pass, or the cold ranges that kept it from being complete."""

    partitions: list[PartitionRead]
    size_bytes: int
    cold: list[ColdRead]


def read_partitions(
    replicas: ReplicaManager, params: FetchParams, wanted: Iterable[WantedPartition], *, cached_only: bool
) -> Reads:
    """One pass over ``wanted``, in order."""
    bytes_left = params.max_bytes
    reads: list[PartitionRead] = []
    cold: list[ColdRead] = []
    found = False
    for want in wanted:
        if not want.topic_partition.topic:
            reads.append(PartitionRead(want, ErrorCode.UNKNOWN_TOPIC_ID))
            continue
        partition = None
        try:
            partition = replicas.partition(want.topic_partition)
            read = _read(
                partition,
                want,
                isolation=params.isolation,
                max_bytes=min(want.max_bytes, max(bytes_left, 0)),
                min_one_message=not found,
                cached_only=cached_only,
            )
        except KafkaError as error:
            if partition is not None:
                replicas.note_failure(partition, error)
            reads.append(PartitionRead(want, error.code))
            continue
        except ColdRead as range_:
            cold.append(range_)
            size_bytes = range_.size
        else:
            reads.append(read)
            size_bytes = len(read.records)
        found = found or size_bytes > 0
        bytes_left -= size_bytes
    return Reads(reads, params.max_bytes - bytes_left, cold)


def _read(
    partition: Partition,
    want: WantedPartition,
    *,
    isolation: FetchIsolation,
    max_bytes: int,
    min_one_message: bool,
    cached_only: bool,
) -> PartitionRead:
    if want.topic_id is not None and want.topic_id != partition.topic_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_TOPIC_ID, f"{want.topic_partition} is not the topic {want.topic_id}"
        )
    log = partition.log
    partition.check_leader_epoch(want.current_leader_epoch)
    diverging_epoch = partition.diverging_epoch(
        last_fetched_epoch=want.last_fetched_epoch, fetch_offset=want.fetch_offset
    )
    if diverging_epoch is not None:
        return PartitionRead(
            want,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            diverging_epoch=diverging_epoch,
        )
    data = log.read(
        want.fetch_offset,
        max_bytes=max_bytes,
        min_one_message=min_one_message,
        isolation=isolation,
        cached_only=cached_only,
    )
    return PartitionRead(
        want,
        records=data.records,
        high_watermark=data.high_watermark,
        last_stable_offset=data.last_stable_offset,
        log_start_offset=data.log_start_offset,
        aborted_transactions=data.aborted_transactions,
        start=data.fetch_offset_metadata,
    )
