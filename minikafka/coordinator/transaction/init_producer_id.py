"""InitProducerId of a transactional id: which producer id and epoch it goes on with.

Kafka: ``TransactionCoordinator.handleInitProducerId``. KIP-98, and KIP-360 for a producer that goes on after
an error and says what it has.

Where it differs: a producer whose epoch is not the current one is PRODUCER_FENCED, or is told the current one
if it has missed that, also when the epochs are used up; Kafka fails there, as with an id that is too long for
its record.
"""

from __future__ import annotations

from typing import Final

from minikafka.coordinator.transaction.effects import Answer, Effects, Ticket
from minikafka.coordinator.transaction.messages import InitProducerId, InitProducerIdResult
from minikafka.coordinator.transaction.metadata import (
    EPOCH_MAX,
    TransactionMetadata,
    TxnTransitMetadata,
    is_epoch_exhausted,
)
from minikafka.coordinator.transaction.transaction_state import TransactionState
from minikafka.coordinator.transaction.transactions import Transactions, check_not_pending
from minikafka.errors import ErrorCode, KafkaError
from minikafka.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

TRANSACTIONAL_ID_BYTES_MAX: Final = 0x7FFF
"""What a record's key can hold."""


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
    """Whether another epoch is wanted: by whoever does not say which it has, or has the current one, or had
    it when it was fenced with the last one."""
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
