"""The log cleaner of a running broker: what it chooses, what it leaves alone, and what a failure costs."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from minikafka.clock import ManualClock
from minikafka.config.broker import BrokerConfig
from minikafka.errors import ConfigError, KafkaError
from minikafka.files import OsFiles
from minikafka.log.checkpoint import read_offsets
from minikafka.log.cleanable_log import CleanableLog, dirty_bytes
from minikafka.log.cleaner import ENTRY_BYTES, Compaction, Steps
from minikafka.log.segment.log_segments import DeletedFiles
from minikafka.log.staged_compaction import CompactionJob, CompactionResult
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.records import Record, build_batch
from minikafka.server.broker import Broker
from minikafka.server.storage import maintenance
from minikafka.server.storage.compaction_process import Pace
from minikafka.server.storage.log_cleaner import (
    CompactionFailed,
    CompactionProcessDied,
    CompactionSubprocess,
    InProcess,
    LogCleaner,
)
from minikafka.testing.simulation.disk import failing, failing_once
from minikafka.types import Offset, TopicPartition
from tests.unit.server.disk import Disk
from tests.unit.server.running import log_of, running, topics_of, until

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "file.delete.delay.ms": "0"}
OFTEN = {"log_cleaner_backoff_ms": 5}
OFF = {"log_cleaner_enable": "false"}
CHECKPOINT = "cleaner-offset-checkpoint"


async def make_log(broker: Broker, topic: str = "t", *, values: int = 3, **configs: str) -> UnifiedLog:
    """A topic with one key's ``values`` records in as many closed segments."""
    await topics_of(broker).create_topic(
        topic, configs=COMPACT | {k.replace("_", "."): v for k, v in configs.items()}
    )
    for number in range(values):
        write(broker, topic, b"%d" % number)
    return log_of(broker, topic)


def write(broker: Broker, topic: str, value: bytes, *, key: bytes = b"k") -> None:
    batch = build_batch([Record(0, int(time.time() * 1000), key, value)])
    broker.services.replica_manager.append(TopicPartition(topic, 0), batch, required_acks=1)
    log_of(broker, topic).roll()


def offsets(log: UnifiedLog) -> list[int]:
    """Of the batches that have records."""
    return [place.base_offset for segment in log.segments for place in segment.batches() if place.size > 61]


def damage(path: str) -> None:
    """Change the last byte of a file."""
    data = bytearray(Path(path).read_bytes())
    data[-1] ^= 1
    Path(path).write_bytes(data)


