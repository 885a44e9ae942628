"""Requests that wait in a purgatory: DelayedFetch, DelayedProduce, DelayedDeleteRecords.

**A fetch** from its arrival to its answer: read, and when there is too little, wait for more. Kafka's
``ReplicaManager.fetchMessages`` and ``DelayedFetch``. A fetch answers at once when max wait is 0, when it
names no partition, when there are enough bytes, on an error, on a diverging epoch, and when a consumer is
sent to another replica. Otherwise it is parked under its partitions and completes when

    A  this broker no longer leads one of them         F  the fetch offset lies in a segment before the end's
    B  it no longer knows one of them                  G  enough bytes have come
    C  a log directory went offline                    H  the reader's epoch parted from the log's
    D  the leader epoch in the request is fenced       I  max wait is over
    E  the fetch offset lies beyond the end (truncation)

F and G do not count partitions that the replication quota holds back from a follower (KIP-73), nor those
with which it is to catch up later (``CatchUpPace``): for these the wait ends with its pause. When such a wait
is over the partitions are read again: by then the quota may be free.

A, unless any replica may answer (``FetchParams.leader_only``). A follower's fetch tells how far it is: that
is noted once, at the first pass, after all of its partitions were read.

States of a ``Fetch``:

    READING --enough, or an error-------------> ANSWERED
    READING --cold ranges--> WARMING --warm---> READING
    READING --too little---> PARKED --A to I--> READING (answers with whatever it finds)
    PARKED  --I, and nothing has happened-----> ANSWERED (with what it had found, unless held back)
    any     --the connection closes-----------> CANCELLED

**A produce** with acks=all waits until the in-sync replicas have its records. Kafka: ``DelayedProduce``. Made
after the append, when at least one partition is not committed yet. Each partition stands at REQUEST_TIMED_OUT
with its acknowledgement pending, until one of these settles it:

    A  this broker does not host it any more     C  the high watermark has reached the end of the append
    B  this broker does not lead it any more     D  so it has, but the ISR is below min.insync.replicas

The answer leaves when every partition is settled, or at the timeout of the request. The connection continues
with its next requests meanwhile. A deposed leader settles all by B, so nothing is acknowledged that its
successor may not have (I7). Coordinators and markers, whose writes are no requests, wait in the same way
(``when_committed``).

**A deletion of records** waits until all live replicas have deleted. Kafka: ``DelayedDeleteRecords``
(KIP-107). The leader has raised its log start; the followers hear of it with their next fetches and tell
their own with the ones after. Each partition stands at REQUEST_TIMED_OUT until the low watermark (the
smallest log start of the live replicas) has reached what was asked, or until the partition is not led here
any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Final

from minikafka.clock import Clock
from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.segment.fetch_data import ColdRead
from minikafka.network.connection import PendingResponse
from minikafka.purgatory import DelayedOperation
from minikafka.server.replica.partition_reads import (
    NO_REPLICA,
    FetchParams,
    LeaderThrottle,
    PartitionRead,
    WantedPartition,
    check_access,
    read_partitions,
)
from minikafka.server.replica.replica_manager import ReplicaManager
from minikafka.server.runtime.log_io import LogIo
from minikafka.server.runtime.work_scheduler import WorkScheduler
from minikafka.steps import Steps, finish
from minikafka.types import NO_OFFSET, Buffer, Offset, TopicPartition

WARMING_ROUNDS_MAX = 3
"""Passes that may find cold ranges: a header, then its records, then one that was evicted again. After
these the loop reads from the disk itself rather than chase a page cache that is too small."""

WATCHED_PARTITIONS_MAX = 10_000
"""So many partitions wake a parked fetch, and are counted then; of the others it hears when max wait is over.
More are in no honest consumer's request, and each append to one of them counts all."""

_NAMED_MAX = 3
"""Partitions that a ``repr`` names."""

_TIMED_OUT: Final = KafkaError(
    ErrorCode.REQUEST_TIMED_OUT, "the records were appended, but too few replicas had them in time"
)

Settled = Callable[[KafkaError | None], None]
"""Told once what became of a write: None, when it is committed."""


