"""Stories of one partition's log: append and read, roll, isolation, truncation, retention, flush, failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.clock import ManualClock
from minikafka.errors import ErrorCode, KafkaError
from minikafka.files import OsFiles
from minikafka.log.files import OpenFiles
from minikafka.log.producers.append import AppendOrigin
from minikafka.log.segment.fetch_data import ColdRead
from minikafka.protocol.records.records import ControlRecordType
from minikafka.types import LeaderEpoch
from tests.unit.log.log_helpers import (
    COMMITTED,
    HIGH_WATERMARK,
    LOG_END,
    NOW_MS,
    FailingFiles,
    append,
    append_marker,
    batch,
    idempotent,
    marker,
    open_log,
    read_all,
    small_config,
)

ABORT, COMMIT = ControlRecordType.ABORT, ControlRecordType.COMMIT


def code_of(caught: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return caught.value.code


# ---- append and read


def test_what_is_appended_is_read_from_every_offset_and_size(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    expected = []
    for number in range(60):
        values = [b"%d-%d" % (number, index) * (1 + number % 7) for index in range(1 + number % 3)]
        append(log, batch(values))
        expected += values
    everything = list(enumerate(expected))
    assert len(log.segments) > 3
    for start in range(0, len(expected), 7):
        for max_bytes in (1, 150, 10_000):
            assert read_all(log, start, max_bytes=max_bytes) == everything[start:]
    log.validate()
    log.close()


def test_the_first_batch_comes_whole_or_not_at_all(tmp_path: Path) -> None:
    files = FailingFiles()
    log = open_log(tmp_path / "t-0", files=files)
    records = batch([b"x" * 500])
    append(log, records)
    append(log, records)
    whole = log.read(0, max_bytes=10, min_one_message=True, isolation=LOG_END)
    assert len(whole.records) == len(records) and not whole.first_entry_incomplete
    files.reads.clear()
    nothing = log.read(0, max_bytes=400, min_one_message=False, isolation=LOG_END)
    assert nothing.records == b"" and nothing.first_entry_incomplete
    assert len(files.reads) == 1, "who looks for it sees how large it is: nothing more is read"
    cut = log.read(0, max_bytes=len(records) + 5, min_one_message=False, isolation=LOG_END)
    assert len(cut.records) == len(records) + 5  # a client drops the half batch at the end
    at_end = log.read(2, max_bytes=10, min_one_message=True, isolation=LOG_END)
    assert at_end.records == b"" and at_end.fetch_offset_metadata == (2, 0, 2 * len(records))
    log.close()


def test_offsets_outside_of_the_log_are_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, batch([b"a", b"b", b"c"]))
    log.increment_log_start_offset(2)
    for offset in (-1, 0, 1, 4, 2**62):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, max_bytes=10, min_one_message=True, isolation=LOG_END)
        assert code_of(caught) is ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(KafkaError) as caught:
        log.increment_log_start_offset(4)
    assert code_of(caught) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert read_all(log) == [(2, b"c")]
    log.close()


def test_nothing_above_the_high_watermark_is_shown(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for number in range(40):
        log.append_as_leader(batch([b"%d" % number]), leader_epoch=LeaderEpoch(0))
    for high_watermark in (0, 1, 7, 39, 40):
        log.update_high_watermark(high_watermark)
        for start in (0, 5):
            seen = read_all(log, start, isolation=HIGH_WATERMARK, max_bytes=100_000)
            assert [offset for offset, _ in seen] == list(range(start, high_watermark))
    assert not log.update_high_watermark(40)
    log.validate()
    log.close()


def test_a_reader_of_cold_records_does_not_wait(tmp_path: Path) -> None:
    files = FailingFiles()
    log = open_log(tmp_path / "t-0", files=files)
    for number in range(60):
        append(log, batch([b"%d" % number]))
    files.is_cold = True
    with pytest.raises(ColdRead) as cold:
        log.read(3, max_bytes=1000, min_one_message=True, isolation=LOG_END)
    assert cold.value.file.read(cold.value.size, cold.value.position)  # what the disk thread does
    files.is_cold = False
    assert log.read(3, max_bytes=1000, min_one_message=True, isolation=LOG_END).records
    log.close()


def test_reading_costs_the_same_in_a_long_log(tmp_path: Path) -> None:
    files = FailingFiles()
    log = open_log(tmp_path / "t-0", files=files, config=small_config(segment_bytes=100_000))
    for number in range(3000):
        append(log, batch([b"%d" % number * 5]))
    for offset in (0, 5, 1500, 2998):
        log.read(offset, max_bytes=1, min_one_message=True, isolation=LOG_END)
        files.reads.clear()
        log.read(offset, max_bytes=1, min_one_message=True, isolation=LOG_END)
        # One bounded look at headers, which say how large the batch is, then the records.
        assert len(files.reads) == 2 and max(size for _, size, _ in files.reads) <= 4096
    log.close()


def test_who_reads_large_batches_one_by_one_looks_for_the_first_only(tmp_path: Path) -> None:
    files = FailingFiles()
    log = open_log(tmp_path / "t-0", files=files, config=small_config(segment_bytes=100_000))
    records = batch([b"x" * 500] * 2)
    for _ in range(9):
        append(log, records)
    log.read(0, max_bytes=100, min_one_message=True, isolation=LOG_END)
    for offset in range(2, 16, 2):
        files.reads.clear()
        read = log.read(offset, max_bytes=100, min_one_message=True, isolation=LOG_END)
        assert len(read.records) == len(records)
        assert [size for _, size, _ in files.reads] == [12, len(records)]
    log.close()


def test_few_closed_segments_stay_open(tmp_path: Path) -> None:
    open_files = OpenFiles(3)
    log = open_log(tmp_path / "t-0", open_files=open_files)
    for number in range(200):
        append(log, batch([b"%d" % number * 10]))
    assert len(log.segments) > 6
    everything = read_all(log)
    assert [offset for offset, _ in everything] == list(range(200))
    assert sum(segment.is_open for segment in log.segments) <= 3
    log.close()
    assert not any(segment.is_open for segment in log.segments)


# ---- rolling


def test_segments_roll_by_size_time_and_full_index(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = open_log(tmp_path / "size-0", clock=clock)
    one = len(batch([b"x" * 600]))
    for _ in range(7):
        append(log, batch([b"x" * 600]))
    assert [segment.base_offset for segment in log.segments] == [0, 2048 // one, 2 * (2048 // one)]
    log.close()

    log = open_log(tmp_path / "time-0", clock=clock, config=small_config(segment_ms=1000))
    for timestamp in (0, 1000, 1001, 1500, 2001):
        append(log, batch([b"x"], timestamps=[NOW_MS + timestamp]))
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    log.close()

    log = open_log(tmp_path / "index-0", config=small_config(segment_index_bytes=24, index_interval_bytes=0))
    for _ in range(8):
        append(log, batch([b"x"]))
    assert all(segment.offset_index.entries <= 3 for segment in log.segments)
    assert len(log.segments) > 2
    log.validate()
    log.close()


def test_a_segment_closes_with_trimmed_indexes_and_its_last_time(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", config=small_config(index_interval_bytes=500))
    for number in range(40):
        append(log, batch([b"x" * 50], timestamps=[NOW_MS + number]))
    closed = log.segments[0]
    directory = tmp_path / "t-0"
    assert (directory / f"{0:020d}.index").stat().st_size == closed.offset_index.entries * 8 > 0
    assert (directory / f"{0:020d}.timeindex").stat().st_size == closed.time_index.entries * 12
    assert closed.time_index.last_entry().offset == log.segments[1].base_offset - 1
    assert closed.offset_index.last_entry().offset < closed.time_index.last_entry().offset
    assert (directory / f"{log.segments[1].base_offset:020d}.snapshot").exists()
    log.close()


def test_index_entries_come_when_more_than_the_interval_was_written(tmp_path: Path) -> None:
    one = len(batch([b"x"]))
    log = open_log(tmp_path / "t-0", config=small_config(index_interval_bytes=2 * one, segment_bytes=1 << 20))
    for _ in range(10):
        append(log, batch([b"x"]))
    index = log.segments.active.offset_index
    # "More than": two batches are not enough, so the fourth gets the first entry, with its own last offset.
    assert [index.entry(slot) for slot in range(index.entries)] == [(3, 3 * one), (6, 6 * one), (9, 9 * one)]
    log.close()


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    with pytest.raises(KafkaError) as caught:
        append(log, batch([b"x" * 3000]))
    assert code_of(caught) is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0
    log.close()


# ---- failure


def test_after_a_failed_write_the_log_is_fenced_until_recovery(tmp_path: Path) -> None:
    """R17 (KAFKA-10778): the tail is not known any more, so nothing may be acked behind it."""
    files = FailingFiles()
    log = open_log(tmp_path / "t-0", files=files)
    append(log, idempotent(0))
    append(log, idempotent(1))
    before = dict(log.producers.active_producers())
    files.failing_suffix = ".log"
    with pytest.raises(KafkaError) as caught:
        append(log, idempotent(2))
    assert code_of(caught) is ErrorCode.KAFKA_STORAGE_ERROR
    files.failing_suffix = None
    with pytest.raises(KafkaError) as caught:
        append(log, idempotent(2))
    assert code_of(caught) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.log_end_offset, dict(log.producers.active_producers())) == (2, before)
    assert len(read_all(log)) == 2
    log.close()
    recovered = open_log(tmp_path / "t-0")
    assert recovered.log_end_offset == 2  # the half batch was cut off
    append(recovered, idempotent(2))
    recovered.validate()
    recovered.close()


def test_a_failing_index_or_epoch_file_fences_too(tmp_path: Path) -> None:
    files = FailingFiles()
    log = open_log(tmp_path / "t-0", files=files, config=small_config(index_interval_bytes=0))
    append(log, batch())
    files.failing_suffix = "index"
    with pytest.raises(KafkaError) as caught:
        for _ in range(10):
            append(log, batch())
    assert code_of(caught) is ErrorCode.KAFKA_STORAGE_ERROR
    assert [offset for offset, _ in read_all(log)] == list(range(log.log_end_offset))
    log.close()


# ---- producers and transactions


def test_a_retry_is_answered_with_its_first_offset_even_after_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, batch([b"other"] * 3))
    first = append(log, idempotent(0, count=2))
    append(log, idempotent(2, count=2))
    again = append(log, idempotent(0, count=2))
    assert again.duplicate and (again.first_offset, again.last_offset) == (3, 4)
    assert (first.first_offset, first.last_offset) == (3, 4)
    assert log.log_end_offset == 7
    with pytest.raises(KafkaError) as caught:
        append(log, idempotent(9))
    assert code_of(caught) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.close()
    for clean in (True, False):
        reloaded = open_log(tmp_path / "t-0", clean=clean)
        retried = append(reloaded, idempotent(2, count=2))
        assert retried.duplicate and retried.first_offset == 5
        reloaded.close()


def test_read_committed_stops_at_open_transactions_and_names_aborted_ones(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, batch([b"plain"]))
    append(log, idempotent(0, transactional=True))
    append(log, batch([b"plain"]))
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    assert [offset for offset, _ in read_all(log, isolation=COMMITTED)] == [0]
    append_marker(log, ABORT)
    assert log.last_stable_offset == 4
    data = log.read(0, max_bytes=10_000, min_one_message=True, isolation=COMMITTED)
    assert data.aborted_transactions == [(7, 1)]
    append(log, idempotent(1, transactional=True))
    append_marker(log, COMMIT)
    for _ in range(30):  # into further segments
        append(log, batch([b"x" * 90]))
    data = log.read(4, max_bytes=10_000, min_one_message=True, isolation=COMMITTED)
    assert data.aborted_transactions == []
    log.close()
    reloaded = open_log(tmp_path / "t-0", clean=True)
    reloaded.update_high_watermark(reloaded.log_end_offset)
    data = reloaded.read(0, max_bytes=10_000, min_one_message=True, isolation=COMMITTED)
    assert data.aborted_transactions == [(7, 1)]
    reloaded.validate()
    reloaded.close()


def test_a_transaction_is_stable_only_when_its_marker_is_replicated(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, idempotent(0, transactional=True))
    log.append_as_leader(
        marker(COMMIT),
        leader_epoch=LeaderEpoch(0),
        origin=AppendOrigin.COORDINATOR,
    )
    assert (log.last_stable_offset, log.high_watermark) == (0, 1)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2
    log.close()


# ---- timestamps


def test_a_time_leads_to_the_first_record_at_or_after_it(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    timestamps = [NOW_MS + 10 * number for number in range(120)]
    for start in range(0, 120, 3):
        append(log, batch([b"x" * 20] * 3, timestamps=timestamps[start : start + 3]))
    assert len(log.segments) > 2
    for number in (0, 1, 2, 50, 61, 119):
        assert log.offset_for_timestamp(timestamps[number]) == (timestamps[number], number)
        assert log.offset_for_timestamp(timestamps[number] - 3) == (timestamps[number], number)
    assert log.offset_for_timestamp(0) == (timestamps[0], 0)
    assert log.offset_for_timestamp(timestamps[-1] + 1) is None
    assert log.offset_of_max_timestamp() == (timestamps[-1], 119)
    log.increment_log_start_offset(50)
    assert log.offset_for_timestamp(0) == (timestamps[50], 50)
    log.close()


def test_times_need_not_ascend(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    order = [5, 1, 9, 3, 9, 2]
    for timestamp in order:
        append(log, batch([b"x" * 300] * 2, timestamps=[NOW_MS, NOW_MS + timestamp]))
    assert log.offset_of_max_timestamp() == (NOW_MS + 9, 5)
    assert log.offset_for_timestamp(NOW_MS + 6) == (NOW_MS + 9, 5)
    log.close()
    empty = open_log(tmp_path / "empty-0")
    assert empty.offset_of_max_timestamp() is None
    assert empty.offset_for_timestamp(0) is None
    empty.close()


# ---- epochs and truncation


def test_a_new_leaders_epoch_is_on_disk_before_it_writes(tmp_path: Path) -> None:
    """R4 (KAFKA-7415, KAFKA-10706): epochs without records stay until a truncation at the log end."""
    log = open_log(tmp_path / "t-0")
    log.assign_epoch_start(0, 0)
    append(log, batch([b"a", b"b"]), epoch=0)
    log.assign_epoch_start(3, 2)
    assert "3 2" in (tmp_path / "t-0" / "leader-epoch-checkpoint").read_text()
    assert log.end_offset_for_epoch(0) == (0, 2)
    assert log.end_offset_for_epoch(2) == (0, 2)
    assert log.end_offset_for_epoch(3) == (3, 2)
    assert log.end_offset_for_epoch(9) == (-1, -1)
    assert not log.truncate_to(2)
    assert log.leader_epoch == 0
    log.close()


@pytest.mark.parametrize("target", [0, 1, 13, 14, 39])
def test_truncation_drops_what_is_at_or_above(tmp_path: Path, target: int) -> None:
    log = open_log(tmp_path / "t-0")
    for number in range(40):
        append(log, idempotent(number), epoch=number // 10)
    everything = read_all(log)
    segments_before = len(log.segments)
    assert log.truncate_to(target)
    assert (log.log_end_offset, log.high_watermark) == (target, target)
    assert read_all(log) == everything[:target]
    assert log.leader_epoch == ((target - 1) // 10 if target else -1)
    log.validate()
    if target < 13:
        assert len(log.segments) < segments_before
        assert all(Path(path).exists() for deleted in log.take_deleted_files() for path in deleted.paths)
    append(log, idempotent(target), epoch=5)  # its sequence goes on where the log ends
    assert len(read_all(log)) == target + 1
    log.validate()
    log.close()
    reloaded = open_log(tmp_path / "t-0")
    assert reloaded.log_end_offset == target + 1
    reloaded.close()


def test_a_tail_reader_does_not_remember_what_was_truncated(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for _ in range(3):
        append(log, batch([b"old"]))
    assert len(read_all(log)) == 3  # it waits at offset 3 now, and where that will be is known
    log.truncate_to(1)
    append(log, batch([b"longer than before"]))
    append(log, batch([b"longer than before"]))
    append(log, batch([b"the one at 3"]))
    assert read_all(log, 3) == [(3, b"the one at 3")]
    log.close()


def test_truncation_inside_a_batch_drops_the_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, batch([b"a", b"b"]))
    append(log, batch([b"c", b"d", b"e"]))
    assert log.truncate_to(4)
    assert log.log_end_offset == 2  # not 4: a follower fetches whole batches
    log.validate()
    log.close()


def test_starting_over_elsewhere(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for number in range(40):
        append(log, idempotent(number))
    log.truncate_fully_and_start_at(1000)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (1000, 1000, 1000)
    assert read_all(log) == [] and log.leader_epoch == -1 and not log.producers.active_producers()
    follower_batch = batch([b"x"], base_offset=1005, leader_epoch=4)
    info = log.append_as_follower(follower_batch)
    assert info is not None and info.first_offset == 1005 and log.leader_epoch == 4
    assert log.truncate_to(500)  # below the first segment
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)
    log.validate()
    log.close()


def test_a_follower_appends_what_its_leader_sends(tmp_path: Path) -> None:
    leader = open_log(tmp_path / "leader-0")
    for number in range(30):
        append(leader, idempotent(number, transactional=number < 3), epoch=number // 10)
        if number == 2:
            append_marker(leader, ABORT)
    follower = open_log(tmp_path / "follower-0")
    while follower.log_end_offset < leader.log_end_offset:
        data = leader.read(follower.log_end_offset, max_bytes=900, min_one_message=True, isolation=LOG_END)
        assert follower.append_as_follower(data.records) is not None
    assert read_all(follower) == read_all(leader)
    assert follower.end_offset_for_epoch(1) == leader.end_offset_for_epoch(1)
    follower.update_high_watermark(follower.log_end_offset)
    data = follower.read(0, max_bytes=10_000, min_one_message=True, isolation=COMMITTED)
    assert data.aborted_transactions == [(7, 0)]
    assert follower.producers.active_producers() == leader.producers.active_producers()
    follower.validate()
    leader.close()
    follower.close()


# ---- retention


def fill(log: object, count: int, clock: ManualClock, step_ms: int = 0) -> None:
    for _ in range(count):
        append(log, batch([b"x" * 400], timestamps=[clock.now_ms()]))  # type: ignore[arg-type]
        clock.advance(step_ms)


def test_old_segments_go_by_time(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = open_log(tmp_path / "t-0", clock=clock, config=small_config(retention_ms=1000))
    fill(log, 12, clock, step_ms=100)
    assert log.delete_old_segments() == []
    clock.advance(500)
    deleted = log.delete_old_segments()
    assert len(deleted) == 1 and log.log_start_offset == log.segments[0].base_offset == 4
    names = sorted(path.rpartition("/")[2] for path in deleted[0].paths)
    assert f"{0:020d}.log.deleted" in names and f"{0:020d}.index.deleted" in names
    deleted[0].remove(OsFiles())
    assert not list((tmp_path / "t-0").glob("*.deleted"))
    clock.advance(10_000)
    log.delete_old_segments()  # even the active one: a new one takes its place
    assert len(log.segments) == 1 and log.log_start_offset == log.log_end_offset == 12
    assert log.delete_old_segments() == []  # an empty active segment stays
    append(log, batch([b"next"], timestamps=[clock.now_ms()]))
    assert read_all(log) == [(12, b"next")]
    log.validate()
    log.close()


def test_old_segments_go_by_size_but_never_above_the_high_watermark(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = open_log(tmp_path / "t-0", clock=clock, config=small_config(retention_bytes=3000))
    for _ in range(24):
        log.append_as_leader(batch([b"x" * 400]), leader_epoch=LeaderEpoch(0))
    assert log.delete_old_segments() == []
    log.update_high_watermark(9)
    log.delete_old_segments()
    assert log.log_start_offset == 8
    log.update_high_watermark(24)
    log.delete_old_segments()
    assert log.size_bytes >= 3000 > log.size_bytes - log.segments[0].size
    log.validate()
    log.close()


def test_deleted_records_take_their_segments_along_even_when_compacted(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    config = small_config(cleanup_policy=("compact",), retention_ms=0, retention_bytes=0)
    log = open_log(tmp_path / "t-0", clock=clock, config=config)
    for _ in range(12):
        append(log, batch([b"x" * 400], keys=[b"k"]))
    clock.advance(10_000)
    assert log.delete_old_segments() == []
    assert log.increment_log_start_offset(5)
    assert not log.increment_log_start_offset(5)
    assert len(log.delete_old_segments()) == 1
    assert (log.log_start_offset, log.segments[0].base_offset) == (5, 4)
    assert not (tmp_path / "t-0" / f"{0:020d}.snapshot").exists()
    log.validate()
    log.close()


# ---- flush


def test_the_recovery_point_rises_only_when_the_fsyncs_have_run(tmp_path: Path) -> None:
    files = FailingFiles()
    log = open_log(tmp_path / "t-0", files=files)
    rolled = False
    while not rolled:
        rolled = append(log, batch([b"x" * 300])).rolled
    base_offset = log.segments.active.base_offset
    flush = log.begin_flush(base_offset)
    assert flush is not None and log.recovery_point == 0 and files.fsynced == []
    flush.run()
    names = {path.rpartition("/")[2] for path in files.fsynced}
    assert {
        f"{0:020d}.log",
        f"{0:020d}.index",
        f"{0:020d}.timeindex",
        f"{base_offset:020d}.snapshot",
    } <= names
    log.complete_flush(flush)
    assert log.recovery_point == base_offset
    assert log.begin_flush(base_offset) is None
    log.close()
    assert log.recovery_point == log.log_end_offset


def test_the_indexes_that_a_roll_trims_are_synced_though_the_records_were_before(tmp_path: Path) -> None:
    files = FailingFiles()
    log = open_log(tmp_path / "t-0", files=files)
    append(log, batch())
    early = log.begin_flush()
    assert early is not None
    log.roll()  # while the disk thread is at it
    early.run()
    log.complete_flush(early)
    assert log.recovery_point == log.log_end_offset
    files.fsynced.clear()
    flush = log.begin_flush(log.log_end_offset)
    assert flush is not None
    flush.run()
    trimmed = [str(tmp_path / "t-0" / f"{0:020}.{suffix}") for suffix in ("index", "timeindex")]
    assert set(trimmed) <= set(files.fsynced)
    log.complete_flush(flush)
    assert log.begin_flush() is None
    log.close()


def test_a_flush_that_a_truncation_overtook_counts_for_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for _ in range(3):
        append(log, batch())
    flush = log.begin_flush()
    assert flush is not None
    flush.run()
    log.truncate_to(1)
    append(log, batch())
    append(log, batch())
    log.complete_flush(flush)
    assert log.recovery_point == 0
    log.close()


def test_a_flush_of_files_that_vanished_fences_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, batch())
    flush = log.begin_flush()
    assert flush is not None
    (tmp_path / "t-0" / f"{0:020d}.log").unlink()
    flush.run()
    with pytest.raises(KafkaError) as caught:
        log.complete_flush(flush)
    assert code_of(caught) is ErrorCode.KAFKA_STORAGE_ERROR
    log.close()


def test_flush_messages_and_flush_ms(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = open_log(tmp_path / "t-0", clock=clock, config=small_config(flush_messages=3, flush_ms=1000))
    assert not log.flush_is_due
    append(log, batch())
    assert not log.flush_is_due
    clock.advance(1000)
    assert log.flush_is_due
    flush = log.begin_flush()
    assert flush is not None
    flush.run()
    log.complete_flush(flush)
    assert not log.flush_is_due
    append(log, batch([b"a", b"b", b"c"]))
    assert log.flush_is_due
    log.close()


def test_a_log_that_is_renamed_for_deletion_is_closed(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, batch())
    log.put_away(str(tmp_path / "t-0.abc-delete"), reason="the partition is being deleted")
    assert (tmp_path / "t-0.abc-delete" / f"{0:020d}.log").exists()
    with pytest.raises(KafkaError):
        append(log, batch())
    with pytest.raises(KafkaError):
        log.read(0, max_bytes=10, min_one_message=True, isolation=LOG_END)
    log.close()


def test_preallocated_segments_end_where_their_records_do(tmp_path: Path) -> None:
    config = small_config(preallocate=True)
    log = open_log(tmp_path / "t-0", config=config)
    append(log, batch())
    file = tmp_path / "t-0" / f"{0:020d}.log"
    assert file.stat().st_size == 2048
    log.roll()
    assert file.stat().st_size == log.segments[0].size
    log.close()
    reloaded = open_log(tmp_path / "t-0", config=config, clean=True)
    append(reloaded, batch())
    assert len(read_all(reloaded)) == 2
    reloaded.close()
