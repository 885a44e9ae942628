"""A fetch that finds too little waits for each of the nine things that can end its wait, for nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from minikafka.clock import ManualClock
from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode
from minikafka.files import OsFiles
from minikafka.log.fetch_data import ColdRead, FetchIsolation
from minikafka.log.log_manager import LogManager
from minikafka.network.connection import PendingResponse
from minikafka.protocol.batch import read_header
from minikafka.protocol.records import Record, build_batch
from minikafka.purgatory.delayed_operation import DelayedOperation
from minikafka.purgatory.purgatory import DelayedOperationPurgatory
from minikafka.purgatory.timer import Timer
from minikafka.server.delayed_fetch import WARMING_ROUNDS_MAX, Fetch
from minikafka.server.disk_chores import DiskChores
from minikafka.server.log_io import LogIo
from minikafka.server.partition import Partition
from minikafka.server.partition_reads import FetchParams, PartitionRead, WantedPartition
from minikafka.server.replica_manager import ReplicaManager
from minikafka.types import BrokerId, Buffer, LeaderEpoch, Offset, TopicPartition

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
TOPIC_ID = UUID(int=7)
NODE = BrokerId(1)


def batch(count: int = 1, size: int = 100) -> bytes:
    return build_batch([Record(i, 1_700_000_000_000, None, b"x" * size, ()) for i in range(count)])


class ManualLogIo:
    """A disk that answers when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def warm(self, range_: ColdRead, *, then: Callable[[], None]) -> None:
        self.waiting.append(then)

    def finish(self) -> None:
        waiting, self.waiting = self.waiting, []
        for then in waiting:
            then()


class Harness:
    def __init__(self, directory: Path, config: TopicConfig) -> None:
        self.clock = ManualClock()
        self.timer = Timer(self.clock)
        self.purgatory: DelayedOperationPurgatory[DelayedOperation] = DelayedOperationPurgatory(
            "Fetch", self.timer
        )
        self.log_io = ManualLogIo()
        self.log_manager = LogManager(
            [str(directory)],
            default_config=config,
            topic_config=lambda topic: config,
            files=OsFiles(),
            clock=self.clock,
            rng=random.Random(1),
            cluster_id="c",
            broker_id=NODE,
        )
        self.log_manager.load()
        self.replicas = ReplicaManager(
            node_id=NODE, log_manager=self.log_manager, fetch_purgatory=self.purgatory, chores=DiskChores()
        )
        for topic_partition in (TP, OTHER):
            self.lead(topic_partition, epoch=3)
        self.answers: list[list[PartitionRead]] = []

    def lead(self, topic_partition: TopicPartition, *, epoch: int) -> Partition:
        return self.replicas.become_leader(
            topic_partition,
            topic_id=TOPIC_ID,
            leader_epoch=LeaderEpoch(epoch),
            replicas=[NODE],
            isr=[NODE],
            is_new=True,
        )

    def append(self, records: bytes, topic_partition: TopicPartition = TP) -> None:
        self.replicas.append(topic_partition, records, required_acks=1)

    def fetch(
        self,
        *partitions: TopicPartition,
        offset: int = 0,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        max_bytes: int = 1 << 20,
        epoch: int = 3,
        last_fetched_epoch: int = -1,
    ) -> Any:
        wanted = [
            WantedPartition(tp, TOPIC_ID, Offset(offset), max_bytes, epoch, last_fetched_epoch)
            for tp in partitions or (TP,)
        ]

        def respond(reads: list[PartitionRead]) -> Sequence[Buffer]:
            self.answers.append(reads)
            return (b"response",)

        return Fetch(
            replicas=self.replicas,
            log_io=cast(LogIo, self.log_io),
            purgatory=self.purgatory,
            clock=self.clock,
            params=FetchParams(max_wait_ms, min_bytes, 50 << 20, FetchIsolation.HIGH_WATERMARK),
            wanted=wanted,
            respond=respond,
        ).start()

    def pass_time(self, duration_ms: int) -> None:
        self.clock.advance(duration_ms)
        for task in self.timer.advance(self.clock.monotonic_ms()):
            if not task.cancelled:
                task.run()

    @property
    def answer(self) -> list[PartitionRead]:
        (only,) = self.answers
        return only


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path, TopicConfig())
    yield made
    made.log_manager.shutdown()


