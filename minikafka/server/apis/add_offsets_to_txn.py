"""AddOffsetsToTxn (key 25): a producer is about to commit a group's offsets in its transaction (KIP-98).

Behaviour (``KafkaApis.handleAddOffsetsToTxnRequest``): the partition of ``__consumer_offsets`` that keeps the
group becomes part of the transaction. It needs WRITE on the transactional id and READ on the group. Producers
that speak the second version of the protocol (KIP-890) do not ask: TxnOffsetCommit adds it for them.

Versions: 2 PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before; 3 flexible; 4 TRANSACTION_ABORTABLE, which is
never answered here.
"""

from __future__ import annotations

from typing import Any

from minikafka.coordinator.transaction.messages import TRANSACTION_VERSION_1, AddPartitionsToTxn
from minikafka.errors import ErrorCode
from minikafka.network.connection import PendingResponse
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import denied
from minikafka.server.apis.shared.coordinator_requests import ask_transaction, known_error
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.types import TopicPartition

FIRST_VERSION_WITH_PRODUCER_FENCED = 2


def handle(services: Services, context: RequestContext, request: Any) -> Body | PendingResponse:
    transactional_id, group_id = request.transactional_id, request.group_id
    error = denied(
        services, context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ) or denied(services, context, AclOperation.READ, ResourceType.GROUP, group_id)
    if error is not None:
        return {"throttle_time": 0, "error_code": error.code}
    topic = services.groups.topic
    wanted = AddPartitionsToTxn(
        transactional_id=transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        partitions=(TopicPartition(topic.name, topic.partition_for(group_id)),),
        knows_abortable=False,
        client_transaction_version=TRANSACTION_VERSION_1,
    )

    def body(result: Any) -> Body:
        knows_fenced = context.api_version >= FIRST_VERSION_WITH_PRODUCER_FENCED
        code = known_error(result, knows_fenced=knows_fenced)
        if code is ErrorCode.NONE:
            code = next(iter(result.errors), ErrorCode.NONE)
        return {"throttle_time": 0, "error_code": code}

    return ask_transaction(
        services,
        context,
        wanted.transactional_id,
        lambda shard, ticket, now_ms: shard.add_partitions(wanted, ticket, now_ms),
        body,
    )
