"""From a decision to its end: the markers of a transaction, then the record that all are written.

Kafka: ``TransactionMarkerChannelManager`` and its ``TransactionMarkerRequestCompletionHandler``, without the
channels. Meanwhile the transition to CompleteCommit or CompleteAbort is pending, so the id answers
CONCURRENT_TRANSACTIONS to whoever wants to begin something.

Where it differs: an error of a marker that Kafka takes for a bug, and a failure to write the last record
of whatever kind, is tried again after a pause; there the thread that sends dies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from minikafka.coordinator.transaction.effects import (
    Effects,
    OperationKind,
    Park,
    TransactionOperation,
    WriteMarkers,
)
from minikafka.coordinator.transaction.metadata import TransactionMetadata
from minikafka.coordinator.transaction.settings import TransactionSettings
from minikafka.coordinator.transaction.transaction_state import TransactionState
from minikafka.coordinator.transaction.transition import Transition
from minikafka.errors import ErrorCode, KafkaError
from minikafka.types import TopicPartition

RETRY_MS: Final = 100
"""After which the last record of a transaction is tried again (Kafka: at the sender's next turn)."""

_NOTHING_TO_MARK: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION}
)
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Another coordinator has this id now, and has gone on; this one will hear of it."""


class Completing:
    """A transaction whose markers are being written. ``unmarked`` is None when that has been given up."""

    __slots__ = ("metadata", "unmarked")

    def __init__(self, metadata: TransactionMetadata) -> None:
        self.metadata = metadata
        self.unmarked: set[TopicPartition] | None = set(metadata.current.partitions)


class _CompleteTransition(Transition):
    """Stays pending when it fails."""

    __slots__ = ("_completions",)

    def __init__(self, completions: Completions, metadata: TransactionMetadata, version: int) -> None:
        super().__init__(metadata, transaction_version=version)
        self._completions = completions

    def committed(self, now_ms: int) -> Effects:
        self._completions.forget(self._metadata.transactional_id)
        return super().committed(now_ms)

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        operation = TransactionOperation(OperationKind.RETRY_COMPLETE, self._metadata.transactional_id)
        return [Park(operation, RETRY_MS)]


class Completions:
    """Those of one shard."""

    def __init__(self, settings: TransactionSettings) -> None:
        self._settings = settings
        self._completing: dict[str, Completing] = {}

    def begin(self, metadata: TransactionMetadata, now_ms: int) -> Effects:
        """``metadata`` is in PrepareCommit or PrepareAbort, and that is committed."""
        metadata.prepare_complete(now_ms)
        self._completing[metadata.transactional_id] = Completing(metadata)
        partitions = tuple(sorted(metadata.current.partitions))
        if not partitions:
            return [self._complete(metadata)]
        return [_markers(metadata, partitions)]

    def markers_written(
        self, markers: WriteMarkers, errors: Mapping[TopicPartition, ErrorCode], now_ms: int
    ) -> Effects:
        """See ``TransactionShard``."""
        completing = self._completing.get(markers.transactional_id)
        if completing is None or not completing.unmarked or not _is_of(markers, completing.metadata):
            return []
        retries = []
        for topic_partition, error in errors.items():
            if topic_partition not in completing.unmarked:
                continue
            if error in _FENCED:
                completing.unmarked = None
                return []
            if error in _NOTHING_TO_MARK:
                completing.unmarked.remove(topic_partition)
            else:
                retries.append(topic_partition)
        if retries:
            return [markers._replace(partitions=tuple(retries), attempt=markers.attempt + 1)]
        return [] if completing.unmarked else [self._complete(completing.metadata)]

    def retry(self, transactional_id: str) -> Effects:
        """Write the last record once more."""
        completing = self._completing.get(transactional_id)
        return [] if completing is None else [self._complete(completing.metadata)]

    def forget(self, transactional_id: str) -> None:
        del self._completing[transactional_id]

    def unmarked(self, transactional_id: str) -> frozenset[TopicPartition] | None:
        """The partitions without a marker yet; None: no markers are being written, or not any more."""
        completing = self._completing.get(transactional_id)
        return None if completing is None or completing.unmarked is None else frozenset(completing.unmarked)

    def _complete(self, metadata: TransactionMetadata) -> Transition:
        return _CompleteTransition(self, metadata, self._settings.transaction_version)


def _markers(metadata: TransactionMetadata, partitions: tuple[TopicPartition, ...]) -> WriteMarkers:
    current = metadata.current
    return WriteMarkers(
        transactional_id=metadata.transactional_id,
        producer_id=current.producer_id,
        producer_epoch=current.producer_epoch,
        is_commit=current.state is TransactionState.PREPARE_COMMIT,
        partitions=partitions,
        transaction_version=current.client_transaction_version,
    )


def _is_of(markers: WriteMarkers, metadata: TransactionMetadata) -> bool:
    """Whether an answer is for the transaction that is being completed: a late one may be of another."""
    current = metadata.current
    return (markers.producer_id, markers.producer_epoch) == (current.producer_id, current.producer_epoch)
