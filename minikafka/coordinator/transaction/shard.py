"""The transactional ids of one partition of ``__transaction_state``: who is asked about what.

Kafka: ``TransactionCoordinator`` and ``TransactionStateManager``. A shard lives while this broker leads the
partition; it is filled by ``replay`` from the log, begins its work with ``loaded``, and is thrown away when
another broker leads. Everything here is synchronous and knows no clock and no I/O; see ``effects`` for how
the work is carried out.

The life of a transactional id::

    InitProducerId --> Empty --AddPartitionsToTxn--> Ongoing --EndTxn--> PrepareCommit, PrepareAbort
    --markers for all partitions--> CompleteCommit, CompleteAbort --AddPartitionsToTxn--> Ongoing ...

An InitProducerId in Ongoing, and the clock, abort with the next epoch. ``metadata`` has the table and the
transitions.

Invariants: an answer and a marker leave only when what they tell is committed; so is all state, but for what
is pending. A transaction has one outcome, of this shard or of the next one that reads the log.

**DescribeTransactions and ListTransactions** (KIP-664, KIP-994, KIP-1152). Kafka:
``TransactionCoordinator``'s ``handleDescribeTransactions``,
``TransactionStateManager.listTransactionStates``.

**AddPartitionsToTxn**, and its form that only asks. Kafka: ``TransactionCoordinator``'s
``handleAddPartitionsToTransaction`` and ``handleVerifyPartitionsInTransaction`` (KIP-890).

**EndTxn**: whether a transaction is committed or aborted. Kafka: ``TransactionCoordinator.endTransaction``.
In the first version of the protocol the epoch stays, and a retry is told by the state::

                      abort               commit
    Ongoing           PrepareAbort        PrepareCommit
    Empty             INVALID_TXN_STATE   INVALID_TXN_STATE
    CompleteAbort     a retry, answered   INVALID_TXN_STATE
    CompleteCommit    INVALID_TXN_STATE   a retry, answered

In the second (KIP-890) every end raises the epoch, and a retry is told by the epoch, which is the one before,
or by the producer id before, whose epochs were used up. An abort may come where nothing was begun::

                      abort, retried      abort            commit, retried     commit
    Ongoing           PRODUCER_FENCED     PrepareAbort     PRODUCER_FENCED     PrepareCommit
    Empty             PRODUCER_FENCED     PrepareAbort     PRODUCER_FENCED     INVALID_TXN_STATE
    CompleteAbort     answered            PrepareAbort     INVALID_TXN_STATE   INVALID_TXN_STATE
    CompleteCommit    INVALID_TXN_STATE   PrepareAbort     answered            INVALID_TXN_STATE

While the decision or its markers are being written, CONCURRENT_TRANSACTIONS is the answer in both. So a
delayed end of one transaction never ends the next one, in the second version (R19).

Where it differs: after a fence with the last epoch a retry is PRODUCER_FENCED. Kafka answers with that epoch,
and if the producer uses it, it cannot be fenced any more.

**The clock**: time-outs of transactions, and ids that are not used any more. Kafka:
``TransactionCoordinator.abortTimedOutTransactions``, ``TransactionStateManager``'s
``removeExpiredTransactionalIds``.

**InitProducerId**: the producer id and epoch that a transactional id continues with. Kafka:
``TransactionCoordinator.handleInitProducerId``. KIP-98, and KIP-360 for a producer that continues after an
error and says what it has.

Where it differs: a producer whose epoch is not the current one is PRODUCER_FENCED, or is told the current one
if it has missed that, also when the epochs are used up; Kafka fails there, as with an id that is too long for
its record.

**What these share**: the transactional ids, their configuration (Kafka: ``TransactionConfig``), and how they
are written (``TransactionStateManager.appendTransactionToLog``), fenced and ended.

**From a decision to its end**: the markers of a transaction, then the record that all are written. Kafka:
``TransactionMarkerChannelManager`` and its ``TransactionMarkerRequestCompletionHandler``, without the
channels. Meanwhile the transition to CompleteCommit or CompleteAbort is pending, so the id answers
CONCURRENT_TRANSACTIONS to a producer that wants to begin something.

Where it differs: an error of a marker that Kafka takes for a bug, and a failure to write the last record
of whatever kind, is tried again after a pause; there the thread that sends dies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from minikafka.coordinator.transaction.messages import (
    TRANSACTION_VERSION_1,
    TRANSACTION_VERSION_2,
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
    AllocateProducerId,
    Answer,
    Append,
    DescribedTransaction,
    Effects,
    EndTxn,
    EndTxnResult,
    InitProducerId,
    InitProducerIdResult,
    ListedTransaction,
    ListTransactions,
    OperationKind,
    Park,
    Ticket,
    TransactionOperation,
    WriteMarkers,
    coordinator_error,
)
from minikafka.coordinator.transaction.metadata import (
    EPOCH_MAX,
    NEVER_TIMES_OUT_MS,
    STATE_OF_NAME,
    TransactionMetadata,
    TransactionState,
    TxnTransitMetadata,
    is_epoch_exhausted,
    metadata_of,
    record_of,
    tombstone,
)
from minikafka.errors import ErrorCode, InvariantError, KafkaError
from minikafka.protocol.internal.transaction_record_codec import TransactionRecord
from minikafka.regex import compile_regex
from minikafka.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

Then = Callable[[int], Effects]
"""What is to be done when a transition is committed, given the time."""

RETRY_MS: Final = 100
"""After which the last record of a transaction is tried again (Kafka: at the sender's next turn)."""

_NOTHING_TO_MARK: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION}
)
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Another coordinator has this id now, and has gone on; this one will hear of it."""

TOMBSTONES_MAX: Final = 1_000
"""In one batch (Kafka: as many as the log takes). With long ids they take a third of a topic's default
``max.message.bytes``."""

TRANSACTIONAL_ID_BYTES_MAX: Final = 0x7FFF
"""What a record's key can hold."""


