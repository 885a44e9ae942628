"""A truncation takes the newest appends back, one by one, and reads nothing of the log for it."""

from __future__ import annotations

from pathlib import Path

from minikafka.clock import ManualClock
from minikafka.log.producers.append import AppendOrigin
from minikafka.log.producers.state import UNDO_MAX
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.records import ControlRecordType
from minikafka.types import LeaderEpoch
from tests.unit.log.log_helpers import (
    NOW_MS,
    FailingFiles,
    batch,
    idempotent,
    marker,
    open_log,
    small_config,
)

EPOCH = LeaderEpoch(0)
DAY_MS = 86_400_000


def write(log: UnifiedLog, count: int, *, producer_id: int = 7, **options: bool) -> None:
    """So many batches of a producer, of one record each, which are not replicated yet."""
    for _ in range(count):
        entry = log.producers.last_entry(producer_id)
        sequence = 0 if entry is None else entry.last_sequence + 1
        log.append_as_leader(idempotent(sequence, producer_id=producer_id, **options), EPOCH)


def known_offsets(log: UnifiedLog, producer_id: int = 7) -> list[int]:
    """Of the batches whose duplicates are recognised."""
    entry = log.producers.last_entry(producer_id)
    return [] if entry is None else [each.last_offset for each in entry.batches]


def test_truncating_the_tail_reads_a_piece_of_the_segment_and_writes_no_snapshot(tmp_path: Path) -> None:
    files = FailingFiles()
    # All records have one timestamp, so the time index is of no help.
    config = small_config(segment_bytes=1 << 20, index_interval_bytes=4096)
    log = open_log(tmp_path / "t-0", files=files, config=config)
    for producer_id in range(1, 5):
        write(log, 1000, producer_id=producer_id)
        log.update_high_watermark(log.log_end_offset)
    write(log, 3, producer_id=1)
    files.reads.clear()
    assert log.truncate_to(log.log_end_offset - 3)
    assert log.size_bytes > 250_000
    assert sum(size for _, size, _ in files.reads) < 3 * (4096 + 200)
    assert not list((tmp_path / "t-0").glob("*.snapshot"))
    assert known_offsets(log, 1) == [995, 996, 997, 998, 999]
    assert known_offsets(log, 4) == [3995, 3996, 3997, 3998, 3999]
    log.validate()
    log.close()


def test_the_retries_of_all_five_last_batches_are_known_after_it(tmp_path: Path) -> None:
    """Where a snapshot would have known the last one only."""
    log = open_log(tmp_path / "t-0")
    write(log, 6)
    log.roll()
    write(log, 2)
    log.truncate_to(6)
    assert known_offsets(log) == [1, 2, 3, 4, 5]
    log.truncate_to(4)  # into the segment before
    assert known_offsets(log) == [0, 1, 2, 3]
    assert log.append_as_leader(idempotent(2), EPOCH).first_offset == 2
    log.close()


def test_a_producer_of_which_only_the_tail_told_is_unknown_again(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    write(log, 2)
    write(log, 2, producer_id=8)
    log.append_as_leader(marker(ControlRecordType.ABORT, producer_id=9), EPOCH, AppendOrigin.COORDINATOR)
    log.truncate_to(2)
    assert set(log.producers.active_producers()) == {7}
    log.truncate_to(0)
    assert log.producers.is_empty
    log.close()


def test_a_transaction_whose_marker_is_gone_is_open_again(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    write(log, 2, transactional=True)
    write(log, 1, producer_id=8, transactional=True)
    write(log, 1, producer_id=9, transactional=True)
    for producer_id in (8, 7):
        end = marker(ControlRecordType.ABORT, producer_id=producer_id)
        log.append_as_leader(end, EPOCH, AppendOrigin.COORDINATOR)
    assert log.producers.first_undecided_offset == 3
    log.truncate_to(4)
    assert log.producers.first_undecided_offset == 0
    log.append_as_leader(marker(ControlRecordType.COMMIT), EPOCH, AppendOrigin.COORDINATOR)
    assert log.producers.first_undecided_offset == 2  # they are in order again
    log.truncate_to(0)
    assert log.producers.first_unstable_offset is None
    assert log.producers.is_empty
    log.close()


def test_an_expired_producer_is_known_as_far_as_the_log_goes(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = open_log(tmp_path / "t-0", clock=clock)
    write(log, 2)
    clock.advance(DAY_MS)
    assert log.remove_expired_producers() == 1
    write(log, 2)
    assert known_offsets(log) == [2, 3]
    log.truncate_to(3)
    assert known_offsets(log) == [2]
    log.truncate_to(2)
    assert known_offsets(log) == []
    log.truncate_to(1)  # as after a replay; what is idle for too long goes with the next check
    assert known_offsets(log) == [0]
    assert log.remove_expired_producers() == 1
    log.close()


def test_more_than_can_be_rolled_back_is_replayed(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", config=small_config(segment_bytes=1 << 20))
    write(log, UNDO_MAX + 20)
    log.truncate_to(UNDO_MAX + 15)
    assert known_offsets(log) == list(range(UNDO_MAX + 10, UNDO_MAX + 15))
    log.truncate_to(10)
    assert known_offsets(log) == [5, 6, 7, 8, 9]
    write(log, 2)
    log.truncate_to(11)
    assert known_offsets(log) == [6, 7, 8, 9, 10]
    log.close()


def test_what_is_replicated_is_forgotten_and_replayed(tmp_path: Path) -> None:
    files = FailingFiles()
    log = open_log(tmp_path / "t-0", files=files, config=small_config(segment_bytes=1 << 20))
    write(log, 20)
    log.update_high_watermark(15)
    files.reads.clear()
    log.truncate_to(15)
    reads = len(files.reads)
    assert known_offsets(log) == [10, 11, 12, 13, 14]
    log.truncate_to(14)
    assert len(files.reads) > reads + 14  # a header each
    assert known_offsets(log) == [9, 10, 11, 12, 13]
    log.close()


def test_a_log_that_came_without_snapshots_is_replayed_below_where_it_was_opened(tmp_path: Path) -> None:
    """An old version's, stopped cleanly: its producers were never read."""
    log = open_log(tmp_path / "t-0")
    write(log, 4)
    log.close()
    for snapshot in (tmp_path / "t-0").glob("*.snapshot"):
        snapshot.unlink()
    log = open_log(tmp_path / "t-0", clean=True)
    assert log.producers.is_empty
    log.append_as_leader(idempotent(4), EPOCH)
    log.append_as_leader(batch(), EPOCH)
    log.truncate_to(5)
    assert known_offsets(log) == [4]
    log.truncate_to(3)
    assert known_offsets(log) == [0, 1, 2]
    log.close()


def test_a_copy_that_takes_the_place_of_its_log_rolls_back_what_that_was_told(tmp_path: Path) -> None:
    current = open_log(tmp_path / "t-0")
    write(current, 8)
    current.update_high_watermark(6)
    current.increment_log_start_offset(4)
    copy = open_log(tmp_path / "t-0-future")
    copy.truncate_fully_and_start_at(4)
    for sequence in range(4, 8):
        copy.append_as_leader(idempotent(sequence), EPOCH)
    copy.continue_for(current)
    copy.truncate_to(6)
    assert known_offsets(copy) == [1, 2, 3, 4, 5]
    current.close()
    copy.close()
