"""What a fetcher does to the partition that it fetches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode
from minikafka.log.append import UnexpectedAppendOffset
from minikafka.log.checkpoint import RECOVERY_POINT_CHECKPOINT, read_offsets
from minikafka.types import LeaderEpoch, Offset
from tests.unit.server.replicas import TP, Replicas, batch, leader_batches

EPOCH = LeaderEpoch(0)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(tmp_path)
    yield made
    made.close()


def test_what_the_leader_sends_is_appended_as_it_is(replicas: Replicas) -> None:
    partition = replicas.follow(epoch=0)
    info = partition.append_as_follower(leader_batches(3), current_leader_epoch=EPOCH)
    assert info is not None and (info.first_offset, info.last_offset) == (0, 2)
    assert partition.append_as_follower(b"", current_leader_epoch=EPOCH) is None


def test_the_high_watermark_is_the_leaders_as_far_as_the_log_goes(replicas: Replicas) -> None:
    partition = replicas.follow(epoch=0)
    partition.append_as_follower(leader_batches(3), current_leader_epoch=EPOCH)
    assert partition.update_follower_high_watermark(Offset(2))
    assert not partition.update_follower_high_watermark(Offset(2))
    assert partition.update_follower_high_watermark(Offset(9))
    assert partition.log.high_watermark == 3


def test_records_that_the_leader_deleted_are_deleted_here_up_to_the_high_watermark(
    replicas: Replicas,
) -> None:
    partition = replicas.follow(epoch=0)
    partition.append_as_follower(leader_batches(5), current_leader_epoch=EPOCH)
    partition.update_follower_high_watermark(Offset(3))
    partition.maybe_increment_log_start_offset(Offset(2))
    assert partition.log.log_start_offset == 2
    partition.maybe_increment_log_start_offset(Offset(5))
    assert partition.log.log_start_offset == 3


def test_an_empty_log_may_begin_with_a_batch_that_reaches_below_the_leaders_log_start(
    replicas: Replicas,
) -> None:
    """The leader's log starts at 2, inside of a batch of offsets 0 to 4 (KAFKA-6975)."""
    source = replicas.lead(epoch=0, isr=[1], replicas=[1, 2])
    replicas.append(batch(5))
    source.log.increment_log_start_offset(2)
    sent = bytes(replicas.follower_fetch(2, 2).records)
    replicas.follow(epoch=1)
    source.truncate_fully_and_start_at(Offset(2))
    source.append_as_follower(sent, current_leader_epoch=LeaderEpoch(1))
    assert (source.log.log_start_offset, source.log.log_end_offset) == (0, 5)
    with pytest.raises(UnexpectedAppendOffset):  # only when it is empty
        source.append_as_follower(leader_batches(1, base_offset=9), current_leader_epoch=LeaderEpoch(1))
        source.append_as_follower(sent, current_leader_epoch=LeaderEpoch(1))


def test_r4_truncating_at_the_log_end_drops_epochs_without_records(replicas: Replicas) -> None:
    """KAFKA-10706: this broker led epoch 1 without writing; the next leader never heard of it."""
    partition = replicas.lead(epoch=0, isr=[1])
    replicas.append()
    replicas.lead(epoch=1, isr=[1])
    replicas.follow(epoch=2)
    assert partition.log.leader_epoch == 1
    partition.truncate_to(Offset(1))
    assert (partition.log.leader_epoch, partition.log.log_end_offset) == (0, 1)
    partition.append_as_follower(
        leader_batches(1, base_offset=1, epoch=2), current_leader_epoch=LeaderEpoch(2)
    )
    assert partition.log.leader_epoch == 2


def test_a_truncation_below_the_recovery_point_corrects_the_checkpoint(
    replicas: Replicas, tmp_path: Path
) -> None:
    """Else a crash after the next appends would leave what replaced the records unrecovered."""

    def work() -> None:
        for piece in replicas.log_manager.take_disk_work():
            piece.run()

    partition = replicas.lead(epoch=0, isr=[1])
    for _ in range(4):
        replicas.append()
    flush = partition.log.begin_flush()
    assert flush is not None
    flush.run()
    partition.log.complete_flush(flush)
    work()
    for checkpoint in replicas.log_manager.prepare_recovery_point_checkpoints():
        checkpoint.run()
    path = str(tmp_path / RECOVERY_POINT_CHECKPOINT)
    assert read_offsets(replicas.log_manager._files, path) == {TP: 4}
    replicas.follow(epoch=1)
    partition.truncate_to(Offset(2))
    work()
    assert read_offsets(replicas.log_manager._files, path) == {TP: 2}
    partition.truncate_fully_and_start_at(Offset(1))
    work()
    assert read_offsets(replicas.log_manager._files, path) == {TP: 1}


# Consumers who read from a follower (KIP-392)


def test_a_follower_serves_consumers_that_can_be_sent_to_it_up_to_its_high_watermark(
    replicas: Replicas,
) -> None:
    partition = replicas.follow(epoch=0)
    partition.append_as_follower(leader_batches(3), current_leader_epoch=EPOCH)
    partition.update_follower_high_watermark(Offset(2))
    replicas.fetch(rack="")
    (read,) = replicas.answers.pop()
    assert read.error is ErrorCode.NONE and read.high_watermark == 2 and len(read.records) > 0
    for offset, error in ((2, ErrorCode.NONE), (3, ErrorCode.NONE), (4, ErrorCode.OFFSET_OUT_OF_RANGE)):
        replicas.fetch(rack="", offset=offset, max_wait_ms=0)
        (read,) = replicas.answers.pop()
        assert (read.error, bytes(read.records)) == (error, b"")


def test_older_consumers_and_followers_are_sent_to_the_leader(replicas: Replicas) -> None:
    replicas.follow(epoch=0)
    for fields in ({}, {"replica_id": 3}):
        replicas.fetch(**fields)
        assert replicas.answers.pop()[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    replicas.fetch(replica_id=3, epoch=0)
    assert replicas.answers.pop()[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    replicas.fetch(rack="", epoch=1)
    assert replicas.answers.pop()[0].error is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_parked_consumer_wakes_when_the_follower_hears_that_its_records_are_committed(
    replicas: Replicas,
) -> None:
    partition = replicas.follow(epoch=0)
    pending = replicas.fetch(rack="")
    info = partition.append_as_follower(leader_batches(3), current_leader_epoch=EPOCH)
    replicas.manager.follower_appended(partition, info)
    assert pending.is_waiting
    partition.update_follower_high_watermark(Offset(3))
    replicas.manager.follower_appended(partition, None)
    assert not pending.is_waiting and len(replicas.answer[0].records) > 0


def test_a_segment_that_a_follower_rolls_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replicas = Replicas(tmp_path, TopicConfig(segment_bytes=100))
    flushed: list[object] = []
    monkeypatch.setattr(replicas.disk_work, "flush_closed", flushed.append)
    partition = replicas.follow(epoch=0)
    for offset in range(2):
        info = partition.append_as_follower(leader_batches(1, base_offset=offset), current_leader_epoch=EPOCH)
        replicas.manager.follower_appended(partition, info)
    assert flushed == [partition.log]
    replicas.close()