class Stage:
    """A cleaner of the test's own, on a broker whose own one is off."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.removed: list[DeletedFiles] = []
        self.cleaner = LogCleaner(broker.services, remove_later=self._remove_later)
        self.runner = InProcess(broker.services.log_io, broker.services.files, broker.services.clock)

    def _remove_later(self, deleted: Iterable[DeletedFiles], *, delay_ms: int) -> None:
        self.removed += deleted

    async def clean(self, meanwhile: Callable[[], object] | None = None) -> bool:
        return await self.cleaner.clean_dirtiest(_Interrupted(self.runner, meanwhile or (lambda: None)))


class _Interrupted:
    """Something happens to the log while its compaction is worked off."""

    def __init__(self, runner: InProcess, meanwhile: Callable[[], object]) -> None:
        self._runner = runner
        self._meanwhile = meanwhile

    async def run(self, job: CompactionJob, *, bytes_per_second: float) -> CompactionResult:
        result = await self._runner.run(job, bytes_per_second=bytes_per_second)
        self._meanwhile()
        return result

    async def release(self) -> None:
        return None

    def close(self) -> None:
        return None


def left_over(directory: Path, *suffixes: str) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name.endswith(suffixes))


async def test_a_compacted_topic_is_compacted_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "REMOVAL_INTERVAL_MS", 5)
    async with running(tmp_path, **OFTEN) as broker:
        log = await make_log(broker)
        await until(broker, lambda: offsets(log) == [2], "the newest stays")
        write(broker, "t", b"3")
        await until(broker, lambda: offsets(log) == [3], "the newest stays again")
        path = tmp_path / CHECKPOINT
        await until(broker, lambda: path.exists() and "t 0 4" in path.read_text(), "the checkpoint")
        await until(
            broker, lambda: not left_over(tmp_path / "t-0", ".deleted", ".cleaned", ".swap"), "old files go"
        )
        log.validate()
    async with running(tmp_path, **OFF) as broker:
        assert log_of(broker, "t").first_dirty_offset == 4 and offsets(log_of(broker, "t")) == [3]


async def test_what_a_compaction_was_like_is_kept_by_the_cleaner(tmp_path: Path) -> None:
    async with running(tmp_path, **OFF) as broker:
        log = await make_log(broker, values=4)
        before = sum(segment.size for segment in list(log.segments)[:-1])
        stage = Stage(broker)
        assert (stage.cleaner.last, stage.cleaner.dirty_ratio_max) == ([], 0)
        assert await stage.clean()
        (stats,) = stage.cleaner.last
        after = sum(segment.size for segment in list(log.segments)[:-1])
        assert (stats.bytes_read, stats.bytes_written) == (before, after)
        assert stats.buffer_utilization == ENTRY_BYTES / (128 << 20), "one key"
        assert stage.cleaner.dirty_ratio_max == 1
        assert not await stage.clean()
        assert (stage.cleaner.dirty_ratio_max, stage.cleaner.overdue_ms_max) == (0, 0)
        assert stage.cleaner.last == [stats], "until the next one"


async def test_a_log_that_should_have_been_compacted_long_ago_is_told(tmp_path: Path) -> None:
    async with running(tmp_path, **OFF) as broker:
        log = await make_log(broker, max_compaction_lag_ms="1000")
        stage = Stage(broker)
        first_ms = log.segments[0].largest_timestamp()
        asked_ms = broker.services.clock.now_ms()
        late_ms = asked_ms + 61_000 - first_ms - 1000
        assert CleanableLog(log, now_ms=asked_ms + 61_000).overdue_ms == late_ms
        assert CleanableLog(log, now_ms=first_ms + 1000).overdue_ms == 0
        assert stage.cleaner.dead_count == 0, "there are none"


async def test_cleaners_come_and_go_with_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``log.cleaner.threads`` while the broker runs: one that is at work ends when it is done."""
    async with running(tmp_path, **OFF) as broker:
        cleaner = Stage(broker).cleaner
        at_work = asyncio.Queue[asyncio.Event]()

        async def busy(runner: Any) -> bool:
            may_end = asyncio.Event()
            at_work.put_nowait(may_end)
            return await may_end.wait()

        def threads(count: int) -> BrokerConfig:
            return msgspec.structs.replace(broker.services.config, log_cleaner_threads=count)

        monkeypatch.setattr(cleaner, "clean_dirtiest", busy)
        cleaner.apply(threads(2))
        busy_ones = [await at_work.get() for _ in range(2)]
        with pytest.raises(ConfigError, match=r"to more than double the current value 2"):
            await cleaner.check(threads(5))
        await cleaner.check(threads(4))
        cleaner.apply(threads(4))
        busy_ones += [await at_work.get() for _ in range(2)]
        assert cleaner.dead_count == 0
        with pytest.raises(ConfigError, match=r"to less than half the current value 4"):
            await cleaner.check(threads(1))
        tasks = list(cleaner._tasks.values())
        cleaner.apply(threads(2))
        for each in busy_ones[1:]:
            each.set()
        await asyncio.wait(tasks[2:])
        again = await at_work.get()
        assert [task.done() for task in tasks] == [False, False, True, True]
        assert cleaner.dead_count == 0
        cleaner.apply(threads(3))
        await at_work.get()
        assert not again.is_set() and cleaner.dead_count == 0


async def test_what_cannot_be_compacted_is_measured_without_reading_it(tmp_path: Path) -> None:
    async with running(tmp_path, **OFF) as broker:
        log = await make_log(broker)
        closed = list(log.segments)[:-1]
        damage(closed[1].path)
        stage = Stage(broker)
        await stage.clean()
        assert stage.cleaner.uncleanable == [log]
        assert dirty_bytes(log) == sum(segment.size for segment in closed)
        log.first_dirty_offset = Offset(2)
        assert dirty_bytes(log) == closed[2].size
        log.first_dirty_offset = log.log_end_offset
        assert dirty_bytes(log) == 0


async def test_a_bug_in_a_compaction_keeps_no_other_log_from_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, **OFF) as broker:
        broken = await make_log(broker, "broken", values=9)
        other = await make_log(broker, "other")
        stage = Stage(broker)
        right = Compaction.steps

        def steps(compaction: Compaction) -> Steps:
            if compaction._job.directory == broken.directory:
                raise ZeroDivisionError
            return right(compaction)

        monkeypatch.setattr(Compaction, "steps", steps)
        assert await stage.clean() and await stage.clean()
        assert stage.cleaner.uncleanable == [broken]
        assert offsets(other) == [2] and len(offsets(broken)) == 9
        assert "a bug keeps broken-0 from being compacted" in caplog.text
        assert "ZeroDivisionError" in caplog.text
        assert not await stage.clean(), "it is not tried again"


