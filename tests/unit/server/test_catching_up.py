"""A follower that catches up with one partition does not hold up the others, in which it is in sync."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.server import partition_reads
from minikafka.server.delayed_produce import DelayedProduce, UncommittedAppend
from tests.unit.server.replicas import OTHER, THREE, TP, Replicas, batch


@pytest.fixture
def replicas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replicas]:
    """Broker 3 lacks three batches of the first partition, and is in the ISR of the second. A piece to catch
    up with has room for one of them."""
    monkeypatch.setattr(partition_reads, "CATCH_UP_BYTES_MAX", len(batch(1, size=1000)) + 100)
    made = Replicas(tmp_path)
    made.lead(TP, epoch=3, isr=[1, 2], replicas=[1, 2, 3])
    made.lead(OTHER, epoch=3, isr=[1, 2, 3], replicas=[1, 2, 3])
    for _ in range(3):
        made.append(batch(1, size=1000), TP)
    yield made
    made.close()


def test_what_acks_all_waits_for_comes_first(replicas: Replicas) -> None:
    replicas.append(batch(1, size=10), OTHER)
    replicas.fetch(TP, OTHER, replica_id=THREE, log_start=0)
    first, second = replicas.answer
    assert (first.wanted.topic_partition, second.wanted.topic_partition) == (OTHER, TP)
    assert first.records and second.records


def test_the_rest_comes_in_pieces_of_whole_batches(replicas: Replicas) -> None:
    read = replicas.follower_fetch(THREE, 0)
    assert len(read.records) == len(batch(1, size=1000)) < partition_reads.CATCH_UP_BYTES_MAX


def test_one_batch_comes_however_much_there_is_of_the_others(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_reads, "CATCH_UP_BYTES_MAX", 10)
    replicas.append(batch(1, size=1000), OTHER)
    replicas.fetch(TP, OTHER, replica_id=THREE, log_start=0)
    _, late = replicas.answer
    assert late.wanted.topic_partition == TP and len(late.records) == len(batch(1, size=1000))


def test_pieces_are_smaller_while_producers_wait(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_reads, "CATCH_UP_BYTES_MAX", 3 * len(batch(1, size=1000)))
    monkeypatch.setattr(partition_reads, "CATCH_UP_BYTES_MAX_UNDER_LOAD", 2 * len(batch(1, size=1000)))
    assert len(replicas.follower_fetch(THREE, 0).records) == 3 * len(batch(1, size=1000))
    appended = UncommittedAppend(OTHER, replicas.append(at=OTHER, acks=-1))
    DelayedProduce(replicas.manager, [appended], lambda: None, timeout_ms=1000).wait()
    assert len(replicas.follower_fetch(THREE, 0).records) == 2 * len(batch(1, size=1000))
    replicas.follower_fetch(2, 1, OTHER)
    replicas.follower_fetch(THREE, 1, OTHER)
    assert appended.error is None
    assert len(replicas.follower_fetch(THREE, 0).records) == 3 * len(batch(1, size=1000))


def test_a_consumer_is_answered_in_its_own_order(replicas: Replicas) -> None:
    replicas.append(batch(1, size=10), OTHER)
    replicas.fetch(TP, OTHER, max_wait_ms=0)
    assert [read.wanted.topic_partition for read in replicas.answer] == [TP, OTHER]
