"""DescribeTransactions (key 65): what transactional ids are doing (KIP-664).

Behaviour (``TransactionCoordinator.handleDescribeTransactions``): asked of the coordinator of each id; each
has its own error: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, INVALID_REQUEST for an empty one,
TRANSACTIONAL_ID_NOT_FOUND, TRANSACTIONAL_ID_AUTHORIZATION_FAILED without DESCRIBE. Topics that the client may
not describe are left out. The partitions of a transaction that is being ended are those whose marker is not
written yet.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from minikafka.coordinator.transaction.messages import DescribedTransaction
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import Permission, permission, require
from minikafka.server.apis.shared.coordinator_requests import outcome
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps, each
from minikafka.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    describable = permission(services, context, AclOperation.DESCRIBE, ResourceType.TOPIC)
    states = yield from each(
        partial(_describe, services, context, describable), dict.fromkeys(request.transactional_ids)
    )
    return {"throttle_time": 0, "transaction_states": states}


def _describe(
    services: Services, context: RequestContext, describable: Permission | None, transactional_id: str
) -> dict[str, Any]:
    def read() -> DescribedTransaction:
        transactional = ResourceType.TRANSACTIONAL_ID
        require(services, context, AclOperation.DESCRIBE, transactional, transactional_id)
        return services.transactions.shard_of(transactional_id).describe_transaction(transactional_id)

    found = outcome(read)
    if isinstance(found, KafkaError):
        return {
            "error_code": found.code,
            "transactional_id": transactional_id,
            "transaction_state": "",
            "transaction_timeout": 0,
            "transaction_start_time": NO_TIMESTAMP,
            "producer_id": NO_PRODUCER_ID,
            "producer_epoch": NO_PRODUCER_EPOCH,
            "topics": [],
        }
    return {
        "error_code": ErrorCode.NONE,
        "transactional_id": transactional_id,
        "transaction_state": found.state,
        "transaction_timeout": found.timeout_ms,
        "transaction_start_time": found.start_time_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "topics": _topics(found, describable),
    }


def _topics(transaction: DescribedTransaction, describable: Permission | None) -> list[dict[str, Any]]:
    """Those that who asks may describe."""
    topics: dict[str, list[int]] = {}
    for topic, partition in transaction.partitions:
        topics.setdefault(topic, []).append(partition)
    return [
        {"topic": topic, "partitions": partitions}
        for topic, partitions in topics.items()
        if describable is None or describable[topic]
    ]
