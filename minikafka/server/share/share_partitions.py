"""The share partitions of the partitions that this broker leads, and the sessions of those who consume them.

Kafka: ``SharePartitionManager``, ``SharePartitionCache`` (KIP-932). A share partition is loaded when a member
of its group first fetches it, in the leader epoch of its partition, and ends with that epoch, with its
partition or when the share coordinator refuses its writes. A member's session ends when the member says so or
its connection closes; then what it holds is available to the others at once.

**One share partition** (``HostedSharePartition``) is loaded, written, and its locks are kept in time. Kafka:
``SharePartition``, the part that has a persister, a timer and a state. The core
(``minikafka.share.share_partition``) says what is to be persisted; here it is. Writes of a share partition
follow each other: what comes up while one is under way goes into the next. So what was written later is later
in the coordinator's log, too.

States::

    LOADING --its state was read----> ACTIVE
    LOADING --it could not be read--> ENDED
    ACTIVE  --fenced, not led here--> ENDED
    ACTIVE  --no member is left-----> ENDED

An ended one answers with its error; the next fetch begins another.

What is for the group's dead letter queue is written there in the order in which it comes up, as much at once
as has come up meanwhile, and is archived then, whether that was possible or not (``dead_letter_queue``).

A group that begins ``by_duration`` begins with a record: while none is as young, this is LOADING.

Where it differs from Kafka: a start offset that ``share.auto.offset.reset`` decides is persisted at once.
With ``latest``, what was delivered and not acknowledged when a leader dies would be passed over by the next.
Kafka answers members with OFFSET_NOT_AVAILABLE until a record is as young as ``by_duration`` says, and looks
again with each fetch; here fetches wait as for any record.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from minikafka.coordinator.group.environment import ShareGroupSettings
from minikafka.coordinator.share.messages import (
    UNINITIALIZED_START_OFFSET,
    ReadShareState,
    SharePartitionError,
    SharePersister,
    TopicIdPartition,
    WriteShareState,
)
from minikafka.deferred import deferred
from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.segment.fetch_data import ColdRead, FetchIsolation
from minikafka.metrics.request_metrics import Histogram
from minikafka.named_tuple import NamedTuple
from minikafka.network.connection import Connection
from minikafka.purgatory import DelayedOperation, Timer, TimerTask
from minikafka.server.replica.partition import LATEST_TIMESTAMP, OffsetAndEpoch, Partition
from minikafka.server.replica.replica_manager import ReplicaManager
from minikafka.server.runtime.event_loop import Supervisor
from minikafka.server.runtime.log_io import LogIo
from minikafka.share.share_session import SessionKey, ShareSession, ShareSessionCache
from minikafka.types import TopicPartition

if TYPE_CHECKING:
    from minikafka.server.share import delayed_share_fetch
    from minikafka.server.share.dead_letter_queue import DeadLetterQueues
    from minikafka.server.share.delayed_share_fetch import ShareFetchParams, ShareRead
    from minikafka.share import share_partition
    from minikafka.share.share_partition import (
        AcknowledgementBatch,
        AcknowledgeType,
        AcquiredRecords,
        Run,
        ShareLimits,
        SharePartition,
        Transition,
    )
else:
    share_partition = deferred("minikafka.share.share_partition")
    delayed_share_fetch = deferred("minikafka.server.share.delayed_share_fetch")


logger = logging.getLogger(__name__)

EARLIEST = "earliest"
BY_DURATION = "by_duration"
RESET_RETRY_MS = 1_000
"""Until the group's settings are looked at again, while it has no record to begin with."""

