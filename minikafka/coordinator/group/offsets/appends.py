"""What the shard of a group writes about offsets, and what follows from each write. See ``group_offsets``.

Kafka: ``OffsetMetadataManager`` (``commitOffset``, ``commitTransactionalOffset``, ``deleteOffsets``),
``CoordinatorRuntime.CoordinatorCompleteTransactionEvent``.
"""

from __future__ import annotations

from minikafka.coordinator.effects import BatchOfTransaction
from minikafka.coordinator.group.effects import Answer, Append, Effects, Ticket, coordinator_error
from minikafka.coordinator.group.messages import EndTransaction, OffsetCommitResult
from minikafka.coordinator.group.offsets.offsets_log import OffsetsLog
from minikafka.coordinator.group.offsets.store import CommittedOffset
from minikafka.errors import KafkaError
from minikafka.protocol.internal.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from minikafka.protocol.records.control_records import ControlRecordType, EndTransactionMarker


class _OffsetsAppend(Append):
    """Records that one request writes; it is answered when they are committed."""

    __slots__ = ("_log", "_result", "_ticket")

    def __init__(
        self,
        log: OffsetsLog,
        records: list[GroupRecord],
        result: OffsetCommitResult,
        ticket: Ticket,
        transaction: BatchOfTransaction | None = None,
    ) -> None:
        super().__init__(records, transaction=transaction)
        self._log = log
        self._result = result
        self._ticket = ticket

    def committed(self, now_ms: int) -> Effects:
        return [Answer(self._ticket, self._result)]

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        return [Answer(self._ticket, coordinator_error(error))]


class OffsetsCommit(_OffsetsAppend):
    """The offsets of one request."""

    __slots__ = ("_entries",)

    def __init__(
        self, log: OffsetsLog, records: list[GroupRecord], result: OffsetCommitResult, ticket: Ticket
    ) -> None:
        super().__init__(log, records, result, ticket)
        self._entries: list[tuple[OffsetCommitKey, CommittedOffset]] = []

    def written(self, now_ms: int) -> Effects:
        for record in self.records:
            key, value = record.key, record.value
            assert isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommitValue)
            self._entries.append((key, self._log.written(key, value)))
        return []

    def committed(self, now_ms: int) -> Effects:
        self._settle(committed=True)
        return super().committed(now_ms)

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        self._settle(committed=False)
        return super().failed(error, now_ms)

    def _settle(self, *, committed: bool) -> None:
        for key, entry in self._entries:
            self._log.settled(key, entry, committed=committed)


class OffsetsDelete(_OffsetsAppend):
    """The tombstones of one OffsetDelete."""

    __slots__ = ()

    def written(self, now_ms: int) -> Effects:
        for record in self.records:
            assert isinstance(record.key, OffsetCommitKey)
            self._log.replay(record.key, None)
        return []


class TransactionalOffsetsCommit(_OffsetsAppend):
    """The offsets of one TxnOffsetCommit: nobody sees them before the marker of their transaction."""

    __slots__ = ()

    def written(self, now_ms: int) -> Effects:
        assert self.transaction is not None
        for record in self.records:
            key, value = record.key, record.value
            assert isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommitValue)
            self._log.replay(key, value, producer_id=self.transaction.producer_id)
        return []


class MarkerAppend(Append):
    """The marker that ends a transaction with offsets here. Answered with None, or with the log's error."""

    __slots__ = ("_is_commit", "_log", "_order", "_ticket")

    def __init__(self, log: OffsetsLog, request: EndTransaction, ticket: Ticket) -> None:
        kind = ControlRecordType.COMMIT if request.is_commit else ControlRecordType.ABORT
        super().__init__(
            (),
            timeout_ms=request.timeout_ms,
            transaction=BatchOfTransaction(
                request.producer_id,
                request.producer_epoch,
                marker=EndTransactionMarker(kind, request.coordinator_epoch),
                transaction_version=request.transaction_version,
            ),
        )
        self._log = log
        self._is_commit = request.is_commit
        self._ticket = ticket
        self._order = 0

    def written(self, now_ms: int) -> Effects:
        assert self.transaction is not None
        self._order = self._log.marker_written(self.transaction.producer_id, committed=self._is_commit)
        return []

    def committed(self, now_ms: int) -> Effects:
        self._log.passed(self._order)
        return [Answer(self._ticket, None)]

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        """Where it was written, it counts once the high watermark has passed it all the same."""
        return [Answer(self._ticket, error)]