async def test_a_bug_in_the_other_process_is_told_with_its_traceback(tmp_path: Path) -> None:
    async with running(tmp_path, **OFF) as broker:
        job, _ = await job_and_log(broker)
        runner = CompactionSubprocess()
        try:
            with pytest.raises(CompactionFailed, match=r"(?s)Traceback.*Error"):
                await runner.run(msgspec.structs.replace(job, directory="\0"), bytes_per_second=1e9)
            process = runner._process
            assert process is not None and process.poll() is None, "it continues"
        finally:
            runner.close()


async def test_a_topic_of_another_policy_is_left_alone(tmp_path: Path) -> None:
    async with running(tmp_path, **OFF) as broker:
        log = await make_log(broker, cleanup_policy="delete")
        assert not await Stage(broker).clean()
        assert offsets(log) == [0, 1, 2]


async def test_a_log_that_was_truncated_meanwhile_stays_as_it_is(tmp_path: Path) -> None:
    async with running(tmp_path, **OFF) as broker:
        log = await make_log(broker)
        stage = Stage(broker)
        assert await stage.clean(lambda: log.truncate_to(2))
        assert offsets(log) == [0, 1] and stage.removed == [] and log.first_dirty_offset is None
        assert not left_over(tmp_path / "t-0", ".cleaned", ".swap")
        assert await stage.clean()  # what is left can be compacted then
        assert offsets(log) == [1]


async def test_a_topic_that_was_deleted_meanwhile_is_gone(tmp_path: Path) -> None:
    async with running(tmp_path, **OFF) as broker:
        await make_log(broker)
        stage = Stage(broker)
        assert await stage.clean(lambda: broker.services.log_manager.delete(TopicPartition("t", 0)))
        assert not (tmp_path / "t-0").exists() and stage.removed == []
        assert not await stage.clean()


async def test_a_deleted_topic_leaves_no_offset_to_the_next_of_its_name(tmp_path: Path) -> None:
    async with running(tmp_path, **OFF) as broker:
        await make_log(broker)
        assert await Stage(broker).clean()
        path = str(tmp_path / CHECKPOINT)
        assert read_offsets(OsFiles(), path) == {TopicPartition("t", 0): 3}
        await topics_of(broker).delete_topic("t")
        await until(broker, lambda: read_offsets(OsFiles(), path) == {}, "the checkpoint is rewritten")
        log = await make_log(broker)
        assert CleanableLog(log, now_ms=0).first_dirty_offset == 0


async def test_a_truncation_lowers_the_offset(tmp_path: Path) -> None:
    async with running(tmp_path, **OFF) as broker:
        log = await make_log(broker)
        assert await Stage(broker).clean()
        log.truncate_to(1)
        assert log.first_dirty_offset == log.log_end_offset <= 1


async def test_a_replica_that_moves_is_compacted_when_it_has_moved(tmp_path: Path) -> None:
    one, two, at = tmp_path / "one", tmp_path / "two", TopicPartition("t", 0)
    async with running(one, two, **OFF) as broker:
        log = await make_log(broker)
        stage = Stage(broker)
        assert await stage.clean()
        write(broker, "t", b"3")
        removed = list(stage.removed)
        manager = broker.services.replica_manager
        here = Path(log.directory).parent
        there = two if here == one else one

        def move() -> None:
            manager.alter_log_dir(at, str(there))
            assert not stage.cleaner._may_clean(log)

        assert await stage.clean(move), "the move began in the middle"
        assert offsets(log_of(broker, "t")) == [2, 3] and stage.removed == removed
        await until(broker, lambda: Path(log_of(broker, "t").directory).parent == there, "it has moved")
        moved = log_of(broker, "t")
        assert moved.first_dirty_offset == 3
        await until(broker, lambda: not moved.is_future, "it has its name")
        moved.roll()
        assert await stage.clean()
        assert offsets(moved) == [3]
        assert read_offsets(OsFiles(), str(there / CHECKPOINT)) == {at: 4}


async def test_a_damaged_log_is_named_once_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, **OFF) as broker:
        damaged = await make_log(broker, "damaged")
        path = damaged.segments[1].path
        damage(path)
        sound = await make_log(broker, "sound")
        stage = Stage(broker)
        with caplog.at_level(logging.ERROR):
            while await stage.clean():
                pass
        assert offsets(sound) == [2] and offsets(damaged) == [0, 1, 2]
        assert [r.getMessage() for r in caplog.records if "cannot be compacted" in r.getMessage()] == [
            f"damaged-0 cannot be compacted and is left as it is: {path} holds no valid batch at position 0"
        ]
        assert broker.services.log_manager.live_directories and not left_over(
            tmp_path / "damaged-0", ".cleaned"
        )