class TransactionSettings(Protocol):
    """Read again at each use: some change while the broker runs."""

    transaction_max_timeout_ms: int
    transactional_id_expiration_ms: int

    @property
    def transaction_version(self) -> int:
        """The cluster's feature level, 0 to 2: the format of the records (0 for level 0, else 1), and whether
        the coordinator's own aborts follow the second version of the protocol (KIP-890)."""
        ...


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


def unknown_states(names: Iterable[str]) -> tuple[str, ...]:
    """Those of a filter that no state has."""
    return tuple(name for name in names if name not in STATE_OF_NAME)


def describe_transaction(transactions: Transactions, transactional_id: str) -> DescribedTransaction:
    """See ``TransactionShard``."""
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The transactional id is empty.")
    metadata = transactions.ids.get(transactional_id)
    if metadata is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    current = metadata.current
    unmarked = transactions.completions.unmarked(transactional_id)
    return DescribedTransaction(
        transactional_id=transactional_id,
        state=current.state.kafka_name,
        timeout_ms=current.timeout_ms,
        start_time_ms=current.start_timestamp_ms,
        producer_id=current.producer_id,
        producer_epoch=current.producer_epoch,
        partitions=tuple(sorted(current.partitions if unmarked is None else unmarked)),
    )


def list_transactions(
    transactions: Transactions, request: ListTransactions, now_ms: int
) -> list[ListedTransaction]:
    """See ``TransactionShard``."""
    states = {STATE_OF_NAME.get(name) for name in request.states}
    producer_ids = frozenset(request.producer_ids)
    pattern = request.transactional_id_pattern
    regex = compile_regex(pattern, name="TransactionalIdPattern") if pattern else None
    listed = []
    for transactional_id, metadata in transactions.ids.items():
        current = metadata.current
        if (
            (not states or current.state in states)
            and (not producer_ids or current.producer_id in producer_ids)
            and (request.duration_ms < 0 or now_ms - current.start_timestamp_ms > request.duration_ms)
            and (regex is None or regex.fullmatch(transactional_id))
        ):
            listed.append(ListedTransaction(transactional_id, current.producer_id, current.state.kafka_name))
    return listed


