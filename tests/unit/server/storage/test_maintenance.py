"""The disk_work: what gets to the disk, what goes from it, and what a disk that fails takes with it."""

from __future__ import annotations

import asyncio
import errno
import sys
import threading
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from minikafka.deferred import own_modules
from minikafka.errors import ErrorCode, KafkaError, StartError
from minikafka.log.checkpoint import CheckpointWrite
from minikafka.log.log_directories import DiskWork
from minikafka.log.log_manager import LogManager
from minikafka.server.apis import HANDLERS
from minikafka.server.storage import maintenance
from minikafka.server.storage.maintenance import DiskWriter
from minikafka.testing.simulation.disk import failing, failing_once
from minikafka.types import NO_LEADER, TopicPartition
from tests.unit.server.disk import Disk
from tests.unit.server.running import append, log_of, running, topics_of, until

FAST = {
    "log_initial_task_delay_ms": 0,
    "log_retention_check_interval_ms": 5,
    "log_flush_offset_checkpoint_interval_ms": 5,
    "log_flush_start_offset_checkpoint_interval_ms": 5,
    "replica_high_watermark_checkpoint_interval_ms": 5,
}
DAY_MS = 86_400_000
PATIENCE_S = 30
"""For what would wait for ever."""


def files(directory: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in directory.glob(pattern))


async def test_old_segments_go_at_once_and_their_files_after_their_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "REMOVAL_INTERVAL_MS", 5)
    async with running(tmp_path, **FAST) as broker:
        for topic, delay_ms in (("soon", "0"), ("later", str(DAY_MS))):
            configs = {"retention.ms": "1000", "file.delete.delay.ms": delay_ms}
            await topics_of(broker).create_topic(topic, configs=configs)
            append(broker, topic, age_ms=DAY_MS).roll()
            log = append(broker, topic)
            await until(broker, lambda log=log: log.log_start_offset == 1, f"the old segment of {topic} goes")
            assert [segment.base_offset for segment in log.segments] == [1]
        await until(broker, lambda: not files(tmp_path / "soon-0", "*.deleted"), "its files go")
        assert f"{0:020d}.log.deleted" in files(tmp_path / "later-0", "*.deleted")


async def test_a_deleted_topics_directory_goes_after_its_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "REMOVAL_INTERVAL_MS", 5)
    async with running(tmp_path, log_segment_delete_delay_ms=0, **FAST) as broker:
        await topics_of(broker).create_topic("t", partitions=3)
        await topics_of(broker).delete_topic("t")
        assert files(tmp_path, "t-?") == []
        await until(broker, lambda: not files(tmp_path, "t-*"), "the directories go")


async def test_a_roll_is_flushed_and_only_then_counts(tmp_path: Path) -> None:
    disk = Disk()
    async with running(tmp_path, disk=disk, **FAST) as broker:
        await topics_of(broker).create_topic("t", configs={"segment.ms": "1", "segment.jitter.ms": "0"})
        append(broker, "t", age_ms=DAY_MS)
        log = append(broker, "t")  # a day younger: this one rolls
        assert len(log.segments) == 2
        await until(broker, lambda: log.recovery_point >= 1, "the closed segment is flushed")
        synced = {path for path, _ in disk.fsyncs}
        assert log.segments[0].path in synced
        assert log.segments[1].path not in synced and log.recovery_point == 1, "appends to it would wait"
        point = f"t 0 {log.recovery_point}"
        for name, line in (
            ("recovery-point-offset-checkpoint", point),
            ("replication-offset-checkpoint", "t 0 2"),
        ):
            path = tmp_path / name
            await until(broker, lambda p=path, x=line: p.exists() and x in p.read_text().split("\n"), name)


