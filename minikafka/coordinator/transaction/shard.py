"""The transactional ids of one partition of ``__transaction_state``: who is asked about what.

Kafka: ``TransactionCoordinator`` and ``TransactionStateManager``. A shard lives while this broker leads the
partition; it is filled by ``replay`` from the log, begins its work with ``loaded``, and is thrown away when
another broker leads. Everything here is synchronous and knows no clock and no I/O; see ``effects`` for how
the work is carried out.

The life of a transactional id::

    InitProducerId --> Empty --AddPartitionsToTxn--> Ongoing --EndTxn--> PrepareCommit, PrepareAbort
    --markers for all partitions--> CompleteCommit, CompleteAbort --AddPartitionsToTxn--> Ongoing ...

Whoever asks InitProducerId in Ongoing, and the clock, abort with the next epoch. ``transaction_state`` has
the table, ``metadata`` the transitions, ``end_txn`` what is a retry.

Invariants: an answer and a marker leave only when what they tell is committed; so is all state, but for what
is pending. A transaction has one outcome, of this shard or of the next one that reads the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from minikafka.coordinator.transaction.add_partitions import add_partitions, verify_partitions
from minikafka.coordinator.transaction.effects import (
    Effects,
    OperationKind,
    Ticket,
    TransactionOperation,
    WriteMarkers,
)
from minikafka.coordinator.transaction.end_txn import end_txn
from minikafka.coordinator.transaction.expiry import abort_timed_out, remove_expired
from minikafka.coordinator.transaction.init_producer_id import init_producer_id
from minikafka.coordinator.transaction.listing import describe_transaction, list_transactions
from minikafka.coordinator.transaction.messages import (
    AddPartitionsToTxn,
    DescribedTransaction,
    EndTxn,
    InitProducerId,
    ListedTransaction,
    ListTransactions,
)
from minikafka.coordinator.transaction.metadata import TransactionMetadata, metadata_of
from minikafka.coordinator.transaction.settings import TransactionSettings
from minikafka.coordinator.transaction.transaction_state import TransactionState
from minikafka.coordinator.transaction.transactions import Transactions
from minikafka.errors import ErrorCode
from minikafka.protocol.internal.transaction_records import TransactionRecord
from minikafka.types import TopicPartition


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