class Fetch:
    """A fetch under way. ``start`` answers it or returns the promise of an answer."""

    __slots__ = (
        "_brought", "_clock", "_deadline_ms", "_force_respond", "_has_held_back", "_log_io", "_params",
        "_pause_ms", "_pending", "_replicas", "_respond", "_rounds", "_scheduler", "_wanted",
    )  # fmt: skip

    def __init__(
        self,
        *,
        replicas: ReplicaManager,
        log_io: LogIo,
        clock: Clock,
        params: FetchParams,
        wanted: Sequence[WantedPartition],
        respond: Callable[[list[PartitionRead]], Sequence[Buffer] | Steps[Sequence[Buffer]]],
        scheduler: WorkScheduler | None = None,
    ) -> None:
        """``scheduler``: of a fetch of so many partitions that it is read and answered in steps."""
        self._replicas = replicas
        self._log_io = log_io
        self._clock = clock
        self._params = params
        self._wanted = wanted
        self._respond = respond
        self._scheduler = scheduler
        self._pending: PendingResponse | None = None
        self._deadline_ms = 0
        self._rounds = 0
        self._brought: dict[TopicPartition, ColdRead] = {}
        """What was cold and was fetched, until all is there."""
        self._has_held_back = False
        self._pause_ms = 0
        self._force_respond = params.max_wait_ms <= 0 or not wanted

    def start(self) -> Steps[Sequence[Buffer] | PendingResponse]:
        """In steps: the response, or the promise of it when bytes are missing or cold. Again after each wait,
        when the same promise says that it waits once more."""
        params = self._params
        while True:
            reads, size_bytes, cold, places, self._has_held_back, self._pause_ms = yield from read_partitions(
                self._replicas,
                params,
                self._wanted,
                cached_only=self._rounds < WARMING_ROUNDS_MAX,
                brought=self._brought,
            )
            if not places or self._pending is not None:
                break
            self._replicas.record_follower_fetch(params.replica_id, params.replica_epoch, places)
            if not (self._pause_ms and self._is_late(reads)):
                break
        self._brought = {**self._brought, **cold} if cold else {}
        if not cold and (self._force_respond or self._is_satisfied(reads, size_bytes)):
            return (yield from self._answer(reads))
        if self._pending is None:
            self._pending = PendingResponse(expected_bytes=params.max_bytes)
            self._deadline_ms = self._clock.monotonic_ms() + params.max_wait_ms
        if cold:
            self._rounds += 1
            self._warm(cold.values())
        else:
            self._park(reads)
        return self._pending

    def _answer(self, reads: list[PartitionRead]) -> Steps[Sequence[Buffer]]:
        answer = self._respond(reads)
        return (yield from answer) if isinstance(answer, Generator) else answer

    def _warm(self, cold: Collection[ColdRead]) -> None:
        """Have all of it read from the disk, and go on then."""
        missing = len(cold)

        def warmed() -> None:
            nonlocal missing
            missing -= 1
            if missing == 0:
                self._warmed()

        for range_ in cold:
            self._log_io.warm(range_, then=warmed)

    def _is_late(self, reads: list[PartitionRead]) -> bool:
        """Whether something is kept for later that producers wait for, since the follower has told how far it
        is: there it is as good as in sync."""
        now_ms, partitions = self._clock.monotonic_ms(), self._replicas.partitions
        paused = (partitions.get(read.wanted.topic_partition) for read in reads if read.is_paused)
        return any(
            partition is not None and partition.is_waited_for(self._params.replica_id, now_ms)
            for partition in paused
        )

    def _is_satisfied(self, reads: list[PartitionRead], size_bytes: int) -> bool:
        return size_bytes >= self._params.min_bytes or any(
            read.error is not ErrorCode.NONE
            or read.diverging_epoch is not None
            or read.preferred_read_replica != NO_REPLICA
            for read in reads
        )

    def _park(self, reads: list[PartitionRead]) -> None:
        assert self._pending is not None
        delay_ms = max(0, self._deadline_ms - self._clock.monotonic_ms())
        if self._pause_ms:
            delay_ms = min(delay_ms, self._pause_ms)
        operation = DelayedFetch(self, self._replicas, self._params, reads, delay_ms=delay_ms)
        self._pending.on_closed = operation.abandon
        keys = [read.wanted.topic_partition for read in reads[:WATCHED_PARTITIONS_MAX]]
        self._replicas.parked.fetch.watch(operation, keys)

    def wait_is_over(self, unchanged: list[PartitionRead] | None) -> None:
        """The parked fetch answers. ``unchanged`` is what was read before the wait, when nothing has woken it
        since."""
        try:
            if unchanged is None or not self._answer_unchanged(unchanged):
                self._resume(force_respond=True)
        except BaseException:
            self.give_up()
            raise

    def give_up(self) -> None:
        """It has failed: there will be no answer, and the connection closes."""
        if self._pending is not None and self._pending.is_waiting:
            self._pending.abandon()

    def _answer_unchanged(self, reads: list[PartitionRead]) -> bool:
        """Answer with what was read before the wait, if it would be read again; most fetches of an idle
        cluster end so. Returns whether it was."""
        assert self._pending is not None
        if self._has_held_back:
            return False
        partitions = self._replicas.partitions
        for read in reads:
            partition = partitions.get(read.wanted.topic_partition)
            if (
                partition is None
                or partition.log.high_watermark != read.high_watermark
                or partition.log.log_start_offset != read.log_start_offset
            ):
                return False
        if self._pending.is_waiting:
            self._continue(self._answer(reads))
        return True

    def _warmed(self) -> None:
        """What was cold is here."""
        try:
            self._resume()
        except BaseException:
            self.give_up()
            raise

    def _resume(self, *, force_respond: bool = False) -> None:
        """Read again after a wait; with ``force_respond`` the wait was the last one."""
        assert self._pending is not None
        if not self._pending.is_waiting:
            return
        self._force_respond = self._force_respond or force_respond
        self._continue(self.start())

    def _continue(self, steps: Steps[Sequence[Buffer]] | Steps[Sequence[Buffer] | PendingResponse]) -> None:
        """Complete the promise with what comes of ``steps``, unless they wait once more."""
        assert self._pending is not None
        if self._scheduler is not None:
            self._scheduler.answer(self._pending, steps)
            return
        answer = finish(steps)
        if not isinstance(answer, PendingResponse) and self._pending.is_waiting:
            self._pending.complete(answer)


