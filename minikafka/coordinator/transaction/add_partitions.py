"""AddPartitionsToTxn, and its form that only asks. Kafka: ``TransactionCoordinator``'s
``handleAddPartitionsToTransaction`` and ``handleVerifyPartitionsInTransaction`` (KIP-890)."""

from __future__ import annotations

from minikafka.coordinator.transaction.effects import Answer, Effects, Ticket
from minikafka.coordinator.transaction.messages import AddPartitionsToTxn, AddPartitionsToTxnResult
from minikafka.coordinator.transaction.transaction_state import TransactionState
from minikafka.coordinator.transaction.transactions import (
    Transactions,
    check_not_pending,
    check_producer_epoch,
    check_producer_id,
    concurrent_transactions,
)
from minikafka.errors import ErrorCode


def add_partitions(
    transactions: Transactions, request: AddPartitionsToTxn, ticket: Ticket, now_ms: int
) -> Effects:
    """See ``TransactionShard``. A pending transition counts before all else: it may bring the producer id
    that the request has already (KIP-890)."""
    metadata = transactions.get(request.transactional_id)
    check_not_pending(metadata)
    check_producer_id(metadata, request.producer_id)
    check_producer_epoch(metadata, request.producer_epoch)
    added = Answer(ticket, AddPartitionsToTxnResult((ErrorCode.NONE,) * len(request.partitions)))
    partitions = frozenset(request.partitions)
    current = metadata.current
    if current.state is TransactionState.ONGOING and partitions <= current.partitions:
        return [added]
    metadata.prepare_add_partitions(
        partitions, client_transaction_version=request.client_transaction_version, now_ms=now_ms
    )
    return transactions.write(metadata, ticket, lambda later_ms: [added])


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