def add_partitions(
    transactions: Transactions, request: AddPartitionsToTxn, ticket: Ticket, now_ms: int
) -> Effects:
    """See ``TransactionShard``. A pending transition counts before all else: it may bring the producer id
    that the request has already (KIP-890)."""
    metadata = transactions.get(request.transactional_id)
    check_not_pending(metadata)
    check_producer_id(metadata, request.producer_id)
    check_producer_epoch(metadata, request.producer_epoch)
    errors = (ErrorCode.NONE,) * len(request.partitions)
    partitions = frozenset(request.partitions)
    current = metadata.current
    if current.state is TransactionState.ONGOING and partitions <= current.partitions:
        is_remembered = request.client_transaction_version == TRANSACTION_VERSION_1
        return [Answer(ticket, AddPartitionsToTxnResult(errors, is_remembered))]
    metadata.prepare_add_partitions(
        partitions, client_transaction_version=request.client_transaction_version, now_ms=now_ms
    )
    return transactions.write(
        metadata, ticket, lambda later_ms: [Answer(ticket, AddPartitionsToTxnResult(errors))]
    )


def verify_partitions(transactions: Transactions, request: AddPartitionsToTxn, ticket: Ticket) -> Effects:
    """See ``TransactionShard``. A pending transition does not count, as in Kafka: the log checks once more
    when it appends."""
    metadata = transactions.get(request.transactional_id)
    check_producer_id(metadata, request.producer_id)
    check_producer_epoch(metadata, request.producer_epoch)
    if metadata.state.is_prepared:
        raise concurrent_transactions()
    not_added = ErrorCode.TRANSACTION_ABORTABLE if request.knows_abortable else ErrorCode.INVALID_TXN_STATE
    added = metadata.current.partitions
    errors = tuple(ErrorCode.NONE if each in added else not_added for each in request.partitions)
    return [Answer(ticket, AddPartitionsToTxnResult(errors))]


def end_txn(transactions: Transactions, request: EndTxn, ticket: Ticket, now_ms: int) -> Effects:
    """See ``TransactionShard``."""
    if request.client_transaction_version >= TRANSACTION_VERSION_2:
        return _end_version_2(transactions, request, ticket, now_ms)
    return _end_version_1(transactions, request, ticket, now_ms)


def _end_version_1(transactions: Transactions, request: EndTxn, ticket: Ticket, now_ms: int) -> Effects:
    metadata = transactions.get(request.transactional_id)
    check_producer_id(metadata, request.producer_id)
    check_producer_epoch(metadata, request.producer_epoch)
    check_not_pending(metadata)
    if metadata.state is TransactionState.ONGOING:
        metadata.prepare_abort_or_commit(
            is_commit=request.is_commit,
            client_transaction_version=request.client_transaction_version,
            now_ms=now_ms,
        )
        return transactions.write_decision(metadata, ticket, lambda: [Answer(ticket, EndTxnResult())])
    _check_retry(metadata, request)
    return [Answer(ticket, EndTxnResult(is_remembered=True))]