ENDING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""After these the share partition is not what it was (``fencedSharePartitionHandler``)."""

_Submitted = tuple["Transition", "asyncio.Future[KafkaError | None]"]
"""What is to be persisted, and who is told when it is."""


class ShareKey(NamedTuple):
    """A partition as one group consumes it."""

    group_id: str
    at: TopicIdPartition


class ShareCounts:
    """Since the broker started (Kafka: ``ShareGroupMetrics``)."""

    def __init__(self) -> None:
        self.acknowledged: Counter[AcknowledgeType] = Counter()
        """Records."""
        self.dead_letters: Counter[str] = Counter()
        """Records in dead letter queues, by group."""
        self.dead_letter_requests: Counter[str] = Counter()
        """Produce requests for them, by group."""
        self.dead_letter_failures: Counter[str] = Counter()
        """Of those, what failed for good, by group."""
        self.load_times_ms = Histogram()
        """Until a share partition was loaded, or could not be."""
        self.expired_fetches = 0
        """Share fetches that were answered because their max wait was over."""
        self.fetches: dict[str, FetchFigures] = {}
        """By group, of those with members here."""


class FetchFigures:
    """How the share fetches of a group went."""

    def __init__(self) -> None:
        self.acquire_times_ms = Histogram()
        """From when a fetch came, or had last held partitions, until it held some, or its time was up."""
        self.acquired_percents = Histogram()
        """How many of a fetch's partitions were held when it was answered."""


