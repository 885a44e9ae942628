"""FindCoordinator (key 10): which broker coordinates a consumer group or a transactional id.

Behaviour (``KafkaApis.handleFindCoordinatorRequest``, ``getCoordinator``):
- a group or a transactional id: the broker that leads its partition of ``__consumer_offsets`` or
  ``__transaction_state``; COORDINATOR_NOT_AVAILABLE while it has no leader, or for a listener that the broker
  does not have. The first question makes the topic and waits for it (``server.coordinator.topic``). It needs
  DESCRIBE: GROUP_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
- a share group (version 6) and any other kind of key: INVALID_REQUEST.

Versions: 1 key types and error messages; 3 flexible; 4 several keys at once (KIP-699); 5
TRANSACTION_ABORTABLE, which is never answered here; 6 share groups (KIP-932).
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import DENIED, Permission, permission
from minikafka.server.coordinator.topic import CoordinatorTopic
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import error_fields
from minikafka.server.services import Services
from minikafka.steps import Steps, each
from minikafka.types import NO_LEADER

KEY_TYPE_GROUP = 0
KEY_TYPE_TRANSACTION = 1
FIRST_VERSION_WITH_SEVERAL_KEYS = 4

_RESOURCE_TYPES = {KEY_TYPE_GROUP: ResourceType.GROUP, KEY_TYPE_TRANSACTION: ResourceType.TRANSACTIONAL_ID}


def handle(
    services: Services, context: RequestContext, request: Any
) -> Steps[Body | Coroutine[Any, Any, Body]]:
    key_type = field(request, "key_type", KEY_TYPE_GROUP)
    topic, describable = _topic(services, key_type), _permission(services, context, key_type)
    if topic is not None and not topic.is_there:
        keys = _keys(context, request)
        if describable is None or any(describable[key] for key in keys):
            return _create_first(topic, services, context, request, describable)
    return (yield from _answer(services, context, request, describable))


def _topic(services: Services, key_type: int) -> CoordinatorTopic | None:
    if key_type == KEY_TYPE_GROUP:
        return services.groups.topic
    return services.transactions.topic if key_type == KEY_TYPE_TRANSACTION else None


def _permission(services: Services, context: RequestContext, key_type: int) -> Permission | None:
    """To describe what coordinators are asked for; None: nothing is needed, or there is no such type."""
    resource_type = _RESOURCE_TYPES.get(key_type)
    if resource_type is None:
        return None
    return permission(services, context, AclOperation.DESCRIBE, resource_type)


def _keys(context: RequestContext, request: Any) -> Sequence[str]:
    if context.api_version < FIRST_VERSION_WITH_SEVERAL_KEYS:
        return (request.key,)
    keys: Sequence[str] = request.coordinator_keys
    return keys


async def _create_first(
    topic: CoordinatorTopic,
    services: Services,
    context: RequestContext,
    request: Any,
    describable: Permission | None,
) -> Body:
    await topic.create()
    return await services.scheduler.finished(_answer(services, context, request, describable))


def _answer(
    services: Services, context: RequestContext, request: Any, describable: Permission | None
) -> Steps[Body]:
    key_type = field(request, "key_type", KEY_TYPE_GROUP)
    if context.api_version < FIRST_VERSION_WITH_SEVERAL_KEYS:
        return {"throttle_time": 0} | _coordinator(services, context, request.key, key_type, describable)
    coordinators = yield from each(
        lambda key: {"key": key} | _coordinator(services, context, key, key_type, describable),
        request.coordinator_keys,
    )
    return {"throttle_time": 0, "coordinators": coordinators}


def _coordinator(
    services: Services, context: RequestContext, key: str, key_type: int, describable: Permission | None
) -> dict[str, Any]:
    try:
        if describable is not None and not describable[key]:
            raise KafkaError(DENIED[_RESOURCE_TYPES[key_type]])
        topic = _topic(services, key_type)
        if topic is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"There is no coordinator for keys of type {key_type}."
            )
        broker = topic.coordinator(key)
        endpoint = broker.endpoint(context.connection.listener_name)
        if endpoint is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
    except KafkaError as error:
        return {**error_fields(error), "node_id": NO_LEADER, "host": "", "port": -1}
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "node_id": broker.node_id,
        "host": endpoint.host,
        "port": endpoint.port,
    }
