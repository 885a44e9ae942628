"""Compaction, rule by rule: what stays, what goes, and when."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.clock import ManualClock
from minikafka.errors import InvariantError, KafkaError
from minikafka.files import OsFiles
from minikafka.log.cleanable_log import CleanableLog, dirtiest
from minikafka.log.cleaner import ENTRY_BYTES
from minikafka.log.segment.indexes import RELATIVE_OFFSET_MAX
from minikafka.log.staged_compaction import CompactionJob, SourceSegment, group_segments
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.batch import TimestampType
from minikafka.protocol.records.records import ControlRecordType, Record, build_batch
from tests.unit.log.cleaner_helpers import (
    batches,
    compact,
    compacted_config,
    contents,
    job_of,
    keyed,
    work_off,
    write,
)
from tests.unit.log.log_helpers import (
    COMMITTED,
    NOW_MS,
    ZSTD,
    append,
    append_marker,
    open_log,
    read_all,
)

DELETE_RETENTION_MS = 1000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> UnifiedLog:
    return open_log(tmp_path / "t-0", config=compacted_config(), clock=clock)


# What stays of keys


def test_only_the_newest_record_of_a_key_stays_at_its_offset(log: UnifiedLog) -> None:
    write(log, (b"a", b"1"), (b"b", b"1"))
    write(log, (b"a", b"2"), (b"c", b"1"))
    log.roll()
    result = compact(log)
    assert contents(log) == [(1, b"b", b"1"), (2, b"a", b"2"), (3, b"c", b"1")]
    assert (result.records_kept, result.records_dropped, result.end_offset) == (3, 1, 4)
    assert read_all(log) == [(1, b"1"), (2, b"2"), (3, b"1")]


def test_the_active_segment_is_not_touched(log: UnifiedLog) -> None:
    write(log, (b"a", b"1"))
    log.roll()
    write(log, (b"a", b"2"))
    compact(log)
    assert contents(log) == [(0, b"a", b"1"), (1, b"a", b"2")]


def write_keyless(log: UnifiedLog, *records: tuple[bytes | None, bytes | None]) -> None:
    """As long as the topic's policy is another."""
    config = log.config
    log.update_config(compacted_config(cleanup_policy=("delete",)))
    write(log, *records)
    log.update_config(config)


def test_a_record_without_a_key_goes(log: UnifiedLog) -> None:
    write_keyless(log, (None, b"x"), (b"a", b"1"))
    log.roll()
    compact(log)
    assert contents(log) == [(1, b"a", b"1")]


def test_long_keys_and_short_ones_are_told_apart(log: UnifiedLog) -> None:
    long_keys = [b"x" * 16, b"x" * 17, b"x" * 200, b"x" * 15, b""]
    for round_number in range(2):
        for key in long_keys:
            write(log, (key, b"%d" % round_number))
    log.roll()
    compact(log)
    assert contents(log) == [(5 + index, key, b"1") for index, key in enumerate(long_keys)]


def test_a_batch_that_stays_whole_is_copied_byte_by_byte(log: UnifiedLog) -> None:
    batch = keyed((b"a", b"1"), (b"b", b"1"), compression=ZSTD)
    append(log, batch)
    log.roll()
    compact(log)
    segment = log.segments[0]
    assert bytes(segment.read_bytes(segment.size, 0, cached_only=False))[16:] == batch[16:]


def test_a_rebuilt_batch_keeps_producer_sequence_codec_and_last_offset(log: UnifiedLog) -> None:
    records = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), (b"c", b"2")]
    producer = {"producer_id": 9, "producer_epoch": 3, "base_sequence": 40}
    append(log, keyed(*records[:4], compression=ZSTD, **producer), epoch=5)
    append(log, keyed(records[4]), epoch=5)
    log.roll()
    compact(log)
    (header, kept), _ = batches(log)
    assert [record.offset for record in kept] == [1, 2] and header.record_count == 2
    assert (header.base_offset, header.last_offset, header.last_sequence) == (0, 3, 43)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 40)
    assert (header.compression, header.partition_leader_epoch) == (ZSTD, 5)


