"""EndTxn (key 26): a producer commits or aborts its transaction (KIP-98).

Behaviour (``KafkaApis.handleEndTxnRequest``, ``TransactionCoordinator.handleEndTransaction``): answered when
the decision is safe in ``__transaction_state``; the markers are written after that. Asked again, a decision
that was taken is confirmed, the opposite one is INVALID_TXN_STATE.

Versions: 2 PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before; 3 flexible; 4 TRANSACTION_ABORTABLE, which is
never answered here; 5 is the second version of the protocol (KIP-890): the answer has the id and the epoch,
raised, with which the producer continues, and so no request of the ended transaction can reach the next one.
"""

from __future__ import annotations

from typing import Any

from minikafka.coordinator.transaction.messages import (
    TRANSACTION_VERSION_1,
    TRANSACTION_VERSION_2,
    EndTxn,
    EndTxnResult,
)
from minikafka.errors import KafkaError
from minikafka.network.connection import PendingResponse
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import denied
from minikafka.server.apis.shared.coordinator_requests import ask_transaction, known_error
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services

FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_VERSION_WITH_EPOCHS = 5


def handle(services: Services, context: RequestContext, request: Any) -> Body | PendingResponse:
    raises_epoch = context.api_version >= FIRST_VERSION_WITH_EPOCHS
    wanted = EndTxn(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        is_commit=request.committed,
        client_transaction_version=TRANSACTION_VERSION_2 if raises_epoch else TRANSACTION_VERSION_1,
    )

    error = denied(
        services, context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, wanted.transactional_id
    )

    def body(result: EndTxnResult | KafkaError) -> Body:
        knows_fenced = context.api_version >= FIRST_VERSION_WITH_PRODUCER_FENCED
        producer = EndTxnResult() if isinstance(result, KafkaError) else result
        return {
            "throttle_time": 0,
            "error_code": known_error(result, knows_fenced=knows_fenced),
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
        }

    if error is not None:
        return body(error)
    return ask_transaction(
        services,
        context,
        wanted.transactional_id,
        lambda shard, ticket, now_ms: shard.end_txn(wanted, ticket, now_ms),
        body,
    )
