"""InitProducerId (key 22): an id for an idempotent producer (KIP-98, KIP-360).

Behaviour (``KafkaApis.handleInitProducerIdRequest``, ``TransactionCoordinator.handleInitProducerId``):
without a transactional id every request gets a producer id that nobody had before, with epoch 0, also when
the producer brings an id and an epoch that it wants to leave behind (version 3). Only one of the two is
INVALID_REQUEST. With a transactional id: INVALID_REQUEST when it is empty, else
TRANSACTIONAL_ID_AUTHORIZATION_FAILED; transactions are not there yet, and at that code every stock producer
gives up at once (``find_coordinator`` says why).

Versions: 2 flexible; 3 producer id and epoch in the request; 4 PRODUCER_FENCED, 5 TRANSACTION_ABORTABLE:
neither is answered here; 6 two-phase commit (KIP-939), which needs a transactional id.
"""

from __future__ import annotations

from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.codec import Body, field
from minikafka.server.request_context import RequestContext
from minikafka.server.services import Services
from minikafka.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

FIRST_EPOCH = 0


async def handle(services: Services, context: RequestContext, request: Any) -> Body:
    has_id = field(request, "producer_id", NO_PRODUCER_ID) != NO_PRODUCER_ID
    has_epoch = field(request, "producer_epoch", NO_PRODUCER_EPOCH) != NO_PRODUCER_EPOCH
    if has_id != has_epoch or request.transactional_id == "":
        return _body(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _body(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    try:
        producer_id = await services.producer_ids.next()
    except KafkaError as error:
        return _body(error.code)
    return _body(ErrorCode.NONE, producer_id=producer_id, producer_epoch=FIRST_EPOCH)


def _body(
    code: ErrorCode, *, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = NO_PRODUCER_EPOCH
) -> Body:
    return {
        "throttle_time": 0,
        "error_code": code,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "ongoing_txn_producer_id": NO_PRODUCER_ID,
        "ongoing_txn_producer_epoch": NO_PRODUCER_EPOCH,
    }