class SharePartitionFigures:
    """How the fetches of one share partition went (Kafka: ``SharePartitionMetrics``)."""

    def __init__(self) -> None:
        self.fetch_lock_times_ms = Histogram()
        """How long each fetch had it for itself."""
        self.fetch_lock_percents = Histogram()
        """Of the time from the end of the fetch before to the end of this one, how much this one had it."""
        self.batch_records = Histogram()
        """Records of each batch that came to be in flight."""
        self._held_since_ms = 0
        self._idle_ms = 0
        self._free_since_ms: int | None = None

    def note_acquired(self, acquired: Iterable[AcquiredRecords]) -> None:
        """A member was given these. Those that come again were in flight before, unless the session of who
        had them has ended: that takes the delivery back."""
        for each in acquired:
            if each.delivery_count == 1:
                self.batch_records.update(each.record_count)

    def fetch_began(self, now_ms: int) -> None:
        """It is held by a fetch."""
        self._held_since_ms = now_ms
        self._idle_ms = 0 if self._free_since_ms is None else now_ms - self._free_since_ms

    def fetch_ended(self, now_ms: int) -> None:
        """It is held by none. The percentage as ``recordFetchLockRatioMetric`` has it: what took no whole
        millisecond counts as one, and a fetch right behind another as all of the time."""
        held_ms = now_ms - self._held_since_ms
        self._free_since_ms = now_ms
        self.fetch_lock_times_ms.update(held_ms)
        total_ms = held_ms + self._idle_ms
        self.fetch_lock_percents.update(100 * max(held_ms, 1) // total_ms if total_ms else 100)


class ShareParts(NamedTuple):
    """What every share partition is made with."""

    replicas: ReplicaManager
    persister: SharePersister
    timer: Timer
    log_io: LogIo
    supervisor: Supervisor
    settings_of: Callable[[str], ShareGroupSettings]
    counts: ShareCounts
    dead_letters: DeadLetterQueues


class _State(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    ENDED = "ended"


class HostedSharePartition:
    """See the module header."""

    def __init__(
        self,
        key: ShareKey,
        topic_partition: TopicPartition,
        *,
        leader_epoch: int,
        parts: ShareParts,
        changed: Callable[[HostedSharePartition], None],
    ) -> None:
        """``changed`` is called when there may be more to acquire, or this one has ended."""
        self.key = key
        self.topic_partition = topic_partition
        self.leader_epoch = leader_epoch
        self.error: KafkaError | None = None
        """Why it has ended."""
        self.lock_timeouts = 0
        """Records (Kafka: ``SharePartitionMetrics``)."""
        self.figures = SharePartitionFigures()
        self.fetcher: object | None = None
        """The fetch that is reading; one at a time."""
        self._parts = parts
        self._changed = changed
        self._state = _State.LOADING
        self._state_epoch = 0
        self._shared: SharePartition | None = None
        self._limits_of: ShareGroupSettings | None = None
        """The settings that the share partition's limits are of."""
        self._waiting: list[_Submitted] = []
        self._is_writing = False
        self._dead: list[Run] = []
        """For the dead letter queue."""
        self._is_writing_dead_letters = False
        self._lock_timer: _LockTimer | None = None
        self._is_waiting_for_record = False
        self._began_ms = self._now_ms()
        parts.supervisor.start(f"load-share-partition-{topic_partition}", self._load)

    def __repr__(self) -> str:
        return f"HostedSharePartition({self.key}, {self._state.value}, {self._shared!r})"

    @property
    def settings(self) -> ShareGroupSettings:
        return self._parts.settings_of(self.key.group_id)

    @property
    def shared(self) -> SharePartition | None:
        """The share partition by the group's settings of now; None unless it is active."""
        if self._state is not _State.ACTIVE:
            return None
        shared = self._shared
        assert shared is not None
        settings = self.settings
        is_kept = self._parts.dead_letters.are_kept(settings)
        if settings is not self._limits_of or is_kept != shared.limits.has_dead_letter_queue:
            self._limits_of = settings
            shared.limits = _limits(settings, has_dead_letter_queue=is_kept)
        return shared

    @property
    def in_flight(self) -> tuple[int, int]:
        """Records and runs from the start offset on; none before it is loaded."""
        shared = self._shared
        return (0, 0) if shared is None else (shared.in_flight, len(shared.runs))

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being read or written."""
        return (
            (self._state is _State.ACTIVE or self._is_waiting_for_record)
            and self.fetcher is None
            and not self._is_writing
            and not self._is_writing_dead_letters
        )

    @property
    def isolation(self) -> FetchIsolation:
        """How far the group may read."""
        if self.settings.is_read_committed:
            return FetchIsolation.TXN_COMMITTED
        return FetchIsolation.HIGH_WATERMARK

    def partition(self) -> Partition:
        """The partition, while it is led here in the epoch in which this began.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER and others; this has ended then.
        """
        try:
            partition = self._parts.replicas.partition(self.topic_partition)
            if partition.leader_epoch != self.leader_epoch:
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is led in another epoch"
                )
        except KafkaError as error:
            self.end(error)
            raise
        return partition

    def can_be_fetched(self) -> bool:
        """Whether a fetch could acquire from it now, if there are records. One that waits need not be tried
        before: when another lets it go, or records are released, it is."""
        return self.fetcher is None and (shared := self.shared) is not None and shared.can_acquire()

    def begin_fetch(self, fetcher: object) -> None:
        """``fetcher`` reads, and no other may until ``end_fetch``."""
        self.fetcher = fetcher
        self.figures.fetch_began(self._now_ms())

    def end_fetch(self) -> None:
        """Others may read."""
        self.fetcher = None
        self.figures.fetch_ended(self._now_ms())

    def end(self, error: KafkaError) -> None:
        """Give out nothing more. Idempotent."""
        if self._state is _State.ENDED:
            return
        self._state, self.error = _State.ENDED, error
        if self._lock_timer is not None:
            self._lock_timer.cancel()
            self._lock_timer = None
        self._changed(self)

    # Loading

    async def _load(self) -> None:
        try:
            await self._read_state()
        except KafkaError as error:
            logger.info("the share partition %s of %s is not served: %s", *self._names(), error)
            self.end(error)
        except Exception as error:  # our bug, which the supervisor logs; here who waits hears of it
            self.end(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
            raise
        else:
            self._changed(self)
        finally:
            self._parts.counts.load_times_ms.update(self._now_ms() - self._began_ms)

    async def _read_state(self) -> None:
        topic_id, number = self.key.at
        (state,) = await self._parts.persister.read_state(
            self.key.group_id, [ReadShareState(topic_id, number, self.leader_epoch)]
        )
        if state.error is not None:
            raise _for_consumers(state.error)
        self._state_epoch = state.state_epoch
        start_offset = state.start_offset
        if start_offset == UNINITIALIZED_START_OFFSET:
            start_offset = await self._reset_offset()
            error = await self._persist(
                WriteShareState(topic_id, number, state.state_epoch, self.leader_epoch, start_offset, 0, ())
            )
            if error is not None:
                raise error
        partition = self.partition()
        if self._state is _State.LOADING:
            settings = self._limits_of = self.settings
            is_kept = self._parts.dead_letters.are_kept(settings)
            limits = _limits(settings, has_dead_letter_queue=is_kept)
            self._shared = share_partition.SharePartition(start_offset, state.batches, limits)
            self._shared.move_start(partition.log.log_start_offset)
            self._state = _State.ACTIVE
            for run in self._shared.runs:
                self.figures.batch_records.update(run.count)
            self._bury(self._shared.resume_archiving())

    async def _reset_offset(self) -> int:
        """Where a group begins that has no offset yet (``share.auto.offset.reset``)."""
        while (settings := self.settings).auto_offset_reset == BY_DURATION:
            end_offset = self.partition().end_offset(FetchIsolation.HIGH_WATERMARK)
            timestamp_ms = self._parts.replicas.clock.now_ms() - settings.auto_offset_reset_ms
            found = await self._offset_for_timestamp(timestamp_ms)
            if found is not None:
                return found.offset
            await self._wait_for_records(end_offset)
        if settings.auto_offset_reset == EARLIEST:
            return self.partition().log.log_start_offset
        latest = self.partition().offset_for_timestamp(
            LATEST_TIMESTAMP, isolation=FetchIsolation.HIGH_WATERMARK, cached_only=True
        )
        assert latest is not None
        return latest.offset

    async def _offset_for_timestamp(self, timestamp_ms: int) -> OffsetAndEpoch | None:
        while True:
            try:
                return self.partition().offset_for_timestamp(
                    timestamp_ms, isolation=FetchIsolation.HIGH_WATERMARK, cached_only=True
                )
            except ColdRead as cold:
                await self._parts.log_io.warmed(cold)

    async def _wait_for_records(self, end_offset: int) -> None:
        """From ``end_offset`` on, or for as long as settings are not looked at again.

        Raises:
            KafkaError: this has ended.
        """
        began_ms = self._now_ms()
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        operation = _DelayedReset(self, end_offset, woken)
        self._is_waiting_for_record = True
        try:
            self._changed(self)  # without a member this ends
            keys = (self.key, self.topic_partition)
            self._parts.replicas.parked.share_fetch.try_complete_else_watch(operation, keys)
            await woken
        finally:
            self._is_waiting_for_record = False
            operation.force_complete()
            self._began_ms += self._now_ms() - began_ms  # it is no time that loading takes
        if self.error is not None:
            raise self.error

    def has_records_from(self, offset: int) -> bool:
        """Whether some that are committed are there, or this has ended."""
        try:
            return (
                self.error is not None or self.partition().end_offset(FetchIsolation.HIGH_WATERMARK) > offset
            )
        except KafkaError:  # it has ended with that
            return True

    # Writing

    def submit(self, transition: Transition) -> asyncio.Future[KafkaError | None]:
        """Persist what ``transition`` says, and complete it then. The result says why it could not be."""
        done: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()
        if not transition.batches:
            self._complete(transition, is_persisted=True)
            done.set_result(None)
            return done
        self._waiting.append((transition, done))
        if not self._is_writing:
            self._write_next()
        return done

    def _write_next(self) -> None:
        """Persist what has come up: in this step if its coordinator is here and waits for no other broker."""
        submitted, self._waiting = self._waiting, []
        if self.error is not None:
            self._written(submitted, self.error)
            return
        shared = self._shared
        assert shared is not None
        write = WriteShareState(
            *self.key.at,
            self._state_epoch,
            self.leader_epoch,
            shared.start_offset,
            shared.delivery_complete_count(),
            tuple(batch for transition, _ in submitted for batch in transition.batches),
        )

        def answered(answer: SharePartitionError) -> None:
            if answer.error is None:
                self._written(submitted, None)
            else:
                write_patiently()

        def write_patiently() -> None:
            name = f"write-share-partition-{self.topic_partition}"
            self._parts.supervisor.start(name, partial(self._write, submitted, write))

        self._is_writing = True
        if not self._parts.persister.write_here(self.key.group_id, write, answered):
            write_patiently()

    async def _write(self, submitted: Sequence[_Submitted], write: WriteShareState) -> None:
        """Wherever it is coordinated, and again if need be."""
        try:
            error = await self._persist(write)
        except Exception as failure:  # our bug: those who wait hear of it, and the records stay as they were
            logger.exception("the state of %r could not be written", self)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(failure))
        self._written(submitted, error)

    def _written(self, submitted: Sequence[_Submitted], error: KafkaError | None) -> None:
        self._is_writing = False
        for transition, done in submitted:
            self._complete(transition, is_persisted=error is None)
            if not done.done():
                done.set_result(error)
        if error is not None and error.code in ENDING:
            self.end(error)
        if self._waiting and not self._is_writing:
            self._write_next()
        self._changed(self)

    async def _persist(self, write: WriteShareState) -> KafkaError | None:
        (answer,) = await self._parts.persister.write_state(self.key.group_id, [write])
        if answer.error is None:
            return None
        logger.info("the share partition %s of %s was not written: %s", *self._names(), answer.error)
        return _for_consumers(answer.error)

    def _complete(self, transition: Transition, *, is_persisted: bool) -> None:
        assert self._shared is not None
        self._bury(self._shared.complete(transition, is_persisted=is_persisted))

    # The dead letter queue

    def _bury(self, dead: list[Run]) -> None:
        """Write them to the dead letter queue, and archive them."""
        self._dead += dead
        if self._dead and not self._is_writing_dead_letters:
            self._is_writing_dead_letters = True
            self._parts.supervisor.start(f"dead-letters-of-{self.topic_partition}", self._write_dead_letters)

    async def _write_dead_letters(self) -> None:
        try:
            while self._dead and self.error is None:
                dead, self._dead = self._dead, []
                await self._write_to_queue(dead)
                if self.error is None:  # else the next leader finds them in ARCHIVING
                    assert self._shared is not None
                    self.submit(self._shared.archive(dead))
        finally:
            self._is_writing_dead_letters = False
        self._changed(self)

    async def _write_to_queue(self, dead: list[Run]) -> None:
        try:
            await self._parts.dead_letters.write(self.key.group_id, self.partition(), dead)
        except KafkaError as error:
            if self.error is None:
                logger.error(
                    "%d dead letters of %s in %s are archived, and not in its queue: %s",
                    sum(run.count for run in dead),
                    self.key.group_id,
                    self.topic_partition,
                    error,
                )
        except Exception:  # our bug: the group must go on
            logger.exception("the dead letters of %r could not be written; they are archived without", self)

    # Locks

    def keep_locks(self) -> None:
        """Locks were taken or renewed: be there when the first of them is over."""
        duration_ms = self.settings.record_lock_duration_ms
        timer = self._lock_timer
        if timer is not None and timer.expiration_ms <= self._now_ms() + duration_ms:
            return
        self._set_timer(duration_ms)

    def _set_timer(self, delay_ms: int) -> None:
        if self._lock_timer is not None:
            self._lock_timer.cancel()
        self._lock_timer = _LockTimer(self, delay_ms)
        if not self._parts.timer.add(self._lock_timer):
            asyncio.get_running_loop().call_soon(self.locks_are_over)

    def locks_are_over(self) -> None:
        """Those whose time is up are available to others."""
        self._lock_timer = None
        shared = self.shared
        if shared is None:
            return
        transition = shared.expire_locks(self._now_ms())
        if transition.batches:
            self.lock_timeouts += sum(run.count for run in transition.runs)
            self.submit(transition)
            self._changed(self)
        next_ms = shared.next_lock_end_ms()
        if next_ms is not None:
            self._set_timer(max(1, next_ms - self._now_ms()))

    def _now_ms(self) -> int:
        return self._parts.replicas.clock.monotonic_ms()

    def _names(self) -> tuple[TopicPartition, str]:
        return self.topic_partition, self.key.group_id


class _LockTimer(TimerTask):
    """Kafka: ``AcquisitionLockTimerTask``, one for all locks of a share partition."""

    __slots__ = ("_hosted",)

    def __init__(self, hosted: HostedSharePartition, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self._hosted = hosted

    def run(self) -> None:
        self._hosted.locks_are_over()


class _DelayedReset(DelayedOperation):
    """A group that has no record to begin with."""

    __slots__ = ("_end_offset", "_hosted", "_woken")

    def __init__(self, hosted: HostedSharePartition, end_offset: int, woken: asyncio.Future[None]) -> None:
        super().__init__(RESET_RETRY_MS)
        self._hosted = hosted
        self._end_offset = end_offset
        self._woken = woken

    def try_complete(self) -> bool:
        return self._hosted.has_records_from(self._end_offset) and self.force_complete()

    def on_complete(self) -> None:
        if not self._woken.done():
            self._woken.set_result(None)

    def on_failure(self, error: Exception) -> None:
        if not self._woken.done():
            self._woken.set_exception(error)


def _limits(settings: ShareGroupSettings, *, has_dead_letter_queue: bool) -> ShareLimits:
    return share_partition.ShareLimits(
        settings.delivery_count_limit,
        settings.partition_max_record_locks,
        settings.record_lock_duration_ms,
        has_dead_letter_queue,
    )


def _for_consumers(error: KafkaError) -> KafkaError:
    """An error of the share coordinator as consumers know it (``SharePartition.fetchPersisterError``)."""
    match error.code:
        case (
            ErrorCode.NOT_COORDINATOR
            | ErrorCode.COORDINATOR_NOT_AVAILABLE
            | ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            | ErrorCode.NETWORK_EXCEPTION
        ):
            return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
        case ErrorCode.FENCED_LEADER_EPOCH:
            return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
        case (
            ErrorCode.FENCED_STATE_EPOCH
            | ErrorCode.GROUP_ID_NOT_FOUND
            | ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_LEADER_OR_FOLLOWER
        ):
            return error
        case _:
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message)


class SharePartitionManager:
    """See the module header."""

    def __init__(self, parts: ShareParts, *, sessions_max: int) -> None:
        self.sessions = ShareSessionCache(sessions_max)
        self.counts = parts.counts
        self._parts = parts
        self._replicas = parts.replicas
        self._hosted: dict[ShareKey, HostedSharePartition] = {}
        self._by_partition: dict[TopicPartition, set[ShareKey]] = {}
        self._connections: dict[ShareSession, Connection] = {}

    def __repr__(self) -> str:
        return f"SharePartitionManager({len(self._hosted)} share partitions, {self.sessions!r})"

    def __len__(self) -> int:
        return len(self._hosted)

    def hosted(self) -> list[HostedSharePartition]:
        """All that are served here, in whatever state, ordered by group, topic and partition."""
        return sorted(self._hosted.values(), key=lambda each: (each.key.group_id, each.topic_partition))

    def start(self) -> None:
        """Follow leadership from now on."""
        self._replicas.add_leadership_listener(self.leadership_changed)

    async def close(self) -> None:
        """Drop the connections to leaders of dead letter queues."""
        await self._parts.dead_letters.close()

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        return self._parts.settings_of(group_id)

    def leadership_changed(self, topic_partition: TopicPartition) -> None:
        """End what began in another epoch."""
        for key in list(self._by_partition.get(topic_partition, ())):
            try:
                self._hosted[key].partition()
            except KafkaError:
                pass  # it has ended with that

    # Sessions

    def begin_session(
        self, key: SessionKey, partitions: Sequence[TopicIdPartition], connection: Connection
    ) -> ShareSession:
        """A session that ends with ``connection``; the member's last one ends now.

        Raises:
            KafkaError: SHARE_SESSION_LIMIT_REACHED.
        """
        if self.sessions.has(key):
            self._forget(self.sessions.find(key))
        session = self.sessions.begin(key, partitions)

        def closed() -> None:
            self.sessions.evictions += 1
            self.end_session(session)

        connection.closed[session] = closed
        self._connections[session] = connection
        return session

    def end_session(self, session: ShareSession) -> None:
        """What its member holds is available to others. Nothing, when it has ended."""
        self._forget(session)
        if self.sessions.end(session):
            if not self.sessions.has_group(session.key.group_id):
                self.counts.fetches.pop(session.key.group_id, None)
            self.release(session.key)
            for hosted in list(self._hosted.values()):
                self._end_unused(hosted)

    def _end_unused(self, hosted: HostedSharePartition) -> None:
        """Without a member here a group's offsets may be altered, or the group deleted: who comes then reads
        the state again (``ShareGroupListener.onGroupEmpty``)."""
        if hosted.is_idle and not self.sessions.has_group(hosted.key.group_id):
            hosted.end(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group has no members here."))

    def _forget(self, session: ShareSession) -> None:
        connection = self._connections.pop(session, None)
        if connection is not None:
            connection.closed.pop(session, None)

    def release(self, key: SessionKey) -> None:
        """What the member holds is available to others: its session is over."""
        for hosted in list(self._hosted.values()):
            shared = hosted.shared if hosted.key.group_id == key.group_id else None
            if shared is not None and shared.release(key.member_id):
                self._changed(hosted)

    # Fetching and acknowledging

    async def fetch(
        self, group_id: str, partitions: Sequence[tuple[TopicIdPartition, str]], params: ShareFetchParams
    ) -> dict[TopicIdPartition, ShareRead | KafkaError]:
        """Acquire records of ``partitions``, each with its topic's name; wait for some if need be. Partitions
        that have nothing to say are left out."""
        answers: dict[TopicIdPartition, ShareRead | KafkaError] = {}
        hosted = []
        for at, topic in partitions:
            try:
                hosted.append(self._find_or_begin(ShareKey(group_id, at), topic))
            except KafkaError as error:
                answers[at] = error
        if not hosted or not params.asks_for_records:
            return answers
        if answers:
            params = params._replace(max_wait_ms=0)
        fetch = delayed_share_fetch.ShareFetch(
            params,
            hosted,
            wanted=len(partitions),
            figures=self._figures(group_id),
            counts=self.counts,
            replicas=self._replicas,
            log_io=self._parts.log_io,
            changed=self._changed,
        )
        for read in await fetch.run():
            if read.error is None:
                answers[read.hosted.key.at] = read
            elif read.error.code is not ErrorCode.COORDINATOR_NOT_AVAILABLE:  # else it is loaded again
                answers[read.hosted.key.at] = read.error
        return answers

    def _figures(self, group_id: str) -> FetchFigures:
        """Kept while the group has members here: so there are no more than sessions."""
        figures = self.counts.fetches.get(group_id)
        if figures is None:
            figures = FetchFigures()
            if self.sessions.has_group(group_id):
                self.counts.fetches[group_id] = figures
        return figures

    def acknowledge(
        self, group_id: str, member_id: str, at: TopicIdPartition, batches: Sequence[AcknowledgementBatch]
    ) -> asyncio.Future[KafkaError | None]:
        """What became of it, when it is safe: often now, see ``HostedSharePartition.submit``.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION; INVALID_RECORD_STATE; why it is not led here.
        """
        hosted = self._hosted.get(ShareKey(group_id, at))
        shared = None if hosted is None else hosted.shared
        if hosted is None or shared is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            )
        hosted.partition()
        now_ms = self._replicas.clock.monotonic_ms()
        return hosted.submit(shared.acknowledge(member_id, batches, now_ms=now_ms))

    def count(self, batches: Sequence[AcknowledgementBatch]) -> None:
        """Of acknowledgements that are safe."""
        for batch in batches:
            for first, last, kind in batch.ranges():
                self.counts.acknowledged[kind] += last - first + 1

    def _find_or_begin(self, key: ShareKey, topic: str) -> HostedSharePartition:
        """Raises KafkaError: it is not led here."""
        hosted = self._hosted.get(key)
        if hosted is not None and hosted.error is None:
            hosted.partition()
            return hosted
        topic_partition = TopicPartition(topic, key.at.partition)
        partition = self._replicas.partition(topic_partition)
        if partition.topic_id != key.at.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{topic_partition} has another topic id")
        hosted = HostedSharePartition(
            key,
            topic_partition,
            leader_epoch=partition.leader_epoch,
            parts=self._parts,
            changed=self._changed,
        )
        self._hosted[key] = hosted
        self._by_partition.setdefault(topic_partition, set()).add(key)
        return hosted

    def _changed(self, hosted: HostedSharePartition) -> None:
        """There may be more to acquire, or it has ended."""
        if hosted.error is not None and self._hosted.get(hosted.key) is hosted:
            del self._hosted[hosted.key]
            keys = self._by_partition[hosted.topic_partition]
            keys.discard(hosted.key)
            if not keys:
                del self._by_partition[hosted.topic_partition]
        if hosted.error is not None or hosted.can_be_fetched():
            self._replicas.parked.share_fetch.check_and_complete(hosted.key)
        self._end_unused(hosted)
