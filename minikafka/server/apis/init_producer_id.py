"""InitProducerId (key 22): an id and an epoch for an idempotent or transactional producer (KIP-98, KIP-360).

Behaviour (``KafkaApis.handleInitProducerIdRequest``, ``TransactionCoordinator.handleInitProducerId``):
without a transactional id every request gets a new producer id, with epoch 0, also when
the producer brings an id and an epoch that it wants to leave behind (version 3). Only one of the two is
INVALID_REQUEST. With a transactional id its coordinator answers: the id that it has, in a higher epoch, which
fences the producer that had it before; CONCURRENT_TRANSACTIONS while an earlier transaction is being ended.
A transactional id needs WRITE; without one it takes IDEMPOTENT_WRITE on the cluster, or WRITE on any topic
(KIP-679).

Versions: 2 flexible; 3 producer id and epoch in the request; 4 PRODUCER_FENCED, INVALID_PRODUCER_EPOCH
before; 5 TRANSACTION_ABORTABLE, which is never answered here; 6 two-phase commit (KIP-939), which Kafka 4.1
holds back.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from minikafka.coordinator.transaction.messages import InitProducerId, InitProducerIdResult
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import PendingResponse
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import asker, denied, is_authorized_on_cluster
from minikafka.server.apis.shared.coordinator_requests import ask_transaction, known_error
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

FIRST_EPOCH = 0
FIRST_VERSION_WITH_PRODUCER_FENCED = 4


def handle(
    services: Services, context: RequestContext, request: Any
) -> Body | PendingResponse | Coroutine[Any, Any, Body]:
    error = _denied(services, context, request)
    if error is not None:
        return _body(error.code)
    producer_id = field(request, "producer_id", NO_PRODUCER_ID)
    producer_epoch = field(request, "producer_epoch", NO_PRODUCER_EPOCH)
    if (producer_id != NO_PRODUCER_ID) != (producer_epoch != NO_PRODUCER_EPOCH):
        return _body(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        return _idempotent(services)
    wanted = InitProducerId(
        transactional_id=request.transactional_id,
        transaction_timeout_ms=request.transaction_timeout,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )

    def body(result: InitProducerIdResult | KafkaError) -> Body:
        if isinstance(result, KafkaError):
            knows_fenced = context.api_version >= FIRST_VERSION_WITH_PRODUCER_FENCED
            return _body(known_error(result, knows_fenced=knows_fenced))
        return _body(ErrorCode.NONE, producer_id=result.producer_id, producer_epoch=result.producer_epoch)

    return ask_transaction(
        services,
        context,
        wanted.transactional_id,
        lambda shard, ticket, now_ms: shard.init_producer_id(wanted, ticket, now_ms),
        body,
    )


def _denied(services: Services, context: RequestContext, request: Any) -> KafkaError | None:
    authorizer = services.authorizer
    if authorizer is None:
        return None
    if request.transactional_id is not None:
        transactional_id = request.transactional_id
        return denied(services, context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    may = is_authorized_on_cluster(services, context, AclOperation.IDEMPOTENT_WRITE, logs_denied=False)
    if may or authorizer.is_allowed_on_any(asker(context), AclOperation.WRITE, ResourceType.TOPIC):
        return None
    return KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


async def _idempotent(services: Services) -> Body:
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
