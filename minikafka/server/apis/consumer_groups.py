"""ConsumerGroupHeartbeat (key 68): a member of a KIP-848 group joins, lives, changes its mind, leaves.

Behaviour (``GroupCoordinatorService.consumerGroupHeartbeat``): the answer says the member's epoch, how soon
it is to be heard of again, and what it is to own when that has changed. It needs READ on the group, else
GROUP_AUTHORIZATION_FAILED, and DESCRIBE on the topics it names, else TOPIC_AUTHORIZATION_FAILED. What else is
wrong with a request is for
the groups to say (``coordinator.group.consumer.consumer_groups``).

Versions: 0; 1 regular expressions, and the client makes the member's id (KIP-1082).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from minikafka.coordinator.group.messages import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResult
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import Result
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import Permission, denied, permission
from minikafka.server.apis.shared.coordinator_requests import (
    GroupQuestion,
    answer_of_group,
    ask_group,
    client_host,
    client_id,
)
from minikafka.server.apis.shared.group_regexes import describable_topics, matched_and_decided, regexes_due
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import NO_ERROR, error_fields
from minikafka.server.services import Services


def handle(
    services: Services, context: RequestContext, request: Any
) -> Body | Result | Coroutine[Any, Any, Body]:
    error = refusal(services, context, request)
    if error is not None:
        return _body(error)
    regex = field(request, "subscribed_topic_regex", None) or None
    if regex is not None or regexes_due(services, request.group_id):
        return _with_regexes(services, context, request, regex)
    return ask_group(services, context, *question(services, context, request))


async def _with_regexes(services: Services, context: RequestContext, request: Any, regex: str | None) -> Body:
    """The same after what is long about expressions, which the group then finds remembered."""
    describable = await matched_and_decided(services, context, request.group_id, regex)
    return await answer_of_group(services, question(services, context, request, describable))


def refusal(
    services: Services, context: RequestContext, request: Any, *, logs: bool = True
) -> KafkaError | None:
    """Why who asks may not ask that: it needs READ on the group, and DESCRIBE on every topic it names."""
    error = denied(services, context, AclOperation.READ, ResourceType.GROUP, request.group_id, logs=logs)
    if error is None and request.subscribed_topic_names:
        names = request.subscribed_topic_names
        describable = permission(
            services, context, AclOperation.DESCRIBE, ResourceType.TOPIC, logs_allowed=logs, logs_denied=logs
        )
        if describable is not None and not all(describable[name] for name in names):
            return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return error


def question(
    services: Services, context: RequestContext, request: Any, describable: Permission | None = None
) -> GroupQuestion:
    """What ``request`` asks, the same for all requests with these bytes of this connection. ``describable``
    has what was decided already."""
    names = request.subscribed_topic_names
    owned = request.topic_partitions
    if describable is None:
        describable = describable_topics(services, context)
    heartbeat = ConsumerGroupHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout,
        subscribed_topic_names=None if names is None else tuple(names),
        subscribed_topic_regex=field(request, "subscribed_topic_regex", None),
        server_assignor=request.server_assignor,
        topic_partitions=(
            None if owned is None else {each.topic_id: frozenset(each.partitions) for each in owned}
        ),
        client_id=client_id(context),
        client_host=client_host(context),
        version=context.api_version,
        may_describe=None if describable is None else describable.__getitem__,
    )
    return GroupQuestion(
        heartbeat.group_id,
        lambda shard, ticket, now_ms: shard.consumer_group_heartbeat(heartbeat, ticket, now_ms),
        _body,
    )


def _body(result: ConsumerGroupHeartbeatResult | KafkaError) -> Body:
    if isinstance(result, KafkaError):
        nothing = {"member_id": None, "member_epoch": 0, "heartbeat_interval": 0, "assignment": None}
        return {"throttle_time": 0, **error_fields(result), **nothing}
    assignment = None
    if result.assignment is not None:
        assignment = {
            "topic_partitions": [
                {"topic_id": topic_id, "partitions": sorted(partitions)}
                for topic_id, partitions in result.assignment.items()
            ]
        }
    return {
        "throttle_time": 0,
        **NO_ERROR,
        "member_id": result.member_id,
        "member_epoch": result.member_epoch,
        "heartbeat_interval": result.heartbeat_interval_ms,
        "assignment": assignment,
    }