@pytest.fixture
def small_segments(tmp_path: Path) -> Iterator[Harness]:
    """Every batch of 600 bytes starts a segment of its own."""
    made = Harness(tmp_path, TopicConfig(segment_bytes=1024))
    yield made
    made.log_manager.shutdown()


# At once


def test_enough_bytes_are_answered_at_once(harness: Harness) -> None:
    harness.append(batch(3))
    assert harness.fetch() == (b"response",)
    (read,) = harness.answer
    assert read_header(read.records).last_offset == 2
    assert read.high_watermark == 3
    assert harness.purgatory.delayed == 0


def test_without_max_wait_or_without_partitions_nothing_waits(harness: Harness) -> None:
    assert harness.fetch(max_wait_ms=0) == (b"response",)
    fetch = Fetch(
        replicas=harness.replicas,
        log_io=cast(LogIo, harness.log_io),
        purgatory=harness.purgatory,
        clock=harness.clock,
        params=FetchParams(500, 1, 1 << 20, FetchIsolation.HIGH_WATERMARK),
        wanted=[],
        respond=lambda reads: (b"nothing",),
    )
    assert fetch.start() == (b"nothing",)


def test_an_error_of_one_partition_is_answered_at_once_beside_the_others(harness: Harness) -> None:
    harness.fetch(TP, TopicPartition("unknown", 0))
    fine, unknown = harness.answer
    assert (fine.error, unknown.error) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_an_offset_outside_of_the_log_is_out_of_range(harness: Harness) -> None:
    harness.fetch(offset=1)
    assert harness.answer[0].error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_diverging_epoch_is_answered_at_once_without_records(harness: Harness) -> None:
    harness.append(batch(10))
    harness.lead(TP, epoch=5)
    harness.append(batch(2))
    harness.fetch(offset=12, epoch=5, last_fetched_epoch=3)
    (read,) = harness.answer
    assert read.diverging_epoch == (3, 10)
    assert read.records == b""


def test_bytes_count_up_to_the_partitions_limit_in_the_order_asked(harness: Harness) -> None:
    for topic_partition in (TP, OTHER):
        harness.append(batch(1, size=1000), topic_partition)
        harness.append(batch(1, size=1000), topic_partition)
    harness.fetch(TP, OTHER, max_bytes=500)
    first, second = harness.answer
    assert len(first.records) > 1000, "the first batch found is returned whole (KIP-74)"
    assert second.records == b"", "half a batch is of no use to a reader that already got one"


# Parked


def test_way_g_enough_bytes_wake_it(harness: Harness) -> None:
    pending = harness.fetch(min_bytes=300)
    assert isinstance(pending, PendingResponse) and pending.is_waiting
    harness.append(batch(1, size=100))
    assert pending.is_waiting, "about 170 bytes are not enough"
    harness.append(batch(1, size=100))
    assert pending.buffers == (b"response",)
    assert len(harness.answer[0].records) >= 300


def test_way_g_what_one_partition_may_return_at_most_is_what_counts(harness: Harness) -> None:
    pending = harness.fetch(TP, OTHER, min_bytes=300, max_bytes=200)
    harness.append(batch(1, size=5000))
    assert pending.is_waiting, "200 bytes of the first partition are all that it may have"
    harness.append(batch(1, size=5000), OTHER)
    assert not pending.is_waiting


def test_way_i_max_wait_ends_it_with_what_there_is(harness: Harness) -> None:
    pending = harness.fetch(min_bytes=10_000, max_wait_ms=500)
    harness.append(batch(1))
    harness.pass_time(499)
    assert pending.is_waiting
    harness.pass_time(2)
    assert not pending.is_waiting
    assert len(harness.answer[0].records) > 0
    assert harness.purgatory.delayed == 0