def test_the_largest_timestamp_is_that_of_what_stays(log: UnifiedLog) -> None:
    append(log, keyed((b"a", b"1"), timestamp=NOW_MS + 50))
    write(log, (b"b", b"1"), (b"b", b"2"), timestamp=NOW_MS + 9)
    write(log, (b"a", b"2"))
    log.roll()
    compact(log)
    assert [header.max_timestamp for header, _ in batches(log)] == [NOW_MS + 9, NOW_MS]
    assert log.segments[0].largest_timestamp() == NOW_MS + 9
    found = log.offset_for_timestamp(NOW_MS + 1)
    assert found is not None and found.offset == 2


def test_log_append_time_is_kept(log: UnifiedLog) -> None:
    stamped = keyed((b"a", b"1"), (b"b", b"1"), timestamp_type=TimestampType.LOG_APPEND_TIME)
    log.append_as_follower(stamped)
    log.append_as_follower(_at(2, (b"a", b"2")))
    log.update_high_watermark(3)
    log.roll()
    compact(log)
    header, kept = batches(log)[0]
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == kept[0].timestamp == NOW_MS


def _at(offset: int, *records: tuple[bytes | None, bytes | None]) -> bytes:
    return build_batch(
        [Record(offset + index, NOW_MS, key, value) for index, (key, value) in enumerate(records)],
        base_offset=offset,
    )


# Tombstones


