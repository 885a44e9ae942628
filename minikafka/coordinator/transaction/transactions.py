"""What the parts of a shard share: its transactional ids, and how they are written, fenced and ended.

The configuration of a transaction coordinator. Kafka: ``TransactionConfig``.

Transitions of transactional ids as appends. Kafka: ``TransactionStateManager.appendTransactionToLog``.

From a decision to its end: the markers of a transaction, then the record that all are written.

Kafka: ``TransactionMarkerChannelManager`` and its ``TransactionMarkerRequestCompletionHandler``, without the
channels. Meanwhile the transition to CompleteCommit or CompleteAbort is pending, so the id answers
CONCURRENT_TRANSACTIONS to a producer that wants to begin something.

Where it differs: an error of a marker that Kafka takes for a bug, and a failure to write the last record
of whatever kind, is tried again after a pause; there the thread that sends dies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from minikafka.coordinator.transaction.effects import (
    AllocateProducerId,
    Answer,
    Append,
    Effects,
    OperationKind,
    Park,
    Ticket,
    TransactionOperation,
    WriteMarkers,
    coordinator_error,
)
from minikafka.coordinator.transaction.metadata import (
    EPOCH_MAX,
    TransactionMetadata,
    TransactionState,
    record_of,
)
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.types import TopicPartition


class TransactionSettings(Protocol):
    """Read again at each use: some change while the broker runs."""

    transaction_max_timeout_ms: int
    transactional_id_expiration_ms: int
    transaction_version: int
    """The cluster's feature level, 0 to 2: the format of the records (0 for level 0, else 1), and whether the
    coordinator's own aborts follow the second version of the protocol (KIP-890)."""


Then = Callable[[int], Effects]
"""What is to be done when a transition is committed, given the time."""


class Transition(Append):
    """The pending transition of one id: done when it is committed, forgotten when it is not. ``then`` gives
    the answer, too; ``ticket`` hears of a failure."""

    __slots__ = ("_metadata", "_pending", "_then", "_ticket")

    def __init__(
        self,
        metadata: TransactionMetadata,
        *,
        transaction_version: int,
        then: Then | None = None,
        ticket: Ticket | None = None,
    ) -> None:
        assert metadata.pending is not None, "a transition is prepared"
        self._metadata = metadata
        self._pending = metadata.pending
        self._then = then
        self._ticket = ticket
        record = record_of(
            metadata.transactional_id, metadata.pending, transaction_version=transaction_version
        )
        super().__init__((record,), timeout_ms=metadata.pending.timeout_ms)

    def committed(self, now_ms: int) -> Effects:
        if self._metadata.pending is not self._pending:
            raise InvariantError(f"{self!r} is not what {self._metadata!r} waits for")
        self._metadata.complete_transition()
        return [] if self._then is None else self._then(now_ms)

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        if self._metadata.pending is self._pending:
            self._metadata.drop_transition()
        return [] if self._ticket is None else [Answer(self._ticket, coordinator_error(error))]


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


class _Allocation(AllocateProducerId):
    """A request that is made once more, with a producer id: what it asks for may have changed meanwhile."""

    __slots__ = ("_again", "_allocating", "ticket")

    def __init__(
        self, allocating: list[_Allocation], ticket: Ticket, again: Callable[[int, int], Effects]
    ) -> None:
        self.ticket = ticket
        self._allocating = allocating
        self._again = again

    def allocated(self, producer_id: int, now_ms: int) -> Effects:
        self._allocating.remove(self)
        try:
            return self._again(producer_id, now_ms)
        except KafkaError as error:
            return [Answer(self.ticket, error)]

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        self._allocating.remove(self)
        return [Answer(self.ticket, error)]


class Transactions:
    """Those of one shard."""

    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings
        self.ids: dict[str, TransactionMetadata] = {}
        self.completions = Completions(settings)
        self._allocating: list[_Allocation] = []

    def get(self, transactional_id: str) -> TransactionMetadata:
        """Raises KafkaError INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING: no producer has this id."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The transactional id is empty.")
        metadata = self.ids.get(transactional_id)
        if metadata is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return metadata

    def allocate(self, ticket: Ticket, again: Callable[[int, int], Effects]) -> Effects:
        """``again`` is called with a producer id and the time, and may raise KafkaError."""
        allocation = _Allocation(self._allocating, ticket, again)
        self._allocating.append(allocation)
        return [allocation]

    def waiting(self) -> list[Ticket]:
        return [allocation.ticket for allocation in self._allocating]

    def write(
        self, metadata: TransactionMetadata, ticket: Ticket | None = None, then: Then | None = None
    ) -> Effects:
        """Append the pending transition."""
        version = self.settings.transaction_version
        return [Transition(metadata, transaction_version=version, then=then, ticket=ticket)]

    def write_decision(
        self, metadata: TransactionMetadata, ticket: Ticket | None, answer: Callable[[], Effects]
    ) -> Effects:
        """Append the pending PrepareCommit or PrepareAbort; once that is committed, give the answer and go
        on to the markers. ``answer`` is asked when the transition that follows is pending."""

        def decided(now_ms: int) -> Effects:
            completing = self.completions.begin(metadata, now_ms)
            return answer() + completing

        return self.write(metadata, ticket, decided)

    def fence(self, metadata: TransactionMetadata, ticket: Ticket | None, now_ms: int) -> Effects:
        """Abort the ongoing transaction with the next epoch. Who asked is to ask again."""
        metadata.prepare_fence(transaction_version=self.settings.transaction_version, now_ms=now_ms)

        def answer() -> Effects:
            return [] if ticket is None else [Answer(ticket, concurrent_transactions())]

        return self.write_decision(metadata, ticket, answer)


def check_not_pending(metadata: TransactionMetadata) -> None:
    """Raises KafkaError CONCURRENT_TRANSACTIONS: a transition is being written, or its markers are."""
    if metadata.pending is not None:
        raise concurrent_transactions()


def check_producer_id(metadata: TransactionMetadata, producer_id: int) -> None:
    """Raises KafkaError INVALID_PRODUCER_ID_MAPPING."""
    if producer_id != metadata.current.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def check_producer_epoch(metadata: TransactionMetadata, producer_epoch: int) -> None:
    """The first epoch is 0, and no producer is told the last one, which is for fencing.

    Raises:
        KafkaError: PRODUCER_FENCED.
    """
    if producer_epoch != metadata.current.producer_epoch or not 0 <= producer_epoch < EPOCH_MAX:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


def concurrent_transactions() -> KafkaError:
    return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
