"""A fetch that finds too little waits for each of the nine things that can end its wait, for nothing else."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode
from minikafka.log.segment.fetch_data import ColdRead
from minikafka.network.connection import PendingResponse
from minikafka.protocol.records.batch import read_header
from minikafka.server.replica.delayed_operations import WARMING_ROUNDS_MAX, DelayedFetch, Fetch
from minikafka.server.replica.partition_reads import PartitionRead, WantedPartition
from minikafka.server.runtime.log_io import LogIo
from minikafka.steps import finish
from minikafka.types import Offset, TopicPartition
from tests.unit.server.replicas import OTHER, TOPIC_ID, TP, TWO, NoFile, Replicas, batch


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    yield from leading(Replicas(tmp_path))


@pytest.fixture
def small_segments(tmp_path: Path) -> Iterator[Replicas]:
    """Every batch of 600 bytes starts a segment of its own."""
    yield from leading(Replicas(tmp_path, TopicConfig(segment_bytes=1024)))


def leading(made: Replicas) -> Iterator[Replicas]:
    """Leads two partitions, alone, in leader epoch 3."""
    for at in (TP, OTHER):
        lead(made, at, 3)
    yield made
    made.close()


def lead(replicas: Replicas, at: TopicPartition, epoch: int) -> None:
    replicas.lead(at, epoch=epoch, isr=[1], replicas=[1])


# At once


def test_enough_bytes_are_answered_at_once(replicas: Replicas) -> None:
    replicas.append(batch(3))
    assert replicas.fetch() == (b"response",)
    (read,) = replicas.answer
    assert read_header(read.records).last_offset == 2
    assert read.high_watermark == 3
    assert replicas.manager.parked.fetch.delayed == 0


def test_without_max_wait_or_without_partitions_nothing_waits(replicas: Replicas) -> None:
    assert replicas.fetch(max_wait_ms=0) == (b"response",)
    fetch = Fetch(
        replicas=replicas.manager,
        log_io=cast(LogIo, replicas.log_io),
        clock=replicas.clock,
        params=replicas.fetch_params(),
        wanted=[],
        respond=lambda reads: (b"nothing",),
    )
    assert finish(fetch.start()) == (b"nothing",)


def test_who_looks_sees_what_it_waits_for(replicas: Replicas) -> None:
    replicas.fetch(TP, OTHER)
    (waiting,) = replicas.manager.parked.fetch.waiting()
    assert repr(waiting) == f"DelayedFetch(of a consumer: {TP} from 0, {OTHER} from 0)"


def test_an_error_of_one_partition_is_answered_at_once_beside_the_others(replicas: Replicas) -> None:
    replicas.fetch(TP, TopicPartition("unknown", 0))
    fine, unknown = replicas.answer
    assert (fine.error, unknown.error) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_an_offset_outside_of_the_log_is_out_of_range(replicas: Replicas) -> None:
    replicas.fetch(offset=1)
    assert replicas.answer[0].error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_diverging_epoch_is_answered_at_once_without_records(replicas: Replicas) -> None:
    replicas.append(batch(10))
    lead(replicas, TP, 5)
    replicas.append(batch(2))
    replicas.fetch(offset=12, epoch=5, last_fetched_epoch=3)
    (read,) = replicas.answer
    assert read.diverging_epoch == (3, 10)
    assert read.records == b""


def test_bytes_count_up_to_the_partitions_limit_in_the_order_asked(replicas: Replicas) -> None:
    for topic_partition in (TP, OTHER):
        replicas.append(batch(1, size=1000), topic_partition)
        replicas.append(batch(1, size=1000), topic_partition)
    replicas.fetch(TP, OTHER, max_bytes=500)
    first, second = replicas.answer
    assert len(first.records) > 1000, "the first batch found is returned whole (KIP-74)"
    assert second.records == b"", "half a batch is of no use to a reader that already got one"


# Parked


def test_way_g_enough_bytes_wake_it(replicas: Replicas) -> None:
    pending = replicas.fetch(min_bytes=300)
    assert isinstance(pending, PendingResponse) and pending.is_waiting
    replicas.append(batch(1, size=100))
    assert pending.is_waiting, "about 170 bytes are not enough"
    replicas.append(batch(1, size=100))
    assert pending.buffers == (b"response",)
    assert len(replicas.answer[0].records) >= 300


def test_way_g_what_one_partition_may_return_at_most_is_what_counts(replicas: Replicas) -> None:
    pending = replicas.fetch(TP, OTHER, min_bytes=300, max_bytes=200)
    replicas.append(batch(1, size=5000))
    assert pending.is_waiting, "200 bytes of the first partition are all that it may have"
    replicas.append(batch(1, size=5000), OTHER)
    assert not pending.is_waiting


def test_way_i_max_wait_ends_it_with_what_there_is(replicas: Replicas) -> None:
    pending = replicas.fetch(min_bytes=10_000, max_wait_ms=500)
    replicas.append(batch(1))
    replicas.pass_time(499)
    assert pending.is_waiting
    replicas.pass_time(2)
    assert not pending.is_waiting
    assert len(replicas.answer[0].records) > 0
    assert replicas.manager.parked.fetch.delayed == 0


def test_way_a_another_leader_ends_it(replicas: Replicas) -> None:
    pending = replicas.fetch()
    replicas.follow(epoch=4)
    assert not pending.is_waiting
    assert replicas.answer[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_way_b_a_deleted_partition_ends_it(replicas: Replicas) -> None:
    replicas.fetch()
    replicas.manager.delete_partition(TP)
    assert replicas.answer[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_way_c_an_offline_directory_ends_it(replicas: Replicas, tmp_path: Path) -> None:
    replicas.fetch()
    replicas.manager.take_directory_offline(str(tmp_path), reason="the disk is gone")
    assert replicas.answer[0].error is ErrorCode.KAFKA_STORAGE_ERROR


def test_way_d_a_new_epoch_fences_it(replicas: Replicas) -> None:
    replicas.fetch(epoch=3)
    lead(replicas, TP, 4)
    assert replicas.answer[0].error is ErrorCode.FENCED_LEADER_EPOCH


def test_way_e_truncation_below_the_fetch_offset_ends_it(replicas: Replicas) -> None:
    replicas.append(batch(5))
    replicas.fetch(offset=5)
    log = replicas.manager.partitions[TP].log
    log.truncate_to(0)
    log.update_high_watermark(0)
    replicas.manager.parked.fetch.check_and_complete(TP)
    assert replicas.answer[0].error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_way_f_a_roll_ends_it_whatever_min_bytes_says(small_segments: Replicas) -> None:
    small_segments.append(batch(1, size=600))
    pending = small_segments.fetch(offset=1, min_bytes=1 << 20)
    small_segments.append(batch(1, size=600))
    assert not pending.is_waiting, "bytes across segments are not counted but returned"
    assert len(small_segments.answer[0].records) > 600


def test_way_h_a_history_that_parted_while_it_waited_ends_it(replicas: Replicas) -> None:
    replicas.append(batch(10))
    pending = replicas.fetch(offset=10, epoch=-1, last_fetched_epoch=3, min_bytes=1 << 20)
    log = replicas.manager.partitions[TP].log
    log.truncate_to(0)
    lead(replicas, TP, 6)
    for _ in range(12):
        replicas.append(batch(1))
    assert not pending.is_waiting
    read = replicas.answer[0]
    assert read.diverging_epoch is not None or read.error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_closed_connection_leaves_nothing_behind(replicas: Replicas) -> None:
    pending = replicas.fetch()
    pending.connection_closed()
    assert replicas.manager.parked.fetch.delayed == 0
    replicas.append(batch(1))
    assert replicas.answers == []


# Cold


def test_cold_ranges_are_warmed_together_and_read_again(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic_partition in (TP, OTHER):
        replicas.append(batch(3), topic_partition)
    cold = {tp: replicas.manager.partitions[tp].log for tp in (TP, OTHER)}
    real_read = type(cold[TP]).read

    def read(log: Any, fetch_offset: int, **options: Any) -> Any:
        if log in cold.values() and options["cached_only"]:
            raise ColdRead(NoFile(), 0, 200)
        return real_read(log, fetch_offset, **options)

    monkeypatch.setattr(type(cold[TP]), "read", read)
    pending = replicas.fetch(TP, OTHER)
    assert len(replicas.log_io.waiting) == 2
    cold.clear()
    replicas.log_io.finish()
    assert not pending.is_waiting
    assert all(len(read.records) > 0 for read in replicas.answer)


def test_a_page_cache_that_is_too_small_is_not_chased_for_ever(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas.append(batch(3))
    log_type = type(replicas.manager.partitions[TP].log)
    real_read = log_type.read

    def read(log: Any, fetch_offset: int, **options: Any) -> Any:
        if options["cached_only"]:
            raise ColdRead(NoFile(), 0, 200)
        return real_read(log, fetch_offset, **options)

    monkeypatch.setattr(log_type, "read", read)
    pending = replicas.fetch()
    for _ in range(WARMING_ROUNDS_MAX):
        assert pending.is_waiting
        replicas.log_io.finish()
    assert not pending.is_waiting
    assert len(replicas.answer[0].records) > 0


# Followers


def test_a_follower_waits_for_records_that_are_not_committed_yet(replicas: Replicas) -> None:
    replicas.lead(epoch=4)
    pending = replicas.fetch(replica_id=2)
    consumer = replicas.fetch()
    replicas.append(batch(2))
    assert not pending.is_waiting and consumer.is_waiting
    assert read_header(replicas.answers.pop()[0].records).last_offset == 1


def test_a_consumer_waits_for_the_high_watermark_which_a_follower_moves(replicas: Replicas) -> None:
    replicas.lead(epoch=4, isr=[1, 2])
    consumer = replicas.fetch()
    replicas.append(batch(2))
    replicas.follower_fetch(2, 0)
    assert consumer.is_waiting
    replicas.follower_fetch(2, 2)
    assert not consumer.is_waiting


def test_how_far_a_follower_is_counts_when_it_comes_and_not_when_it_is_answered(replicas: Replicas) -> None:
    replicas.lead(epoch=4, isr=[1, 2])
    replicas.append()
    followers = replicas.partition().replication.followers
    pending = replicas.fetch(replica_id=2, offset=1)
    assert (followers[TWO].log_end_offset, followers[TWO].last_caught_up_ms) == (1, 0)
    replicas.pass_time(100)
    replicas.append()
    assert not pending.is_waiting
    assert (followers[TWO].log_end_offset, followers[TWO].last_fetch_ms) == (1, 0)


def test_a_follower_that_reads_cold_records_is_counted_before_they_are_warm(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one partition that catches up from the disk would hold up the producers of all others."""
    replicas.lead(epoch=4, isr=[1, 2])
    replicas.lead(OTHER, epoch=4, isr=[1, 2])
    for at in (TP, OTHER):
        replicas.append(at=at)
    cold = replicas.partition(OTHER).log
    real_read = type(cold).read

    def read(log: Any, fetch_offset: int, **options: Any) -> Any:
        if log is cold and options["cached_only"]:
            raise ColdRead(NoFile(), 0, 200)
        return real_read(log, fetch_offset, **options)

    monkeypatch.setattr(type(cold), "read", read)
    pending = replicas.fetch(TP, OTHER, replica_id=2, offset=1)
    assert pending.is_waiting
    assert [replicas.partition(at).log.high_watermark for at in (TP, OTHER)] == [1, 1]


