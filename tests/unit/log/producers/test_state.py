"""The producers of a partition: what is refused, what is recognised, what survives a restart."""

from __future__ import annotations

import struct
from pathlib import Path

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.clock import ManualClock
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.files import OsFiles
from minikafka.log.producers.append import AppendOrigin
from minikafka.log.producers.snapshot import (
    CorruptSnapshot,
    SnapshotEntry,
    decode_snapshot,
    encode_snapshot,
    snapshot_offset,
)
from minikafka.log.producers.state import EndTransactionMarker, ProducerAppend, ProducerStateManager
from minikafka.protocol.records.batch import BatchHeader
from minikafka.types import TopicPartition

TOPIC_PARTITION = TopicPartition("orders", 3)
DAY_MS = 86_400_000
MAX_SEQUENCE = 2**31 - 1
CLIENT, REPLICATION, COORDINATOR = AppendOrigin.CLIENT, AppendOrigin.REPLICATION, AppendOrigin.COORDINATOR


def batch(
    offset: int,
    sequence: int,
    *,
    count: int = 1,
    producer_id: int = 7,
    epoch: int = 0,
    transactional: bool = False,
    timestamp: int = 1_700_000_000_000,
) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        batch_length=100,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0x10 if transactional else 0,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


class Partition:
    """A log reduced to its producer state: appends at the end, as ``UnifiedLog`` does."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.directory = directory
        self.state = self.restarted()
        self.end = 0

    def restarted(self) -> ProducerStateManager:
        return ProducerStateManager(
            TOPIC_PARTITION, str(self.directory), OsFiles(), self.clock, producer_id_expiration_ms=DAY_MS
        )

    def append(
        self,
        sequence: int,
        *,
        count: int = 1,
        producer_id: int = 7,
        epoch: int = 0,
        transactional: bool = False,
        origin: AppendOrigin = CLIENT,
    ) -> int:
        """Returns the offset it got, or that its duplicate had got."""
        header = batch(
            self.end,
            sequence,
            count=count,
            producer_id=producer_id,
            epoch=epoch,
            transactional=transactional,
            timestamp=self.clock.now_ms(),
        )
        if origin is CLIENT and (duplicate := self.state.find_duplicate(header)):
            return duplicate.first_offset
        self.state.update(self.state.prepare_update(header, origin=origin))
        self.end += count
        self.state.map_end_offset = self.end
        return self.end - count

    def end_transaction(
        self,
        *,
        abort: bool = False,
        producer_id: int = 7,
        epoch: int = 0,
        coordinator_epoch: int = 0,
        version: int = 0,
        origin: AppendOrigin = COORDINATOR,
    ) -> ProducerAppend:
        header = batch(self.end, -1, producer_id=producer_id, epoch=epoch, transactional=True)
        marker = EndTransactionMarker(abort, coordinator_epoch, self.clock.now_ms(), version)
        prepared = self.state.prepare_marker(header, marker, origin=origin)
        self.state.update(prepared)
        if prepared.completed is not None:
            self.state.complete_transaction(prepared.completed)
        self.end += 1
        self.state.map_end_offset = self.end
        return prepared


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(tmp_path)


def refused(error: pytest.ExceptionInfo[KafkaError], code: ErrorCode) -> None:
    assert error.value.code is code
    assert "orders-3" in str(error.value)


# Sequences


def test_a_producer_counts_on_and_nothing_else_is_taken(partition: Partition) -> None:
    partition.append(0, count=5)
    partition.append(5, count=2)
    for wrong in (0, 6, 8, 100):
        before = partition.state.last_entry(7)
        with pytest.raises(KafkaError) as error:
            partition.append(wrong, count=3)
        refused(error, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        assert partition.state.last_entry(7) == before
    assert partition.append(7) == 7


def test_a_producer_that_is_not_known_may_begin_anywhere(partition: Partition) -> None:
    # Its records may be gone (retention, DeleteRecords) while the producer lives on.
    partition.append(4711)
    assert partition.append(4712) == 1


def test_sequences_continue_at_zero_after_the_largest(partition: Partition) -> None:
    partition.append(MAX_SEQUENCE - 1, count=4)  # 2^31-2, 2^31-1, 0, 1
    entry = partition.state.last_entry(7)
    assert entry is not None and entry.last_sequence == 1
    assert entry.batches[-1].first_sequence == MAX_SEQUENCE - 1
    assert partition.append(MAX_SEQUENCE - 1, count=4) == 0  # its duplicate is found
    assert partition.append(2) == 4


def test_the_sequence_after_the_largest_is_zero(partition: Partition) -> None:
    partition.append(MAX_SEQUENCE)
    assert partition.append(0) == 1


def test_a_retry_of_the_last_five_batches_gets_the_first_offset(partition: Partition) -> None:
    offsets = [partition.append(10 * number, count=10) for number in range(6)]
    end = partition.end
    for number in range(1, 6):
        assert partition.append(10 * number, count=10) == offsets[number]
    assert partition.end == end
    with pytest.raises(KafkaError) as error:
        partition.append(0, count=10)  # the sixth last is forgotten
    refused(error, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def test_only_the_same_batch_is_a_duplicate(partition: Partition) -> None:
    partition.append(0, count=10)
    partition.append(10, count=10)
    assert partition.state.find_duplicate(batch(0, 10, count=10)) is not None
    assert partition.state.find_duplicate(batch(0, 10, count=9)) is None
    assert partition.state.find_duplicate(batch(0, 15, count=5)) is None
    assert partition.state.find_duplicate(batch(0, 10, count=10, epoch=1)) is None
    assert partition.state.find_duplicate(batch(0, 10, count=10, producer_id=8)) is None


@given(counts=st.lists(st.integers(1, 2000), min_size=1, max_size=12), start=st.integers(0, MAX_SEQUENCE))
def test_a_correct_producer_is_never_refused_and_its_last_five_are_known(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], start: int
) -> None:
    partition = Partition(tmp_path_factory.mktemp("p"))
    sent = []
    sequence = start
    for count in counts:
        sent.append((sequence, count, partition.append(sequence, count=count)))
        sequence = (sequence + count) % 2**31
    for sequence, count, offset in sent[-5:]:
        duplicate = partition.state.find_duplicate(batch(0, sequence, count=count))
        assert duplicate is not None
        assert (duplicate.first_offset, duplicate.first_sequence) == (offset, sequence)
    assert all(partition.state.find_duplicate(batch(0, s, count=c)) is None for s, c, _ in sent[:-5])


# Epochs


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one(partition: Partition) -> None:
    partition.append(0, count=3)
    with pytest.raises(KafkaError) as error:
        partition.append(3, epoch=1)
    refused(error, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    partition.append(0, epoch=1)
    with pytest.raises(KafkaError) as error:
        partition.append(3, epoch=0)
    refused(error, ErrorCode.INVALID_PRODUCER_EPOCH)
    entry = partition.state.last_entry(7)
    assert entry is not None and len(entry.batches) == 1  # the old epoch's batches are forgotten


def test_replicas_take_what_their_leader_took(partition: Partition) -> None:
    partition.append(0, epoch=5)
    partition.append(77, epoch=5, origin=REPLICATION)
    partition.append(3, epoch=4, origin=REPLICATION)
    assert partition.end == 3


def test_a_coordinator_writes_without_sequences_but_not_with_an_old_epoch(partition: Partition) -> None:
    partition.append(-1, epoch=2, transactional=True, origin=COORDINATOR)
    partition.append(-1, epoch=2, transactional=True, origin=COORDINATOR)
    entry = partition.state.last_entry(7)
    assert entry is not None and entry.last_sequence == -1 and entry.last_data_offset == 1
    with pytest.raises(KafkaError) as error:
        partition.append(-1, epoch=1, transactional=True, origin=COORDINATOR)
    refused(error, ErrorCode.INVALID_PRODUCER_EPOCH)


def test_batches_of_one_append_are_chained(partition: Partition) -> None:
    state = partition.state
    first = state.prepare_update(batch(0, 0, count=2), origin=CLIENT)
    with pytest.raises(KafkaError):
        state.prepare_update(batch(2, 5), origin=CLIENT, previous=first)
    second = state.prepare_update(batch(2, 2), origin=CLIENT, previous=first)
    assert state.last_entry(7) is None  # preparing changes nothing
    state.update(first)
    state.update(second)
    entry = state.last_entry(7)
    assert entry is not None and [b.last_sequence for b in entry.batches] == [1, 2]


def test_the_offset_can_come_before_the_header_has_it(partition: Partition) -> None:
    prepared = partition.state.prepare_update(batch(0, 0, count=3), origin=CLIENT, first_offset=500)
    assert prepared.entry.last_data_offset == 502


# Transactions


def test_an_open_transaction_holds_the_stable_offset_until_its_marker_is_replicated(
    partition: Partition,
) -> None:
    partition.append(0, producer_id=1)
    assert partition.append(0, producer_id=7, transactional=True) == 1
    partition.append(1, producer_id=7, transactional=True)
    state = partition.state
    assert (state.first_unstable_offset, state.first_undecided_offset) == (1, 1)

    completed = partition.end_transaction(abort=True).completed
    assert completed == (7, 1, 3, True)
    assert (state.first_unstable_offset, state.first_undecided_offset) == (1, None)
    state.on_high_watermark_updated(3)  # the marker itself is at 3
    assert state.first_unstable_offset == 1
    state.on_high_watermark_updated(4)
    assert state.first_unstable_offset is None


def test_the_stable_offset_follows_the_oldest_of_several_transactions(partition: Partition) -> None:
    state = partition.state
    for producer_id in (1, 2, 3):
        partition.append(0, producer_id=producer_id, transactional=True)  # at 0, 1, 2
    prepared = partition.end_transaction(producer_id=2)
    assert prepared.completed is not None
    state.on_high_watermark_updated(100)
    assert state.first_unstable_offset == 0
    partition.end_transaction(producer_id=1)
    assert state.first_unstable_offset == 0
    state.on_high_watermark_updated(100)
    assert state.first_unstable_offset == 2
    partition.end_transaction(producer_id=3)
    state.on_high_watermark_updated(100)
    assert state.first_unstable_offset is None and state.first_undecided_offset is None


def test_the_index_records_the_stable_offset_as_it_will_be(partition: Partition) -> None:
    partition.append(0, producer_id=1, transactional=True)
    partition.append(0, producer_id=2, transactional=True)
    header = batch(2, -1, producer_id=1, transactional=True)
    marker = EndTransactionMarker(True, 0, 0)
    prepared = partition.state.prepare_marker(header, marker, origin=COORDINATOR)
    assert prepared.completed is not None
    assert partition.state.last_stable_offset(prepared.completed) == 1
    partition.end_transaction(producer_id=2)
    assert partition.state.last_stable_offset(prepared.completed) == 3


def test_a_transaction_is_not_left_without_a_marker(partition: Partition) -> None:
    partition.append(0, transactional=True)
    before = partition.state.last_entry(7)
    with pytest.raises(KafkaError) as error:
        partition.append(1, transactional=False)
    refused(error, ErrorCode.INVALID_TXN_STATE)
    assert partition.state.last_entry(7) == before
    partition.end_transaction()
    partition.append(1, transactional=False)


def test_a_marker_without_data_ends_nothing(partition: Partition) -> None:
    assert partition.end_transaction().completed is None
    assert partition.state.first_unstable_offset is None


def test_sequences_continue_over_a_marker_of_the_same_epoch(partition: Partition) -> None:
    partition.append(0, transactional=True)
    partition.end_transaction()
    assert partition.append(0, transactional=True) == 0  # still known as a duplicate
    assert partition.append(1, transactional=True) == 2


def test_a_marker_with_a_raised_epoch_fences_and_restarts_the_sequence(partition: Partition) -> None:
    partition.append(0, transactional=True)
    partition.end_transaction(epoch=1, version=2)
    with pytest.raises(KafkaError) as error:
        partition.append(1, epoch=0, transactional=True)
    refused(error, ErrorCode.INVALID_PRODUCER_EPOCH)
    with pytest.raises(KafkaError) as error:
        partition.append(1, epoch=1, transactional=True)
    refused(error, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert partition.append(0, epoch=1, transactional=True) == 2


def test_transaction_version_2_tells_a_late_marker_from_a_repeated_one(partition: Partition) -> None:
    partition.append(0, transactional=True)
    partition.end_transaction(epoch=1, version=2)
    assert partition.end_transaction(epoch=1, version=2).completed is None  # sent again: harmless
    partition.append(0, epoch=1, transactional=True)
    with pytest.raises(KafkaError) as error:
        partition.end_transaction(epoch=1, version=2)  # the first transaction's, over the second one
    refused(error, ErrorCode.INVALID_PRODUCER_EPOCH)
    partition.end_transaction(epoch=1, version=0)  # older coordinators use the same epoch


def test_a_deposed_coordinator_ends_nothing(partition: Partition) -> None:
    partition.append(0, transactional=True)
    partition.end_transaction(coordinator_epoch=5)
    partition.append(1, transactional=True)
    with pytest.raises(KafkaError) as error:
        partition.end_transaction(coordinator_epoch=4)
    refused(error, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    partition.end_transaction(coordinator_epoch=4, origin=REPLICATION)  # its leader took it


def test_completing_what_never_began_is_our_bug(partition: Partition) -> None:
    partition.append(0, transactional=True)
    completed = partition.end_transaction().completed
    assert completed is not None
    with pytest.raises(InvariantError):
        partition.state.complete_transaction(completed)


# Expiry


def test_idle_producers_are_forgotten_but_not_in_a_transaction(partition: Partition) -> None:
    partition.append(0, producer_id=1)
    partition.append(0, producer_id=2, transactional=True)
    partition.clock.advance(DAY_MS - 1)
    partition.append(0, producer_id=3)
    assert partition.state.remove_expired(partition.clock.now_ms()) == 0
    partition.clock.advance(1)
    assert partition.state.remove_expired(partition.clock.now_ms()) == 1
    assert sorted(partition.state.active_producers()) == [2, 3]
    assert partition.append(4711, producer_id=1) == 3


# Snapshots


def test_a_snapshot_is_kafkas_byte_for_byte(partition: Partition) -> None:
    partition.append(0, count=3)
    partition.append(0, producer_id=9, epoch=2, transactional=True)
    path = partition.state.take_snapshot()
    assert path is not None and path.endswith("/00000000000000000004.snapshot")
    now_ms = partition.clock.now_ms()
    body = struct.pack(">i", 2)
    body += struct.pack(">qhiqiqiq", 7, 0, 2, 2, 2, now_ms, -1, -1)
    body += struct.pack(">qhiqiqiq", 9, 2, 0, 3, 0, now_ms, -1, 3)
    assert Path(path).read_bytes() == struct.pack(">hI", 1, crc32c.crc32c(body)) + body


def test_an_empty_snapshot_is_kafkas_too() -> None:
    assert encode_snapshot([]) == struct.pack(">hIi", 1, crc32c.crc32c(bytes(4)), 0)
    assert decode_snapshot(encode_snapshot([])) == []


def test_producers_and_transactions_survive_a_restart(partition: Partition) -> None:
    partition.append(0, count=3)
    partition.append(0, producer_id=9, transactional=True)
    partition.append(0, producer_id=8, transactional=True)
    partition.state.take_snapshot()
    partition.state = partition.restarted()
    assert partition.state.load_from_snapshots(0, 5) == 5
    assert partition.state.first_unstable_offset == 3
    assert partition.append(0, count=3) == 0  # the last batch is a duplicate still
    partition.append(3)
    with pytest.raises(KafkaError):
        partition.append(17, producer_id=9, transactional=True)
    partition.end_transaction(producer_id=9)
    partition.state.on_high_watermark_updated(partition.end)
    assert partition.state.first_unstable_offset == 4


def test_open_transactions_are_in_order_after_a_restart(partition: Partition) -> None:
    partition.append(0, producer_id=1)  # known first, its transaction begins last
    partition.append(0, producer_id=2, transactional=True)
    partition.append(1, producer_id=1, transactional=True)
    partition.state.take_snapshot()
    state = partition.restarted()
    state.load_from_snapshots(0, 3)
    assert (state.first_unstable_offset, state.first_undecided_offset) == (1, 1)


def test_producers_that_expired_meanwhile_are_not_loaded(partition: Partition) -> None:
    partition.append(0)
    partition.state.take_snapshot()
    partition.clock.advance(DAY_MS)
    state = partition.restarted()
    state.load_from_snapshots(0, 1)
    assert state.is_empty


def test_a_second_snapshot_at_the_same_offset_is_not_written(partition: Partition) -> None:
    assert partition.state.take_snapshot() is None  # nothing in the log yet
    partition.append(0)
    assert partition.state.take_snapshot() is not None
    assert partition.state.take_snapshot() is None


def test_a_damaged_snapshot_gives_way_to_an_older_one(partition: Partition) -> None:
    partition.append(0)
    partition.state.take_snapshot()
    partition.append(1)
    path = Path(partition.state.take_snapshot() or "")
    path.write_bytes(path.read_bytes()[:-1])
    state = partition.restarted()
    assert state.load_from_snapshots(0, 2) == 1
    entry = state.last_entry(7)
    assert entry is not None and entry.last_sequence == 0
    assert not path.exists() and list(state.snapshot_offsets) == [1]


def test_without_a_snapshot_the_log_is_replayed_from_its_start(partition: Partition) -> None:
    assert partition.state.load_from_snapshots(17, 40) == 17
    assert partition.state.map_end_offset == 17


def test_truncation_goes_back_to_the_snapshot_before(partition: Partition) -> None:
    for sequence in range(4):
        partition.append(sequence)
        partition.state.take_snapshot()
    state = partition.state
    state.truncate_and_reload(0, 2)
    assert list(state.snapshot_offsets) == [1, 2] and state.map_end_offset == 2
    entry = state.last_entry(7)
    assert entry is not None and entry.last_sequence == 1
    state.truncate_and_reload(2, 2)  # the log start moved to 2, nothing is left before it
    assert list(state.snapshot_offsets) == [] and state.last_entry(7) == entry


def test_truncating_at_the_end_keeps_what_is_known(partition: Partition) -> None:
    partition.append(0)
    partition.append(1)
    partition.state.truncate_and_reload(0, 2)
    assert partition.append(0) == 0  # more than a snapshot would know


def test_starting_over_forgets_everything(partition: Partition) -> None:
    partition.append(0, transactional=True)
    partition.state.take_snapshot()
    partition.state.truncate_fully_and_start_at(100)
    assert partition.state.is_empty and partition.state.first_unstable_offset is None
    assert partition.state.map_end_offset == 100 and not list(partition.directory.iterdir())


def test_deleted_records_let_go_of_completed_transactions_but_not_of_producers(partition: Partition) -> None:
    partition.append(0, transactional=True)
    partition.end_transaction()
    partition.state.on_log_start_offset_incremented(2)
    assert partition.state.first_unstable_offset is None
    assert partition.state.last_entry(7) is not None


def test_stray_snapshots_go_but_the_one_at_the_end_stays(partition: Partition) -> None:
    for sequence in range(6):
        partition.append(sequence)
        partition.state.take_snapshot()
    (partition.directory / "7.snapshot").touch()  # not written by the log
    state = partition.restarted()
    state.remove_stray_snapshots([0, 2, 4])
    assert list(state.snapshot_offsets) == [2, 4, 6]
    state.remove_stray_snapshots([0, 2, 8])
    assert list(state.snapshot_offsets) == [2]


def test_snapshots_go_with_their_segments(partition: Partition) -> None:
    for sequence in range(3):
        partition.append(sequence)
        partition.state.take_snapshot()
    state = partition.state
    path = state.mark_snapshot_for_deletion(1)
    assert path is not None and path.endswith("00000000000000000001.snapshot.deleted") and Path(path).exists()
    assert state.mark_snapshot_for_deletion(1) is None
    assert list(state.snapshot_offsets) == [2, 3] and state.latest_snapshot_offset == 3


def test_a_snapshot_that_has_gone_with_its_segment_can_be_taken_again(partition: Partition) -> None:
    """An empty segment is rolled: its successor begins at the same offset."""
    partition.append(0)
    path = partition.state.take_snapshot()
    partition.state.mark_snapshot_for_deletion(1)
    assert partition.state.take_snapshot() == path
    assert list(partition.state.snapshot_offsets) == [1]


def test_the_snapshots_move_with_the_directory(partition: Partition, tmp_path: Path) -> None:
    partition.append(0)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    partition.state.update_directory(str(elsewhere))
    assert str(partition.state.take_snapshot()).startswith(str(elsewhere))


# Damage

int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
snapshot_entries = st.builds(
    SnapshotEntry,
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**15 - 1),
    int32,
    st.just(-1),
    int32,
    int64,
    int32,
    int64,
)


@given(st.lists(snapshot_entries, unique_by=lambda entry: entry.producer_id))
def test_snapshots_round_trip(entries: list[SnapshotEntry]) -> None:
    assert decode_snapshot(encode_snapshot(entries)) == entries


@given(st.binary(max_size=200))
def test_no_bytes_upset_the_reader(data: bytes) -> None:
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(data)


@given(entries=st.lists(snapshot_entries, unique_by=lambda e: e.producer_id), data=st.data())
def test_any_changed_byte_is_noticed(entries: list[SnapshotEntry], data: st.DataObject) -> None:
    good = bytearray(encode_snapshot(entries))
    position = data.draw(st.integers(0, len(good) - 1))
    good[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(bytes(good))


def crafted(body: bytes) -> bytes:
    return struct.pack(">hI", 1, crc32c.crc32c(body)) + body


@pytest.mark.parametrize(
    "body",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 0) + b"x",
        struct.pack(">i", 1) + struct.pack(">qhiqiqiq", -1, 0, 0, 0, 0, 0, 0, -1),
        struct.pack(">i", 2) + 2 * struct.pack(">qhiqiqiq", 1, 0, 0, 0, 0, 0, 0, -1),
        struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 1, 0, 0, 5, 6, 0, 0, -1),
    ],
    ids=["null", "huge count", "trailing", "negative id", "id twice", "delta beyond offset"],
)
def test_a_correct_crc_is_not_enough(body: bytes) -> None:
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(crafted(body))


@pytest.mark.parametrize("name", ["1.log", "x.snapshot", ".snapshot", "-1.snapshot", "9" * 25 + ".snapshot"])
def test_other_names_are_no_snapshots(name: str) -> None:
    assert snapshot_offset(name) is None
