"""The transactional ids of one partition of ``__transaction_state``: who is asked about what.

Kafka: ``TransactionCoordinator`` and ``TransactionStateManager``. A shard lives while this broker leads the
partition; it is filled by ``replay`` from the log, begins its work with ``loaded``, and is thrown away when
another broker leads. Everything here is synchronous and knows no clock and no I/O; see ``effects`` for how
the work is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.coordinator.transaction.effects import Effects, Ticket, TransactionOperation, WriteMarkers
from minikafka.coordinator.transaction.messages import (
    AddPartitionsToTxn,
    DescribedTransaction,
    EndTxn,
    InitProducerId,
    ListedTransaction,
    ListTransactions,
)
from minikafka.coordinator.transaction.settings import TransactionSettings
from minikafka.errors import ErrorCode
from minikafka.protocol.internal.transaction_records import TransactionRecord
from minikafka.types import TopicPartition


class TransactionShard:
    """See the module header."""

    def __init__(self, *, settings: TransactionSettings) -> None: ...

    # Requests. They raise KafkaError: the answer is an error, and nothing has changed.

    def init_producer_id(self, request: InitProducerId, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with an InitProducerIdResult. An ongoing transaction is aborted first, with a higher
        epoch, and the answer is CONCURRENT_TRANSACTIONS: the producer asks again (KIP-98, KIP-360).

        Raises:
            KafkaError: INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED,
                CONCURRENT_TRANSACTIONS.
        """
        raise NotImplementedError

    def add_partitions(self, request: AddPartitionsToTxn, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with an AddPartitionsToTxnResult. AddOffsetsToTxn comes here too.

        Raises:
            KafkaError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
                CONCURRENT_TRANSACTIONS; of every partition of the transaction.
        """
        raise NotImplementedError

    def end_txn(self, request: EndTxn, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with an EndTxnResult when the decision is committed; the markers follow.

        Raises:
            KafkaError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
                CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
        """
        raise NotImplementedError

    def describe_transaction(self, transactional_id: str) -> DescribedTransaction:
        """Raises KafkaError INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND."""
        raise NotImplementedError

    def list_transactions(self, request: ListTransactions, now_ms: int) -> list[ListedTransaction]:
        """Those that pass all filters. Names of states that are not known match nothing;
        ``unknown_states`` says which these are.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION.
        """
        raise NotImplementedError

    # What other brokers and the clock bring

    def markers_written(
        self, markers: WriteMarkers, errors: Mapping[TopicPartition, ErrorCode], now_ms: int
    ) -> Effects:
        """What became of all or some of ``markers.partitions``: of those that one broker has answered for.
        REQUEST_TIMED_OUT is for those that were not heard of (the broker is gone, the connection broke).
        UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE and the like are of partitions without a leader, which
        are wanted again; NONE is also for partitions that do not exist any more (Kafka drops their markers)."""
        raise NotImplementedError

    def expired(self, operation: TransactionOperation, now_ms: int) -> Effects:
        """The time of a parked operation is up."""
        raise NotImplementedError

    def abort_timed_out(self, now_ms: int) -> Effects:
        """Every ``transaction.abort.timed.out.transaction.cleanup.interval.ms``: what has been going on for
        longer than its timeout is aborted, with a higher epoch."""
        raise NotImplementedError

    def remove_expired(self, now_ms: int) -> Effects:
        """Every ``transaction.remove.expired.transaction.cleanup.interval.ms``: ids that have not been used
        for ``transactional.id.expiration.ms`` go."""
        raise NotImplementedError

    # The log

    def replay(self, record: TransactionRecord) -> None:
        """Take in one record, in the order of the log."""
        raise NotImplementedError

    def loaded(self, now_ms: int) -> Effects:
        """The log is replayed: begin. Transactions whose end is decided go on with their markers."""
        raise NotImplementedError

    def waiting(self) -> list[Ticket]:
        """Who waits for an answer of this shard, which is being unloaded."""
        raise NotImplementedError