async def test_a_new_leader_epoch_becomes_durable_without_the_records(tmp_path: Path) -> None:
    disk = Disk()
    async with running(tmp_path, disk=disk) as broker:
        await topics_of(broker).create_topic("t")
        log = append(broker, "t")
        await until(broker, lambda: not broker.services.log_manager._new_logs, "the new log is durable")
        disk.fsyncs.clear()
        log.assign_epoch_start(7, log.log_end_offset)
        broker.services.replica_manager._disk_work.flush_closed(log)
        epochs = str(tmp_path / "t-0" / "leader-epoch-checkpoint")
        await until(broker, lambda: epochs in {path for path, _ in disk.fsyncs}, "the epoch is durable")
        assert log.segments[0].path not in {path for path, _ in disk.fsyncs} and log.recovery_point == 0


async def test_deleted_records_are_remembered(tmp_path: Path) -> None:
    async with running(tmp_path, **FAST) as broker:
        await topics_of(broker).create_topic("t")
        for _ in range(3):
            append(broker, "t")
        broker.services.replica_manager.delete_records(TopicPartition("t", 0), 2)
        path = tmp_path / "log-start-offset-checkpoint"
        await until(broker, lambda: path.exists() and "t 0 2" in path.read_text(), "the log start is written")


def has_loaded_all() -> bool:
    return all(name in sys.modules for name in chain(HANDLERS.modules(), own_modules()))


async def test_many_flushes_are_a_few_hops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as broker:
        hops = 0
        run = broker.services.log_io.run

        async def counted(work: object, **options: object) -> object:
            nonlocal hops
            hops += 1
            return await run(work, **options)  # type: ignore[arg-type]

        await topics_of(broker).create_topic("t", partitions=200)
        await until(broker, lambda: not broker.services.log_manager._new_logs, "the new logs are durable")
        await until(broker, has_loaded_all, "the disk thread has loaded what the start deferred")
        for number in range(200):
            append(broker, "t", number)
        worker = DiskWriter(broker.services)
        monkeypatch.setattr(broker.services.log_io, "run", counted)
        await worker.flush([log_of(broker, "t", number) for number in range(200)])
        assert hops <= 200 / 8  # the broker's own work among them
        assert all(log_of(broker, "t", number).recovery_point == 1 for number in range(200))


async def test_a_failed_fsync_takes_its_directory_offline_and_the_last_one_the_broker(tmp_path: Path) -> None:
    disk = Disk()
    one, two = tmp_path / "one", tmp_path / "two"
    async with running(one, two, disk=disk) as broker:
        await topics_of(broker).create_topic("t", partitions=2)
        in_one = next(n for n in range(2) if log_of(broker, "t", n).directory.startswith(str(one)))
        other = 1 - in_one
        await until(broker, lambda: not broker.services.log_manager._new_logs, "both are durable")
        disk.fault = failing("fsync", f"{one}/")
        append(broker, "t", in_one).roll()
        broker.services.replica_manager._disk_work.flush(log_of(broker, "t", in_one))
        manager = broker.services.log_manager
        await until(broker, lambda: manager.live_directories == (str(two),), "the directory is offline")
        with pytest.raises(KafkaError) as caught:
            append(broker, "t", in_one)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        metadata = broker.services.metadata

        def leaders() -> list[int]:
            topic = metadata.topic("t")
            return [] if topic is None else [topic.partitions[each].leader for each in (in_one, other)]

        assert await metadata.wait_for(lambda: leaders() == [NO_LEADER, 1], timeout_ms=20_000)
        assert append(broker, "t", other).log_end_offset == 1 and not broker.failure.done()

        disk.fault = failing("fsync", str(tmp_path))
        broker.services.replica_manager._disk_work.flush(log_of(broker, "t", other))
        failure = await asyncio.wait_for(broker.failure, 60)
        assert isinstance(failure, StartError) and str(two) in str(failure)
    assert not (one / ".kafka_cleanshutdown").exists() and not (two / ".kafka_cleanshutdown").exists()