class DelayedFetch(DelayedOperation):
    """A parked fetch: knows where each partition stood and counts what has come since."""

    __slots__ = ("_abandoned", "_fetch", "_params", "_reads", "_replicas", "_was_tried")

    def __init__(
        self,
        fetch: Fetch,
        replicas: ReplicaManager,
        params: FetchParams,
        reads: list[PartitionRead],
        *,
        delay_ms: int,
    ) -> None:
        super().__init__(delay_ms)
        self._fetch: Fetch | None = fetch
        self._replicas = replicas
        self._params = params
        self._reads = reads
        self._abandoned = False
        self._was_tried = False
        """Whether anything has happened to a partition since it was read: then this was called."""

    def __repr__(self) -> str:
        wanted = [read.wanted for read in self._reads]
        at = [f"{each.topic_partition} from {each.fetch_offset}" for each in wanted[:_NAMED_MAX]]
        more = f" and {len(wanted) - len(at)} more" if len(wanted) > len(at) else ""
        who = f"broker {self._params.replica_id}" if self._params.is_from_follower else "a consumer"
        return f"DelayedFetch(of {who}: {', '.join(at)}{more})"

    def try_complete(self) -> bool:
        self._was_tried = True
        accumulated = 0
        throttle = LeaderThrottle.of(self._replicas, self._params)
        for read in self._reads[:WATCHED_PARTITIONS_MAX]:
            try:
                available = self._bytes_available(read, throttle)
            except KafkaError:  # A to D: the answer will name the error
                return self.force_complete()
            if available is None:
                return self.force_complete()
            accumulated += available
        return accumulated >= self._params.min_bytes and self.force_complete()

    def _bytes_available(self, read: PartitionRead, throttle: LeaderThrottle | None) -> int | None:
        """Bytes that came for one partition since it was read; None when it must answer whatever there is."""
        wanted, start = read.wanted, read.start
        partition = self._replicas.hosted(wanted.topic_partition)
        check_access(partition, wanted, self._params)
        end_offset = partition.end_offset(self._params.isolation)
        if start is None or end_offset == start.message_offset:
            return 0
        end = partition.log.offset_metadata(end_offset)
        is_held_back = read.is_paused or (throttle is not None and throttle.holds_back(partition))
        if end.message_offset < start.message_offset:
            return None  # E
        if not is_held_back and (start.on_older_segment(end) or end.message_offset_only):
            return None  # F
        if partition.diverging_epoch(
            last_fetched_epoch=wanted.last_fetched_epoch, fetch_offset=wanted.fetch_offset
        ):
            return None  # H
        return 0 if is_held_back else min(start.bytes_until(end), wanted.max_bytes)

    @property
    def params(self) -> FetchParams:
        """What its request asks for as a whole."""
        return self._params

    def fetch_offset(self, topic_partition: TopicPartition) -> Offset | None:
        """From where it reads a partition; None: it does not."""
        return next(
            (
                read.wanted.fetch_offset
                for read in self._reads
                if read.wanted.topic_partition == topic_partition
            ),
            None,
        )

    def waits_for(self) -> str:
        params = self._params
        who = f"follower {params.replica_id}" if params.is_from_follower else "a consumer"
        places = ", ".join(
            f"{read.wanted.topic_partition} from {read.wanted.fetch_offset}" for read in self._reads[:3]
        )
        more = f" and {len(self._reads) - 3} more" if len(self._reads) > 3 else ""
        return f"{params.min_bytes} bytes for {who}: {places}{more}"

    def on_complete(self) -> None:
        fetch, reads = self._fetch, self._reads
        self._fetch, self._reads = None, []  # a purgatory keeps what is over for a while
        if fetch is None or self._abandoned:
            return
        fetch.wait_is_over(None if self._was_tried else reads)

    def on_failure(self, error: Exception) -> None:
        if self._fetch is not None:  # else it has been resumed, and has given up by itself
            self._fetch.give_up()

    def abandon(self) -> None:
        """The connection is gone: leave the purgatory, answer nothing."""
        self._abandoned = True
        self.force_complete()