def test_what_is_over_keeps_nothing_alive_until_the_purge(replicas: Replicas) -> None:
    """Thousands of objects would wait there, and the garbage collector would look at all of them again."""

    def respond(reads: list[PartitionRead]) -> tuple[bytes]:
        return (b"%d" % len(reads),)

    fetch = Fetch(
        replicas=replicas.manager,
        log_io=cast(LogIo, replicas.log_io),
        clock=replicas.clock,
        params=replicas.fetch_params(),
        wanted=[WantedPartition(at, TOPIC_ID, Offset(0), 1 << 20, -1, -1) for at in (TP, OTHER)],
        respond=respond,
    )
    pending = finish(fetch.start())
    replicas.append(batch(1))
    assert not pending.is_waiting
    assert replicas.manager.parked.fetch.watched, "the list of the other partition has it still"
    left = weakref.ref(respond)
    del respond, fetch, pending
    assert left() is None


# Failing


@pytest.mark.parametrize("fails_while", ["it is answered", "it is looked at"])
def test_a_parked_fetch_that_raises_costs_neither_the_producer_nor_who_waits_beside_it(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, fails_while: str
) -> None:
    """Only its own connection closes."""
    answered: list[str] = []

    def park(name: str) -> Any:
        def respond(reads: list[PartitionRead]) -> tuple[bytes]:
            if name == "broken" and fails_while == "it is answered":
                raise ValueError("a bug in an answer")
            answered.append(name)
            return (b"response",)

        return finish(
            Fetch(
                replicas=replicas.manager,
                log_io=cast(LogIo, replicas.log_io),
                clock=replicas.clock,
                params=replicas.fetch_params(),
                wanted=[WantedPartition(TP, TOPIC_ID, Offset(0), 1 << 20, -1, -1, Offset(0))],
                respond=respond,
            ).start()
        )

    before, broken, after = park("before"), park("broken"), park("after")
    if fails_while == "it is looked at":
        look, calls = DelayedFetch.try_complete, []

        def fails_the_second_time(fetch: DelayedFetch) -> bool:
            calls.append(fetch)
            if len(calls) == 2:
                raise OSError("a bad block")
            return look(fetch)

        monkeypatch.setattr(DelayedFetch, "try_complete", fails_the_second_time)
    assert replicas.append() == 1
    assert answered == ["before", "after"]
    assert [pending.state.value for pending in (before, broken, after)] == [
        "complete",
        "abandoned",
        "complete",
    ]
    assert replicas.manager.parked.fetch.delayed == 0
