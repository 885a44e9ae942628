"""What the requests to groups of KIP-848 and to share groups (KIP-932) have in common.

Kafka: the halves of ``KafkaApis`` and ``GroupCoordinatorService`` that are alike for both. Both kinds of
members say by a heartbeat what they are, and hear by its answer what is theirs; both kinds of groups are
described with what their members have, by the names of topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from minikafka.coordinator.group.messages import DescribedModernGroup, ModernGroupHeartbeatResult
from minikafka.coordinator.group.shard import GroupShard
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import TopicPartitions
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import (
    NOT_ASKED,
    Permission,
    authorized_operations,
    denied,
    permission,
    require,
)
from minikafka.server.apis.shared.coordinator_requests import check_group_id, outcome
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.requests import NO_ERROR, RequestContext, error_fields
from minikafka.server.services import Services
from minikafka.steps import Steps


def refusal_of_group(
    services: Services, context: RequestContext, group_id: str, *, logs: bool = True
) -> KafkaError | None:
    """A heartbeat needs READ on its group."""
    return denied(services, context, AclOperation.READ, ResourceType.GROUP, group_id, logs=logs)


def refusal_of_topics(
    services: Services, context: RequestContext, names: Iterable[str] | None, *, logs: bool = True
) -> KafkaError | None:
    """It needs DESCRIBE on every topic it names; they are refused together."""
    if not names:
        return None
    describable = permission(
        services, context, AclOperation.DESCRIBE, ResourceType.TOPIC, logs_allowed=logs, logs_denied=logs
    )
    if describable is None or all(describable[name] for name in names):
        return None
    return KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def heartbeat_body(result: ModernGroupHeartbeatResult | KafkaError) -> Body:
    """The answer to a heartbeat: the member's epoch, how soon it is to be heard of again, and what is its own
    when that has changed."""
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


Describe = Callable[[GroupShard, str], DescribedModernGroup]
"""The shard of a group, and its id → what it is."""


def describe_groups(
    services: Services,
    context: RequestContext,
    request: Any,
    *,
    describe: Describe,
    member: Callable[[Any], Body],
) -> Steps[Body]:
    """The groups that ``request`` names, each with its own error: without DESCRIBE on the group it is
    GROUP_AUTHORIZATION_FAILED, an empty id is INVALID_GROUP_ID, and without DESCRIBE on a topic that one of
    its members has or shall have it is TOPIC_AUTHORIZATION_FAILED. ``member`` writes one member. A group that
    is named again is answered once, unlike Kafka's: all its members, for each few bytes."""
    describable = permission(services, context, AclOperation.DESCRIBE, ResourceType.TOPIC)
    groups = []
    for group_id in dict.fromkeys(request.group_ids):
        found = _described(services, context, describable, group_id, describe)
        operations = NOT_ASKED
        if isinstance(found, DescribedModernGroup) and found.error is ErrorCode.NONE:
            asked = request.include_authorized_operations
            operations = authorized_operations(services, context, ResourceType.GROUP, group_id, asked=asked)
        groups.append(_group_body(group_id, found, operations, member))
        yield
    return {"throttle_time": 0, "groups": groups}


def _described(
    services: Services,
    context: RequestContext,
    describable: Permission | None,
    group_id: str,
    describe: Describe,
) -> DescribedModernGroup | KafkaError:
    def read() -> DescribedModernGroup:
        require(services, context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        check_group_id(group_id)
        return describe(services.groups.shard_of(group_id), group_id)

    found = outcome(read)
    if isinstance(found, KafkaError) or describable is None:
        return found
    ids = {topic_id for member in found.members for topic_id in member.topic_ids()}
    if not all(describable[name] for name in _names(services.metadata, ids)):
        return KafkaError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "The group has described topic(s) that the client is not authorized to describe.",
        )
    return found


def _names(metadata: MetadataCache, topic_ids: set[UUID]) -> set[str]:
    """Of the topics, as far as they have one."""
    return {topic.name for each in topic_ids if (topic := metadata.topic_by_id(each)) is not None}


def _group_body(
    group_id: str,
    found: DescribedModernGroup | KafkaError,
    operations: int,
    member: Callable[[Any], Body],
) -> dict[str, Any]:
    if isinstance(found, KafkaError):
        found = DescribedModernGroup(group_id=group_id, error=found.code, error_message=found.message)
    return {
        **error_fields(KafkaError(found.error, found.error_message)),
        "group_id": group_id,
        "group_state": found.state,
        "group_epoch": found.group_epoch,
        "assignment_epoch": found.assignment_epoch,
        "assignor_name": found.assignor_name,
        "members": [member(each) for each in found.members],
        "authorized_operations": operations,
    }


def assignment_body(metadata: MetadataCache, partitions: TopicPartitions) -> dict[str, Any]:
    """Topics that are gone are left out: they have no name any more."""
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": topic.name, "partitions": sorted(numbers)}
            for topic_id, numbers in partitions.items()
            if (topic := metadata.topic_by_id(topic_id)) is not None
        ]
    }
