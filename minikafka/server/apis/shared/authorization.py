"""What the handlers ask of the authorizer. Kafka: ``AuthHelper``.

On an open broker (``services.authorizer`` is None) everybody may do everything, and nothing is asked: there
``denied`` and ``denied_on_cluster`` answer at once, and ``permission`` is None. A handler that goes through
many names takes one ``Permission`` and looks each of them up as it comes to it, so that what it costs is
spread over the steps of the handler (``minikafka.steps``).
"""

from __future__ import annotations

from typing import Final

from minikafka.config.resource import DIAGNOSTICS, ConfigResource, ConfigResourceType
from minikafka.errors import ErrorCode, KafkaError
from minikafka.security.acl import CLUSTER_NAME, SUPPORTED_OPERATIONS, AclOperation, ResourceType
from minikafka.server.requests import RequestContext
from minikafka.server.security.authorizer import Asker, Authorizer
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


def is_authorized_on_cluster(
    services: Services, context: RequestContext, operation: AclOperation, *, logs_denied: bool = True
) -> bool:
    return is_authorized(
        services, context, operation, ResourceType.CLUSTER, CLUSTER_NAME, logs_denied=logs_denied
    )


def denied(
    services: Services,
    context: RequestContext,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
    *,
    logs: bool = True,
) -> KafkaError | None:
    """Why who asks may not do this to the resource; None: it may."""
    if services.authorizer is None or is_authorized(
        services, context, operation, resource_type, name, logs_allowed=logs, logs_denied=logs
    ):
        return None
    kind = resource_type.name.lower().replace("_", " ")
    what = f"the {kind}" if resource_type is ResourceType.CLUSTER else f"the {kind} {name}"
    return KafkaError(
        DENIED[resource_type],
        f"{context.connection.principal} may not do this: it needs {operation.name} on {what}.",
    )


def topic_denied() -> KafkaError:
    """For a topic that may have been named by its id: the message does not say its name."""
    return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")


def denied_on_cluster(
    services: Services, context: RequestContext, operation: AclOperation
) -> KafkaError | None:
    """Why who asks may not do this to the cluster, CLUSTER_AUTHORIZATION_FAILED; None: it may."""
    return denied(services, context, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def require(
    services: Services,
    context: RequestContext,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
) -> None:
    """Raises KafkaError: who asks may not do this to the resource."""
    error = denied(services, context, operation, resource_type, name)
    if error is not None:
        raise error


def require_on_cluster(services: Services, context: RequestContext, operation: AclOperation) -> None:
    """Raises KafkaError: CLUSTER_AUTHORIZATION_FAILED."""
    require(services, context, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def denied_config(
    services: Services, context: RequestContext, operation: AclOperation, resource: ConfigResource
) -> KafkaError | None:
    """Why who asks may not do this to what is configured there (``authorizeAlterResource``,
    ``ConfigHelper``): topics and groups are themselves, everything else is the cluster's. None: it may, or
    there is no such type, which is for the configurations to say."""
    match resource.type:
        case ConfigResourceType.TOPIC:
            return denied(services, context, operation, ResourceType.TOPIC, resource.name)
        case ConfigResourceType.GROUP:
            return denied(services, context, operation, ResourceType.GROUP, resource.name)
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER | ConfigResourceType.CLIENT_METRICS:
            return denied_on_cluster(services, context, operation)
        case _ if resource.type == DIAGNOSTICS:
            return denied_on_cluster(services, context, operation)
    return None


class Permission(dict[str, bool]):
    """Whether who asks may do one thing to resources of one type, by their names. Each name is asked about
    once, when it is first looked up (``filterByAuthorized``); it lives as long as the request."""

    __slots__ = ("_asker", "_authorizer", "_logs_allowed", "_logs_denied", "_operation", "_resource_type")

    def __init__(
        self,
        authorizer: Authorizer,
        context: RequestContext,
        operation: AclOperation,
        resource_type: ResourceType,
        *,
        logs_allowed: bool,
        logs_denied: bool,
    ) -> None:
        super().__init__()
        self._authorizer = authorizer
        self._asker = asker(context)
        self._operation = operation
        self._resource_type = resource_type
        self._logs_allowed = logs_allowed
        self._logs_denied = logs_denied

    def __missing__(self, name: str) -> bool:
        allowed = self[name] = self._authorizer.is_allowed(
            self._asker,
            self._operation,
            self._resource_type,
            name,
            logs_allowed=self._logs_allowed,
            logs_denied=self._logs_denied,
        )
        return allowed


def permission(
    services: Services,
    context: RequestContext,
    operation: AclOperation,
    resource_type: ResourceType,
    *,
    logs_allowed: bool = True,
    logs_denied: bool = True,
) -> Permission | None:
    """None on an open broker: for all names."""
    authorizer = services.authorizer
    if authorizer is None:
        return None
    return Permission(
        authorizer, context, operation, resource_type, logs_allowed=logs_allowed, logs_denied=logs_denied
    )


def authorized_operations(
    services: Services, context: RequestContext, resource_type: ResourceType, name: str, *, asked: bool
) -> int:
    """What who asks may do to a resource, a bit for each operation (KIP-430); ``NOT_ASKED`` when it did not
    want to know."""
    if not asked:
        return NOT_ASKED
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


def authorized_operations_on_cluster(services: Services, context: RequestContext, *, asked: bool) -> int:
    """The same of the cluster; nothing to one that may not describe it."""
    if asked and not is_authorized_on_cluster(services, context, AclOperation.DESCRIBE):
        return 0
    return authorized_operations(services, context, ResourceType.CLUSTER, CLUSTER_NAME, asked=asked)