def _end_version_2(
    transactions: Transactions,
    request: EndTxn,
    ticket: Ticket,
    now_ms: int,
    *,
    new_producer_id: int | None = None,
) -> Effects:
    metadata = transactions.get(request.transactional_id)
    check_not_pending(metadata)
    if _is_retry(metadata.current, request):
        _check_retry(metadata, request)
        return [Answer(ticket, _result(metadata.current, is_remembered=True))]
    check_producer_id(metadata, request.producer_id)
    check_producer_epoch(metadata, request.producer_epoch)
    if request.is_commit and metadata.state is not TransactionState.ONGOING:
        raise _invalid_state(metadata)
    if metadata.is_producer_epoch_exhausted and new_producer_id is None:
        return transactions.allocate(
            ticket,
            lambda allocated, later_ms: _end_version_2(
                transactions, request, ticket, later_ms, new_producer_id=allocated
            ),
        )
    metadata.prepare_abort_or_commit(
        is_commit=request.is_commit,
        client_transaction_version=request.client_transaction_version,
        next_producer_id=(
            new_producer_id
            if metadata.is_producer_epoch_exhausted and new_producer_id is not None
            else NO_PRODUCER_ID
        ),
        now_ms=now_ms,
    )

    def answer() -> Effects:
        assert metadata.pending is not None, "the markers are being written"
        return [Answer(ticket, _result(metadata.pending))]

    return transactions.write_decision(metadata, ticket, answer)


def _is_retry(current: TxnTransitMetadata, request: EndTxn) -> bool:
    """Whether the last transaction has ended with this very request: the epoch after it is the current one,
    and one that the producer may have."""
    if current.state not in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        return False
    if request.producer_id == current.producer_id:
        return 0 <= request.producer_epoch == current.producer_epoch - 1 < EPOCH_MAX - 1
    return request.producer_id == current.previous_producer_id and request.producer_epoch == EPOCH_MAX - 1


def _check_retry(metadata: TransactionMetadata, request: EndTxn) -> None:
    """Raises KafkaError INVALID_TXN_STATE: it did not end like this."""
    ended = TransactionState.COMPLETE_COMMIT if request.is_commit else TransactionState.COMPLETE_ABORT
    if metadata.state is not ended:
        raise _invalid_state(metadata)


def _result(metadata: TxnTransitMetadata, *, is_remembered: bool = False) -> EndTxnResult:
    return EndTxnResult(metadata.producer_id, metadata.producer_epoch, is_remembered)


def _invalid_state(metadata: TransactionMetadata) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE, f"The transactional id is in state {metadata.state.kafka_name}."
    )


class Tombstones(Append):
    """The ids go when their tombstones are committed; those whose tombstones are not stay."""

    __slots__ = ("_expired", "_transactions")

    def __init__(self, transactions: Transactions, expired: Sequence[TransactionMetadata]) -> None:
        for metadata in expired:
            metadata.prepare_dead()
        super().__init__([tombstone(metadata.transactional_id) for metadata in expired])
        self._transactions = transactions
        self._expired = expired

    def committed(self, now_ms: int) -> Effects:
        for metadata in self._expired:
            del self._transactions.ids[metadata.transactional_id]
        return []

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        for metadata in self._expired:
            metadata.drop_transition()
        return []


def abort_timed_out(transactions: Transactions, now_ms: int) -> Effects:
    """See ``TransactionShard``."""
    effects: Effects = []
    for metadata in transactions.ids.values():
        current = metadata.current
        if (
            current.state is TransactionState.ONGOING
            and metadata.pending is None
            and current.timeout_ms != NEVER_TIMES_OUT_MS
            and current.start_timestamp_ms + current.timeout_ms < now_ms
        ):
            effects += transactions.fence(metadata, None, now_ms)
    return effects


def remove_expired(transactions: Transactions, now_ms: int) -> Effects:
    """See ``TransactionShard``."""
    latest_ms = now_ms - transactions.settings.transactional_id_expiration_ms
    expired = [
        metadata
        for metadata in transactions.ids.values()
        if metadata.state.is_idle
        and metadata.pending is None
        and metadata.current.last_update_timestamp_ms <= latest_ms
    ]
    return [
        Tombstones(transactions, expired[first : first + TOMBSTONES_MAX])
        for first in range(0, len(expired), TOMBSTONES_MAX)
    ]