def test_way_a_another_leader_ends_it(harness: Harness) -> None:
    pending = harness.fetch()
    harness.replicas.partitions[TP].leader_id = BrokerId(2)
    harness.purgatory.check_and_complete(TP)
    assert not pending.is_waiting
    assert harness.answer[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_way_b_a_deleted_partition_ends_it(harness: Harness) -> None:
    harness.fetch()
    harness.replicas.delete_partition(TP)
    assert harness.answer[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_way_c_an_offline_directory_ends_it(harness: Harness, tmp_path: Path) -> None:
    harness.fetch()
    harness.replicas.take_directory_offline(str(tmp_path), reason="the disk is gone")
    assert harness.answer[0].error is ErrorCode.KAFKA_STORAGE_ERROR


def test_way_d_a_new_epoch_fences_it(harness: Harness) -> None:
    harness.fetch(epoch=3)
    harness.lead(TP, epoch=4)
    harness.purgatory.check_and_complete(TP)
    assert harness.answer[0].error is ErrorCode.FENCED_LEADER_EPOCH


def test_way_e_truncation_below_the_fetch_offset_ends_it(harness: Harness) -> None:
    harness.append(batch(5))
    harness.fetch(offset=5)
    log = harness.replicas.partitions[TP].log
    log.truncate_to(0)
    log.update_high_watermark(0)
    harness.purgatory.check_and_complete(TP)
    assert harness.answer[0].error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_way_f_a_roll_ends_it_whatever_min_bytes_says(small_segments: Harness) -> None:
    small_segments.append(batch(1, size=600))
    pending = small_segments.fetch(offset=1, min_bytes=1 << 20)
    small_segments.append(batch(1, size=600))
    assert not pending.is_waiting, "bytes across segments are not counted but returned"
    assert len(small_segments.answer[0].records) > 600


def test_way_h_a_history_that_parted_while_it_waited_ends_it(harness: Harness) -> None:
    harness.append(batch(10))
    pending = harness.fetch(offset=10, epoch=-1, last_fetched_epoch=3, min_bytes=1 << 20)
    log = harness.replicas.partitions[TP].log
    log.truncate_to(0)
    harness.lead(TP, epoch=6)
    for _ in range(12):
        harness.append(batch(1))
    assert not pending.is_waiting
    read = harness.answer[0]
    assert read.diverging_epoch is not None or read.error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_closed_connection_leaves_nothing_behind(harness: Harness) -> None:
    pending = harness.fetch()
    pending.connection_closed()
    assert harness.purgatory.delayed == 0
    harness.append(batch(1))
    assert harness.answers == []


# Cold


def test_cold_ranges_are_warmed_together_and_read_again(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic_partition in (TP, OTHER):
        harness.append(batch(3), topic_partition)
    cold = {tp: harness.replicas.partitions[tp].log for tp in (TP, OTHER)}
    real_read = type(cold[TP]).read

    def read(log: Any, fetch_offset: int, **options: Any) -> Any:
        if log in cold.values() and options["cached_only"]:
            raise ColdRead(cast(Any, None), 0, 200)
        return real_read(log, fetch_offset, **options)

    monkeypatch.setattr(type(cold[TP]), "read", read)
    pending = harness.fetch(TP, OTHER)
    assert len(harness.log_io.waiting) == 2
    cold.clear()
    harness.log_io.finish()
    assert not pending.is_waiting
    assert all(len(read.records) > 0 for read in harness.answer)


def test_a_page_cache_that_is_too_small_is_not_chased_for_ever(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.append(batch(3))
    log_type = type(harness.replicas.partitions[TP].log)
    real_read = log_type.read

    def read(log: Any, fetch_offset: int, **options: Any) -> Any:
        if options["cached_only"]:
            raise ColdRead(cast(Any, None), 0, 200)
        return real_read(log, fetch_offset, **options)

    monkeypatch.setattr(log_type, "read", read)
    pending = harness.fetch()
    for _ in range(WARMING_ROUNDS_MAX):
        assert pending.is_waiting
        harness.log_io.finish()
    assert not pending.is_waiting
    assert len(harness.answer[0].records) > 0
