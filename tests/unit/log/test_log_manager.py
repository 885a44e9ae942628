"""The logs of a broker: found again after a restart, spread over disks, gone with a failing disk alone."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from minikafka.clock import ManualClock
from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode, KafkaError, StartError
from minikafka.files import File, OsFiles
from minikafka.log.files import OpenFiles
from minikafka.log.log_directories import NewLogSync
from minikafka.log.log_manager import LogManager
from minikafka.log.segment.fetch_data import FetchIsolation
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.records import Record, build_batch
from minikafka.types import LeaderEpoch, TopicPartition

TOPIC_ID = UUID("00112233-4455-4677-8899-aabbccddeeff")
OTHER_ID = UUID("ffeeddcc-bbaa-4988-8766-554433221100")
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
DELAY_MS = 60_000


class Disk(OsFiles):
    """Directories of which can fail, and which remembers in what order things were made durable."""

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.durable: list[str] = []

    def check(self, path: str) -> None:
        if any(path.startswith(directory) for directory in self.failing):
            raise OSError(errno.EIO, "Input/output error", path)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:  # type: ignore[override]
        self.check(path)
        return super().open(path, create=create, read_only=read_only)

    def list(self, path: str) -> list[str]:
        self.check(path)
        return super().list(path)

    def make_directory(self, path: str) -> None:
        self.check(path)
        super().make_directory(path)

    def rename(self, source: str, target: str) -> None:
        self.check(source)
        super().rename(source, target)

    def write_atomically(self, path: str, data: bytes) -> None:
        self.check(path)
        super().write_atomically(path, data)
        self.durable.append(path)

    def sync_directory(self, path: str) -> None:
        self.check(path)
        super().sync_directory(path)
        self.durable.append(path)


class Broker:
    """Starts and stops log managers on the same directories."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock()
        self.disk = Disk()
        self.config = TopicConfig(file_delete_delay_ms=DELAY_MS)
        self.topic_configs: dict[str, TopicConfig] = {}
        self.managers: list[LogManager] = []

    def start(self, *names: str, seed: int = 1, **load: object) -> LogManager:
        directories = [str(self.root / name) for name in names or ("disk",)]
        manager = LogManager(
            directories,
            default_config=self.config,
            topic_config=lambda topic: self.topic_configs.get(topic, self.config),
            files=self.disk,
            clock=self.clock,
            rng=random.Random(seed),
            cluster_id="cluster",
            broker_id=1,
        )
        self.managers.append(manager)
        manager.load(**load)  # type: ignore[arg-type]
        return manager

    def kill(self, manager: LogManager) -> None:
        """What the kernel does for a process that was killed: files and locks are let go, no more."""
        for log in manager.logs.values():
            log.fence("killed")
            log.close()
        manager.directories.release()

    def append(self, log: UnifiedLog, *, records: int = 1, value: bytes = b"value") -> None:
        now_ms = self.clock.now_ms()
        batch = build_batch([Record(i, now_ms, b"key", value, ()) for i in range(records)])
        log.append_as_leader(batch, leader_epoch=LeaderEpoch(0))
        log.update_high_watermark(log.log_end_offset)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    yield broker
    broker.disk.failing.clear()
    for manager in broker.managers:
        broker.kill(manager)


def run_checkpoints(manager: LogManager) -> None:
    for work in (
        *manager.prepare_recovery_point_checkpoints(),
        *manager.prepare_log_start_offset_checkpoints(),
        *manager.prepare_high_watermark_checkpoints(),
    ):
        work.run()


def flush(log: UnifiedLog) -> None:
    pending = log.begin_flush()
    assert pending is not None
    pending.run()
    log.complete_flush(pending)


# Restarting


def test_a_log_has_its_topics_configuration_of_when_it_is_asked_for(broker: Broker) -> None:
    """It was loaded at the start; the topic's partitions hear of changes once they are hosted."""
    broker.start().get_or_create(A0)
    broker.managers.pop().shutdown()
    manager = broker.start()
    broker.topic_configs["a"] = TopicConfig(min_insync_replicas=3)
    assert manager.get_or_create(A0).config.min_insync_replicas == 3