def init_producer_id(
    transactions: Transactions,
    request: InitProducerId,
    ticket: Ticket,
    now_ms: int,
    *,
    new_producer_id: int | None = None,
) -> Effects:
    """See ``TransactionShard``. ``new_producer_id`` was allocated for this request, if it needs one."""
    _check_request(request, timeout_max_ms=transactions.settings.transaction_max_timeout_ms)

    def allocate() -> Effects:
        return transactions.allocate(
            ticket,
            lambda allocated, later_ms: init_producer_id(
                transactions, request, ticket, later_ms, new_producer_id=allocated
            ),
        )

    metadata = transactions.ids.get(request.transactional_id)
    if metadata is None:
        if new_producer_id is None:
            return allocate()
        metadata = TransactionMetadata.created(
            request.transactional_id,
            producer_id=new_producer_id,
            timeout_ms=request.transaction_timeout_ms,
            now_ms=now_ms,
        )
        transactions.ids[request.transactional_id] = metadata
    check_not_pending(metadata)
    expected_epoch = _expected_epoch(metadata, request)
    current = metadata.current
    if current.state is TransactionState.ONGOING:
        return transactions.fence(metadata, ticket, now_ms)
    if metadata.is_producer_epoch_exhausted and _is_next(current, expected_epoch):
        if new_producer_id is None:
            return allocate()
        following = metadata.prepare_producer_id_rotation(
            new_producer_id,
            timeout_ms=request.transaction_timeout_ms,
            records_last_epoch=expected_epoch is not None,
            now_ms=now_ms,
        )
    else:
        following = metadata.prepare_increment_producer_epoch(
            timeout_ms=request.transaction_timeout_ms, expected_epoch=expected_epoch, now_ms=now_ms
        )
    result = InitProducerIdResult(following.producer_id, following.producer_epoch)
    return transactions.write(metadata, ticket, lambda later_ms: [Answer(ticket, result)])


def _is_next(current: TxnTransitMetadata, expected_epoch: int | None) -> bool:
    """Whether another epoch is wanted: by a producer that does not say which it has, or has the current one,
    or had it when it was fenced with the last one."""
    if current.producer_epoch == EPOCH_MAX and expected_epoch == current.last_producer_epoch:
        return True
    return expected_epoch in (None, current.producer_epoch)


def _check_request(request: InitProducerId, *, timeout_max_ms: int) -> None:
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The transactional id is empty.")
    if len(request.transactional_id.encode()) > TRANSACTIONAL_ID_BYTES_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The transactional id is too long.")
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A producer id goes with an epoch.")
    if not 0 < request.transaction_timeout_ms <= timeout_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"The timeout must be more than 0 and at most {timeout_max_ms} ms.",
        )


def _expected_epoch(metadata: TransactionMetadata, request: InitProducerId) -> int | None:
    """The epoch that the producer has, if it says so; ``metadata`` may be ahead of it.

    Raises:
        KafkaError: PRODUCER_FENCED: its producer id is another's.
    """
    if request.producer_id == NO_PRODUCER_ID:
        return None
    current = metadata.current
    is_retried_rotation = request.producer_id == current.previous_producer_id and is_epoch_exhausted(
        request.producer_epoch
    )
    is_new = current.producer_epoch == NO_PRODUCER_EPOCH
    if not (is_new or request.producer_id == current.producer_id or is_retried_rotation):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    return request.producer_epoch


