"""Reading a partition of a coordinator's topic into a shard.

Kafka: ``CoordinatorLoaderImpl``, ``TransactionStateManager.loadTransactionMetadata``. The log is read from
its start to its end, a piece of ``offsets.load.buffer.size`` or ``transaction.state.log.load.buffer.size`` at
a time; the loop gets its turn between batches, and a cold piece is brought into memory by a disk thread. What
is read last is replayed without a pause before the load ends, so a shard that is loaded has seen all that is
in the log.

Where it differs from Kafka: there a damaged record keeps the whole partition from being loaded. Here a record
or a batch that cannot be read is logged with its offset and left out, so that the other groups and
transactional ids are served. Only where the batches themselves cannot be told apart the load fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from minikafka.clock import Clock
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.log.segment.fetch_data import ColdRead, FetchIsolation
from minikafka.protocol.records.batch import BatchHeader, iterate_headers
from minikafka.protocol.records.compression import CorruptBatch
from minikafka.protocol.records.control_records import ControlRecordType, read_end_transaction_marker
from minikafka.protocol.records.records import iterate_records
from minikafka.server.replica.partition import Partition
from minikafka.server.runtime.log_io import LogIo
from minikafka.server.runtime.turns import Turns
from minikafka.types import NO_PRODUCER_ID, Buffer, Offset

logger = logging.getLogger(__name__)


class Loaded(NamedTuple):
    """What a load has read."""

    records: int
    damaged: int
    end_offset: Offset


class Replay(Protocol):
    """What is read goes here, in the order of the log."""

    def record(self, key: bytes, value: bytes | None, now_ms: int, *, producer_id: int) -> None:
        """``producer_id`` is that of the transaction which the record is part of, or NO_PRODUCER_ID.

        Raises:
            KafkaError, InvariantError: it is left out.
        """

    def marker(self, producer_id: int, *, committed: bool) -> None:
        """The transaction of ``producer_id`` has ended."""


class CoordinatorLoad:
    """One load of one partition into one shard. ``run`` once."""

    def __init__(
        self,
        partition: Partition,
        replay: Replay,
        *,
        log_io: LogIo,
        clock: Clock,
        buffer_bytes: int,
        is_wanted: Callable[[], bool],
    ) -> None:
        """``is_wanted`` is asked after each pause: a load for a leadership that is over ends."""
        self._partition = partition
        self._replay = replay
        self._log_io = log_io
        self._now_ms = clock.now_ms()
        self._buffer_bytes = buffer_bytes
        self._is_wanted = is_wanted
        self._records = 0
        self._damaged = 0

    async def run(self) -> Loaded | None:
        """Replay all there is; None: it is not wanted any more.

        Raises:
            KafkaError: the log cannot be read.
        """
        turns = Turns()
        position = self._partition.log.log_start_offset
        while position < self._partition.log.log_end_offset:
            records = await self._read(position)
            if not self._is_wanted():
                return None
            begin = position
            for at, header in iterate_headers(records):
                self._replay_batch(memoryview(records)[at : at + header.size], header)
                position = Offset(header.next_offset)
                await turns.give_way()
                if not self._is_wanted():
                    return None
            if position == begin:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"there is no batch at offset {position}")
        if not self._is_wanted():
            return None
        return Loaded(self._records, self._damaged, self._partition.log.log_end_offset)

    async def _read(self, position: Offset) -> Buffer:
        while True:
            try:
                return self._partition.log.read(
                    position,
                    max_bytes=self._buffer_bytes,
                    min_one_message=True,
                    isolation=FetchIsolation.LOG_END,
                ).records
            except ColdRead as cold:
                await self._log_io.warmed(cold)
                if not self._is_wanted():
                    return b""

    def _replay_batch(self, batch: memoryview, header: BatchHeader) -> None:
        try:
            if header.is_control:
                self._replay_marker(batch, header)
                return
            records = list(iterate_records(batch))  # all of it, before any of it
        except CorruptBatch as error:
            self._left_out(header.base_offset, error, count=header.record_count)
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in records:
            try:
                if record.key is None:
                    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a record without a key")
                self._replay.record(record.key, record.value, self._now_ms, producer_id=producer_id)
                self._records += 1
            except (KafkaError, InvariantError) as error:
                self._left_out(record.offset, error)

    def _replay_marker(self, batch: memoryview, header: BatchHeader) -> None:
        for record in iterate_records(batch):
            marker = read_end_transaction_marker(record.key, record.value)
            if marker is not None:
                self._replay.marker(header.producer_id, committed=marker.type is ControlRecordType.COMMIT)

    def _left_out(self, offset: int, error: Exception, *, count: int = 1) -> None:
        self._damaged += count
        logger.error(
            "%s: the record at offset %d is damaged and left out: %s",
            self._partition.topic_partition,
            offset,
            error,
        )
