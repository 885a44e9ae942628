"""KIP-848 groups: ConsumerGroupHeartbeat and ConsumerGroupDescribe (keys 68, 69)."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from minikafka.coordinator.group.messages import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    DescribedConsumerGroup,
    DescribedConsumerMember,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import Result
from minikafka.protocol.internal.group_records import TopicPartitions
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis import refusal as refused
from minikafka.server.apis.shared.authorization import (
    NOT_ASKED,
    Permission,
    authorized_operations,
    denied,
    permission,
    require,
)
from minikafka.server.apis.shared.coordinator_requests import (
    GroupQuestion,
    answer_of_group,
    ask_group,
    check_group_id,
    client_host,
    client_id,
    describable_topics,
    matched_and_decided,
    outcome,
    regexes_due,
)
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.requests import NO_ERROR, RequestContext, error_fields
from minikafka.server.services import Services
from minikafka.steps import Steps

CONSUMER = "consumer"
"""The protocol's name in ``group.coordinator.rebalance.protocols``."""


def handle_consumer_group_heartbeat(
    services: Services, context: RequestContext, request: Any
) -> Body | Result | Coroutine[Any, Any, Body]:
    """ConsumerGroupHeartbeat (key 68): a member of a KIP-848 group joins, lives, changes its mind, leaves.

    Behaviour (``GroupCoordinatorService.consumerGroupHeartbeat``): the answer says the member's epoch, how
    soon it is to be heard of again, and what it is to own when that has changed. It needs READ on the group,
    else GROUP_AUTHORIZATION_FAILED, and DESCRIBE on the topics it names, else TOPIC_AUTHORIZATION_FAILED.
    What else is wrong with a request is for the groups to say
    (``coordinator.group.consumer.consumer_groups``). UNSUPPORTED_VERSION, where
    ``group.coordinator.rebalance.protocols`` is without ``consumer``.

    Versions: 0; 1 regular expressions, and the client makes the member's id (KIP-1082).
    """
    if CONSUMER not in services.config.group_coordinator_rebalance_protocols:
        return refused.handle(services, context, request)
    error = refusal(services, context, request)
    if error is not None:
        return _heartbeat_body(error)
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
        _heartbeat_body,
    )


def _heartbeat_body(result: ConsumerGroupHeartbeatResult | KafkaError) -> Body:
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


def handle_consumer_group_describe(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    """ConsumerGroupDescribe (key 69): KIP-848 groups, with what their members own and shall own.

    Behaviour (``GroupCoordinatorService.consumerGroupDescribe``): each group has its own error; one that is
    not there, or is a classic group, is GROUP_ID_NOT_FOUND, and an empty id INVALID_GROUP_ID; without
    DESCRIBE on the group it is GROUP_AUTHORIZATION_FAILED, and without DESCRIBE on a topic that one of its
    members owns or shall own TOPIC_AUTHORIZATION_FAILED. Topics that are gone are left out of the
    assignments, for they have no name any more. A group that is named again is answered once, unlike Kafka's:
    all its members, for each few bytes.

    Versions: 0; 1 whether a member speaks the classic protocol (KIP-1099).
    """
    if CONSUMER not in services.config.group_coordinator_rebalance_protocols:
        return refused.handle(services, context, request)
    describable = permission(services, context, AclOperation.DESCRIBE, ResourceType.TOPIC)
    groups = []
    for group_id in dict.fromkeys(request.group_ids):
        group = _describe(services, context, describable, group_id)
        operations = NOT_ASKED
        if group.error is ErrorCode.NONE:
            asked = request.include_authorized_operations
            operations = authorized_operations(services, context, ResourceType.GROUP, group_id, asked=asked)
        groups.append(_describe_body(services.metadata, group, operations))
        yield
    return {"throttle_time": 0, "groups": groups}


def _describe(
    services: Services, context: RequestContext, describable: Permission | None, group_id: str
) -> DescribedConsumerGroup:
    def read() -> DescribedConsumerGroup:
        require(services, context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        check_group_id(group_id)
        return services.groups.shard_of(group_id).describe_consumer_group(group_id)

    found = outcome(read)
    if isinstance(found, KafkaError):
        return DescribedConsumerGroup(group_id=group_id, error=found.code, error_message=found.message)
    if describable is not None and not all(describable[name] for name in _topics(services.metadata, found)):
        return DescribedConsumerGroup(
            group_id=group_id,
            error=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
        )
    return found


def _topics(metadata: MetadataCache, group: DescribedConsumerGroup) -> set[str]:
    """What its members own or shall own, as far as it has a name."""
    ids = {
        topic_id for member in group.members for topic_id in (*member.assignment, *member.target_assignment)
    }
    return {topic.name for topic_id in ids if (topic := metadata.topic_by_id(topic_id)) is not None}


def _describe_body(metadata: MetadataCache, group: DescribedConsumerGroup, operations: int) -> dict[str, Any]:
    return {
        **error_fields(KafkaError(group.error, group.error_message)),
        "group_id": group.group_id,
        "group_state": group.state,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor_name,
        "members": [_member(metadata, member) for member in group.members],
        "authorized_operations": operations,
    }


def _member(metadata: MetadataCache, member: DescribedConsumerMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": list(member.subscribed_topic_names),
        "subscribed_topic_regex": member.subscribed_topic_regex,
        "assignment": _assignment(metadata, member.assignment),
        "target_assignment": _assignment(metadata, member.target_assignment),
        "member_type": member.member_type,
    }


def _assignment(metadata: MetadataCache, partitions: TopicPartitions) -> dict[str, Any]:
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": topic.name, "partitions": sorted(numbers)}
            for topic_id, numbers in partitions.items()
            if (topic := metadata.topic_by_id(topic_id)) is not None
        ]
    }
