"""A replica moves to another log directory, and no client that uses it notices.

Whenever the broker dies, one good log is found."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode
from minikafka.log.log_manager import PREFERRED_DIRECTORIES_MAX
from minikafka.log.segment.fetch_data import ColdRead
from minikafka.protocol.records.records import Record, build_batch
from minikafka.server.replica.replication_quotas import ReplicationQuotaManager
from minikafka.server.storage import alter_log_dirs
from minikafka.testing.simulation.disk import SimulatedDisk, Survival, failing
from minikafka.types import LeaderEpoch, Offset, TopicPartition
from tests.unit.server.disk import Disk
from tests.unit.server.moving import WINDOWS, Moving, records_of
from tests.unit.server.replicas import OTHER, TP, batch, code, leader_batches, state_of

THIRD = TopicPartition("orders", 2)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def broker(tmp_path: Path, disk: Disk) -> Iterator[Moving]:
    made = Moving(tmp_path, files=disk)
    yield made
    disk.fault = None
    made.close()


def names(broker: Moving, directory: str) -> list[str]:
    """What lies in a log directory, without digits."""
    found = sorted(path.name for path in Path(broker.path(directory)).iterdir() if path.is_dir())
    return [name if "." not in name else name.partition(".")[0] + "-" + name[-6:] for name in found]


def fill(broker: Moving, count: int = 100, at: TopicPartition = TP) -> bytes:
    for _ in range(count):
        broker.replicas.append(at=at)
    return records_of(broker.log(at))


def replicate(broker: Moving, count: int, *, base_offset: int = 0, epoch: int = 0) -> None:
    """Records come from the leader that is followed."""
    partition = broker.replicas.partition()
    for offset in range(base_offset, base_offset + count):
        batch = leader_batches(1, base_offset=offset, epoch=epoch)
        partition.append_as_follower(batch, current_leader_epoch=LeaderEpoch(epoch))


# Moving


def test_a_replica_moves_with_all_that_its_log_has(broker: Moving) -> None:
    log = broker.lead(epoch=0)
    written = fill(broker)
    broker.lead(epoch=3)
    fill(broker)
    broker.lead(epoch=5)  # of which there is no record
    written = records_of(log)
    broker.manager.delete_records(TP, Offset(10))
    start = log.log_start_offset
    kept = records_of(log)
    broker.move("b")
    assert broker.place() == "a" and names(broker, "b") == ["orders-0-future"]
    broker.run()
    moved = broker.log()
    assert (broker.place(), names(broker, "a"), names(broker, "b")) == (
        "b",
        ["orders-0-delete"],
        ["orders-0"],
    )
    assert moved is broker.log_manager.get(TP) and moved is not log and not log.is_open
    assert records_of(moved) == kept and kept in written
    assert moved._epochs.entries() == log._epochs.entries()
    assert (moved.log_start_offset, moved.log_end_offset) == (start, log.log_end_offset)
    assert moved.high_watermark == log.high_watermark and moved.topic_id == log.topic_id
    assert moved.recovery_point == moved.log_end_offset, "all is on the disk"
    broker.replicas.append()
    broker.replicas.clock.advance(10 * broker.replicas.config.file_delete_delay_ms)
    (removal,) = broker.log_manager.take_removals()
    removal.run()
    assert names(broker, "a") == [] and len(records_of(moved)) > len(kept)


def test_a_log_that_was_never_flushed_is_on_the_disk_when_it_has_moved(broker: Moving) -> None:
    log = broker.lead()
    fill(broker, 10)
    assert log.recovery_point == 0
    broker.move("b")
    broker.run()
    assert broker.log().recovery_point == 10


def test_it_moves_back_and_forth(broker: Moving) -> None:
    broker.lead()
    for place in "bcab":
        written = fill(broker, 20)
        broker.move(place)
        broker.run()
        assert broker.place() == place and records_of(broker.log()) == written
    assert broker.log_manager.replacements == ()


def test_the_checkpoints_follow(broker: Moving) -> None:
    broker.lead()
    broker.replicas.append(batch(100, size=10))
    broker.manager.delete_records(TP, Offset(5))
    broker.move("b")
    broker.run()
    broker.do_disk_work()
    for name, value in (("recovery-point-offset-checkpoint", 100), ("log-start-offset-checkpoint", 5)):
        assert Path(broker.path("b"), name).read_text() == f"0\n1\norders 0 {value}\n"
        assert Path(broker.path("a"), name).read_text() == "0\n0\n"


def test_what_is_written_meanwhile_moves_too(broker: Moving) -> None:
    broker.lead()
    fill(broker)
    broker.move("b")
    broker.run(each_step=lambda: [broker.replicas.append() for _ in range(3)])
    assert broker.place() == "b" and broker.log().log_end_offset > 130
    assert records_of(broker.log()).count(b"x" * 100) == broker.log().log_end_offset


def test_what_is_truncated_and_written_again_meanwhile_is_not_kept(broker: Moving) -> None:
    """A follower diverges from its leader while its replica moves."""
    partition = broker.replicas.follow(epoch=0)
    source = broker.place()
    replicate(broker, 100, epoch=0)
    target = "b" if source != "b" else "c"
    broker.move(target)
    steps = 0

    def part() -> None:
        nonlocal steps
        steps += 1
        if steps == 3:
            assert 60 > broker.log_manager.future_logs[TP].log_end_offset > 5
            partition.truncate_to(Offset(5))
            replicate(broker, 200, base_offset=5, epoch=4)

    broker.run(each_step=part)
    assert broker.place() == target and steps > 3
    expected = leader_batches(5) + leader_batches(200, base_offset=5, epoch=4)
    assert records_of(broker.log()) == expected
    assert broker.log().end_offset_for_epoch(0) == (0, 5)


def test_a_log_that_restarts_meanwhile_is_copied_again(broker: Moving) -> None:
    partition = broker.replicas.follow(epoch=0)
    source = broker.place()
    replicate(broker, 100)
    broker.move("b" if source != "b" else "c")
    for beginning in (500, 50):  # the leader has deleted all of it; an unclean leader has less
        steps = 0

        def restart(beginning: int = beginning) -> None:
            nonlocal steps
            steps += 1
            if steps == 2:
                partition.truncate_fully_and_start_at(Offset(beginning))
                replicate(broker, 30, base_offset=beginning, epoch=beginning)

        broker.move(next(name for name in "abc" if name != broker.place()))
        broker.run(each_step=restart)
        assert records_of(broker.log()) == leader_batches(30, base_offset=beginning, epoch=beginning)
        assert broker.log().log_start_offset == beginning


def test_a_log_that_starts_inside_of_a_batch_moves_with_the_whole_batch(broker: Moving) -> None:
    broker.lead()
    for _ in range(3):
        broker.replicas.append(build_batch([Record(i, 1_700_000_000_000, None, b"v", ()) for i in range(10)]))
    broker.manager.delete_records(TP, Offset(15))
    broker.move("b")
    broker.run()
    assert broker.place() == "b" and broker.log().log_start_offset == 15
    assert broker.log().segments[0].base_offset == 10
    assert broker.replicas.fetch(offset=15, max_wait_ms=0) and broker.replicas.answer[0].records


def test_records_deleted_meanwhile_are_deleted_there_too(broker: Moving) -> None:
    log = broker.lead()
    written = fill(broker, 200)
    broker.move("b")
    steps = 0

    def delete() -> None:
        nonlocal steps
        steps += 1
        if steps == 4:
            broker.manager.delete_records(TP, Offset(150))
            broker.log_manager.cleanup()
            assert log.segments[0].base_offset > 50

    broker.run(each_step=delete)
    assert broker.log().log_start_offset == broker.log().segments[0].base_offset == 150
    assert broker.place() == "b" and records_of(broker.log()) in written


def test_a_future_log_forgets_only_what_the_current_one_has_forgotten(tmp_path: Path) -> None:
    broker = Moving(
        tmp_path, config=TopicConfig(segment_bytes=4000, segment_index_bytes=400, retention_ms=1000)
    )
    broker.lead()
    fill(broker, 100)
    broker.move("b")
    steps = 0

    def age() -> None:
        nonlocal steps
        steps += 1
        if steps == 12:
            future = broker.log_manager.future_logs[TP]
            count = len(future.segments)
            assert count > 1
            broker.log_manager.cleanup([future])
            assert len(future.segments) == count, "its records are old, but the current log has them"
            broker.manager.delete_records(TP, Offset(30))
        if steps == 13:
            future = broker.log_manager.future_logs[TP]
            count = len(future.segments)
            broker.log_manager.cleanup([future])
            assert len(future.segments) < count

    broker.run(each_step=age)
    assert broker.place() == "b" and broker.log().log_start_offset == 30 and steps > 13
    broker.close()


def test_a_gap_that_compaction_left_at_the_end_is_no_obstacle(broker: Moving) -> None:
    log = broker.lead()
    fill(broker, 10)
    log.skip_to(50)
    broker.move("b")
    broker.run()
    assert broker.place() == "b" and broker.log().log_end_offset == 50
    assert broker.replicas.append() == 51


def test_producers_stay_known(broker: Moving) -> None:
    log = broker.lead()
    producer = {"producer_id": 7, "producer_epoch": 0}

    def numbered(sequence: int) -> bytes:
        record = Record(0, 1_700_000_000_000, None, b"v", ())
        return build_batch([record], base_sequence=sequence, **producer)

    for sequence in range(3):
        broker.replicas.append(numbered(sequence))
    log.roll()
    fill(broker, 1)
    broker.manager.delete_records(TP, Offset(3))
    broker.log_manager.cleanup()
    broker.move("b")
    broker.run()
    assert broker.place() == "b" and broker.log().log_start_offset == 3
    again = broker.manager.append(TP, numbered(2), required_acks=1)
    assert again.duplicate and again.first_offset == 2, "though its records are deleted"
    with pytest.raises(Exception, match="sequence"):
        broker.replicas.append(numbered(9))


def test_open_transactions_stay_open(broker: Moving) -> None:
    broker.lead()
    record = Record(0, 1_700_000_000_000, None, b"v", ())
    broker.replicas.append()
    broker.replicas.append(
        build_batch([record], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    )
    broker.replicas.append()
    broker.move("b")
    broker.run()
    assert (broker.place(), broker.log().last_stable_offset, broker.log().high_watermark) == ("b", 1, 3)


def test_cold_records_are_read_by_the_disk_thread(broker: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    log = broker.lead()
    written = fill(broker)
    cold = True
    read = type(log).read

    def read_cold(self: object, *args: object, **kwargs: object) -> object:
        nonlocal cold
        cold = not cold
        if not cold:
            raise ColdRead(log.segments[0].file(), 0, 100)
        return read(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(type(log), "read", read_cold)
    broker.move("b")
    broker.run()
    monkeypatch.undo()
    assert broker.place() == "b" and records_of(broker.log()) == written
    assert len(broker.log_io.warmed_ranges) > 10


def test_much_is_flushed_on_the_way(broker: Moving, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alter_log_dirs, "FLUSH_BYTES", 3000)
    broker.lead()
    fill(broker)
    broker.move("b")
    disk.fsyncs.clear()
    broker.run()
    flushed = [path for path, _ in disk.fsyncs if path.startswith(broker.path("b")) and path.endswith(".log")]
    assert len(flushed) >= len(records_of(broker.log())) // 3000


def test_several_replicas_move_one_after_the_other(broker: Moving) -> None:
    written = {}
    for at in (THIRD, OTHER, TP):
        broker.lead(at)
        written[at] = fill(broker, at=at)
        broker.move("b" if at != OTHER else "c", at)
    done: list[TopicPartition] = []

    def note() -> None:
        done.extend(at for at in written if at not in done and broker.place(at) != "a")

    broker.run(each_step=note)
    note()
    assert done == [TP, OTHER, THIRD], "in the order of their names"
    assert [broker.place(at) for at in done] == ["b", "c", "b"]
    assert all(records_of(broker.log(at)) == written[at] for at in written)


# Changing one's mind


def test_a_move_to_where_it_is_ends_the_move(broker: Moving) -> None:
    broker.lead()
    written = fill(broker)
    broker.move("b")
    broker.run(each_step=lambda: broker.move("a"))
    assert broker.place() == "a" and records_of(broker.log()) == written
    assert names(broker, "b") == ["orders-0-delete"] and broker.log_manager.future_logs == {}


def test_a_third_directory_takes_the_place_of_the_second(broker: Moving) -> None:
    broker.lead()
    written = fill(broker)
    broker.move("b")
    broker.run(each_step=lambda: broker.move("c"))
    assert broker.place() == "c" and records_of(broker.log()) == written
    assert [names(broker, name) for name in "ab"] == [["orders-0-delete"]] * 2


def test_asking_twice_is_asking_once(broker: Moving) -> None:
    broker.lead()
    fill(broker)
    broker.move("b")
    future = broker.log_manager.future_logs[TP]
    broker.move("b")
    assert broker.log_manager.future_logs[TP] is future
    broker.run()
    broker.move("b")
    assert broker.log_manager.future_logs == {} and broker.place() == "b"


def test_a_topic_deleted_meanwhile_is_gone_everywhere(broker: Moving) -> None:
    broker.lead()
    fill(broker)
    broker.move("b")
    broker.run(each_step=lambda: TP in broker.manager.partitions and broker.manager.delete_partition(TP))
    assert names(broker, "a") == names(broker, "b") == ["orders-0-delete"]
    assert not broker.log_manager.logs and not broker.log_manager.future_logs
    assert len(broker.log_manager._removals) == 2


def test_a_topic_deleted_between_the_renames_is_gone_everywhere(broker: Moving) -> None:
    broker.lead()
    fill(broker)
    broker.move("b")
    future = broker.log_manager.future_logs[TP]
    while future.log_end_offset < broker.log().log_end_offset:
        broker.mover._turn(broker.replicas.partition(), future)
    broker.manager.replace_with_future_log(broker.replicas.partition())
    assert names(broker, "b") == ["orders-0-future"] and broker.log() is future
    broker.replicas.append()
    broker.manager.delete_partition(TP)
    broker.run()
    assert names(broker, "a") == names(broker, "b") == ["orders-0-delete"]
    assert len(broker.log_manager._removals) == 2 and not broker.log_manager.replacements


# Refusals, and requests for later


def test_what_cannot_move_is_refused(broker: Moving) -> None:
    move = broker.manager.alter_log_dir
    broker.lead()
    long = TopicPartition("t" * 230, 0)
    assert code(move, long, broker.path("b")) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert code(move, TP, broker.path("d")) is ErrorCode.LOG_DIR_NOT_FOUND
    broker.manager.take_directory_offline(broker.path("c"), reason="smoke")
    assert code(move, TP, broker.path("c")) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code(move, TP, broker.path("b")) is ErrorCode.KAFKA_STORAGE_ERROR, "C may hold a copy of it"
    move(TP, broker.path("a"))
    broker.manager.take_directory_offline(broker.path("a"), reason="smoke")
    assert code(move, TP, broker.path("b")) is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_replica_that_is_not_here_is_made_where_it_was_asked_for(broker: Moving) -> None:
    for at, directory in ((TP, "b"), (TP, "c"), (OTHER, "c")):
        assert (
            code(broker.manager.alter_log_dir, at, broker.path(directory)) is ErrorCode.REPLICA_NOT_AVAILABLE
        )
    for at in (TP, OTHER):
        broker.replicas.lead(at)
        assert broker.place(at) == "c"
    broker.manager.delete_partition(TP)
    broker.replicas.lead(TP)
    assert broker.place() != "c", "a request is fulfilled once"


def test_requests_are_not_kept_without_end(broker: Moving) -> None:
    for number in range(PREFERRED_DIRECTORIES_MAX + 10):
        broker.log_manager.prefer_directory(TopicPartition("t", number), broker.path("b"))
    assert len(broker.log_manager._preferred) == PREFERRED_DIRECTORIES_MAX


def test_a_replica_whose_wanted_directory_failed_is_offline(broker: Moving) -> None:
    broker.log_manager.prefer_directory(TP, broker.path("b"))
    broker.manager.take_directory_offline(broker.path("b"), reason="smoke")
    assert broker.replicas.become(state_of(TP)) == [ErrorCode.KAFKA_STORAGE_ERROR]


# Those who wait


def test_a_parked_fetch_is_answered_after_the_move(broker: Moving) -> None:
    """Positions mean nothing in another log: segments begin elsewhere there."""
    broker.lead()
    fill(broker, 60)
    broker.manager.delete_records(TP, Offset(50))
    pending = broker.replicas.fetch(offset=60, min_bytes=1)
    many = broker.replicas.fetch(offset=60, min_bytes=100_000)
    broker.move("b")
    broker.run()
    assert pending.is_waiting and many.is_waiting
    broker.replicas.append()
    assert not pending.is_waiting and not many.is_waiting
    assert len(broker.replicas.answers) == 2
    assert all(answer[0].error is ErrorCode.NONE and answer[0].records for answer in broker.replicas.answers)


def test_a_parked_fetch_that_nothing_happens_to_times_out_as_ever(broker: Moving) -> None:
    broker.lead()
    fill(broker, 5)
    pending = broker.replicas.fetch(offset=5)
    broker.move("b")
    broker.run()
    broker.replicas.pass_time(600)
    assert not pending.is_waiting and broker.replicas.answer[0].error is ErrorCode.NONE


def test_who_waits_for_a_flush_has_it_where_the_records_are(broker: Moving) -> None:
    """The replica moves while the disk thread is at it (``flush.messages``)."""
    log = broker.lead()
    fill(broker, 10)
    broker.move("b")
    future = broker.log_manager.future_logs[TP]
    begin = log.begin_flush

    class Log:
        """``log``, whose replica moves between the two halves of a flush."""

        topic_partition, is_open = TP, True

        def begin_flush(self, up_to: int | None) -> object:
            flush = begin(up_to)
            while future.log_end_offset < log.log_end_offset:
                broker.mover._turn(broker.replicas.partition(), future)
            broker.manager.replace_with_future_log(broker.replicas.partition())
            self.is_open = False
            return flush

    assert future.recovery_point == 0
    asyncio.run(broker.disk_writer.flush([Log()]))  # type: ignore[list-item]
    assert broker.log() is future and future.recovery_point == 10


# Disks that fail


def test_a_target_that_fails_takes_only_the_copy_with_it(broker: Moving, disk: Disk) -> None:
    broker.lead()
    written = fill(broker)
    broker.move("b")
    disk.fault = failing("write", broker.path("b"), after=2)
    broker.run(with_disk_work=True)
    broker.do_disk_work()
    assert broker.log_manager.live_directories == (broker.path("a"), broker.path("c"))
    assert broker.place() == "a" and records_of(broker.log()) == written
    assert broker.log_manager.future_logs == {} and broker.replicas.append() == 101


def test_a_source_that_fails_takes_its_replica_and_the_copy_stays(broker: Moving, disk: Disk) -> None:
    broker.lead()
    fill(broker)
    broker.lead(OTHER, directory="b")
    broker.move("b")
    steps = 0

    def fail() -> None:
        nonlocal steps
        steps += 1
        if steps == 3:
            broker.manager.take_directory_offline(broker.path("a"), reason="smoke")

    broker.run(each_step=fail)
    assert code(broker.manager.hosted, TP) is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.place(OTHER) == "b" and broker.replicas.append(at=OTHER) == 1
    future = broker.log_manager.future_logs[TP]
    assert future.is_open and 0 < future.log_end_offset < 100


def test_a_source_that_fails_at_the_last_moment(broker: Moving, disk: Disk) -> None:
    broker.lead()
    fill(broker)
    broker.move("b")
    disk.fault = failing("rename", broker.path("a"))
    broker.run()
    assert code(broker.manager.hosted, TP) is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.path("a") in broker.log_manager.offline_directories
    assert broker.log_manager.future_logs[TP].is_open and not broker.log_manager.replacements


def test_a_target_that_cannot_be_made_fails(broker: Moving, disk: Disk) -> None:
    broker.lead()
    disk.fault = failing("make_directory", broker.path("b"))
    assert code(broker.manager.alter_log_dir, TP, broker.path("b")) is ErrorCode.KAFKA_STORAGE_ERROR
    assert list(broker.log_manager.take_failures()) == [broker.path("b")]
    assert broker.place() == "a"


def test_a_target_that_fails_between_the_renames_takes_the_replica(broker: Moving, disk: Disk) -> None:
    broker.lead()
    fill(broker)
    broker.move("b")
    disk.fault = lambda operation, path: 5 if operation == "rename" and path.endswith("-future") else None
    broker.run()
    assert code(broker.manager.hosted, TP) is ErrorCode.KAFKA_STORAGE_ERROR
    assert list(broker.log_manager.offline_directories) == [broker.path("b")]
    assert names(broker, "a") == ["orders-0-delete"] and not broker.log_manager.replacements


def test_damaged_records_stop_only_their_own_move(broker: Moving, caplog: pytest.LogCaptureFixture) -> None:
    log = broker.lead()
    broker.lead(OTHER)
    fill(broker)
    fill(broker, at=OTHER)
    with open(log.segments[0].path, "r+b") as file:
        file.seek(log.segments[0].size - 5)
        file.write(b"!!!!!")
    broker.move("b")
    broker.move("b", OTHER)
    broker.run()
    assert (broker.place(), broker.place(OTHER)) == ("a", "b")
    assert "the move of orders-0 stops" in caplog.text and "CRC" in caplog.text
    assert broker.log_manager.future_logs[TP].log_end_offset < 100
    broker.move("a")
    broker.move("c")
    assert not broker.is_idle, "asked for again, it is tried again"
    broker.move("a")


# The quota


class Quota(ReplicationQuotaManager):
    def __init__(self, exceeded: list[bool]) -> None:
        super().__init__(WINDOWS)
        self.exceeded = exceeded
        self.recorded: list[tuple[int, int]] = []

    def is_quota_exceeded(self, now_ms: int) -> bool:
        return self.exceeded.pop(0) if self.exceeded else False

    def record(self, size_bytes: int, now_ms: int) -> None:
        self.recorded.append((size_bytes, now_ms))


def test_nothing_is_copied_while_the_quota_is_exceeded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alter_log_dirs, "QUOTA_PAUSE_MS", 0)
    quota = Quota([False, True, True, True])
    broker = Moving(tmp_path, quota=quota)
    broker.lead()
    written = fill(broker)
    broker.move("b")
    copied: list[int] = []

    def note() -> None:
        future = broker.log_manager.future_logs.get(TP)
        copied.append(100 if future is None else future.log_end_offset)

    broker.run(each_step=note)
    assert len({*copied[:3]}) == 1 and copied[0] < 10 < copied[8]
    assert sum(size for size, _ in quota.recorded) == len(written)
    assert all(now_ms == broker.replicas.clock.monotonic_ms() for _, now_ms in quota.recorded)
    broker.close()


# Stopping and dying


def test_a_move_goes_on_after_a_clean_stop(tmp_path: Path) -> None:
    broker = Moving(tmp_path)
    broker.lead()
    written = fill(broker)
    broker.move("b")
    future = broker.log_manager.future_logs[TP]
    for _ in range(4):
        broker.mover._turn(broker.replicas.partition(), future)
    copied = future.log_end_offset
    broker.close()
    again = Moving(tmp_path)
    assert 0 < again.log_manager.future_logs[TP].log_end_offset == copied < 100
    again.run()
    assert again.log_manager.future_logs, "it is not known whose it is"
    again.lead(epoch=1)
    assert again.replicas.disk_work.moves.is_set()
    again.run()
    assert (again.place(), records_of(again.log())) == ("b", written)
    again.close()


def start(disk: SimulatedDisk) -> Moving:
    return Moving("/disks", files=disk.mount())


def prepared() -> tuple[SimulatedDisk, bytes]:
    """A disk with 40 records in A, all of them durable, and a move to B that has just begun."""
    disk = SimulatedDisk(rng=random.Random(1))
    broker = start(disk)
    broker.lead()
    broker.flush()
    written = fill(broker, 40)
    broker.flush()
    broker.move("b")
    disk.sync_all()
    disk.process_killed()
    return disk, written


def go_on(disk: SimulatedDisk, *, with_disk_work: bool = True) -> Moving:
    """Without the pending disk work only the mover writes to the disk."""
    broker = start(disk)
    broker.lead(epoch=1)
    broker.run(with_disk_work=with_disk_work)
    if with_disk_work:
        broker.do_disk_work()
    return broker


def finish(broker: Moving) -> None:
    broker.replicas.clock.advance(10 * broker.replicas.config.file_delete_delay_ms)
    for removal in broker.log_manager.take_removals():
        removal.run()


def disks_of_a_move(*, with_disk_work: bool) -> tuple[list[bytes], bytes]:
    """What the disk holds before each operation of a move, pickled, for ``as_it_was``; and the records."""
    disk, written = prepared()
    found: list[bytes] = []

    def keep(operation: str, path: str) -> None:
        found.append(pickle.dumps(disk.root))

    disk.fault = keep
    finish(go_on(disk, with_disk_work=with_disk_work))
    return found, written


def as_it_was(content: bytes) -> SimulatedDisk:
    disk = SimulatedDisk(rng=random.Random(1))
    disk.root = pickle.loads(content)
    return disk


def kill(disk: SimulatedDisk) -> None:
    disk.process_killed()


def lose_power(disk: SimulatedDisk) -> None:
    disk.power_lost()


def lose_all_that_is_not_synced(disk: SimulatedDisk) -> None:
    disk.power_lost(Survival.NOTHING)


@pytest.mark.parametrize("with_disk_work", [True, False])
@pytest.mark.parametrize("end", [kill, lose_power, lose_all_that_is_not_synced])
def test_whenever_the_broker_dies_one_good_log_is_found_and_the_move_goes_on(
    end: Callable[[SimulatedDisk], None], with_disk_work: bool
) -> None:
    disks, written = disks_of_a_move(with_disk_work=with_disk_work)
    assert len(disks) > 100
    for at, content in enumerate(disks):
        disk = as_it_was(content)
        end(disk)
        again = go_on(disk)
        assert again.place() == "b", f"operation {at}"
        assert records_of(again.log()) == written, f"operation {at}"
        again.log().validate()
        finish(again)
        mount = again.log_manager._files
        left_over = [name for each in "abc" for name in mount.list(f"/disks/{each}") if "orders" in name]
        assert left_over == ["orders-0"], f"operation {at}: {left_over}"
        again.close()
        disk.process_killed()


def test_the_old_directory_goes_when_the_new_name_is_durable() -> None:
    disk, written = prepared()
    broker = go_on(disk, with_disk_work=False)
    finish(broker)
    broker.log_manager._files.sync_directory("/disks/a")
    disk.power_lost(Survival.NOTHING)
    again = start(disk)
    again.lead(epoch=2)
    assert (again.place(), records_of(again.log())) == ("b", written)
    again.close()


def test_what_is_written_between_the_renames_outlives_the_process() -> None:
    disk, _ = prepared()
    broker = start(disk)
    broker.lead(epoch=1)
    partition, future = broker.replicas.partition(), broker.log_manager.future_logs[TP]
    while future.log_end_offset < partition.log.log_end_offset:
        broker.mover._turn(partition, future)
    broker.manager.replace_with_future_log(partition)
    written = fill(broker, 5)
    disk.process_killed()
    again = start(disk)
    again.lead(epoch=2)
    assert (again.place(), records_of(again.log())) == ("b", written)
    again.close()