async def test_a_full_disk_only_puts_a_compaction_off(tmp_path: Path) -> None:
    disk = Disk()
    async with running(tmp_path, disk=disk, **OFF) as broker:
        log = await make_log(broker)
        stage = Stage(broker)
        disk.fault = failing("create", ".cleaned", errno.ENOSPC)
        assert not await stage.clean()
        disk.fault = None
        assert log.is_open and await stage.clean()
        assert offsets(log) == [2]


async def test_a_disk_that_fails_goes_offline(tmp_path: Path) -> None:
    disk = Disk()
    async with running(tmp_path / "one", tmp_path / "two", disk=disk, **OFF) as broker:
        log = await make_log(broker)
        home = os.path.dirname(log.directory)
        disk.fault = failing_once("fsync", ".log.cleaned")
        await Stage(broker).clean()
        disk.fault = None
        assert not log.is_open and home in broker.services.log_manager.offline_directories


async def test_old_files_stay_until_the_new_names_are_durable(tmp_path: Path) -> None:
    disk = Disk()
    async with running(tmp_path / "one", tmp_path / "two", disk=disk, **OFF) as broker:
        log = await make_log(broker)
        stage = Stage(broker)

        def fail() -> None:
            disk.fault = failing_once("fsync", log.directory)

        await until(broker, lambda: log.recovery_point == log.log_end_offset, "no flush is under way")
        await stage.clean(fail)
        assert stage.removed == [] and left_over(Path(log.directory), ".log.deleted")
        assert not log.is_open


# Where it is worked off


async def job_and_log(broker: Broker) -> tuple[CompactionJob, UnifiedLog]:
    log = await make_log(broker)
    cleanable = CleanableLog(log, now_ms=0)
    return cleanable.job(now_ms=0, map_bytes=1 << 20, map_load_factor=0.9, read_bytes=1 << 16), log


async def test_another_process_does_the_same(tmp_path: Path) -> None:
    async with running(tmp_path, **OFF) as broker:
        job, _ = await job_and_log(broker)
        runner = CompactionSubprocess()
        try:
            there = await runner.run(job, bytes_per_second=1e9)
            assert there == await Stage(broker).runner.run(job, bytes_per_second=1e9)
            process = runner._process
            assert process is not None and process.poll() is None, "it is kept for the next job"
            await runner.release()
            assert process.poll() is not None
            assert await runner.run(job, bytes_per_second=1e9) == there, "and comes back"
        finally:
            runner.close()


async def test_an_error_in_the_other_process_is_one_here(tmp_path: Path) -> None:
    async with running(tmp_path, **OFF) as broker:
        job, log = await job_and_log(broker)
        os.truncate(log.segments[0].path, 30)
        runner = CompactionSubprocess()
        try:
            with pytest.raises(KafkaError, match="no valid batch at position 0"):
                await runner.run(job, bytes_per_second=1e9)
            os.unlink(log.segments[0].path)
            with pytest.raises(FileNotFoundError):
                await runner.run(job, bytes_per_second=1e9)
        finally:
            runner.close()


async def test_a_killed_process_is_noticed_and_replaced(tmp_path: Path) -> None:
    async with running(tmp_path, **OFF) as broker:
        job, _ = await job_and_log(broker)
        runner = CompactionSubprocess()
        try:
            running_job = asyncio.create_task(runner.run(job, bytes_per_second=1))
            await until(broker, lambda: runner._process is not None, "it has started")
            assert runner._process is not None
            os.kill(runner._process.pid, signal.SIGKILL)
            with pytest.raises(CompactionProcessDied):
                await running_job
            await runner.release()
            await runner.run(job, bytes_per_second=1e9)
        finally:
            runner.close()


async def test_the_process_ends_with_the_broker_in_the_middle_of_a_job(tmp_path: Path) -> None:
    async with running(tmp_path, **OFF) as broker:
        job, _ = await job_and_log(broker)
        runner = CompactionSubprocess()
        running_job = asyncio.create_task(runner.run(job, bytes_per_second=1))
        await until(broker, lambda: runner._process is not None, "it has started")
        process = runner._process
        assert process is not None and process.stdin is not None
        process.stdin.close()  # as when the broker is killed
        with pytest.raises(CompactionProcessDied):
            await running_job
        assert process.wait(10) == 0
        runner.close()


def test_the_pace_is_kept_and_a_pause_saves_nothing_up() -> None:
    clock = ManualClock()
    pace = Pace(1000, clock)
    assert pace.pause_ms(500) == 500
    clock.advance(500)
    assert pace.pause_ms(100) == 100
    clock.advance(10_000)
    assert pace.pause_ms(2000) == 2000
    assert Pace(0, clock).pause_ms(1 << 30) == 0