class TransactionShard:
    """See the module header."""

    def __init__(self, *, settings: TransactionSettings) -> None:
        self._transactions = Transactions(settings)

    def __repr__(self) -> str:
        return f"TransactionShard({len(self._transactions.ids)} transactional ids)"

    # Requests. They raise KafkaError: the answer is an error, and nothing has changed.

    def init_producer_id(self, request: InitProducerId, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with an InitProducerIdResult. An ongoing transaction is aborted first, with a higher
        epoch, and the answer is CONCURRENT_TRANSACTIONS: the producer asks again (KIP-98, KIP-360).

        Raises:
            KafkaError: INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED,
                CONCURRENT_TRANSACTIONS.
        """
        return init_producer_id(self._transactions, request, ticket, now_ms)

    def add_partitions(self, request: AddPartitionsToTxn, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with an AddPartitionsToTxnResult. AddOffsetsToTxn comes here too.

        Raises:
            KafkaError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
                CONCURRENT_TRANSACTIONS; of every partition of the transaction.
        """
        if request.verify_only:
            return verify_partitions(self._transactions, request, ticket)
        return add_partitions(self._transactions, request, ticket, now_ms)

    def end_txn(self, request: EndTxn, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with an EndTxnResult when the decision is committed; the markers follow.

        Raises:
            KafkaError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
                CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
        """
        return end_txn(self._transactions, request, ticket, now_ms)

    def describe_transaction(self, transactional_id: str) -> DescribedTransaction:
        """Raises KafkaError INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND."""
        return describe_transaction(self._transactions, transactional_id)

    def list_transactions(self, request: ListTransactions, now_ms: int) -> list[ListedTransaction]:
        """Those that pass all filters. Names of states that are not known match nothing;
        ``listing.unknown_states`` says which these are.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION.
        """
        return list_transactions(self._transactions, request, now_ms)

    def counts_by_state(self) -> Mapping[TransactionState, int]:
        """How many transactional ids are in each state."""
        return Counter(each.state for each in self._transactions.ids.values())

    # What other brokers and the clock bring

    def markers_written(
        self, markers: WriteMarkers, errors: Mapping[TopicPartition, ErrorCode], now_ms: int
    ) -> Effects:
        """What became of all or some of ``markers.partitions``: of those that one broker has answered for.

        REQUEST_TIMED_OUT is for those that were not heard of (the broker is gone, the connection broke),
        LEADER_NOT_AVAILABLE for those without a leader: they are wanted again. NONE is also for partitions
        that do not exist any more, whose markers Kafka drops. After INVALID_PRODUCER_EPOCH and
        TRANSACTION_COORDINATOR_FENCED no more is wanted: this is not the coordinator any more.
        """
        return self._transactions.completions.markers_written(markers, errors, now_ms)

    def expired(self, operation: TransactionOperation, now_ms: int) -> Effects:
        """The time of a parked operation is up."""
        assert operation.kind is OperationKind.RETRY_COMPLETE
        return self._transactions.completions.retry(operation.transactional_id)

    def abort_timed_out(self, now_ms: int) -> Effects:
        """Every ``transaction.abort.timed.out.transaction.cleanup.interval.ms``: what has been going on for
        longer than its timeout is aborted, with a higher epoch."""
        return abort_timed_out(self._transactions, now_ms)

    def remove_expired(self, now_ms: int) -> Effects:
        """Every ``transaction.remove.expired.transaction.cleanup.interval.ms``: ids that have not been used
        for ``transactional.id.expiration.ms`` go."""
        return remove_expired(self._transactions, now_ms)

    # The log

    def replay(self, record: TransactionRecord) -> None:
        """Take in one record, in the order of the log.

        Raises:
            KafkaError: CORRUPT_MESSAGE: it says what cannot be; it is left out.
        """
        ids, transactional_id = self._transactions.ids, record.key.transactional_id
        if record.value is None:
            ids.pop(transactional_id, None)
        else:
            ids[transactional_id] = TransactionMetadata(transactional_id, metadata_of(record.value))

    def loaded(self, now_ms: int) -> Effects:
        """The log is replayed, and the high watermark has passed all of it: begin. Transactions whose end is
        decided go on with their markers.

        Kafka does not wait for the high watermark. But what is above it may be lost with this leader, after
        its markers were written; then the next leader would decide once more.
        """
        effects: Effects = []
        for metadata in self._transactions.ids.values():
            if metadata.state.is_prepared:
                effects += self._transactions.completions.begin(metadata, now_ms)
        return effects

    def waiting(self) -> list[Ticket]:
        """Who waits for a producer id, in this shard, which is being unloaded. Who waits for an append hears
        of that."""
        return self._transactions.waiting()
