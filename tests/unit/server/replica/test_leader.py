"""A leader commits what its in-sync replicas have, and lets no client lose what was committed.

The R numbers are the project's replication stories. Broker 1 leads; the test plays 2 and 3 and the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode
from minikafka.log.log_reader import LogReader
from minikafka.log.segment.fetch_data import FetchIsolation
from minikafka.protocol.records.batch import iterate_headers
from minikafka.replication.partition_replicas import IsrRefused, IsrReread, IsrWritten, ReplicaProgress
from minikafka.server.replica.partition import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    OffsetAndEpoch,
)
from minikafka.types import LeaderEpoch, Offset
from tests.unit.server.replicas import (
    ALL,
    BROKER_EPOCH,
    LAG_MS,
    ONE,
    THREE,
    TWO,
    Replicas,
    batch,
    code,
    leader_batches,
    run,
    state_of,
)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(tmp_path)
    yield made
    made.close()


@pytest.fixture
def min_isr_2(tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(tmp_path, TopicConfig(min_insync_replicas=2))
    yield made
    made.close()


def test_what_a_reassignment_adds_is_not_missing_yet(replicas: Replicas) -> None:
    """``Partition.isUnderReplicated``: an alert on it must not go off with every reassignment."""
    moving = replicas.lead(isr=(ONE, TWO), adding=(THREE,))
    assert not moving.is_under_replicated
    replicas.lead(isr=(ONE,), adding=(THREE,), version=1)
    assert moving.is_under_replicated, "the other one is missing"
    replicas.lead(isr=(ONE, TWO), version=2)
    assert moving.is_under_replicated, "the reassignment is done, and the new one must be there"
    replicas.lead(version=3)
    assert not moving.is_under_replicated
    replicas.follow(epoch=1, isr=(TWO,))
    assert not moving.is_under_replicated, "only a leader says so"


def high_watermark(replicas: Replicas) -> int:
    return replicas.partition().log.high_watermark


# The high watermark


def test_a_record_is_committed_when_the_last_in_sync_replica_has_fetched_behind_it(
    replicas: Replicas,
) -> None:
    replicas.lead()
    replicas.append(batch(3))
    assert high_watermark(replicas) == 0
    replicas.follower_fetch(2, 0)
    replicas.follower_fetch(2, 3)
    assert high_watermark(replicas) == 0, "3 has not even asked"
    replicas.follower_fetch(3, 0)
    assert high_watermark(replicas) == 0, "3 was sent the records, but may not have them"
    replicas.follower_fetch(3, 3)
    assert high_watermark(replicas) == 3


def test_a_follower_is_told_the_high_watermark_of_the_moment_when_its_read_began(replicas: Replicas) -> None:
    replicas.lead(isr=[1, 2], replicas=[1, 2])
    replicas.append()
    read = replicas.follower_fetch(2, 1)
    assert read.high_watermark == 0 and high_watermark(replicas) == 1
    assert replicas.follower_fetch(2, 1).high_watermark == 1


def test_a_follower_reads_what_is_not_committed_and_a_consumer_does_not(replicas: Replicas) -> None:
    replicas.lead()
    replicas.append(batch(2))
    assert len(replicas.follower_fetch(2, 0).records) > 0
    replicas.fetch(max_wait_ms=0)
    (read,) = replicas.answer
    assert (read.records, read.high_watermark) == (b"", 0)


def test_r16_a_high_watermark_that_moves_in_the_middle_of_a_read_does_not_show_more(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = replicas.lead().log
    for _ in range(4):
        replicas.append()
    for follower in (2, 3):
        replicas.follower_fetch(follower, 2)
    assert log.high_watermark == 2
    read = LogReader.read

    def interrupted(reader: Any, *args: Any, **options: Any) -> Any:
        log.update_high_watermark(4)
        return read(reader, *args, **options)

    monkeypatch.setattr(LogReader, "read", interrupted)
    replicas.fetch()
    (answer,) = replicas.answer
    assert log.high_watermark == 4
    assert answer.high_watermark == 2
    assert [header.base_offset for _, header in iterate_headers(answer.records)] == [0, 1]


# Joining and leaving the ISR


def test_a_follower_that_has_caught_up_joins(replicas: Replicas) -> None:
    partition = replicas.lead(isr=[1, 2])
    replicas.append()
    replicas.follower_fetch(2, 1)
    replicas.follower_fetch(3, 0)
    assert replicas.store.submitted == []
    replicas.follower_fetch(3, 1)
    change = replicas.store.change
    assert (change.isr, change.expected_version, change.controller_epoch) == (ALL, 0, 1)
    assert change.broker_epochs == (-1, BROKER_EPOCH, BROKER_EPOCH)
    assert (partition.isr, partition.maximal_isr) == ((1, 2), ALL)
    replicas.store.finish()
    assert (partition.isr, partition.partition_epoch) == (ALL, 1)


def test_the_isr_keeps_the_order_of_the_assignment(replicas: Replicas) -> None:
    replicas.lead(isr=[1, 2], replicas=[3, 1, 2])
    replicas.follower_fetch(3, 0)
    assert replicas.store.change.isr == (3, 1, 2)


def test_the_high_watermark_waits_for_a_follower_that_joins_from_the_moment_it_is_proposed(
    replicas: Replicas,
) -> None:
    replicas.lead(isr=[1, 2])
    replicas.follower_fetch(3, 0)
    replicas.append()
    replicas.follower_fetch(2, 1)
    assert high_watermark(replicas) == 0
    replicas.follower_fetch(3, 1)
    assert high_watermark(replicas) == 1, "written or not, all have it"


def test_a_dead_broker_does_not_join(replicas: Replicas) -> None:
    replicas.lead(isr=[1, 2])
    replicas.broker_died(THREE)
    replicas.follower_fetch(3, 0)
    assert replicas.store.submitted == []


def test_r6_a_follower_joins_only_when_it_has_what_the_leader_had_at_its_election(
    replicas: Replicas,
) -> None:
    """The old leader may have committed anything up to there: its high watermark was not passed on."""
    log = replicas.follow(leader=2, epoch=0).log
    log.append_as_follower(leader_batches(20))
    log.update_high_watermark(10)
    partition = replicas.lead(epoch=1, isr=[1, 2])
    assert (partition.leader_epoch_start_offset, log.high_watermark) == (20, 10)
    replicas.follower_fetch(3, 12)
    assert replicas.store.submitted == [], "above the high watermark, but below 20"
    replicas.follower_fetch(3, 20)
    assert replicas.store.change.isr == ALL, "if 3 leads next, it has all that was ever committed"


def test_r10_a_change_whose_answer_is_lost_holds_the_high_watermark(replicas: Replicas) -> None:
    """{1,2} → {1,2,3} is in the store, but the leader does not know: 3 may be elected any time."""
    partition = replicas.lead(isr=[1, 2])
    replicas.follower_fetch(3, 0)
    change = replicas.store.change
    replicas.append()
    replicas.follower_fetch(2, 1)
    replicas.pass_time(10 * LAG_MS)
    replicas.append()
    assert high_watermark(replicas) == 0
    assert partition.maybe_shrink_isr(replicas.clock.monotonic_ms()) is None, "one change in flight"
    replicas.become(state_of(isr=[1, 2], version=0, controller_epoch=2))  # a new controller speaks up
    replicas.follower_fetch(2, 2)
    assert high_watermark(replicas) == 0, "and knows no more than the leader"
    replicas.store.finish(IsrWritten(1, change.isr))
    assert partition.isr == ALL and high_watermark(replicas) == 0
    replicas.follower_fetch(3, 2)
    assert high_watermark(replicas) == 2


def test_r11_a_follower_that_lost_its_log_since_it_fetched_does_not_join(replicas: Replicas) -> None:
    partition = replicas.lead(isr=[1, 2])
    replicas.append()
    replicas.follower_fetch(2, 1)
    replicas.broker_started(THREE, BROKER_EPOCH + 1)
    late = replicas.follower_fetch(3, 1)  # was sent by the old incarnation
    assert late.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert replicas.store.submitted == []
    replicas.follower_fetch(3, 0, replica_epoch=BROKER_EPOCH + 1)
    assert replicas.store.submitted == [] and partition.isr == (1, 2)
    replicas.follower_fetch(3, 1, replica_epoch=BROKER_EPOCH + 1)
    assert replicas.store.change.broker_epochs == (-1, BROKER_EPOCH, BROKER_EPOCH + 1)


def test_r11_a_change_that_names_the_earlier_incarnation_is_taken_back(replicas: Replicas) -> None:
    partition = replicas.lead(isr=[1, 2])
    replicas.append()
    replicas.follower_fetch(2, 1)
    replicas.follower_fetch(3, 1)
    assert replicas.store.change.broker_epochs[2] == BROKER_EPOCH
    replicas.broker_started(THREE, BROKER_EPOCH + 1)
    replicas.follower_fetch(3, 0, replica_epoch=BROKER_EPOCH + 1)
    replicas.store.finish(IsrReread((ONE, TWO), 0))  # the writer has compared the epochs
    assert partition.isr == partition.maximal_isr == (1, 2)


def test_a_follower_that_is_not_yet_known_to_have_restarted_does_not_join(replicas: Replicas) -> None:
    replicas.lead(isr=[1, 2])
    replicas.follower_fetch(3, 0, replica_epoch=BROKER_EPOCH + 1)
    assert replicas.store.submitted == [], "the metadata will come, and its next fetch"


def test_a_follower_that_falls_behind_leaves(replicas: Replicas) -> None:
    partition = replicas.lead()
    replicas.append()
    replicas.follower_fetch(2, 1)
    replicas.pass_time(LAG_MS)
    run(replicas.manager.shrink_isrs())
    assert replicas.store.submitted == []
    replicas.pass_time(1)
    run(replicas.manager.shrink_isrs())
    assert replicas.store.change.isr == (1, 2), "2 has everything, however long ago it came"
    assert high_watermark(replicas) == 0, "3 may be in the ISR still"
    replicas.store.finish()
    assert partition.isr == (1, 2) and high_watermark(replicas) == 1


def test_a_shrink_that_is_refused_commits_nothing(replicas: Replicas) -> None:
    """I7: the successor is in the store already; what it must have is not known here."""
    partition = replicas.lead(isr=[1, 2], replicas=[1, 2])
    replicas.append()
    replicas.pass_time(LAG_MS + 1)
    change = partition.maybe_shrink_isr(replicas.clock.monotonic_ms())
    assert change is not None
    assert not partition.isr_change_done(change, IsrRefused("leader epoch 1 is in the store"))
    assert high_watermark(replicas) == 0 and partition.maximal_isr == (1, 2)


def test_what_the_store_says_instead_is_adopted(replicas: Replicas) -> None:
    partition = replicas.lead()
    replicas.append()
    replicas.follower_fetch(2, 1)
    replicas.pass_time(LAG_MS + 1)
    change = partition.maybe_shrink_isr(replicas.clock.monotonic_ms())
    assert change is not None and change.isr == (1, 2)
    assert partition.isr_change_done(change, IsrReread((ONE, TWO), 4))
    assert (partition.isr, partition.partition_epoch, high_watermark(replicas)) == ((1, 2), 4, 1)


def test_r12_with_too_few_in_sync_nothing_more_is_committed(min_isr_2: Replicas) -> None:
    replicas = min_isr_2
    partition = replicas.lead()
    replicas.append()
    for follower in (2, 3):
        replicas.follower_fetch(follower, 1)
    assert high_watermark(replicas) == 1
    replicas.append()
    replicas.pass_time(LAG_MS + 1)
    change = partition.maybe_shrink_isr(replicas.clock.monotonic_ms())
    assert change is not None and change.isr == (1,)
    partition.isr_change_done(change, IsrWritten(1, change.isr))
    assert high_watermark(replicas) == 1, "the leader is the whole ISR, and that is too few"
    replicas.append(acks=1)
    assert code(replicas.append, acks=-1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert (high_watermark(replicas), partition.log.log_end_offset) == (1, 3)
    replicas.follower_fetch(2, 3)
    assert high_watermark(replicas) == 1, "not before the store has it in the ISR"
    replicas.store.finish()
    assert high_watermark(replicas) == 3


# Elections


def test_r4_a_new_leader_notes_its_epoch_before_it_writes_anything(replicas: Replicas) -> None:
    partition = replicas.lead(epoch=0, isr=[1, 2], replicas=[1, 2])
    replicas.append(batch(5))
    for epoch in (4, 5):  # back to back, without writes between
        replicas.lead(epoch=epoch, isr=[1, 2], replicas=[1, 2])
    assert partition.epoch_end_offset(LeaderEpoch(5)) == (5, 5)
    assert partition.epoch_end_offset(LeaderEpoch(4)) == (0, 5), "nothing was written in it: the one before"
    # A follower with a record of epoch 4, from a leader whose election this one has not seen.
    read = replicas.follower_fetch(2, 6, last_fetched_epoch=4)
    assert read.diverging_epoch == (0, 5)


def test_progress_starts_over_with_a_new_leader_and_continues_with_the_same(replicas: Replicas) -> None:
    replicas.lead()
    replicas.append()
    for follower in (2, 3):
        replicas.follower_fetch(follower, 1)
    replicas.append()
    replicas.lead(epoch=1)
    assert [each.log_end_offset for each in followers_of(replicas)] == [1, 1]
    replicas.follow(epoch=2)
    replicas.lead(epoch=3)
    assert [each.log_end_offset for each in followers_of(replicas)] == [-1, -1]


def test_a_new_assignment_in_the_same_epoch_keeps_what_is_known(replicas: Replicas) -> None:
    partition = replicas.lead(isr=[1, 2], replicas=[1, 2])
    replicas.append()
    replicas.follower_fetch(2, 1)
    epoch_start = partition.leader_epoch_start_offset
    replicas.lead(isr=[1, 2], version=5)
    assert (partition.replicas, partition.isr, partition.partition_epoch) == (ALL, (1, 2), 5)
    assert partition.replication.followers[TWO].log_end_offset == 1
    assert partition.leader_epoch_start_offset == epoch_start
    replicas.lead(isr=[1], replicas=[1, 3], version=6)
    assert list(partition.replication.followers) == [THREE] and partition.isr == (1,)


def test_an_older_version_of_the_same_leadership_is_ignored(replicas: Replicas) -> None:
    partition = replicas.lead(isr=[1, 2])
    replicas.follower_fetch(3, 0)
    replicas.store.finish()
    replicas.lead(isr=[1, 2], version=0)
    assert (partition.isr, partition.partition_epoch) == (ALL, 1)


def test_a_leader_that_is_elected_alone_commits_what_it_has(replicas: Replicas) -> None:
    log = replicas.follow(epoch=0).log
    log.append_as_follower(leader_batches(3))
    replicas.lead(epoch=1, isr=[1])
    assert log.high_watermark == 3


def test_the_high_watermark_survives_an_election_where_the_others_are_behind(replicas: Replicas) -> None:
    """I3: within the new epoch it does not fall, though no follower has said yet how far it is."""
    replicas.lead()
    replicas.append()
    for follower in (2, 3):
        replicas.follower_fetch(follower, 1)
    replicas.follow(epoch=1)
    replicas.lead(epoch=2)
    assert high_watermark(replicas) == 1
    replicas.follower_fetch(2, 0)
    assert high_watermark(replicas) == 1


# Who may fetch


def test_only_a_replica_fetches_as_a_follower(replicas: Replicas) -> None:
    replicas.lead(replicas=[1, 2], isr=[1])
    assert replicas.follower_fetch(3, 0).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert replicas.follower_fetch(3, 0, epoch=0).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert replicas.follower_fetch(2, 0).error is ErrorCode.NONE


def test_r7_a_fetch_in_another_epoch_moves_nothing(replicas: Replicas) -> None:
    replicas.lead(epoch=3, isr=[1, 2], replicas=[1, 2])
    replicas.append()
    assert replicas.follower_fetch(2, 1, epoch=2).error is ErrorCode.FENCED_LEADER_EPOCH
    assert replicas.follower_fetch(2, 1, epoch=4).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert high_watermark(replicas) == 0
    assert replicas.follower_fetch(2, 1, epoch=3).error is ErrorCode.NONE
    assert high_watermark(replicas) == 1


def test_a_follower_whose_history_parted_moves_nothing(replicas: Replicas) -> None:
    replicas.lead(epoch=3, isr=[1, 2], replicas=[1, 2])
    replicas.append()
    read = replicas.follower_fetch(2, 1, last_fetched_epoch=2)
    assert read.error is ErrorCode.OFFSET_OUT_OF_RANGE or read.diverging_epoch is not None
    read = replicas.follower_fetch(2, 9)
    assert read.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert high_watermark(replicas) == 0
    assert replicas.partition().replication.followers[TWO].log_end_offset == -1


def test_a_fetch_below_the_log_start_is_out_of_range_whatever_its_epoch(replicas: Replicas) -> None:
    replicas.lead(epoch=0, isr=[1], replicas=[1, 2])
    replicas.append(batch(5))
    replicas.lead(epoch=5, isr=[1], replicas=[1, 2])
    replicas.append(batch(5))
    assert replicas.follower_fetch(2, 2, last_fetched_epoch=4).diverging_epoch == (0, 5)
    replicas.partition().log.increment_log_start_offset(3)
    assert replicas.follower_fetch(2, 2, last_fetched_epoch=4).error is ErrorCode.OFFSET_OUT_OF_RANGE


# Offsets


def test_r15_the_end_is_not_available_before_the_epoch_has_begun_for_consumers(replicas: Replicas) -> None:
    log = replicas.follow(epoch=0).log
    log.append_as_follower(leader_batches(20))
    log.update_high_watermark(10)
    partition = replicas.lead(epoch=1)

    def at(timestamp_ms: int, isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK) -> Any:
        return partition.offset_for_timestamp(timestamp_ms, isolation=isolation, cached_only=False)

    late_ms = 2_000_000_000_000
    for timestamp_ms in (LATEST_TIMESTAMP, MAX_TIMESTAMP, late_ms):
        assert code(at, timestamp_ms) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert code(at, LATEST_TIMESTAMP, FetchIsolation.TXN_COMMITTED) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert at(EARLIEST_TIMESTAMP) == (0, -1, 0)
    assert at(1) is not None, "the first record is committed, that much is known"
    assert at(LATEST_TIMESTAMP, FetchIsolation.LOG_END) == (20, -1, 1), "a follower may know"
    for follower in (2, 3):
        replicas.follower_fetch(follower, 20)
    assert at(LATEST_TIMESTAMP) == OffsetAndEpoch(Offset(20), -1, LeaderEpoch(1))
    assert at(late_ms) is None


def followers_of(replicas: Replicas) -> list[ReplicaProgress]:
    return list(replicas.partition().replication.followers.values())


# Who is eligible outside of the ISR (KIP-966)


def test_nothing_is_committed_while_a_replica_is_eligible_that_was_not_asked(min_isr_2: Replicas) -> None:
    """2 was in the ISR when it became too small. A lower minimum lets 1 commit alone, but not before the
    store says that 2 is eligible no more: a controller that elects in between finds a 2 that has
    everything."""
    replicas = min_isr_2
    replicas.lead(isr=(1,), replicas=(1, 2), eligible=(2,), version=4)
    replicas.append()
    assert high_watermark(replicas) == 0 and not replicas.store.submitted
    replicas.manager.update_topic_config("orders", TopicConfig(min_insync_replicas=1))
    replicas.append(acks=-1)
    change = replicas.store.change
    assert (change.isr, change.min_isr, change.expected_version) == ((1,), 1, 4)
    assert high_watermark(replicas) == 0
    replicas.store.finish()
    assert high_watermark(replicas) == 2 and not replicas.store.submitted


def test_a_new_leader_has_those_cleared_who_are_eligible_without_need(replicas: Replicas) -> None:
    replicas.lead(isr=(1,), replicas=(1, 2), eligible=(2,))
    replicas.append()
    assert high_watermark(replicas) == 0
    replicas.store.finish()
    assert high_watermark(replicas) == 1


def test_a_replica_that_became_eligible_in_between_is_cleared_too(replicas: Replicas) -> None:
    replicas.lead(isr=(1,), replicas=(1, 2), eligible=(2,))
    replicas.append()
    replicas.store.finish(IsrReread((ONE,), 5, (TWO,)))
    assert high_watermark(replicas) == 0
    assert replicas.store.change.expected_version == 5
    replicas.store.finish()
    assert high_watermark(replicas) == 1


def test_a_minimum_that_falls_while_the_isr_shrinks_clears_who_has_just_become_eligible(
    min_isr_2: Replicas,
) -> None:
    replicas = min_isr_2
    replicas.lead(replicas=(1, 2), isr=(1, 2))
    replicas.append()
    replicas.clock.advance(LAG_MS + 1)
    run(replicas.manager.shrink_isrs())
    assert replicas.store.change.min_isr == 2
    replicas.manager.update_topic_config("orders", TopicConfig(min_insync_replicas=1))
    replicas.store.finish(IsrWritten(1, (ONE,), (TWO,)))
    assert high_watermark(replicas) == 0
    assert replicas.store.change.isr == (1,) and replicas.store.change.min_isr == 1
    replicas.store.finish()
    assert high_watermark(replicas) == 1


def test_a_lower_minimum_commits_at_once_what_waited_for_it(min_isr_2: Replicas) -> None:
    replicas = min_isr_2
    replicas.lead(isr=(1,), replicas=(1, 2))
    replicas.append()
    assert high_watermark(replicas) == 0
    replicas.manager.update_topic_config("orders", TopicConfig(min_insync_replicas=1))
    assert high_watermark(replicas) == 1
