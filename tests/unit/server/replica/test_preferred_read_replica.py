"""The leader sends a consumer to a replica in its own rack, if one there can answer it (KIP-392)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.errors import ErrorCode
from minikafka.replication.partition_replicas import select_in_rack
from tests.unit.server.replicas import BROKER_EPOCH, THREE, Replicas


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """Leads one partition with two followers that hold its one record; racks are named by brokers."""
    made = Replicas(tmp_path, selector=select_in_rack)
    made.lead()
    made.append()
    for follower in (2, 3):
        made.follower_fetch(follower, 1)
    yield made
    made.close()


def sent_to(replicas: Replicas, rack: str | None, *, offset: int = 0) -> int:
    """Where a consumer in ``rack`` is sent; -1: it is answered here. At once in any case."""
    replicas.fetch(rack=rack, offset=offset, max_wait_ms=0 if offset else 500)
    (read,) = replicas.answers.pop()
    assert read.error is ErrorCode.NONE
    assert (len(read.records) > 0) == (read.preferred_read_replica == -1 and offset == 0)
    return read.preferred_read_replica


def test_a_consumer_is_sent_to_its_rack(replicas: Replicas) -> None:
    assert [sent_to(replicas, rack) for rack in ("rack-1", "rack-2", "rack-3")] == [-1, 2, 3]


def test_a_consumer_without_a_rack_or_in_another_one_stays(replicas: Replicas) -> None:
    assert [sent_to(replicas, rack) for rack in ("", "elsewhere", None)] == [-1, -1, -1]


def test_no_consumer_is_sent_to_a_replica_that_could_not_answer(replicas: Replicas) -> None:
    replicas.lead(epoch=1, isr=[1, 2])
    assert sent_to(replicas, "rack-3") == -1, "it is not in sync"
    replicas.append()
    assert sent_to(replicas, "rack-2", offset=2) == -1, "it has not fetched so far"
    replicas.follower_fetch(2, 2, log_start=1)
    assert sent_to(replicas, "rack-2") == -1, "it has deleted what is wanted"


def test_no_consumer_is_sent_to_a_dead_broker_or_to_another_listener(replicas: Replicas) -> None:
    replicas.broker_started(THREE, BROKER_EPOCH, listener="OTHER")
    assert sent_to(replicas, "rack-3") == -1
    replicas.broker_died(THREE)
    assert sent_to(replicas, "rack-3") == -1


def test_being_sent_elsewhere_is_an_answer_that_does_not_wait(replicas: Replicas) -> None:
    assert replicas.fetch(rack="rack-2", min_bytes=1 << 20) == (b"response",)
    assert (replicas.answer[0].preferred_read_replica, replicas.answer[0].high_watermark) == (2, 1)


def test_only_the_leader_sends_anybody_anywhere(replicas: Replicas) -> None:
    replicas.follow(epoch=1)
    assert sent_to(replicas, "rack-3") == -1


def test_a_follower_is_never_sent_elsewhere(replicas: Replicas) -> None:
    assert replicas.follower_fetch(2, 0, rack="rack-2").preferred_read_replica == -1
