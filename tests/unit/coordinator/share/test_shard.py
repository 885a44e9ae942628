"""The share coordinator's shards: states that are begun, written, fenced, replayed and deleted."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.coordinator.effects import Answer, Append
from minikafka.coordinator.share.messages import (
    InitializeShareState,
    ReadShareState,
    SharePartitionError,
    SharePartitionKey,
    SharePartitionState,
    SharePartitionSummary,
    StateBatch,
    TopicIdPartition,
    WriteShareState,
)
from minikafka.coordinator.share.shard import ShareShard, combine_batches
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.share_record_codec import UnreadableShareRecord, decode_record, encode_record
from minikafka.protocol.internal.share_records import (
    ShareRecord,
    ShareSnapshotValue,
    ShareUpdateValue,
)

TOPIC = UUID("6f02ed56-0f49-432e-8b16-9c0f0e8ffb77")
NEWER = UUID("7f02ed56-0f49-432e-8b16-9c0f0e8ffb77")
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


class Settings(NamedTuple):
    snapshot_update_records: int = 3
    cold_snapshot_interval_ms: int = 1_000


class Ticket:
    pass


class Coordinator:
    """A shard with a log: what it appends is written, read back and committed at once."""

    def __init__(self) -> None:
        self.log: list[tuple[bytes, bytes | None]] = []
        self.shard = self.new_shard()
        self.now_ms = 10_000

    def new_shard(self) -> ShareShard:
        return ShareShard(settings=Settings(), has_partition=lambda topic_id, partition: partition < 3)

    def restart(self) -> None:
        self.shard = self.new_shard()
        for offset, (key, value) in enumerate(self.log):
            self.shard.replay(decode_record(key, value), offset)

    def do(self, effects: list[Any]) -> Any:
        answer = None
        for effect in effects:
            if isinstance(effect, Append):
                self.log += [encode_record(record) for record in effect.records]
                effect.end_offset = len(self.log)  # type: ignore[assignment]
                assert effect.written(self.now_ms) == []
                answer = self.do(effect.committed(self.now_ms)) or answer
            else:
                assert isinstance(effect, Answer)
                answer = effect.result
        return answer

    def ask(self, name: str, *partitions: Any) -> Any:
        return self.do(getattr(self.shard, name)("g", partitions, Ticket(), self.now_ms))

    def initialize(self, *, state_epoch: int = 0, start_offset: int = 0, partition: int = 0) -> Any:
        (answer,) = self.ask("initialize", InitializeShareState(TOPIC, partition, state_epoch, start_offset))
        return answer

    def write(
        self,
        *batches: StateBatch,
        start_offset: int = -1,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        count: int = 0,
    ) -> Any:
        (answer,) = self.ask(
            "write", WriteShareState(TOPIC, 0, state_epoch, leader_epoch, start_offset, count, batches)
        )
        return answer

    def read(self, leader_epoch: int = 0) -> SharePartitionState:
        (answer,) = self.ask("read", ReadShareState(TOPIC, 0, leader_epoch))
        assert isinstance(answer, SharePartitionState)
        return answer

    def newest(self) -> ShareSnapshotValue | ShareUpdateValue | None:
        return decode_record(*self.log[-1]).value


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def code(answer: Any) -> ErrorCode:
    assert answer.error is not None
    found: ErrorCode = answer.error.code
    return found


def test_what_was_written_is_read_also_after_a_restart(coordinator: Coordinator) -> None:
    assert coordinator.initialize(start_offset=5) == SharePartitionError(TOPIC, 0)
    coordinator.write(StateBatch(5, 9, ACKNOWLEDGED, 1), StateBatch(10, 12, AVAILABLE, 1))
    coordinator.write(StateBatch(10, 11, ACKNOWLEDGED, 2), start_offset=7, count=5)
    expected = SharePartitionState(
        TOPIC,
        0,
        None,
        0,
        7,
        (
            StateBatch(7, 9, ACKNOWLEDGED, 1),
            StateBatch(10, 11, ACKNOWLEDGED, 2),
            StateBatch(12, 12, AVAILABLE, 1),
        ),
    )
    assert coordinator.read() == expected
    coordinator.restart()
    assert coordinator.read() == expected
    summary = coordinator.ask("read_summary", ReadShareState(TOPIC, 0, -1))
    assert summary == [SharePartitionSummary(TOPIC, 0, None, 0, 0, 7, 5)]


def test_after_so_many_updates_comes_a_snapshot(coordinator: Coordinator) -> None:
    coordinator.initialize()
    for number in range(4):
        coordinator.write(StateBatch(number, number, ACKNOWLEDGED, 1), start_offset=number)
    kinds = [type(decode_record(*record).value) for record in coordinator.log]
    assert kinds == [ShareSnapshotValue, *[ShareUpdateValue] * 3, ShareSnapshotValue]
    snapshot = coordinator.newest()
    assert isinstance(snapshot, ShareSnapshotValue)
    assert (snapshot.snapshot_epoch, snapshot.start_offset) == (1, 3)
    assert coordinator.shard.redundant_offset() == 4


def test_the_leader_of_an_earlier_epoch_is_fenced(coordinator: Coordinator) -> None:
    coordinator.initialize()
    assert coordinator.read(leader_epoch=3).error is None
    coordinator.restart()
    assert code(coordinator.read(leader_epoch=2)) is ErrorCode.FENCED_LEADER_EPOCH
    assert code(coordinator.write(leader_epoch=2)) is ErrorCode.FENCED_LEADER_EPOCH
    assert coordinator.write(leader_epoch=3).error is None
    assert coordinator.read(leader_epoch=-1).error is None


def test_a_state_that_was_begun_again_fences_those_who_know_the_last_one(coordinator: Coordinator) -> None:
    coordinator.initialize(start_offset=50)
    coordinator.write(StateBatch(50, 59, ACKNOWLEDGED, 1))
    coordinator.initialize(state_epoch=2, start_offset=10)
    state = coordinator.read()
    assert (state.state_epoch, state.start_offset, state.batches) == (2, 10, ())
    (summary,) = coordinator.ask("read_summary", ReadShareState(TOPIC, 0, -1))
    assert summary.delivery_complete_count == 0, "so its lag is known before a leader has written"
    assert code(coordinator.write(state_epoch=1)) is ErrorCode.FENCED_STATE_EPOCH
    assert code(coordinator.initialize(state_epoch=1)) is ErrorCode.FENCED_STATE_EPOCH
    assert coordinator.write(state_epoch=2).error is None


def test_a_late_write_brings_nothing_back(coordinator: Coordinator) -> None:
    coordinator.initialize()
    coordinator.write(StateBatch(0, 9, ACKNOWLEDGED, 2), start_offset=0)
    coordinator.write(start_offset=10)
    coordinator.write(StateBatch(0, 9, AVAILABLE, 1), start_offset=0)
    state = coordinator.read()
    assert (state.start_offset, state.batches) == (10, ())


def test_nothing_is_written_or_read_before_it_was_begun(coordinator: Coordinator) -> None:
    assert code(coordinator.write()) is ErrorCode.INVALID_REQUEST
    assert code(coordinator.read()) is ErrorCode.INVALID_REQUEST
    assert code(coordinator.initialize(partition=3)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(coordinator.initialize(partition=-1)) is ErrorCode.INVALID_REQUEST
    assert coordinator.log == []


def test_a_deleted_state_is_gone_and_that_is_remembered(coordinator: Coordinator) -> None:
    coordinator.initialize()
    gone = TopicIdPartition(TOPIC, 0)
    assert coordinator.ask("delete", gone) == [SharePartitionError(TOPIC, 0)]
    assert coordinator.ask("delete", gone) == [SharePartitionError(TOPIC, 0)]
    coordinator.restart()
    assert code(coordinator.read()) is ErrorCode.INVALID_REQUEST
    assert len(coordinator.log) == 2


def test_the_states_of_a_deleted_topic_go(coordinator: Coordinator) -> None:
    coordinator.initialize()
    coordinator.do(coordinator.shard.topics_deleted([NEWER]))
    assert len(coordinator.shard) == 1
    coordinator.do(coordinator.shard.topics_deleted([TOPIC]))
    assert len(coordinator.shard) == 0


def test_a_cold_state_is_written_again_so_that_the_records_before_can_go(coordinator: Coordinator) -> None:
    coordinator.initialize(partition=1)
    coordinator.now_ms += 2_000
    coordinator.initialize(partition=0)
    assert coordinator.shard.redundant_offset() == 0
    coordinator.do(coordinator.shard.snapshot_cold(coordinator.now_ms))
    assert coordinator.shard.redundant_offset() == 1
    assert coordinator.shard.snapshot_cold(coordinator.now_ms + 9_000) == []


def test_each_partition_of_a_request_is_answered_for_itself(coordinator: Coordinator) -> None:
    coordinator.initialize()
    writes = [WriteShareState(TOPIC, number, 0, 0, 1, 0, ()) for number in (0, 1)]
    done, refused = coordinator.ask("write", *writes)
    assert done.error is None
    assert code(refused) is ErrorCode.INVALID_REQUEST


def test_a_write_that_fails_says_so(coordinator: Coordinator) -> None:
    coordinator.initialize()
    ticket = Ticket()
    write = WriteShareState(TOPIC, 0, 0, 0, 1, 0, ())
    (append,) = coordinator.shard.write("g", [write], ticket, 0)
    (answer,) = append.failed(KafkaError(ErrorCode.REQUEST_TIMED_OUT, ""), 0)
    assert (answer.ticket, answer.result.code) == (ticket, ErrorCode.COORDINATOR_NOT_AVAILABLE)


BATCHES = st.lists(
    st.builds(
        lambda first, size, state, count: StateBatch(first, first + size, state, count),
        st.integers(0, 30),
        st.integers(0, 12),
        st.sampled_from((AVAILABLE, ACKNOWLEDGED, ARCHIVED)),
        st.integers(0, 3),
    ),
    max_size=8,
)


@given(so_far=BATCHES, new=BATCHES, start_offset=st.integers(-1, 40))
def test_of_each_offset_the_later_state_counts(
    so_far: list[StateBatch], new: list[StateBatch], start_offset: int
) -> None:
    expected: dict[int, tuple[int, int]] = {}
    for first, last, state, count in (*so_far, *new):
        for offset in range(max(first, start_offset), last + 1):
            expected[offset] = max(expected.get(offset, (0, 0)), (count, state))
    combined = combine_batches(so_far, new, start_offset)
    found = {
        offset: (batch.delivery_count, batch.delivery_state)
        for batch in combined
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }
    assert found == expected
    for left, right in pairwise(combined):
        assert left.last_offset < right.first_offset
        assert left.last_offset + 1 < right.first_offset or left[2:] != right[2:]


KEY = SharePartitionKey("group", TOPIC, 7)


def test_records_are_kafkas_bytes() -> None:
    key, value = encode_record(
        ShareRecord(
            KEY,
            ShareUpdateValue(
                snapshot_epoch=1,
                leader_epoch=2,
                start_offset=3,
                delivery_complete_count=4,
                state_batches=(StateBatch(3, 5, ACKNOWLEDGED, 1),),
            ),
        )
    )
    assert key.hex() == "0001" + "0005" + b"group".hex() + TOPIC.hex + "00000007"
    assert value is not None
    assert value.hex() == (
        "0000" + "00000001" + "00000002" + "0000000000000003" + "02"
        "0000000000000003" + "0000000000000005" + "02" + "0001" + "00" + "01" + "00" + "04" + "00000004"
    )


@pytest.mark.parametrize(
    ("key", "value"), [(b"\0", None), (b"\0\x09xx", None), (b"\0\0\0", None), (None, b"")]
)
def test_damaged_records_are_told_apart(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(UnreadableShareRecord):
        decode_record(key, value)
    good_key, _ = encode_record(ShareRecord(KEY, None))
    for damaged in (b"\0", b"\0\x01", b"\0\0\0\0"):
        with pytest.raises(UnreadableShareRecord):
            decode_record(good_key, damaged)
