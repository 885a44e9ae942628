"""DescribeTransactions and ListTransactions (KIP-664, KIP-994, KIP-1152). Kafka: ``TransactionCoordinator``'s
``handleDescribeTransactions``, ``TransactionStateManager.listTransactionStates``."""

from __future__ import annotations

from collections.abc import Iterable

from minikafka.coordinator.transaction.messages import (
    DescribedTransaction,
    ListedTransaction,
    ListTransactions,
)
from minikafka.coordinator.transaction.transaction_state import STATE_OF_NAME
from minikafka.coordinator.transaction.transactions import Transactions
from minikafka.errors import ErrorCode, KafkaError
from minikafka.regex import compile_regex


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
