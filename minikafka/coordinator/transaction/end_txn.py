"""EndTxn: whether a transaction is committed or aborted. Kafka: ``TransactionCoordinator.endTransaction``.

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
and if the producer uses it, nobody can fence it any more.
"""

from __future__ import annotations

from minikafka.coordinator.transaction.effects import Answer, Effects, Ticket
from minikafka.coordinator.transaction.messages import TRANSACTION_VERSION_2, EndTxn, EndTxnResult
from minikafka.coordinator.transaction.metadata import EPOCH_MAX, TransactionMetadata, TxnTransitMetadata
from minikafka.coordinator.transaction.transaction_state import TransactionState
from minikafka.coordinator.transaction.transactions import (
    Transactions,
    check_not_pending,
    check_producer_epoch,
    check_producer_id,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.types import NO_PRODUCER_ID


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
    return [Answer(ticket, EndTxnResult())]


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
        return [Answer(ticket, _result(metadata.current))]
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


def _result(metadata: TxnTransitMetadata) -> EndTxnResult:
    return EndTxnResult(metadata.producer_id, metadata.producer_epoch)


def _invalid_state(metadata: TransactionMetadata) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE, f"The transactional id is in state {metadata.state.kafka_name}."
    )