async def test_a_flush_without_a_descriptor_is_made_up_for_and_takes_no_directory(tmp_path: Path) -> None:
    disk = Disk()
    async with running(tmp_path, disk=disk) as broker:
        await topics_of(broker).create_topic("t")
        await until(broker, lambda: not broker.services.log_manager._new_logs, "the new log is durable")
        log = append(broker, "t")
        worker = DiskWriter(broker.services)
        disk.fault = failing_once("open", ".log", errno.EMFILE)
        await worker.flush([log])
        assert log.recovery_point == 0 and log.is_open
        await worker.flush([log])
        assert log.recovery_point == 1 and not broker.failure.done()
        assert broker.services.log_manager.live_directories == (str(tmp_path),)


async def test_a_full_disk_refuses_appends_and_takes_the_directory_offline(tmp_path: Path) -> None:
    disk = Disk()
    async with running(tmp_path, disk=disk) as broker:
        await topics_of(broker).create_topic("t")
        append(broker, "t")
        disk.fault = failing("write", ".log", errno.ENOSPC)
        with pytest.raises(KafkaError) as caught:
            append(broker, "t")
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert "no directory is left" in str(await asyncio.wait_for(broker.failure, 60)).replace("log ", "")
        disk.fault = None
    async with running(tmp_path, disk=disk) as again:
        assert log_of(again, "t").log_end_offset == 1


async def test_a_stop_in_the_middle_of_a_flush_that_fails_is_not_called_clean(tmp_path: Path) -> None:
    """The chore is cancelled while the disk thread works; what that finds out still counts."""
    disk, entered, go_on = Disk(), threading.Event(), threading.Event()

    def fault(operation: str, path: str) -> int | None:
        if operation == "fsync" and path.endswith(".log"):
            entered.set()
            go_on.wait(20)
            return errno.EIO
        return None

    async with running(tmp_path, disk=disk) as broker:
        await topics_of(broker).create_topic("t")
        log = append(broker, "t")
        disk.fault = fault
        broker.services.replica_manager._disk_work.flush(log)
        await asyncio.to_thread(entered.wait, 20)
        stopping = asyncio.create_task(broker.stop())
        for _ in range(10_000):
            if broker._supervisor is None:
                break  # the tasks are being cancelled
            await asyncio.sleep(0)
        disk.fault = None
        go_on.set()
        await stopping
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