def test_a_tombstone_gets_its_horizon_first_and_goes_when_that_has_passed(
    log: UnifiedLog, clock: ManualClock
) -> None:
    write(log, (b"a", b"1"), (b"b", b"1"))
    write(log, (b"a", None), (b"c", b"1"))
    log.roll()
    compact(log, clock=clock)
    assert contents(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    header, kept = batches(log)[1]
    assert header.delete_horizon_ms == NOW_MS + DELETE_RETENTION_MS
    assert [record.timestamp for record in kept] == [NOW_MS, NOW_MS]
    assert header.max_timestamp == NOW_MS
    clock.advance(DELETE_RETENTION_MS - 1)
    compact(log, clock=clock)
    assert contents(log)[1] == (2, b"a", None)
    assert batches(log)[1][0].delete_horizon_ms == NOW_MS + DELETE_RETENTION_MS  # not put off
    clock.advance(1)
    compact(log, clock=clock)
    assert contents(log) == [(1, b"b", b"1"), (3, b"c", b"1")]
    rebuilt, _ = batches(log)[1]
    assert rebuilt.delete_horizon_ms == NOW_MS + DELETE_RETENTION_MS and rebuilt.record_count == 1


def test_a_value_after_a_tombstone_lives(log: UnifiedLog, clock: ManualClock) -> None:
    write(log, (b"a", None))
    write(log, (b"a", b"2"))
    log.roll()
    for _ in range(3):
        compact(log, clock=clock)
        clock.advance(DELETE_RETENTION_MS)
    assert contents(log) == [(1, b"a", b"2")]


# The bounds


def test_nothing_above_the_high_watermark_is_touched(log: UnifiedLog) -> None:
    """R18 (KAFKA-13194, KAFKA-13727): the high watermark lies inside of a closed segment."""
    for value in (b"1", b"2", b"3", b"4"):
        for _ in range(2):
            log.append_as_leader(keyed((b"a", value), (b"b", value)), leader_epoch=log.leader_epoch)
        log.roll()
    log.update_high_watermark(10)  # of [8, 12)
    before = contents(log)
    cleanable = CleanableLog(log, now_ms=NOW_MS)
    assert cleanable.first_uncleanable_offset == 8
    compact(log)
    assert contents(log) == [(6, b"a", b"2"), (7, b"b", b"2"), *before[8:]]
    assert log.high_watermark == 10


def test_nothing_of_an_open_transaction_is_touched(log: UnifiedLog) -> None:
    write(log, (b"a", b"1"))
    write(log, (b"a", b"2"))
    log.roll()
    append(log, keyed((b"a", b"3"), **_TXN))
    log.roll()
    write(log, (b"a", b"4"))
    log.roll()
    assert CleanableLog(log, now_ms=NOW_MS).first_uncleanable_offset == 2
    compact(log)
    assert contents(log) == [(1, b"a", b"2"), (2, b"a", b"3"), (3, b"a", b"4")]


def test_segments_younger_than_the_lag_are_left_as_they_are(tmp_path: Path, clock: ManualClock) -> None:
    log = open_log(tmp_path / "t-0", config=compacted_config(min_compaction_lag_ms=100), clock=clock)
    for age in (300, 200, 50, 150):
        write(log, (b"a", b"1"), timestamp=NOW_MS - age)
        log.roll()
    assert CleanableLog(log, now_ms=NOW_MS).first_uncleanable_offset == 2
    assert CleanableLog(log, now_ms=NOW_MS + 51).first_uncleanable_offset == 4


def test_a_record_older_than_the_longest_lag_makes_a_log_due(tmp_path: Path) -> None:
    config = compacted_config(max_compaction_lag_ms=100, min_cleanable_dirty_ratio=1.0)
    log = open_log(tmp_path / "t-0", config=config)
    write(log, (b"a", b"1"), timestamp=NOW_MS - 50)
    log.roll()
    assert not CleanableLog(log, now_ms=NOW_MS).is_due
    assert CleanableLog(log, now_ms=NOW_MS + 51).is_due
    compact(log)
    assert not CleanableLog(log, now_ms=NOW_MS + 51).is_due


def test_a_log_is_due_when_its_ratio_is_more_than_the_configured(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", config=compacted_config(min_cleanable_dirty_ratio=0.5))
    for _ in range(2):
        write(log, (b"a", b"1"))
        log.roll()
    log.first_dirty_offset = 1
    cleanable = CleanableLog(log, now_ms=NOW_MS)
    assert cleanable.dirty_ratio == 0.5 and not cleanable.is_due
    write(log, (b"b", b"1"))
    log.roll()
    assert CleanableLog(log, now_ms=NOW_MS).is_due


def test_the_dirtiest_log_comes_first(tmp_path: Path) -> None:
    cleanables = []
    for name, clean in (("a", 1), ("b", 0), ("c", 2)):
        log = open_log(tmp_path / f"{name}-0", config=compacted_config())
        for _ in range(3):
            write(log, (b"a", b"1"))
            log.roll()
        log.first_dirty_offset = clean
        cleanables.append(CleanableLog(log, now_ms=NOW_MS))
    assert dirtiest(cleanables) is cleanables[1]
    assert dirtiest(cleanables[2:]) is None  # a third is not enough


@pytest.mark.parametrize("noted", [-1, 3, 1000])
def test_an_offset_outside_of_the_log_means_that_all_is_dirty(log: UnifiedLog, noted: int) -> None:
    for _ in range(6):
        write(log, (b"a", b"1"))
    log.increment_log_start_offset(4)
    log.first_dirty_offset = noted
    assert CleanableLog(log, now_ms=NOW_MS).first_dirty_offset == 4


# The map


def test_what_does_not_fit_into_the_map_waits_for_the_next_round(log: UnifiedLog) -> None:
    for number in range(12):
        write(log, (b"k%d" % (number % 6), b"%d" % number), (b"x", b"%d" % number))
    log.roll()
    first = compact(log, map_bytes=4 * ENTRY_BYTES)
    assert first.end_offset == 6 and first.map_entries == 4
    found = contents(log)
    assert found[:4] == [(0, b"k0", b"0"), (2, b"k1", b"1"), (4, b"k2", b"2"), (5, b"x", b"2")]
    assert [offset for offset, _, _ in found[4:]] == list(range(6, 24))  # past the map's end: all
    while CleanableLog(log, now_ms=NOW_MS).dirty_bytes:
        compact(log, map_bytes=4 * ENTRY_BYTES)
    assert {key: value for _, key, value in contents(log)} == {
        b"x": b"11",
        **{b"k%d" % key: b"%d" % (key + 6) for key in range(6)},
    }
    assert len(contents(log)) == 7


def test_past_the_end_of_the_map_nothing_changes(log: UnifiedLog) -> None:
    write(log, (b"a", b"1"))
    write(log, (b"b", b"1"))
    write(log, (b"c", b"1"))
    write(log, (b"a", None))
    log.roll()
    write_keyless(log, (None, b"keyless"))
    log.roll()
    before = batches(log)
    assert compact(log, map_bytes=2 * ENTRY_BYTES).end_offset == 2
    assert batches(log) == before


def test_a_batch_with_more_keys_than_the_map_holds_is_refused(log: UnifiedLog) -> None:
    write(log, *((b"%d" % key, b"v") for key in range(5)))
    log.roll()
    with pytest.raises(KafkaError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        compact(log, map_bytes=4 * ENTRY_BYTES)


# Empty batches


def test_the_last_batch_of_an_active_producer_stays_without_records(log: UnifiedLog) -> None:
    append(log, keyed((b"a", b"1"), producer_id=9, producer_epoch=2, base_sequence=0))
    append(log, keyed((b"a", b"2"), producer_id=9, producer_epoch=2, base_sequence=1))
    write(log, (b"a", b"3"))
    log.roll()
    compact(log)
    headers = [(header.base_offset, header.record_count) for header, _ in batches(log)]
    assert headers == [(1, 0), (2, 1)]
    empty = batches(log)[0][0]
    assert (empty.producer_id, empty.producer_epoch, empty.last_sequence) == (9, 2, 1)


def test_a_producer_continues_after_a_compaction_and_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    directory = tmp_path / "t-0"
    log = open_log(directory, config=compacted_config(), clock=clock)
    append(log, keyed((b"a", b"1"), producer_id=9, producer_epoch=2, base_sequence=0))
    write(log, (b"a", b"2"))
    log.roll()
    compact(log)
    log.close()
    for path in directory.glob("*.snapshot"):
        path.unlink()
    again = open_log(directory, config=compacted_config(), clock=clock)
    info = append(again, keyed((b"b", b"1"), producer_id=9, producer_epoch=2, base_sequence=1))
    assert not info.duplicate and info.first_offset == 2
    again.close()


def test_the_last_batch_stays_so_that_the_segment_reaches_as_far(log: UnifiedLog) -> None:
    write(log, (b"a", b"1"))
    write_keyless(log, (None, b"keyless"))
    log.roll()
    compact(log)
    assert [(header.base_offset, header.record_count) for header, _ in batches(log)] == [(0, 1), (1, 0)]
    write(log, (b"a", b"2"))
    log.roll()
    compact(log)
    assert log.segments[0].read_next_offset() == 3 and contents(log) == [(2, b"a", b"2")]


# Transactions

_TXN = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
ABORT, COMMIT = ControlRecordType.ABORT, ControlRecordType.COMMIT


def control_batches(log: UnifiedLog) -> list[tuple[int, int | None]]:
    """(offset, delete horizon) of each marker that is there."""
    return [
        (header.base_offset, header.delete_horizon_ms)
        for header, records in batches(log)
        if header.is_control and records
    ]


def test_aborted_records_go_at_once_and_hide_nothing(log: UnifiedLog, clock: ManualClock) -> None:
    write(log, (b"a", b"committed"))
    append(log, keyed((b"a", b"aborted"), **_TXN))
    append_marker(log, ABORT)
    write(log, (b"z", b"1"))
    log.roll()
    compact(log, clock=clock)
    assert contents(log) == [(0, b"a", b"committed"), (3, b"z", b"1")]
    assert control_batches(log) == [(2, None)]  # something of it was there in this pass
    assert read_all(log, isolation=COMMITTED) == [(0, b"committed"), (3, b"1")]


def test_a_marker_goes_after_its_transaction_and_its_horizon(log: UnifiedLog, clock: ManualClock) -> None:
    append(log, keyed((b"a", b"aborted"), **_TXN))
    append_marker(log, ABORT)
    append(log, keyed((b"a", b"1"), producer_id=7, producer_epoch=1, base_sequence=0))
    log.roll()
    compact(log, clock=clock)
    assert control_batches(log) == [(1, None)] and log.segments[0].has_aborted_transactions
    compact(log, clock=clock)
    assert control_batches(log) == [(1, NOW_MS + DELETE_RETENTION_MS)]
    assert not log.segments[0].has_aborted_transactions
    clock.advance(DELETE_RETENTION_MS)
    compact(log, clock=clock)
    assert control_batches(log) == [] and contents(log) == [(2, b"a", b"1")]


def test_a_commit_marker_stays_while_a_record_of_it_does(log: UnifiedLog, clock: ManualClock) -> None:
    append(log, keyed((b"a", b"1"), **_TXN))
    append_marker(log, COMMIT)
    log.roll()
    for _ in range(3):
        compact(log, clock=clock)
        clock.advance(DELETE_RETENTION_MS)
    assert control_batches(log) == [(1, None)] and contents(log) == [(0, b"a", b"1")]


def test_an_abort_below_the_dirty_part_does_not_count_for_later_transactions(log: UnifiedLog) -> None:
    append(log, keyed((b"a", b"aborted"), **_TXN))
    append_marker(log, ABORT)
    log.roll()
    compact(log)
    append(log, keyed((b"b", b"1"), **(_TXN | {"base_sequence": 1})))
    append_marker(log, COMMIT)
    log.roll()
    append(log, keyed((b"b", b"2"), **(_TXN | {"base_sequence": 2})))
    append_marker(log, COMMIT)
    log.roll()
    compact(log)
    assert contents(log) == [(4, b"b", b"2")]


def test_a_marker_above_the_stable_offset_decides_what_lies_below(log: UnifiedLog) -> None:
    """Producer 8 holds the stable offset back; the abort of 7 behind it is in a later segment's index."""
    append(log, keyed((b"a", b"aborted"), **_TXN))
    log.roll()
    append(log, keyed((b"b", b"open"), **(_TXN | {"producer_id": 8})))
    append_marker(log, ABORT)
    log.roll()
    assert log.last_stable_offset == 1
    compact(log)
    assert contents(log) == [(1, b"b", b"open")]


# Segments


def _source(base_offset: int, size: int, index_bytes: int = 8) -> SourceSegment:
    return SourceSegment(base_offset, size, index_bytes, 12, False)


def _job(segments: list[SourceSegment], end: int) -> CompactionJob:
    return CompactionJob(
        directory="/nowhere",
        config=compacted_config(segment_bytes=1000, segment_index_bytes=100),
        segments=tuple(segments),
        later_txn_indexes=(),
        first_dirty_offset=0,
        first_uncleanable_offset=end,
        last_records={},
        now_ms=0,
        map_bytes=1000,
        map_load_factor=1.0,
        read_bytes=100,
    )


def test_segments_are_joined_as_far_as_size_indexes_and_offsets_allow() -> None:
    def bases(segments: list[SourceSegment], end: int, end_offset: int | None = None) -> list[list[int]]:
        groups = group_segments(_job(segments, end), end if end_offset is None else end_offset)
        return [[segment.base_offset for segment in group] for group in groups]

    assert bases([_source(0, 400), _source(5, 600), _source(9, 1)], 20) == [[0, 5], [9]]
    assert bases([_source(0, 1, 60), _source(5, 1, 60)], 20) == [[0], [5]]
    assert bases([_source(0, 1), _source(5, 1)], RELATIVE_OFFSET_MAX + 2) == [[0], [5]]
    assert bases([_source(0, 1), _source(5, 0)], RELATIVE_OFFSET_MAX + 2) == [[0, 5]]
    assert bases([_source(0, 1), _source(5, 1)], 20, 5) == [[0]]


def test_small_segments_become_one(log: UnifiedLog) -> None:
    for number in range(3):
        write(log, (b"%d" % number, b"v"))
        log.roll()
    compact(log)
    assert log.segments.base_offsets == [0, 3] and [o for o, _, _ in contents(log)] == [0, 1, 2]
    assert not log.producers.snapshot_offsets or min(log.producers.snapshot_offsets) > 2


def test_a_truncation_during_a_compaction_makes_it_void(log: UnifiedLog) -> None:
    for _ in range(4):
        write(log, (b"a", b"1"))
        log.roll()
    cleanable = CleanableLog(log, now_ms=NOW_MS)
    result = work_off(job_of(cleanable), OsFiles())
    log.truncate_to(3)
    assert not cleanable.is_current
    with pytest.raises(InvariantError):
        cleanable.swap_in(result.segments[0])


def test_retention_during_a_compaction_makes_it_void(log: UnifiedLog) -> None:
    for _ in range(4):
        write(log, (b"a", b"1"))
        log.roll()
    cleanable = CleanableLog(log, now_ms=NOW_MS)
    log.increment_log_start_offset(1)
    log.delete_old_segments()
    assert not cleanable.is_current


def test_appends_and_rolls_during_a_compaction_do_not_disturb_it(log: UnifiedLog) -> None:
    write(log, (b"a", b"1"))
    write(log, (b"a", b"2"))
    log.roll()
    cleanable = CleanableLog(log, now_ms=NOW_MS)
    result = work_off(job_of(cleanable), OsFiles())
    write(log, (b"a", b"3"))
    log.roll()
    assert cleanable.is_current
    cleanable.swap_in(result.segments[0])
    log.validate()
    assert contents(log) == [(1, b"a", b"2"), (2, b"a", b"3")]


def test_a_flush_that_missed_a_file_between_two_renames_does_no_harm(log: UnifiedLog) -> None:
    write(log, (b"a", b"1"))
    write(log, (b"a", b"2"))
    log.roll()
    flush = log.begin_flush()
    assert flush is not None
    flush.missing_paths.append(log.segments[0].path)
    compact(log)
    log.complete_flush(flush)
    assert log.is_open and log.recovery_point == 0
    again = log.begin_flush()
    assert again is not None
    again.run()
    log.complete_flush(again)
    assert log.is_open and log.recovery_point == 2


def test_a_reader_at_the_tail_continues_in_the_new_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", config=compacted_config(segment_bytes=4000))
    for number in range(4):
        write(log, (b"%d" % (number % 2), b"%d" % number))
    assert len(read_all(log)) == 4  # where offset 4 will be is remembered
    for number in range(4, 8):
        write(log, (b"%d" % (number % 4), b"%d" % number))
    log.roll()
    write(log, (b"z", b"z"))
    compact(log)
    assert read_all(log, 4) == [(4, b"4"), (5, b"5"), (6, b"6"), (7, b"7"), (8, b"z")]


# Damage


def test_a_damaged_batch_ends_the_job_and_changes_nothing(log: UnifiedLog) -> None:
    write(log, (b"a", b"1"))
    write(log, (b"a", b"2"))
    log.roll()
    path = Path(log.segments[0].path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(KafkaError, match="no valid batch at position"):
        work_off(job_of(CleanableLog(log, now_ms=NOW_MS)), OsFiles())
    assert path.read_bytes() == data


def test_a_batch_larger_than_what_is_read_at_a_time_is_read_whole(log: UnifiedLog) -> None:
    write(log, (b"a", b"x" * 320))
    write(log, (b"a", b"1"))
    log.roll()
    compact(log)
    assert contents(log) == [(1, b"a", b"1")]
