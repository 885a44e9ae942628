"""What all kinds of groups have: FindCoordinator, ListGroups, DeleteGroups (keys 10, 16, 42)."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from minikafka.coordination.paths import uuid_from_text
from minikafka.coordinator.group.messages import ListedGroup
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import Result
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import (
    DENIED,
    Permission,
    denied_on_cluster,
    is_authorized_on_cluster,
    permission,
)
from minikafka.server.apis.shared.coordinator_requests import AnswerCollector, CoordinatorAnswer
from minikafka.server.coordinator.topic import CoordinatorTopic
from minikafka.server.requests import NO_ERROR, RequestContext, error_fields
from minikafka.server.services import Services
from minikafka.steps import Steps, each
from minikafka.types import NO_LEADER

KEY_TYPE_GROUP = 0
KEY_TYPE_TRANSACTION = 1
KEY_TYPE_SHARE = 2
FIRST_VERSION_WITH_SHARE_GROUPS = 6
FIRST_VERSION_WITH_SEVERAL_KEYS = 4

_RESOURCE_TYPES = {KEY_TYPE_GROUP: ResourceType.GROUP, KEY_TYPE_TRANSACTION: ResourceType.TRANSACTIONAL_ID}


def handle_find_coordinator(
    services: Services, context: RequestContext, request: Any
) -> Steps[Body | Coroutine[Any, Any, Body]]:
    """FindCoordinator (key 10): which broker coordinates a consumer group or a transactional id.

    Behaviour (``KafkaApis.handleFindCoordinatorRequest``, ``getCoordinator``):
    - a group or a transactional id: the broker that leads its partition of ``__consumer_offsets`` or
      ``__transaction_state``; COORDINATOR_NOT_AVAILABLE while it has no leader, or for a listener that the
      broker does not have. The first question makes the topic and waits for it
      (``server.coordinator.topic``). It needs DESCRIBE: GROUP_AUTHORIZATION_FAILED,
      TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    - a share partition (version 6), by a key ``group:topicId:partition``: the broker that leads its partition
      of ``__share_group_state``. Brokers ask, so it needs CLUSTER_ACTION. Another key: INVALID_REQUEST.
    - any other kind of key: INVALID_REQUEST.

    Versions: 1 key types and error messages; 3 flexible; 4 several keys at once (KIP-699); 5
    TRANSACTION_ABORTABLE, which is never answered here; 6 share groups (KIP-932).
    """
    key_type = field(request, "key_type", KEY_TYPE_GROUP)
    topic, describable = _topic(services, context, key_type), _permission(services, context, key_type)
    if key_type == KEY_TYPE_SHARE and denied_on_cluster(services, context, AclOperation.CLUSTER_ACTION):
        topic = None
    if topic is not None and not topic.is_there:
        keys = _keys(context, request)
        if describable is None or any(describable[key] for key in keys):
            return _create_first(topic, services, context, request, describable)
    return (yield from _answer(services, context, request, describable))


def _topic(services: Services, context: RequestContext, key_type: int) -> CoordinatorTopic | None:
    if key_type == KEY_TYPE_GROUP:
        return services.groups.topic
    if key_type == KEY_TYPE_SHARE and context.api_version >= FIRST_VERSION_WITH_SHARE_GROUPS:
        return services.shares.topic
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
        if key_type == KEY_TYPE_SHARE:
            _check_share_key(services, context, key)
        topic = _topic(services, context, key_type)
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


def _check_share_key(services: Services, context: RequestContext, key: str) -> None:
    """Raises KafkaError: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST."""
    error = denied_on_cluster(services, context, AclOperation.CLUSTER_ACTION)
    if error is not None:
        raise error
    try:
        group_id, topic_id, partition = key.rsplit(":", 2)
        uuid_from_text(topic_id)
        is_valid = bool(group_id) and int(partition) >= 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"The key of a share partition is group:topicId:partition, not {key!r}.",
        )


def handle_list_groups(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    """ListGroups (key 16): the groups that this broker coordinates.

    Behaviour (``GroupCoordinatorService.listGroups``): when one of its partitions is being loaded the whole
    answer is COORDINATOR_LOAD_IN_PROGRESS, because some groups would be missing. Filters do not care about
    case; a state or type that there is none of matches nothing. Groups that the client may not describe are
    left out.

    Versions: 1 throttle time; 3 flexible; 4 states, and a filter by state (KIP-518); 5 types, and a filter by
    type (KIP-848).
    """
    states = {state.lower() for state in field(request, "states_filter", ())}
    types = {kind.lower() for kind in field(request, "types_filter", ())}

    def is_wanted(group: ListedGroup) -> bool:
        return (not states or group.state.lower() in states) and (
            not types or group.group_type.lower() in types
        )

    # DESCRIBE on the cluster shows all of them, as before KIP-88.
    describable = None
    if not is_authorized_on_cluster(services, context, AclOperation.DESCRIBE, logs_denied=False):
        describable = permission(
            services, context, AclOperation.DESCRIBE, ResourceType.GROUP, logs_denied=False
        )
    try:
        groups = []
        for shard in services.groups.shards():
            for group in shard.list_groups():
                if is_wanted(group) and (describable is None or describable[group.group_id]):
                    groups.append(group)
                yield
    except KafkaError as error:
        return {"throttle_time": 0, "error_code": error.code, "groups": []}
    listed = yield from each(_listed, groups)
    return {"throttle_time": 0, "error_code": ErrorCode.NONE, "groups": listed}


def _listed(group: ListedGroup) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "protocol_type": group.protocol_type,
        "group_state": group.state,
        "group_type": group.group_type,
    }


def handle_delete_groups(services: Services, context: RequestContext, request: Any) -> Steps[Result]:
    """DeleteGroups (key 42): groups without members go, and their offsets with them (KIP-229).

    Behaviour (``GroupCoordinatorService.deleteGroups``): each group has its own error (GROUP_ID_NOT_FOUND,
    NON_EMPTY_GROUP, NOT_COORDINATOR, GROUP_AUTHORIZATION_FAILED without DELETE, …); the answer leaves when
    all of them are settled. The group id may be empty, as in Kafka.

    Versions: 1 as 0; 2 flexible; 3 an error has a message.
    """
    group_ids = list(dict.fromkeys(request.groups_names))

    def body(results: list[Any]) -> Steps[Body]:
        answers = []
        for group_id, result in zip(group_ids, results, strict=True):
            error = error_fields(result) if isinstance(result, KafkaError) else NO_ERROR
            answers.append({"group_id": group_id, **error})
            yield
        return {"throttle_time": 0, "results": answers}

    answer = CoordinatorAnswer(services, context, body)
    deletable = permission(services, context, AclOperation.DELETE, ResourceType.GROUP)
    collector = AnswerCollector(len(group_ids), answer.answer)
    for index, group_id in enumerate(group_ids):
        ticket = collector.ticket(index)
        if deletable is not None and not deletable[group_id]:
            ticket.answer(KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."))
        else:
            services.groups.ask(group_id, partial(_delete, group_id), ticket)
        yield
    return answer.pending


def _delete(group_id: str, shard: Any, ticket: Any, now_ms: int) -> Any:
    return shard.delete_group(group_id, ticket, now_ms)
