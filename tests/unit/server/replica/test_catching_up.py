"""A follower that catches up with one partition does not hold up the others, in which it is in sync."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from minikafka.server.replica import replication_quotas
from minikafka.server.replica.delayed_operations import DelayedProduce, Fetch, UncommittedAppend
from minikafka.server.replica.partition_reads import WantedPartition
from minikafka.server.runtime.log_io import LogIo
from minikafka.steps import finish
from minikafka.types import Offset, TopicPartition
from tests.unit.server.replicas import OTHER, THREE, TOPIC_ID, TP, Replicas, batch

PIECE = len(batch(1, size=1000))


@pytest.fixture
def replicas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replicas]:
    """Broker 3 lacks three committed batches of the first partition, and is in the ISR of the second. A piece
    to catch up with has room for one of them."""
    monkeypatch.setattr(replication_quotas, "CATCH_UP_BYTES_MAX", PIECE + 100)
    made = Replicas(tmp_path)
    made.lead(TP, epoch=3, isr=[1, 2], replicas=[1, 2, 3])
    made.lead(OTHER, epoch=3, isr=[1, 2, 3], replicas=[1, 2, 3])
    for _ in range(3):
        made.append(batch(1, size=1000), TP)
    made.follower_fetch(2, 3, TP)
    yield made
    made.close()


def test_what_acks_all_waits_for_comes_first(replicas: Replicas) -> None:
    replicas.append(batch(1, size=10), OTHER)
    replicas.fetch(TP, OTHER, replica_id=THREE, log_start=0)
    first, second = replicas.answer
    assert (first.wanted.topic_partition, second.wanted.topic_partition) == (OTHER, TP)
    assert first.records and second.records


def test_the_remainder_comes_in_chunks_of_whole_batches(replicas: Replicas) -> None:
    read = replicas.follower_fetch(THREE, 0)
    assert len(read.records) == PIECE < replication_quotas.CATCH_UP_BYTES_MAX


def test_one_batch_comes_however_much_there_is_of_the_others(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication_quotas, "CATCH_UP_BYTES_MAX", 10)
    replicas.append(batch(1, size=1000), OTHER)
    replicas.fetch(TP, OTHER, replica_id=THREE, log_start=0)
    _, late = replicas.answer
    assert late.wanted.topic_partition == TP and len(late.records) == PIECE


def test_chunks_are_smaller_while_producers_wait(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication_quotas, "CATCH_UP_BYTES_MAX", 3 * PIECE)
    monkeypatch.setattr(replication_quotas, "CATCH_UP_BYTES_MAX_UNDER_LOAD", 2 * PIECE)
    assert len(replicas.follower_fetch(THREE, 0).records) == 3 * PIECE
    appended = producer_waits(replicas)
    assert len(replicas.follower_fetch(THREE, 0).records) == 2 * PIECE
    replicas.follower_fetch(2, 1, OTHER)
    replicas.follower_fetch(THREE, 1, OTHER)
    assert appended.error is None
    assert len(replicas.follower_fetch(THREE, 0).records) == 3 * PIECE


def producer_waits(replicas: Replicas) -> UncommittedAppend:
    """For the followers to have a batch of the second partition."""
    appended = UncommittedAppend(OTHER, replicas.append(at=OTHER, acks=-1))
    DelayedProduce(replicas.manager, [appended], lambda: None, timeout_ms=1000).wait()
    return appended


@pytest.fixture
def loaded(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> Replicas:
    """A producer waits for broker 2, and broker 3 has had the first batch that it lacked."""
    monkeypatch.setattr(replication_quotas, "CATCH_UP_BYTES_MAX_UNDER_LOAD", PIECE)
    producer_waits(replicas)
    replicas.follower_fetch(THREE, 1, OTHER)
    assert sizes(replicas, offset=0) == {TP: PIECE, OTHER: 0}
    return replicas


def sizes(replicas: Replicas, *, offset: int, other: int = 1) -> dict[TopicPartition, int] | None:
    """What broker 3 is answered at once when it asks for both partitions; None: it waits."""
    wanted = [
        WantedPartition(TP, TOPIC_ID, Offset(offset), 1 << 20, 3, -1, Offset(0)),
        WantedPartition(OTHER, TOPIC_ID, Offset(other), 1 << 20, 3, -1, Offset(0)),
    ]
    finish(
        Fetch(
            replicas=replicas.manager,
            log_io=cast(LogIo, replicas.log_io),
            clock=replicas.clock,
            params=replicas.fetch_params(replica_id=THREE),
            wanted=wanted,
            respond=lambda reads: replicas.answers.append(reads) or (b"",),
        ).start()
    )
    return answered(replicas)


def answered(replicas: Replicas) -> dict[TopicPartition, int] | None:
    """The answer that came since the last look."""
    if not replicas.answers:
        return None
    (reads,) = replicas.answers
    replicas.answers.clear()
    return {read.wanted.topic_partition: len(read.records) for read in reads}


def test_while_producers_wait_a_follower_pauses_for_as_long_as_its_chunk_was_under_way(
    loaded: Replicas,
) -> None:
    loaded.pass_time(5)
    assert sizes(loaded, offset=1) is None
    loaded.pass_time(4)
    assert answered(loaded) is None
    loaded.pass_time(1)
    assert answered(loaded) == {TP: PIECE, OTHER: 0}


def test_while_paused_it_gets_what_it_is_in_sync_with_and_nothing_else(loaded: Replicas) -> None:
    loaded.pass_time(5)
    assert sizes(loaded, offset=1) is None
    loaded.append(batch(1, size=1000), TP)
    assert answered(loaded) is None
    loaded.append(batch(1, size=10), OTHER)
    assert answered(loaded) == {OTHER: len(batch(1, size=10)), TP: 0}


def test_who_was_away_for_long_pauses_for_a_moment(loaded: Replicas) -> None:
    loaded.pass_time(60_000)
    producer_waits(loaded)
    assert sizes(loaded, offset=1) == {TP: 0, OTHER: len(batch())}
    assert sizes(loaded, offset=1, other=2) is None
    loaded.pass_time(replication_quotas.PAUSE_MS_MAX)
    assert answered(loaded) == {TP: PIECE, OTHER: 0}


def test_who_would_not_catch_up_does_not_rest(loaded: Replicas) -> None:
    """What was written while its piece was under way is more than a quarter of it."""
    loaded.append(batch(1, size=1000), TP)
    loaded.pass_time(5)
    assert sizes(loaded, offset=1) == {TP: PIECE, OTHER: 0}


def test_who_is_waited_for_is_not_paused_although_it_is_not_in_the_isr_yet(loaded: Replicas) -> None:
    """It has come to where the log ended when it asked last. So the high watermark waits for it from now on,
    but has gone on without it until now: it may join when it has one batch more."""
    for _ in range(2):
        loaded.append(batch(1, size=1000), TP)
    loaded.pass_time(5)
    assert sizes(loaded, offset=1) == {TP: PIECE, OTHER: 0}
    loaded.append(batch(1, size=1000), TP)
    loaded.follower_fetch(2, 6, TP)
    loaded.pass_time(5)
    assert sizes(loaded, offset=5) == {TP: PIECE, OTHER: 0}
    partition = loaded.manager.hosted(TP)
    assert partition.log.high_watermark == 6 and THREE not in partition.maximal_isr
    loaded.append(batch(1, size=1000), TP)
    loaded.follower_fetch(2, 7, TP)
    assert partition.log.high_watermark == 6
    assert sizes(loaded, offset=6) == {TP: PIECE, OTHER: 0}
    assert THREE in partition.maximal_isr


def test_when_no_producer_waits_there_is_no_pause(loaded: Replicas) -> None:
    loaded.follower_fetch(2, 1, OTHER)
    loaded.pass_time(5)
    assert sizes(loaded, offset=1) == {TP: PIECE, OTHER: 0}


def test_a_consumer_is_answered_in_its_own_order(replicas: Replicas) -> None:
    replicas.append(batch(1, size=10), OTHER)
    replicas.fetch(TP, OTHER, max_wait_ms=0)
    assert [read.wanted.topic_partition for read in replicas.answer] == [TP, OTHER]


def test_each_fetcher_of_a_follower_is_paused_by_itself(loaded: Replicas) -> None:
    """``num.replica.fetchers``=2: the second asks for another partition, with other offsets, and has had
    nothing. Nor does its asking end or lengthen the rest of the first."""
    third = TopicPartition("orders", 2)
    loaded.lead(third, epoch=3, isr=[1, 2], replicas=[1, 2, 3])
    loaded.append(batch(1, size=1000), third)
    loaded.follower_fetch(2, 1, third)
    loaded.pass_time(5)
    assert len(loaded.follower_fetch(THREE, 0, third, fetcher_id=1).records) == PIECE
    loaded.pass_time(1)
    assert sizes(loaded, offset=1) is None
    loaded.pass_time(5)
    assert answered(loaded) is None
    loaded.pass_time(1)
    assert answered(loaded) == {TP: PIECE, OTHER: 0}