def test_logs_are_found_again_after_a_clean_shutdown(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(A0, topic_id=TOPIC_ID, is_new=True)
    broker.append(log, records=3)
    manager.get_or_create(B0)
    manager.shutdown()
    marker = broker.root / "disk" / ".kafka_cleanshutdown"
    assert marker.exists()
    # The marker is the very last thing to become durable.
    assert broker.disk.durable[-2:] == [str(broker.root / "disk"), str(marker)]

    again = broker.start()
    assert not marker.exists()
    assert set(again.logs) == {A0, B0}
    found = again.logs[A0]
    assert (found.log_end_offset, found.topic_id, found.high_watermark) == (3, TOPIC_ID, 3)
    assert again.logs[B0].topic_id is None
    assert again.get_or_create(A0, topic_id=TOPIC_ID) is found


def test_a_crash_while_loading_is_a_crash(broker: Broker) -> None:
    manager = broker.start()
    manager.get_or_create(A0, is_new=True)
    manager.shutdown()
    broker.kill(broker.start())  # loaded, then died
    assert not (broker.root / "disk" / ".kafka_cleanshutdown").exists()


def test_the_checkpoints_are_kafkas_and_reach_the_next_start(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(A0, is_new=True)
    manager.get_or_create(A1, is_new=True)
    broker.append(log, records=10)
    log.increment_log_start_offset(4)
    flush(log)
    run_checkpoints(manager)
    disk = broker.root / "disk"
    assert (disk / "recovery-point-offset-checkpoint").read_text() == "0\n2\na 0 10\na 1 0\n"
    assert (disk / "log-start-offset-checkpoint").read_text() == "0\n1\na 0 4\n"
    assert (disk / "replication-offset-checkpoint").read_text() == "0\n2\na 0 10\na 1 0\n"
    broker.append(log)
    broker.kill(manager)

    again = broker.start()
    found = again.logs[A0]
    assert (found.log_start_offset, found.high_watermark, found.log_end_offset) == (4, 10, 11)


def test_damaged_checkpoints_cost_a_recovery_not_the_start(broker: Broker) -> None:
    manager = broker.start()
    broker.append(manager.get_or_create(A0, is_new=True), records=2)
    manager.shutdown()
    disk = broker.root / "disk"
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        (disk / name).write_bytes(b"\xff\x00garbage")
    (disk / "a-0" / "partition.metadata").write_text("garbage")
    again = broker.start()
    assert again.logs[A0].log_end_offset == 2 and again.logs[A0].topic_id is None


def test_a_fenced_log_keeps_its_directory_from_being_called_clean(broker: Broker) -> None:
    manager = broker.start("one", "two")
    manager.get_or_create(A0, is_new=True).fence("its disk failed")
    manager.get_or_create(A1, is_new=True)
    manager.shutdown()
    assert not (broker.root / "one" / ".kafka_cleanshutdown").exists()
    assert (broker.root / "two" / ".kafka_cleanshutdown").exists()


def test_a_directory_that_fails_at_shutdown_is_not_called_clean(broker: Broker) -> None:
    manager = broker.start("one", "two")
    log = manager.get_or_create(A0, is_new=True)
    manager.get_or_create(A1, is_new=True)
    broker.append(log)
    broker.disk.failing.add(str(broker.root / "one"))
    manager.shutdown()
    broker.disk.failing.clear()
    assert not (broker.root / "one" / ".kafka_cleanshutdown").exists()
    assert (broker.root / "two" / ".kafka_cleanshutdown").exists()
    assert set(broker.start("one", "two").logs) == {A0, A1}  # and the locks were let go


# What else may be in a log directory


def test_deleted_stray_and_half_moved_directories_are_understood(broker: Broker) -> None:
    disk = broker.root / "disk"
    unique = "0" * 32
    for name in (
        f"a-0.{unique}-delete",
        f"a-1.{unique}-stray",
        f"b-0.{unique}-future",
        ".hidden",
        "lost+found",
    ):
        (disk / name).mkdir(parents=True)
        (disk / name / "file").touch()
    (disk / "not-a-directory").touch()
    manager = broker.start()
    assert not manager.logs and manager.take_removals() == []
    broker.clock.advance(DELAY_MS)
    (removal,) = manager.take_removals()
    assert removal.log_directory == str(disk)
    removal.run()
    left = sorted(path.name for path in disk.iterdir() if path.is_dir())
    assert left[:2] == [".hidden", f"a-1.{unique}-stray"] and left[3:] == ["lost+found"]
    assert left[2].startswith("b-0.") and left[2].endswith("-stray"), "of a move, but there is no replica"


def test_what_is_no_partition_fails_the_start(broker: Broker) -> None:
    (broker.root / "disk" / "holiday-pictures").mkdir(parents=True)
    with pytest.raises(StartError, match="holiday-pictures"):
        broker.start()
    (broker.root / "disk" / "holiday-pictures").rmdir()
    broker.start()  # the lock was let go


def test_a_partition_on_two_disks_fails_the_start(broker: Broker) -> None:
    for seed, name in enumerate(("one", "two")):
        manager = broker.start(name, seed=seed)
        manager.get_or_create(A0, is_new=True)
        manager.shutdown()
    with pytest.raises(StartError) as error:
        broker.start("one", "two")
    assert str(broker.root / "one" / "a-0") in str(error.value)
    assert str(broker.root / "two" / "a-0") in str(error.value)


def test_logs_that_do_not_belong_here_are_set_aside(broker: Broker) -> None:
    manager = broker.start()
    broker.append(manager.get_or_create(A0, topic_id=TOPIC_ID, is_new=True))
    manager.get_or_create(B0, topic_id=OTHER_ID, is_new=True)
    manager.shutdown()
    again = broker.start(is_stray=lambda topic_partition, topic_id: topic_id == TOPIC_ID)
    assert set(again.logs) == {B0}
    (stray,) = (broker.root / "disk").glob("a-0.*-stray")
    assert (stray / "00000000000000000000.log").stat().st_size > 0  # nothing is lost
    assert again.get_or_create(A0, topic_id=OTHER_ID).log_end_offset == 0


# Creating


def test_a_new_log_is_durable_with_its_topic_id_once_the_disk_work_is_done(broker: Broker) -> None:
    manager = broker.start()
    broker.disk.durable.clear()
    log = manager.get_or_create(A0, topic_id=TOPIC_ID, is_new=True)
    assert (broker.root / "disk" / "a-0" / "partition.metadata").read_text() == (
        "version: 0\ntopic_id: ABEiM0RVRneImaq7zN3u_w"
    )
    assert broker.disk.durable == []  # nothing on the loop waited for the disk
    (work,) = manager.take_disk_work()
    work.run()
    assert broker.disk.durable == [log.directory, str(broker.root / "disk")]
    assert manager.take_disk_work() == []


def test_the_first_leader_epoch_of_a_new_log_goes_to_the_disk_with_it(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(A0, topic_id=TOPIC_ID, is_new=True)
    log.assign_epoch_start(0, 0)
    (work,) = manager.take_disk_work()
    assert isinstance(work, NewLogSync)
    assert work.paths == (str(broker.root / "disk" / "a-0" / "leader-epoch-checkpoint"),)
    assert log.begin_flush() is None  # nothing is left for a flush


def test_many_new_logs_are_handed_out_a_few_at_a_time_and_the_rest_waits_for_the_shutdown(
    broker: Broker,
) -> None:
    manager = broker.start()
    logs = [manager.get_or_create(TopicPartition("a", n), is_new=True) for n in range(5)]
    work = manager.take_disk_work(new_logs_max=3)
    assert [piece.directory for piece in work if isinstance(piece, NewLogSync)] == [
        log.directory for log in logs[:3]
    ]
    broker.disk.durable.clear()
    manager.shutdown()
    assert {log.directory for log in logs[3:]} <= set(broker.disk.durable)
    assert not {log.directory for log in logs[:3]} & set(broker.disk.durable)


def test_the_directory_with_the_fewest_logs_is_found_without_counting_them(broker: Broker) -> None:
    manager = broker.start("one", "two")
    for n in range(4):
        manager.get_or_create(TopicPartition("a", n), is_new=True)
    for n in (0, 2):  # both in "one"
        manager.delete(TopicPartition("a", n))
    placed = [manager.get_or_create(TopicPartition("b", n), is_new=True).directory for n in range(3)]
    assert [directory.split("/")[-2] for directory in placed] == ["one", "one", "one"]
    manager.shutdown()
    again = broker.start("one", "two")  # the count is that of what was loaded
    for n in range(2):
        again.delete(TopicPartition("b", n))
    assert again.get_or_create(TopicPartition("c", 0), is_new=True).directory.split("/")[-2] == "one"


def test_a_log_that_is_deleted_before_its_sync_is_no_failure(broker: Broker) -> None:
    manager = broker.start()
    manager.get_or_create(A0, is_new=True)
    (work,) = manager.take_disk_work()
    manager.delete(A0)
    work.run()


def test_no_checkpoint_names_a_deleted_log_once_the_disk_work_is_done(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(A0, is_new=True)
    broker.append(log)
    log.update_high_watermark(log.log_end_offset)
    for work in [*manager.take_disk_work(), *manager.prepare_high_watermark_checkpoints()]:
        work.run()
    checkpoint = broker.root / "disk" / "replication-offset-checkpoint"
    assert "a 0 1" in checkpoint.read_text()
    manager.delete(A0)
    for work in manager.take_disk_work():
        work.run()
    for each in checkpoint.parent.glob("*-checkpoint"):
        assert "a 0" not in each.read_text(), each


def test_checkpoints_that_only_name_what_is_gone_can_wait_for_a_log_of_that_name(broker: Broker) -> None:
    manager = broker.start()
    manager.get_or_create(A0, is_new=True)
    manager.take_disk_work()
    manager.delete(A0)
    assert manager.take_disk_work(urgent_only=True) == [] and manager.has_stale_checkpoints
    manager.get_or_create(TopicPartition("b", 0), is_new=True)
    manager.take_disk_work(urgent_only=True)
    assert manager.has_stale_checkpoints, "another log reads nothing of it"
    manager.get_or_create(A0, is_new=True)
    sync, *corrections = manager.take_disk_work(urgent_only=True)
    assert isinstance(sync, NewLogSync) and len(corrections) == 4
    assert not manager.has_stale_checkpoints
    assert manager.take_disk_work() == []


def test_a_name_that_outlived_a_kill_is_corrected_before_a_log_of_that_name_has_records(
    broker: Broker,
) -> None:
    """Killed between the deletion and the correction: what the deleted log had flushed is nothing that the
    next one of its name need not recover."""
    manager = broker.start()
    log = manager.get_or_create(A0, is_new=True)
    broker.append(log)
    for work in [*manager.take_disk_work(), *manager.prepare_high_watermark_checkpoints()]:
        work.run()
    manager.delete(A0)
    broker.kill(manager)
    again = broker.start()
    assert again.has_stale_checkpoints and again.take_disk_work(urgent_only=True) == []
    again.get_or_create(A0, is_new=True)
    sync, *corrections = again.take_disk_work(urgent_only=True)
    assert isinstance(sync, NewLogSync) and len(corrections) == 4
    for work in corrections:
        work.run()
    checkpoint = broker.root / "disk" / "replication-offset-checkpoint"
    assert "a 0 1" not in checkpoint.read_text()
    broker.kill(again)
    assert not broker.start().has_stale_checkpoints, "all that is named is there"


def test_the_checkpoints_of_a_truncated_log_do_not_wait(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(A0, is_new=True)
    manager.take_disk_work()
    manager.note_truncation(log)
    assert len(manager.take_disk_work(urgent_only=True)) == 4
    assert not manager.has_stale_checkpoints


def test_new_logs_go_where_the_fewest_are(broker: Broker) -> None:
    manager = broker.start("one", "two", "three")
    for partition in range(7):
        manager.get_or_create(TopicPartition("t", partition), is_new=True)
    counts = [len(list(manager.logs_in(directory))) for directory in manager.live_directories]
    assert counts == [3, 2, 2]


def test_the_log_of_an_earlier_topic_is_refused(broker: Broker) -> None:
    manager = broker.start()
    manager.get_or_create(A0, topic_id=TOPIC_ID, is_new=True)
    with pytest.raises(KafkaError) as error:
        manager.get_or_create(A0, topic_id=OTHER_ID)
    assert error.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_log_without_topic_id_gets_one(broker: Broker) -> None:
    manager = broker.start()
    manager.get_or_create(A0, is_new=True)
    assert manager.get_or_create(A0, topic_id=TOPIC_ID).topic_id == TOPIC_ID
    manager.shutdown()
    assert broker.start().logs[A0].topic_id == TOPIC_ID


def test_a_disk_that_takes_no_log_is_passed_over_and_named(broker: Broker) -> None:
    manager = broker.start("one", "two")
    broken = str(broker.root / "one")
    broker.disk.failing.add(broken)
    log = manager.get_or_create(A0, is_new=True)
    assert manager.directory_of(log) == str(broker.root / "two")
    assert list(manager.take_failures()) == [broken] and manager.take_failures() == {}
    assert not (broker.root / "one" / "a-0").exists()

    broker.disk.failing.add(str(broker.root / "two"))
    with pytest.raises(KafkaError) as error:
        manager.get_or_create(A1, is_new=True)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_half_a_log_on_a_failing_disk_does_not_stay(broker: Broker) -> None:
    # The next start would find the partition on both disks.
    manager = broker.start("one", "two")
    broker.disk.failing.add(
        str(broker.root / "one" / "a-0") + "/"
    )  # the directory can be made, no file in it
    log = manager.get_or_create(A0, topic_id=TOPIC_ID, is_new=True)
    assert manager.directory_of(log) == str(broker.root / "two")
    assert not (broker.root / "one" / "a-0").exists()


# Deleting


def test_a_deleted_log_is_renamed_now_and_removed_later(broker: Broker) -> None:
    manager = broker.start()
    broker.append(manager.get_or_create(A0, topic_id=TOPIC_ID, is_new=True), records=5)
    removal = manager.delete(A0)
    assert removal is not None and A0 not in manager.logs
    directory = Path(removal.directory)
    assert directory.is_dir() and directory.name.startswith("a-0.") and directory.name.endswith("-delete")
    assert not (broker.root / "disk" / "a-0").exists()
    broker.clock.advance(DELAY_MS - 1)
    assert manager.take_removals() == []
    broker.clock.advance(1)
    assert manager.take_removals() == [removal] and manager.take_removals() == []
    removal.run()
    assert not directory.exists()
    assert manager.delete(A0) is None


def test_a_topic_of_the_same_name_does_not_start_where_the_old_one_ended(broker: Broker) -> None:
    manager = broker.start()
    old = manager.get_or_create(A0, topic_id=TOPIC_ID, is_new=True)
    broker.append(old, records=10)
    flush(old)
    old.increment_log_start_offset(7)
    run_checkpoints(manager)
    manager.delete(A0)
    new = manager.get_or_create(A0, topic_id=OTHER_ID, is_new=True)
    assert (new.log_start_offset, new.log_end_offset) == (0, 0)
    broker.append(new, records=2)
    for work in manager.take_disk_work():
        work.run()
    broker.kill(manager)
    found = broker.start().logs[A0]
    assert (found.log_start_offset, found.log_end_offset, found.topic_id) == (0, 2, OTHER_ID)


# Chores


def test_retention_keeps_all_of_a_log_that_is_only_compacted(broker: Broker) -> None:
    small = {"segment_bytes": 200, "retention_bytes": 200, "segment_index_bytes": 4096}
    broker.topic_configs = {
        "a": TopicConfig(**small),
        "b": TopicConfig(**small, cleanup_policy=("compact", "delete")),
        "c": TopicConfig(**small, cleanup_policy=("compact",)),
    }
    manager = broker.start()
    c0 = TopicPartition("c", 0)
    for topic_partition in (A0, B0, c0):
        log = manager.get_or_create(topic_partition, is_new=True)
        for _ in range(5):
            broker.append(log, value=b"v" * 100)
    cleanup = manager.cleanup()
    assert cleanup.deleted and not cleanup.failed
    assert [manager.logs[each].log_start_offset for each in (A0, B0, c0)] == [3, 3, 0]


def test_a_disk_that_fails_under_retention_is_named_once(broker: Broker) -> None:
    broker.config = TopicConfig(segment_bytes=200, retention_bytes=200, segment_index_bytes=4096)
    manager = broker.start("one", "two")
    for partition in range(4):
        log = manager.get_or_create(TopicPartition("t", partition), is_new=True)
        for _ in range(3):
            broker.append(log, value=b"v" * 100)
    broken = str(broker.root / "one")
    broker.disk.failing.add(broken)
    cleanup = manager.cleanup()
    assert list(cleanup.failed) == [broken]
    assert len(cleanup.deleted) == 2  # a segment of each log on the other disk


def test_flush_ms_and_flush_messages_name_the_logs_to_flush(broker: Broker) -> None:
    broker.topic_configs = {"a": TopicConfig(flush_ms=1000), "b": TopicConfig(flush_messages=2)}
    manager = broker.start()
    by_time = manager.get_or_create(A0, is_new=True)
    by_count = manager.get_or_create(B0, is_new=True)
    broker.append(by_time)
    broker.append(by_count)
    assert manager.logs_to_flush() == []
    broker.append(by_count)
    assert manager.logs_to_flush() == [by_count]
    broker.clock.advance(1000)
    assert manager.logs_to_flush() == [by_time, by_count]
    flush(by_time)
    flush(by_count)
    assert manager.logs_to_flush() == []


def test_idle_producers_are_forgotten(broker: Broker) -> None:
    manager = broker.start()
    log = manager.get_or_create(A0, is_new=True)
    batch = build_batch(
        [Record(0, broker.clock.now_ms(), None, b"v", ())], producer_id=1, producer_epoch=0, base_sequence=0
    )
    log.append_as_leader(batch, leader_epoch=LeaderEpoch(0))
    broker.clock.advance(86_400_000)
    for log in manager.logs.values():
        log.remove_expired_producers()
    assert not log.producers.active_producers()


# Failing


def test_a_failing_disk_goes_alone(broker: Broker) -> None:
    manager = broker.start("one", "two")
    logs = [manager.get_or_create(TopicPartition("t", p), is_new=True) for p in range(4)]
    broken = str(broker.root / "one")
    broker.disk.failing.add(broken)
    lost = manager.take_offline(broken, "it smokes")
    assert lost == [TopicPartition("t", 0), TopicPartition("t", 2)]
    assert manager.live_directories == (str(broker.root / "two"),)
    assert manager.offline_directories == {broken: "it smokes"}
    assert manager.is_offline(TopicPartition("t", 0)) and not manager.is_offline(TopicPartition("t", 1))
    assert not logs[0].is_open and logs[1].is_open
    assert manager.take_offline(broken) == []

    with pytest.raises(KafkaError) as error:  # it may have been there
        manager.get_or_create(TopicPartition("t", 0))
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError):
        manager.delete(TopicPartition("t", 0))
    assert manager.directory_of(manager.get_or_create(B0, is_new=True)) == str(broker.root / "two")
    run_checkpoints(manager)
    manager.shutdown()
    assert not (broker.root / "one" / ".kafka_cleanshutdown").exists()


def test_a_disk_that_cannot_be_loaded_is_offline_from_the_start(broker: Broker) -> None:
    manager = broker.start("one", "two")
    for partition in range(4):
        manager.get_or_create(TopicPartition("t", partition), is_new=True)
    manager.shutdown()
    broken = str(broker.root / "one" / "t-2")
    broker.disk.failing.add(broken)
    again = broker.start("one", "two")
    assert again.live_directories == (str(broker.root / "two"),)
    assert set(again.logs) == {TopicPartition("t", 1), TopicPartition("t", 3)}
    assert again.is_offline(TopicPartition("t", 0))  # loaded, then closed
    broker.kill(again)
    broker.disk.failing.add(str(broker.root / "two" / "t-1"))
    with pytest.raises(StartError, match="no log directory could be loaded"):
        broker.start("one", "two")


def test_a_second_broker_is_kept_out(broker: Broker) -> None:
    broker.start()
    with pytest.raises(StartError, match="locked"):
        broker.start()


def test_all_logs_share_the_limit_on_open_segments_that_the_manager_was_given(tmp_path: Path) -> None:
    limit = OpenFiles(7)
    manager = LogManager(
        [str(tmp_path)],
        default_config=TopicConfig(),
        topic_config=lambda topic: TopicConfig(),
        files=OsFiles(),
        clock=ManualClock(),
        rng=random.Random(1),
        cluster_id="c",
        broker_id=1,
        open_files=limit,
    )
    manager.load()
    for partition in range(2):
        log = manager.get_or_create(TopicPartition("t", partition), is_new=True)
        for _ in range(3):
            log.append_as_leader(build_batch([Record(0, 1, None, b"v", ())]), leader_epoch=LeaderEpoch(0))
            log.roll()
        log.update_high_watermark(log.log_end_offset)
        log.read(0, max_bytes=100, min_one_message=True, isolation=FetchIsolation.HIGH_WATERMARK)
    assert len(limit) > 0
    manager.shutdown()
