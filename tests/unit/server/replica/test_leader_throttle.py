"""A leader whose replication quota is exceeded keeps records back from followers that lag, and from no
others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.config.topic import ALL, TopicConfig
from minikafka.errors import ErrorCode
from minikafka.network.connection import PendingResponse
from tests.unit.server.replicas import OTHER, THREE, TP, TWO, Replicas, batch

WAIT_MS = 500


def leading(made: Replicas) -> Iterator[Replicas]:
    """Leads two partitions, with broker 2 in the ISR and broker 3 out of it; the first is throttled, and the
    quota of 1000 bytes a second is spent for the next five seconds."""
    for at in (TP, OTHER):
        made.lead(at, epoch=3, isr=[1, 2], replicas=[1, 2, 3])
        made.append(batch(3), at)
    made.leader_quota.mark_throttled(TP.topic, frozenset({TP.partition}))
    made.leader_quota.update_rate(1000)
    made.leader_quota.record(5000, made.clock.monotonic_ms())
    yield made
    made.close()


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    yield from leading(Replicas(tmp_path))


@pytest.fixture
def small_segments(tmp_path: Path) -> Iterator[Replicas]:
    """Every batch of 600 bytes starts a segment of its own."""
    yield from leading(Replicas(tmp_path, TopicConfig(segment_bytes=1024)))


def test_a_follower_that_lags_gets_everything_but_the_records(replicas: Replicas) -> None:
    read = replicas.follower_fetch(THREE, 0)
    assert (read.error, read.records, read.log_start_offset) == (ErrorCode.NONE, b"", 0)
    assert replicas.partition().replication.followers[THREE].log_end_offset == 0, "it counts as a fetch"
    assert replicas.leader_quota.held_back == {TP: 1}


def test_partitions_that_are_not_listed_are_served_beside_it(replicas: Replicas) -> None:
    replicas.fetch(TP, OTHER, replica_id=THREE, log_start=0)
    held, free = replicas.answer
    assert held.records == b"" and len(free.records) > 0


def test_a_follower_in_the_isr_is_served(replicas: Replicas) -> None:
    assert replicas.follower_fetch(TWO, 0).records
    assert replicas.leader_quota.held_back == {}


def test_a_consumer_is_served(replicas: Replicas) -> None:
    replicas.follower_fetch(TWO, 3)  # moves the high watermark
    replicas.fetch(max_wait_ms=0)
    assert replicas.answer[0].records


def test_a_star_holds_for_all_partitions(replicas: Replicas) -> None:
    replicas.leader_quota.mark_throttled(TP.topic, ALL)
    for at in (TP, OTHER):
        assert replicas.follower_fetch(THREE, 0, at).records == b""


def test_an_offset_out_of_range_is_told_all_the_same(replicas: Replicas) -> None:
    assert replicas.follower_fetch(THREE, 99).error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_when_the_quota_is_free_the_records_come(replicas: Replicas) -> None:
    replicas.pass_time(4999)
    assert replicas.follower_fetch(THREE, 0).records == b""
    replicas.pass_time(1)
    assert replicas.follower_fetch(THREE, 0).records


def test_when_the_throttle_is_removed_the_records_come(replicas: Replicas) -> None:
    replicas.leader_quota.update_rate(None)
    assert replicas.follower_fetch(THREE, 0).records


def held_back(replicas: Replicas, offset: int = 0) -> PendingResponse:
    """A fetch of the follower that lags."""
    pending = replicas.fetch(offset=offset, replica_id=THREE, log_start=0, max_wait_ms=WAIT_MS)
    assert isinstance(pending, PendingResponse) and pending.is_waiting
    return pending


def test_a_fetch_that_gets_nothing_waits_its_time_and_no_longer(replicas: Replicas) -> None:
    pending = held_back(replicas)
    replicas.append(batch(3))
    replicas.pass_time(WAIT_MS - 1)
    assert pending.is_waiting, "what came is held back as well"
    replicas.pass_time(1)
    assert pending.buffers == (b"response",)
    assert replicas.answer[0].records == b""


def test_a_wait_that_ends_after_the_quota_is_free_brings_the_records(replicas: Replicas) -> None:
    replicas.pass_time(4800)
    pending = held_back(replicas)
    replicas.pass_time(WAIT_MS)
    assert not pending.is_waiting
    assert replicas.answer[0].records, "although nothing has happened to the partition meanwhile"


def test_a_wait_ends_with_the_first_append_after_the_quota_is_free(replicas: Replicas) -> None:
    replicas.pass_time(4800)
    pending = held_back(replicas)
    replicas.pass_time(300)
    assert pending.is_waiting
    replicas.append(batch(3))
    assert not pending.is_waiting and replicas.answer[0].records


def test_other_partitions_end_the_wait(replicas: Replicas) -> None:
    pending = replicas.fetch(TP, OTHER, offset=3, replica_id=THREE, log_start=0, max_wait_ms=WAIT_MS)
    replicas.append(batch(3))
    assert pending.is_waiting
    replicas.append(batch(3), OTHER)
    assert not pending.is_waiting
    held, free = replicas.answer
    assert held.records == b"" and len(free.records) > 0


def test_an_older_segment_does_not_end_the_wait(small_segments: Replicas) -> None:
    pending = held_back(small_segments)
    for _ in range(3):
        small_segments.append(batch(1, size=600))
    assert pending.is_waiting


def test_a_truncation_ends_the_wait(replicas: Replicas) -> None:
    pending = held_back(replicas, offset=3)
    replicas.partition().log.truncate_to(1)
    replicas.manager.parked.appended(TP)
    assert not pending.is_waiting
    assert replicas.answer[0].error is ErrorCode.OFFSET_OUT_OF_RANGE