async def test_a_file_that_cannot_be_removed_keeps_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log directory goes offline, as in Kafka; everything else that was due goes, there and elsewhere."""
    monkeypatch.setattr(maintenance, "REMOVAL_INTERVAL_MS", 5)
    disk = Disk()
    one, two = tmp_path / "one", tmp_path / "two"
    async with running(one, two, disk=disk, **FAST) as broker:
        configs = {"retention.ms": "1000", "file.delete.delay.ms": "0"}
        await topics_of(broker).create_topic("t", partitions=2, configs=configs)
        manager = broker.services.log_manager
        bad = f"{0:020d}.log.deleted"
        disk.fault = lambda operation, path: (
            errno.EIO if operation == "remove" and path.startswith(str(one)) and bad in path else None
        )
        for number in range(2):
            append(broker, "t", number, age_ms=DAY_MS).roll()
            append(broker, "t", number)
        await until(broker, lambda: manager.live_directories == (str(two),), "the directory is offline")
        await until(
            broker,
            lambda: (
                log_of(broker, "t", 0 if manager.get(TopicPartition("t", 0)) else 1).log_start_offset == 1
            ),
            "the other one's segment goes",
        )
        await until(broker, lambda: not files(two, "t-*/*.deleted"), "its files go")
        assert files(one, "t-*/*.deleted") == [bad]


async def test_a_disk_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    """Flushes, producers that wait for them, and checkpoints of the other directory go on."""
    disk = Disk()
    one, two = tmp_path / "one", tmp_path / "two"
    hangs, goes_on = threading.Event(), threading.Event()

    def hanging(operation: str, path: str) -> None:
        if operation == "fsync" and path.startswith(f"{one}/"):
            hangs.set()
            goes_on.wait()

    async with running(one, two, disk=disk, **FAST) as broker:
        await topics_of(broker).create_topic("t", partitions=2, configs={"flush.messages": "1"})
        await until(broker, lambda: not broker.services.log_manager._new_logs, "both are durable")
        manager, replicas = broker.services.log_manager, broker.services.replica_manager
        stuck, fine = sorted(manager.logs.values(), key=lambda log: log.directory)
        for log in (stuck, fine):
            append(broker, "t", log.topic_partition.partition)
            await until(broker, lambda log=log: log.recovery_point == 1, "it is flushed")
        disk.fault = hanging
        try:
            async with asyncio.timeout(PATIENCE_S):
                append(broker, "t", stuck.topic_partition.partition)
                waits = replicas.flushed(stuck.topic_partition)
                await until(broker, hangs.is_set, "the disk hangs")
                for expected in (2, 3):
                    append(broker, "t", fine.topic_partition.partition)
                    flushed = replicas.flushed(fine.topic_partition)
                    assert flushed is not None
                    await until(broker, flushed.done, "the producer on the other disk is answered")
                    assert fine.recovery_point == expected
                for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
                    line, path = f"t {fine.topic_partition.partition} 3", two / name
                    await until(broker, lambda p=path, x=line: x in p.read_text(), f"{name} is written")
                assert waits is not None and not waits.done() and stuck.recovery_point == 1
        finally:
            goes_on.set()
        await until(broker, lambda: stuck.recovery_point == 2 and waits.done(), "the disk continues")


@pytest.fixture
def corrections(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many logs there were at each correction of checkpoints."""
    found: list[int] = []
    plain = LogManager.take_disk_work

    def noted(self: LogManager, **options: Any) -> list[DiskWork]:
        work = plain(self, **options)
        if any(isinstance(each, CheckpointWrite) for each in work):
            found.append(len(self.logs))
        return work

    monkeypatch.setattr(LogManager, "take_disk_work", noted)
    return found


async def test_checkpoints_are_not_written_again_for_every_topic_that_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corrections: list[int]
) -> None:
    monkeypatch.setattr(maintenance, "CORRECTION_PAUSE_US", 600_000_000)
    async with running(tmp_path, log_segment_delete_delay_ms=0) as broker:
        for topic in "abcdefgh":
            await topics_of(broker).create_topic(topic)
        for topic in "abcdefg":
            await topics_of(broker).delete_topic(topic)
        assert len(corrections) == 1, "the first; the others wait"
        log_manager = broker.services.log_manager
        assert log_manager.has_stale_checkpoints
        await topics_of(broker).create_topic("g")
        await until(broker, lambda: not log_manager.has_stale_checkpoints, "its log does not wait")
        assert len(corrections) == 2


async def test_what_waits_to_be_corrected_is_corrected_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corrections: list[int]
) -> None:
    monkeypatch.setattr(maintenance, "CORRECTION_PAUSE_US", 100_000)
    checkpoint = tmp_path / "replication-offset-checkpoint"
    async with running(tmp_path, log_segment_delete_delay_ms=0) as broker:
        for topic in "abc":
            await topics_of(broker).create_topic(topic)
            append(broker, topic)
        log_manager = broker.services.log_manager
        for work in log_manager.prepare_high_watermark_checkpoints():
            work.run()
        assert "b 0 1" in checkpoint.read_text()
        for topic in "ab":
            await topics_of(broker).delete_topic(topic)
        await until(broker, lambda: not log_manager.has_stale_checkpoints, "the last correction comes")
        await until(broker, lambda: "b 0" not in checkpoint.read_text(), "it names no deleted partition")
        assert "c 0 1" in checkpoint.read_text() and corrections[-1] == 1
