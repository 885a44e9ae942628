"""What the handlers ask of the authorizer. Kafka: ``AuthHelper``.

On an open broker (``services.authorizer`` is None) everybody may do everything, and nothing is asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from minikafka.errors import ErrorCode, KafkaError
from minikafka.security.acl import CLUSTER_NAME, SUPPORTED_OPERATIONS, AclOperation, ResourceType
from minikafka.server.requests.context import RequestContext
from minikafka.server.security.authorizer import Asker
from minikafka.server.services import Services

NOT_ASKED: Final = -2_147_483_648
"""``*_authorized_operations`` of a request that does not want them."""

DENIED: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error of a resource that may not be used."""


def asker(context: RequestContext) -> Asker:
    connection, header = context.connection, context.header
    return Asker(
        connection.principal,
        connection.peer_host,
        connection.listener_name,
        header.api_key,
        header.client_id,
    )


def is_authorized(
    services: Services,
    context: RequestContext,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
    *,
    logs_allowed: bool = True,
    logs_denied: bool = True,
) -> bool:
    """Whether who asks may do this to the resource."""
    authorizer = services.authorizer
    return authorizer is None or authorizer.is_allowed(
        asker(context), operation, resource_type, name, logs_allowed=logs_allowed, logs_denied=logs_denied
    )


def is_authorized_on_cluster(services: Services, context: RequestContext, operation: AclOperation) -> bool:
    return is_authorized(services, context, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def require_on_cluster(services: Services, context: RequestContext, operation: AclOperation) -> None:
    """Raises KafkaError: CLUSTER_AUTHORIZATION_FAILED."""
    if not is_authorized_on_cluster(services, context, operation):
        raise KafkaError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{context.connection.principal} may not do this: it needs {operation.name} on the cluster",
        )


def authorized_names(
    services: Services,
    context: RequestContext,
    operation: AclOperation,
    resource_type: ResourceType,
    names: Iterable[str],
    *,
    logs_denied: bool = True,
) -> set[str]:
    """Those of ``names`` that who asks may do this to (``filterByAuthorized``)."""
    distinct = set(names)
    authorizer = services.authorizer
    if authorizer is None:
        return distinct
    asks = asker(context)
    return {
        name
        for name in distinct
        if authorizer.is_allowed(asks, operation, resource_type, name, logs_denied=logs_denied)
    }


def authorized_operations(
    services: Services, context: RequestContext, resource_type: ResourceType, name: str
) -> int:
    """What who asks may do to a resource, a bit for each operation (KIP-430)."""
    operations = SUPPORTED_OPERATIONS[resource_type]
    authorizer = services.authorizer
    if authorizer is not None:
        asks = asker(context)
        operations = frozenset(
            each
            for each in operations
            if authorizer.is_allowed(asks, each, resource_type, name, logs_allowed=False, logs_denied=False)
        )
    return sum(1 << each for each in operations)
