"""The log cleaner: compacts the logs of topics with ``cleanup.policy=compact``, the dirtiest first. Kafka:
``LogCleaner``, and the state of ``LogCleanerManager``.

    look for the dirtiest log ──none──> pause for log.cleaner.backoff.ms
        │ describe the work (on the loop)
    work it off (another process, or the disk thread): ``.cleaned`` files
        │ is the log still what was described? (on the loop)
    swap the new segments in, one after the other
        │
    make the directory durable (disk thread), then the checkpoint; the old files go later

A log that was truncated, deleted or moved meanwhile, or whose old segments retention has taken, is left as
it is, and the new files are removed: the generation of the log and the very segments are compared. So
nothing has to wait for a compaction. A replica that is being moved to another log directory is not
compacted: both logs must have the same records when the one takes the other's place, and the offset up to
which it is compacted.

What ``minikafka compact`` has prepared beside a log is swapped in the same way (``swap_in_staged``), when the
log is still what it was made from; meanwhile the log counts as one that is being compacted.

A log whose records cannot be read, or whose compaction ended with a bug, is named once and not tried again
until the broker restarts. A disk that fails goes offline with its logs; a full one only keeps its logs
from being compacted until there is room.

**Where a compaction is worked off**: in a process of its own, or step by step on the disk thread. A process
is for what the operating system's files hold. Compacting takes seconds of computing a gigabyte; a thread of
the broker takes turns with the loop for that (the interpreter's lock). Measured with 1 GB and two processors:
a producer's p99 was 6.2 times that of a quiet broker beside the thread, 1.7 to 2.8 times beside the process,
and the process was no slower (260 to 330 MB/s). It is started when there is work, kept while there is more,
and costs an idle broker nothing.

Step by step is for files that only this process has: those of a simulation, or of a test that takes them
away.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol

import msgspec

import minikafka
from minikafka.clock import Clock
from minikafka.config.broker import BrokerConfig
from minikafka.deferred import deferred
from minikafka.errors import ConfigError, ErrorCode, KafkaError, MinikafkaError
from minikafka.files import Files, OsFiles
from minikafka.flight_recorder import LogCompacted, cut
from minikafka.log.cleanable_log import CleanableLog, check_manifest, dirtiest
from minikafka.log.log_directories import SwapSync
from minikafka.named_tuple import NamedTuple
from minikafka.server.runtime.event_loop import Restart
from minikafka.server.runtime.log_io import LogIo
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.server.services import Services
from minikafka.server.storage.compaction_process import Pace
from minikafka.server.storage.maintenance import DiskWriter
from minikafka.types import TopicPartition

if TYPE_CHECKING:
    from minikafka.log import cleaner
    from minikafka.log import staged_compaction as staged
    from minikafka.log.segment.log_segments import DeletedFiles
    from minikafka.log.staged_compaction import CompactionJob, CompactionResult
    from minikafka.log.unified_log import UnifiedLog
else:
    cleaner = deferred("minikafka.log.cleaner")
    staged = deferred("minikafka.log.staged_compaction")

logger = logging.getLogger(__name__)

_MODULE = "minikafka.server.storage.compaction_process"

_READ_BYTES_MIN = 64 * 1024
_FULL = (errno.ENOSPC, errno.EDQUOT)


class CompactionProcessDied(MinikafkaError):
    """The process has ended without an answer: it was killed, or memory ran out."""


class CompactionFailed(MinikafkaError):
    """A bug came up while the log was compacted. The message has its traceback."""


class CompactionRunner(Protocol):
    """Works off one job at a time."""

    async def run(self, job: CompactionJob, *, bytes_per_second: float) -> CompactionResult:
        """Work off a job.

        Raises:
            KafkaError: the log holds something that cannot be compacted.
            OSError: the disk's.
            CompactionProcessDied: what the job has come to is not known.
            CompactionFailed: and would again.
        """
        ...

    async def release(self) -> None:
        """There is no work for a while: let go of what costs memory. ``run`` may follow."""
        ...

    def close(self) -> None:
        """End, also in the middle of a job whose caller was cancelled."""
        ...


class InProcess:
    """On the disk thread, one step at a time: other work of the disk gets in between."""

    def __init__(self, log_io: LogIo, files: Files, clock: Clock) -> None:
        self._log_io = log_io
        self._files = files
        self._clock = clock

    async def run(self, job: CompactionJob, *, bytes_per_second: float) -> CompactionResult:
        try:
            return await self._work_off(job, bytes_per_second)
        except (KafkaError, OSError):
            raise
        except Exception as error:  # our bug, as a value that says so: see ``LogCleaner``
            raise CompactionFailed("".join(traceback.format_exception(error))) from error

    async def _work_off(self, job: CompactionJob, bytes_per_second: float) -> CompactionResult:
        pace = Pace(bytes_per_second, self._clock)
        compaction = await self._log_io.run(lambda: cleaner.Compaction(job, self._files))
        steps = compaction.steps()
        while (size_bytes := await self._log_io.run(lambda: _next(steps))) is not None:
            pause_ms = pace.pause_ms(size_bytes)
            if pause_ms:
                await asyncio.sleep(pause_ms / 1000)
        assert compaction.result is not None
        return compaction.result

    async def release(self) -> None:
        return None

    def close(self) -> None:
        return None


def _next(steps: Iterator[int]) -> int | None:
    return next(steps, None)


class CompactionSubprocess:
    """In a ``compaction_process``."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="minikafka-cleaner")
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._lock = Lock()
        """Held while the process begins or ends: who closes in the moment in which the thread starts one must
        not miss it, or it would wait on the loop for a whole job."""

    def __repr__(self) -> str:
        return f"CompactionSubprocess({'none' if self._process is None else self._process.pid})"

    async def run(self, job: CompactionJob, *, bytes_per_second: float) -> CompactionResult:
        # Imported with the first job: what the process itself needs is no part of an idle broker.
        from minikafka.server.storage.compaction_process import Answer, Request

        request = msgspec.json.encode(Request(job, bytes_per_second))
        line = await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, request)
        answer = msgspec.json.decode(line, type=Answer)
        if answer.failure:
            raise CompactionFailed(answer.failure)
        if answer.error_code is not None:
            raise KafkaError(ErrorCode(answer.error_code), answer.message)
        if answer.result is None:
            raise OSError(answer.errno, answer.message)
        return answer.result

    async def release(self) -> None:
        self._end()

    def close(self) -> None:
        self._is_closed = True
        self._end()
        self._thread.shutdown(wait=True)

    def _end(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):  # what it was still to be told
                if pipe is not None:
                    pipe.close()

    def _ask(self, request: bytes) -> bytes:
        """Send one line and wait for one; on the thread."""
        with self._lock:
            if self._is_closed:
                raise CompactionProcessDied("the broker stops")
            process = self._process = self._process or _start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(request + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError as error:
            raise CompactionProcessDied(f"the compaction process is gone: {error}") from error
        if not line.endswith(b"\n"):
            raise CompactionProcessDied("the compaction process has ended without an answer")
        return line


def _start() -> subprocess.Popen[bytes]:
    """Where this package was found, the other process finds it too."""
    root = str(Path(minikafka.__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-m", _MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the broker, which then lets this one go
        env=os.environ | {"PYTHONPATH": path},
    )


class RemoveLater(Protocol):
    """``Maintenance.remove_later``."""

    def __call__(self, deleted: Iterable[DeletedFiles], *, delay_ms: int) -> None: ...


class CleanerStats(NamedTuple):
    """One compaction that was swapped in (Kafka's ``CleanerStats``)."""

    bytes_read: int
    """Of the segments that were replaced."""
    bytes_written: int
    """Of those that came in their place."""
    buffer_utilization: float
    """The part of ``log.cleaner.dedupe.buffer.size`` that keys took, 0 to 1."""
    elapsed_ms: int


class LogCleaner:
    """Owns the compactions. ``start`` hands them to the supervisor, which also ends them."""

    def __init__(self, services: Services, *, remove_later: RemoveLater) -> None:
        self._services = services
        self._remove_later = remove_later
        self._disk = DiskWriter(services)
        self._in_progress: dict[TopicPartition, UnifiedLog] = {}
        self._uncleanable: dict[TopicPartition, UnifiedLog] = {}
        self._wanted = 0
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """By the cleaner's number, below ``_wanted`` but for those that still have to end."""
        self._running: set[int] = set()
        """Those that no bug has ended."""
        self._last: dict[CompactionRunner, CleanerStats] = {}
        self._looked_ms = self._services.clock.monotonic_ms()
        self.compactions = 0
        """Those that were swapped in."""
        self.dirty_ratio_max = 0.0
        """Of the dirtiest log, whether it was due or not, as of the last look."""
        self.overdue_ms_max = 0
        """By how much a log's compaction was later than ``max.compaction.lag.ms``, as of the last look."""

    def __repr__(self) -> str:
        return (
            f"LogCleaner(in_progress={[str(at) for at in self._in_progress]}, "
            f"uncleanable={[str(at) for at in self._uncleanable]})"
        )

    @property
    def in_progress(self) -> Sequence[UnifiedLog]:
        return list(self._in_progress.values())

    @property
    def uncleanable(self) -> Sequence[UnifiedLog]:
        return list(self._uncleanable.values())

    @property
    def last(self) -> Sequence[CleanerStats]:
        """The last compaction of each cleaner that has swapped one in."""
        return list(self._last.values())

    @property
    def dead_count(self) -> int:
        """Cleaners that a bug has ended; the supervisor starts them again after a moment."""
        return sum(number not in self._running for number in range(self._wanted))

    @property
    def since_last_look_ms(self) -> int:
        """Since a cleaner looked for a log to compact (``time-since-last-run-ms``)."""
        return self._services.clock.monotonic_ms() - self._looked_ms

    def start(self) -> None:
        if self._services.config.log_cleaner_enable:
            self.apply(self._services.config)
            self._services.configs.check_broker_with(self.check)
            self._services.configs.subscribe_broker(self.apply)

    async def check(self, config: BrokerConfig) -> None:
        """``LogCleaner.validateReconfiguration``. Raises ConfigError."""
        wanted = config.log_cleaner_threads
        if wanted < self._wanted // 2:
            how = "reduced to less than half"
        elif wanted > self._wanted * 2:
            how = "increased to more than double"
        else:
            return
        raise ConfigError(f"Log cleaner threads cannot be {how} the current value {self._wanted}")

    def apply(self, config: BrokerConfig) -> None:
        """As many cleaners as ``config`` says. One too many ends when it has done what it is at; Kafka aborts
        that and begins with all others again."""
        self._wanted = config.log_cleaner_threads
        for number in range(self._wanted):
            if number not in self._tasks:
                self._tasks[number] = task = self._services.supervisor.start(
                    f"log-cleaner-{number}", partial(self._run, number), restart=Restart.ALWAYS
                )
                task.add_done_callback(partial(self._ended, number))

    def _ended(self, number: int, task: asyncio.Task[None]) -> None:
        del self._tasks[number]
        if number < self._wanted and not task.cancelled():  # it was wanted again when it had just ended
            self.apply(self._services.config)

    async def _run(self, number: int) -> None:
        services = self._services
        runner: CompactionRunner = (
            CompactionSubprocess()
            if type(services.files) is OsFiles
            else InProcess(services.log_io, services.files, services.clock)
        )
        self._running.add(number)
        try:
            while number < self._wanted:
                if not await self.clean_dirtiest(runner):
                    await runner.release()
                    await asyncio.sleep(services.config.log_cleaner_backoff_ms / 1000)
        finally:
            self._running.discard(number)
            self._last.pop(runner, None)
            runner.close()

    async def clean_dirtiest(self, runner: CompactionRunner) -> bool:
        """Compact the log that needs it most. Returns whether there may be more to do at once."""
        chosen = await self._choose()
        if chosen is None:
            return False
        log = chosen.log
        self._in_progress[log.topic_partition] = log
        try:
            return await self._clean(log, runner)
        finally:
            del self._in_progress[log.topic_partition]

    # Choosing

    async def _choose(self) -> CleanableLog | None:
        log_manager = self._services.log_manager
        logs = log_manager.logs
        self._uncleanable = {at: log for at, log in self._uncleanable.items() if logs.get(at) is log}
        time_slice, found = TimeSlice(), []
        self._looked_ms = self._services.clock.monotonic_ms()
        dirty_ratio_max, overdue_ms_max = 0.0, 0
        for log in list(logs.values()):
            if self._may_clean(log):
                cleanable = self._look_at(log)
                if cleanable is not None:
                    dirty_ratio_max = max(dirty_ratio_max, cleanable.dirty_ratio)
                    overdue_ms_max = max(overdue_ms_max, cleanable.overdue_ms)
                    if cleanable.is_due:
                        found.append(cleanable)
                await time_slice.give_way()
        self.dirty_ratio_max, self.overdue_ms_max = dirty_ratio_max, overdue_ms_max
        return dirtiest(each for each in found if each.is_current and self._may_clean(each.log))

    def _may_clean(self, log: UnifiedLog) -> bool:
        at = log.topic_partition
        return (
            log.config.compact
            and log.is_open
            and at not in self._in_progress
            and at not in self._uncleanable
            and at not in self._services.log_manager.future_logs
        )

    def _look_at(self, log: UnifiedLog) -> CleanableLog | None:
        try:
            return CleanableLog(log, now_ms=self._services.clock.now_ms())
        except KafkaError as error:
            self._give_up(log, error)
        except OSError as error:
            self._disk.directory_failed(self._services.log_manager.directory_of(log), error)
        return None

    def _give_up(self, log: UnifiedLog, error: KafkaError) -> None:
        self._uncleanable[log.topic_partition] = log
        logger.error("%s cannot be compacted and is left as it is: %s", log.topic_partition, error.message)
        self._record_failure(log, error.message or error.code.name)

    # What others have compacted

    async def swap_in_staged(self, at: TopicPartition, manifest_id: str, *, validate_only: bool) -> None:
        """Put in what a job has prepared beside a log (``log.staged_compaction``).

        Args:
            manifest_id: of the manifest that is meant.
            validate_only: only say whether it could be put in now.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION: no such log here. INVALID_CONFIG: its topic is not
                compacted. OPERATION_NOT_ATTEMPTED: a compaction or a move of it is under way.
                INVALID_REQUEST: what is prepared does not fit the log (any more). KAFKA_STORAGE_ERROR:
                the disk's.
        """
        log_manager = self._services.log_manager
        log = log_manager.get(at)
        if log is None or not log.is_open:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"this broker has no log of {at}")
        if not log.config.compact:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"cleanup.policy of {at.topic} does not have compact: it is left as it is",
            )
        if at in self._in_progress:
            raise KafkaError(
                ErrorCode.OPERATION_NOT_ATTEMPTED,
                f"{at} is being compacted by the broker itself; run the compaction again when it is done",
            )
        if at in log_manager.future_logs:
            raise KafkaError(
                ErrorCode.OPERATION_NOT_ATTEMPTED,
                f"{at} is being moved to another log directory; try again later",
            )
        self._in_progress[at] = log
        try:
            await self._swap_in_staged(log, manifest_id, validate_only=validate_only)
        except staged.StaleManifest as error:
            raise staged.refusal(error) from error
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{at}: {error}") from error
        finally:
            del self._in_progress[at]

    async def _swap_in_staged(self, log: UnifiedLog, manifest_id: str, *, validate_only: bool) -> None:
        services, directory = self._services, log.directory
        manifest = await services.log_io.run(partial(staged.read_manifest, services.files, directory))
        if manifest.id != manifest_id:
            problem = f"{directory} has what job {manifest.id} has prepared, not {manifest_id}"
            raise staged.StaleManifest(problem)
        cleanable = CleanableLog(log, now_ms=services.clock.now_ms())
        check_manifest(cleanable, manifest)
        await services.log_io.run(partial(staged.check_files, services.files, directory, manifest))
        if validate_only:
            return
        try:
            await services.log_io.run(partial(staged.adopt, services.files, directory, manifest))
            if not await self._swap_in(cleanable, manifest.result):
                raise staged.StaleManifest(f"{log.topic_partition} has changed in this moment")
        except (OSError, staged.StaleManifest):
            await self._discard(directory)
            raise
        self.compactions += 1
        logger.info(
            "swapped in what job %s has compacted of %s, up to offset %d",
            manifest.id,
            log.topic_partition,
            manifest.result.end_offset,
        )

    # Compacting

    async def _clean(self, log: UnifiedLog, runner: CompactionRunner) -> bool:
        cleanable = self._look_at(log)
        if cleanable is None or not cleanable.is_due:
            return True
        config = self._services.config
        now_ms, began_ms = self._services.clock.now_ms(), self._services.clock.monotonic_ms()
        job = cleanable.job(
            now_ms=now_ms,
            map_bytes=config.log_cleaner_dedupe_buffer_size // config.log_cleaner_threads,
            map_load_factor=config.log_cleaner_io_buffer_load_factor,
            read_bytes=max(config.log_cleaner_io_buffer_size // config.log_cleaner_threads, _READ_BYTES_MIN),
        )
        try:
            result = await runner.run(job, bytes_per_second=config.log_cleaner_io_max_bytes_per_second)
            if await self._swap_in(cleanable, result):
                elapsed_ms = self._services.clock.monotonic_ms() - began_ms
                self._last[runner] = _stats_of(job, result, elapsed_ms)
                self._tell(cleanable, self._last[runner], result)
                return True
            logger.info("the compaction of %s is abandoned: the log has changed", log.topic_partition)
            self._record_failure(log, "the log has changed meanwhile")
        except CompactionProcessDied as error:
            logger.error("the compaction of %s is abandoned: %s", log.topic_partition, error)
            self._record_failure(log, str(error))
            await runner.release()
            await self._discard(job.directory)
            return False
        except CompactionFailed as error:
            self._uncleanable[log.topic_partition] = log  # as Kafka does, or no other log would get its turn
            logger.error("a bug keeps %s from being compacted:\n%s", log.topic_partition, error)
            self._record_failure(log, "a bug, which the broker's log shows")
        except KafkaError as error:
            if cleanable.is_current:
                self._give_up(log, error)
        except OSError as error:
            if cleanable.is_current:
                return self._disk_failed(log, error)
        await self._discard(job.directory)
        return True

    def _disk_failed(self, log: UnifiedLog, error: OSError) -> bool:
        if error.errno in _FULL:
            logger.error("no room to compact %s: %s", log.topic_partition, error)
            self._record_failure(log, str(error))
            return False
        self._disk.directory_failed(self._services.log_manager.directory_of(log), error)
        return True

    async def _swap_in(self, cleanable: CleanableLog, result: CompactionResult) -> bool:
        """Returns False when the log is no longer what was compacted; what was swapped in until then
        stays."""
        log, log_manager = cleanable.log, self._services.log_manager
        time_slice, deleted = TimeSlice(), []
        is_whole = True
        for new in result.segments:
            if not self._is_still(cleanable):
                is_whole = False
                break
            try:
                deleted += cleanable.swap_in(new)
            except KafkaError as error:  # the log is fenced
                self._disk.directory_failed(log_manager.directory_of(log), error)
                return False
            await time_slice.give_way()
        if not self._is_still(cleanable):
            is_whole = False
        if deleted:
            if await self._disk.run([SwapSync(self._services.files, log.directory)]):
                return False
            self._remove_later(deleted, delay_ms=log.config.file_delete_delay_ms)
            await self._disk.flush([log], closed_only=True)  # one that was under way does not count any more
        if not is_whole or not self._is_still(cleanable):
            return False
        log.first_dirty_offset = result.end_offset
        await self._disk.run([log_manager.prepare_cleaner_offset_checkpoint(log)])
        return True

    def _is_still(self, cleanable: CleanableLog) -> bool:
        log_manager, at = self._services.log_manager, cleanable.log.topic_partition
        return (
            cleanable.is_current
            and log_manager.get(at) is cleanable.log
            and at not in log_manager.future_logs
        )

    async def _discard(self, directory: str) -> None:
        """Remove what a compaction that came to nothing has left."""
        try:
            await self._services.log_io.run(
                partial(staged.remove_cleaned, directory, files=self._services.files)
            )
        except OSError as error:
            logger.warning("cannot remove the remains of a compaction in %s: %s", directory, error)

    def _record_failure(self, log: UnifiedLog, failure: str) -> None:
        topic, partition = log.topic_partition
        self._services.recorder.record(LogCompacted(topic=topic, partition=partition, failure=cut(failure)))

    def _tell(self, cleanable: CleanableLog, stats: CleanerStats, result: CompactionResult) -> None:
        self.compactions += 1
        logger.info(
            "compacted %s up to offset %d: %d bytes became %d, %d records retained, %d removed",
            cleanable.log.topic_partition,
            result.end_offset,
            stats.bytes_read,
            stats.bytes_written,
            result.records_kept,
            result.records_dropped,
        )
        topic, partition = cleanable.log.topic_partition
        self._services.recorder.record(
            LogCompacted(
                topic=topic,
                partition=partition,
                bytes_read=stats.bytes_read,
                bytes_written=stats.bytes_written,
                elapsed_ms=stats.elapsed_ms,
            )
        )


def _stats_of(job: CompactionJob, result: CompactionResult, elapsed_ms: int) -> CleanerStats:
    replaced = {base_offset for segment in result.segments for base_offset in segment.replaced}
    return CleanerStats(
        bytes_read=sum(segment.size for segment in job.segments if segment.base_offset in replaced),
        bytes_written=sum(segment.size for segment in result.segments),
        buffer_utilization=result.map_entries * cleaner.ENTRY_BYTES / job.map_bytes,
        elapsed_ms=elapsed_ms,
    )
