"""One share fetch from its arrival to its answer: acquire, and when there is nothing, wait for it.

Kafka: ``DelayedShareFetch`` (purgatory "ShareFetch"), ``ShareFetchUtils``. A share partition is read by one
fetch at a time: it is held from when a fetch finds that there may be something until it has acquired. A fetch
that finds too little waits under its share partitions and their partitions, until the high watermark moves,
records are released, a lock is over, another fetch lets go, one ends, or max wait is over. Woken, it holds
what it found in the same step; so of many that wait for one record one is woken.

Records are read in chunks of ``CHUNK_BYTES`` until there are as many as wanted: Kafka reads all of max bytes,
which it can leave in the page cache, and acquires the first of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.segment.fetch_data import ColdRead, FetchData, FetchedAbortedTransaction, FetchIsolation
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.records.batch import iterate_headers
from minikafka.protocol.records.records import ControlRecordType, iterate_records, read_end_transaction_marker
from minikafka.purgatory import DelayedOperation
from minikafka.server.replica.partition import Partition
from minikafka.server.replica.replica_manager import ReplicaManager
from minikafka.server.runtime.log_io import LogIo
from minikafka.server.share.share_partitions import FetchFigures, HostedSharePartition, ShareCounts
from minikafka.share.share_partition import AcquiredRecords, AcquireMode, FetchedBatch
from minikafka.types import Buffer, Offset

CHUNK_BYTES = 256 * 1024
WARMING_ROUNDS_MAX = 3
"""As of a fetch: after so many cold reads of a chunk the loop reads from the disk itself."""
_ENOUGH = 2**31
"""Bytes that are not counted: in another segment, or where the positions are not known."""


class ShareFetchParams(NamedTuple):
    """What a share fetch asks for as a whole."""

    member_id: str
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    mode: AcquireMode

    @property
    def asks_for_records(self) -> bool:
        """Whether an answer may have any."""
        return self.max_records > 0 and self.max_bytes > 0


class ShareRead(NamedTuple):
    """What a share partition answers."""

    hosted: HostedSharePartition
    records: Buffer = b""
    acquired: Sequence[AcquiredRecords] = ()
    error: KafkaError | None = None


class ShareFetch:
    """See the module header. ``run`` once."""

    def __init__(
        self,
        params: ShareFetchParams,
        partitions: Sequence[HostedSharePartition],
        *,
        wanted: int,
        figures: FetchFigures,
        counts: ShareCounts,
        replicas: ReplicaManager,
        log_io: LogIo,
        changed: Callable[[HostedSharePartition], None],
    ) -> None:
        """``partitions`` in the order in which they are to be read, of ``wanted`` that were asked for.
        ``changed`` is told of those that this fetch lets go."""
        self._params = params
        self._partitions = partitions
        self._replicas = replicas
        self._log_io = log_io
        self._changed = changed
        self._held: list[HostedSharePartition] = []
        self._wanted = wanted
        self._figures = figures
        self._counts = counts
        self._acquires_since_ms = replicas.clock.monotonic_ms()

    def __repr__(self) -> str:
        return f"ShareFetch({self._params.member_id}, {self._partitions})"

    async def run(self) -> list[ShareRead]:
        """What was acquired, and errors; nothing of the others."""
        clock = self._replicas.clock
        deadline_ms = clock.monotonic_ms() + self._params.max_wait_ms
        has_waited = False
        try:
            while True:
                left_ms = deadline_ms - clock.monotonic_ms()
                is_expired = left_ms <= 0 and has_waited and not self._held
                if self._held or self.is_ready(min_bytes=self._params.min_bytes if left_ms > 0 else 0):
                    acquired = len(self._held)
                    reads = self._failed() + await self._read_held()
                    if reads:
                        self._note_answer(acquired)
                        self._counts.expired_fetches += is_expired
                        return reads
                if left_ms <= 0:
                    self._counts.expired_fetches += 1
                    self._note_acquire_time()
                    self._note_answer(0)
                    return []
                await self._wait(left_ms)
                has_waited = True
        finally:
            self._let_go()

    def is_ready(self, *, min_bytes: int) -> bool:
        """Whether there is something to answer; then what there is to read is held."""
        held, size_bytes = [], 0
        for hosted in self._partitions:
            if hosted.error is not None:
                min_bytes = 0
                continue
            if hosted.fetcher is None and (found_bytes := self._bytes_available(hosted, min_bytes)):
                held.append(hosted)
                size_bytes += found_bytes
        if size_bytes < min_bytes or not (held or self._failed()):
            return False
        for hosted in held:
            hosted.begin_fetch(self)
        self._held = held
        if held:
            self._note_acquire_time()
        return True

    def _note_acquire_time(self) -> None:
        """``DelayedShareFetch.updateAcquireElapsedTimeMetric``."""
        now_ms = self._replicas.clock.monotonic_ms()
        self._figures.acquire_times_ms.update(now_ms - self._acquires_since_ms)
        self._acquires_since_ms = now_ms

    def _note_answer(self, acquired: int) -> None:
        self._figures.acquired_percents.update(acquired * 100 // self._wanted)

    def _bytes_available(self, hosted: HostedSharePartition, min_bytes: int) -> int:
        shared = hosted.shared
        if shared is None or not shared.can_acquire():
            return 0
        try:
            log = hosted.partition().log
            end_offset = hosted.partition().end_offset(hosted.isolation)
        except KafkaError:  # it has ended with that
            return 0
        shared.move_start(log.log_start_offset)
        offset = shared.next_fetch_offset()
        if offset >= end_offset:
            return 0
        if min_bytes <= 1:
            return 1
        begin, end = log.offset_metadata(offset), log.offset_metadata(end_offset)
        if begin.message_offset_only or end.message_offset_only or begin.on_older_segment(end):
            return _ENOUGH
        return max(1, begin.bytes_until(end))

    def _failed(self) -> list[ShareRead]:
        return [
            ShareRead(hosted, error=hosted.error) for hosted in self._partitions if hosted.error is not None
        ]

    async def _wait(self, left_ms: int) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        operation = DelayedShareFetch(self, woken, self._params.min_bytes, left_ms)
        keys = [key for each in self._partitions for key in (each.key, each.topic_partition)]
        try:
            self._replicas.parked.share_fetch.try_complete_else_watch(operation, keys)
            await woken
        finally:
            operation.abandon()

    # Reading

    async def _read_held(self) -> list[ShareRead]:
        params = self._params
        reads: list[ShareRead] = []
        records_left, bytes_left = params.max_records, params.max_bytes
        for place, hosted in enumerate(self._held):
            if records_left <= 0 or (bytes_left <= 0 and reads):
                break
            share_bytes = max(1, bytes_left // (len(self._held) - place))
            try:
                read = await self._read(hosted, share_bytes, records_left)
            except KafkaError as error:
                reads.append(ShareRead(hosted, error=error))
                continue
            if read.acquired:
                reads.append(read)
                bytes_left -= len(read.records)
                records_left -= sum(each.record_count for each in read.acquired)
        self._let_go()
        return reads

    async def _read(self, hosted: HostedSharePartition, bytes_left: int, records_left: int) -> ShareRead:
        """Raises KafkaError."""
        params = self._params
        chunks: list[Buffer] = []
        acquired: list[AcquiredRecords] = []
        while records_left > 0 and (bytes_left > 0 or not acquired):
            shared = hosted.shared
            if shared is None or not shared.can_acquire():
                break
            partition, isolation = hosted.partition(), hosted.isolation
            shared.move_start(partition.log.log_start_offset)
            offset = shared.next_fetch_offset()
            if offset >= partition.end_offset(isolation):
                break
            data = await self._read_chunk(
                partition, offset, min(bytes_left, CHUNK_BYTES), isolation, min_one_message=not acquired
            )
            shared = hosted.shared
            if shared is None:
                break
            batches = list(fetched_batches(data.records, data.aborted_transactions))
            if not batches:
                break
            found = shared.acquire(
                params.member_id,
                offset,
                [batch for _, batch in batches],
                max_records=records_left,
                batch_size=params.batch_size,
                mode=params.mode,
                now_ms=self._replicas.clock.monotonic_ms(),
            )
            if found:
                chunk = records_of(data.records, batches, found)
                chunks.append(chunk)
                acquired += found
                bytes_left -= len(chunk)
                records_left -= sum(each.record_count for each in found)
                hosted.keep_locks()
                hosted.figures.note_acquired(found)
            elif shared.next_fetch_offset() <= offset:  # no progress
                break
        return ShareRead(hosted, chunks[0] if len(chunks) == 1 else b"".join(chunks), acquired)

    async def _read_chunk(
        self,
        partition: Partition,
        offset: int,
        max_bytes: int,
        isolation: FetchIsolation,
        *,
        min_one_message: bool,
    ) -> FetchData:
        brought: ColdRead | None = None
        for warmed in range(WARMING_ROUNDS_MAX + 1):
            try:
                return partition.log.read(
                    Offset(offset),
                    max_bytes=max_bytes,
                    min_one_message=min_one_message,
                    isolation=isolation,
                    cached_only=warmed < WARMING_ROUNDS_MAX,
                    brought=brought,
                )
            except ColdRead as cold:
                brought = await self._log_io.warmed(cold)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.topic_partition} cannot be read")

    def _let_go(self) -> None:
        held, self._held = self._held, []
        for hosted in held:
            hosted.end_fetch()
        for hosted in held:
            self._changed(hosted)


class DelayedShareFetch(DelayedOperation):
    """A share fetch that waits."""

    __slots__ = ("_fetch", "_min_bytes", "_woken")

    def __init__(self, fetch: ShareFetch, woken: asyncio.Future[None], min_bytes: int, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self._fetch: ShareFetch | None = fetch
        self._woken = woken
        self._min_bytes = min_bytes

    def waits_for(self) -> str:
        return f"{self._min_bytes} bytes that no other member has"

    def try_complete(self) -> bool:
        fetch = self._fetch
        return fetch is not None and fetch.is_ready(min_bytes=self._min_bytes) and self.force_complete()

    def on_complete(self) -> None:
        self._fetch = None  # a purgatory keeps what is over for a while
        if not self._woken.done():
            self._woken.set_result(None)

    def on_failure(self, error: Exception) -> None:
        if not self._woken.done():
            self._woken.set_exception(error)

    def abandon(self) -> None:
        """It waits no longer."""
        self.force_complete()


def fetched_batches(
    records: Buffer, aborted: Sequence[FetchedAbortedTransaction] | None
) -> Iterator[tuple[int, FetchedBatch]]:
    """The whole batches of ``records``, each with where it ends. ``aborted``: of a read_committed read, the
    transactions that were aborted, by their first offsets."""
    coming = sorted(aborted or (), key=lambda each: each.first_offset, reverse=True)
    open_aborted: set[int] = set()
    for position, header in iterate_headers(records):
        while coming and coming[-1].first_offset <= header.last_offset:
            open_aborted.add(coming.pop().producer_id)
        end = position + header.size
        if header.is_control:
            if open_aborted and _is_abort(memoryview(records)[position:end]):
                open_aborted.discard(header.producer_id)
            is_hidden = True
        else:
            is_hidden = header.is_transactional and header.producer_id in open_aborted
        yield end, FetchedBatch(header.base_offset, header.last_offset, is_hidden)


def _is_abort(batch: memoryview) -> bool:
    for record in iterate_records(batch):
        marker = read_end_transaction_marker(record.key, record.value)
        return marker is not None and marker.type is ControlRecordType.ABORT
    return False


def records_of(
    records: Buffer, batches: Sequence[tuple[int, FetchedBatch]], acquired: Sequence[AcquiredRecords]
) -> Buffer:
    """The batches from the one with the first acquired record to the one with the last
    (``maybeSliceFetchRecords``). What is less than half of what was read is copied: a response that waits
    for its client should not hold the rest."""
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    begin = end = 0
    for batch_end, batch in batches:
        if batch.last_offset < first:
            begin = batch_end
        if batch.first_offset <= last:
            end = batch_end
    wanted = memoryview(records)[begin:end]
    return wanted if 2 * len(wanted) >= len(records) else bytes(wanted)