def _nothing() -> None:
    """What is left to do once the answer is on its way."""


class UncommittedAppend:
    """One partition of the request: what was appended ends at ``required_offset``."""

    __slots__ = ("error", "is_pending", "required_offset", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, required_offset: Offset) -> None:
        self.topic_partition = topic_partition
        self.required_offset = required_offset
        self.is_pending = True
        self.error: KafkaError | None = _TIMED_OUT
        """What its producer is told; None when the append is committed."""

    def __repr__(self) -> str:
        state = "pending" if self.is_pending else self.error
        return f"UncommittedAppend({self.topic_partition} to {self.required_offset}: {state})"

    def fail(self, error: KafkaError) -> None:
        """It is not known whether it will be committed. Nothing, when it is settled."""
        if self.is_pending:
            self.error, self.is_pending = error, False

    def try_settle(self, replicas: ReplicaManager) -> bool:
        """Whether it is settled, now or before."""
        if self.is_pending:
            try:
                if not replicas.partition(self.topic_partition).is_committed(self.required_offset):
                    return False
                self.error = None
            except KafkaError as error:
                self.error = error
            self.is_pending = False
        return True


class DelayedProduce(DelayedOperation):
    """A parked produce. ``then`` is called once, when every append is settled or the time is up."""

    __slots__ = ("_appends", "_is_abandoned", "_pending", "_replicas", "_then")

    def __init__(
        self,
        replicas: ReplicaManager,
        appends: Sequence[UncommittedAppend],
        then: Callable[[], None],
        *,
        timeout_ms: int,
    ) -> None:
        super().__init__(timeout_ms)
        self._replicas = replicas
        self._appends = appends
        self._then = then
        self._is_abandoned = False
        self._pending: PendingResponse | None = None

    def __repr__(self) -> str:
        more = f" and {len(self._appends) - _NAMED_MAX} more" if len(self._appends) > _NAMED_MAX else ""
        return f"DelayedProduce({', '.join(map(repr, self._appends[:_NAMED_MAX]))}{more})"

    def park(self, pending: PendingResponse) -> None:
        """Wait for the replicas, as long as ``pending`` is waited for."""
        self._pending = pending
        pending.on_closed = self.abandon
        self.wait()

    def required_offset(self, topic_partition: TopicPartition) -> Offset | None:
        """Up to where it waits for a partition to be committed; None: it does not (any more)."""
        offsets = (
            each.required_offset
            for each in self._appends
            if each.topic_partition == topic_partition and each.is_pending
        )
        return max(offsets, default=None)

    def wait(self) -> None:
        """Wait for the replicas, without a client that waits."""
        keys = [append.topic_partition for append in self._appends]
        self._replicas.parked.produce.try_complete_else_watch(self, keys)

    def try_complete(self) -> bool:
        replicas = self._replicas
        is_settled = True
        for append in self._appends:
            is_settled = append.try_settle(replicas) and is_settled
        return is_settled and self.force_complete()

    def waits_for(self) -> str:
        missing = [each for each in self._appends if each.is_pending]
        places = ", ".join(f"{each.topic_partition} to {each.required_offset}" for each in missing[:3])
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        return f"the high watermark of {places}{more}"

    def on_complete(self) -> None:
        then, self._then = self._then, _nothing
        replicas = self._replicas
        if self.expiration_ms:  # else it has never waited
            waited_ms = replicas.clock.monotonic_ms() - self.expiration_ms + self.delay_ms
            if waited_ms >= replicas.slow_request_ms and not self._is_abandoned:
                self._record_slow(waited_ms)
        self._appends = ()  # a purgatory keeps what is over for a while, see ``DelayedOperationPurgatory``
        if not self._is_abandoned:
            then()

    def _record_slow(self, waited_ms: int) -> None:
        """As an event of one partition: of one that is not committed, if there is any."""
        append = max(self._appends, key=lambda each: each.error is not None, default=None)
        if append is not None:
            self._replicas.record_slow_produce(
                append.topic_partition,
                append.required_offset,
                waited_ms=waited_ms,
                is_committed=append.error is None,
            )

    def on_failure(self, error: Exception) -> None:
        """A client that waits gets an error, as the outcome is not known; one that cannot be answered is
        closed."""
        for append in self._appends:
            append.fail(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
        try:
            self.on_complete()
        finally:
            if self._pending is not None and self._pending.is_waiting:
                self._pending.abandon()

    def abandon(self) -> None:
        """The connection is gone: leave the purgatory, answer nothing."""
        self._is_abandoned = True
        self.force_complete()


def when_committed(
    replicas: ReplicaManager,
    topic_partition: TopicPartition,
    required_offset: Offset,
    settled: Settled,
    *,
    timeout_ms: int,
) -> None:
    """Call ``settled`` when all below ``required_offset`` is committed, or will not be in time; that may be
    now.

    Kafka: ``DelayedProduce`` as ``ReplicaManager.appendRecords`` uses it for coordinators and for markers. It
    waits in the purgatory of the produces; where ``flush.messages`` makes a flush due, it waits for that too.
    """
    flushed = replicas.flushed(topic_partition)
    append = UncommittedAppend(topic_partition, required_offset)

    def after_flush(done: asyncio.Future[None]) -> None:
        if done.cancelled():  # the broker stops
            return
        try:
            replicas.partition(topic_partition)
        except KafkaError as error:  # the flush failed, and took the log directory offline
            settled(error)
        else:
            settled(None)

    def replicated() -> None:
        if append.error is None and flushed is not None and not flushed.done():
            flushed.add_done_callback(after_flush)
        else:
            settled(append.error)

    if append.try_settle(replicas):
        replicated()
    else:
        DelayedProduce(replicas, (append,), replicated, timeout_ms=timeout_ms).wait()


class PartitionDeletion:
    """One partition of the request."""

    __slots__ = ("error", "is_pending", "low_watermark", "required_offset", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.required_offset = NO_OFFSET
        self.low_watermark = NO_OFFSET
        self.error = ErrorCode.REQUEST_TIMED_OUT
        self.is_pending = True

    def __repr__(self) -> str:
        return (
            f"PartitionDeletion({self.topic_partition} below {self.required_offset}, "
            f"low_watermark={self.low_watermark}, {self.error.name})"
        )

    def begin(self, replicas: ReplicaManager, offset: Offset) -> None:
        """Delete on this replica what lies below ``offset`` (-1: the high watermark)."""
        try:
            self.required_offset = replicas.delete_records(self.topic_partition, offset)
        except KafkaError as error:
            self.settle(error.code)

    def try_settle(self, replicas: ReplicaManager) -> bool:
        """Whether it is settled, now or before."""
        if self.is_pending:
            try:
                low_watermark = replicas.hosted(self.topic_partition).low_watermark()
            except KafkaError as error:
                self.settle(error.code)
            else:
                if low_watermark < self.required_offset:
                    return False
                self.low_watermark = low_watermark
                self.settle(ErrorCode.NONE)
        return True

    def settle(self, error: ErrorCode) -> None:
        """There is nothing more to wait for."""
        self.error = error
        self.is_pending = False


class DelayedDeleteRecords(DelayedOperation):
    """A parked deletion; ``done`` is resolved when it is settled or its time is up."""

    __slots__ = ("_deletions", "_replicas", "done")

    def __init__(
        self, replicas: ReplicaManager, deletions: Sequence[PartitionDeletion], *, timeout_ms: int
    ) -> None:
        super().__init__(timeout_ms)
        self._replicas = replicas
        self._deletions = deletions
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def park(self) -> None:
        """Wait for the replicas."""
        keys = [deletion.topic_partition for deletion in self._deletions]
        self._replicas.parked.delete_records.try_complete_else_watch(self, keys)

    def waits_for(self) -> str:
        places = [
            f"{each.topic_partition} to {each.required_offset}" for each in self._deletions if each.is_pending
        ]
        more = f" and {len(places) - 3} more" if len(places) > 3 else ""
        return f"the log start on all replicas of {', '.join(places[:3])}{more}"

    def try_complete(self) -> bool:
        replicas = self._replicas
        is_settled = True
        for deletion in self._deletions:
            is_settled = deletion.try_settle(replicas) and is_settled
        return is_settled and self.force_complete()

    def on_complete(self) -> None:
        if not self.done.done():  # cancelled: the broker stops
            self.done.set_result(None)

    def on_failure(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)
