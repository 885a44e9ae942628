"""What the requests to groups of KIP-848, to share groups (KIP-932) and to streams groups (KIP-1071) have in
common.

Kafka: the halves of ``KafkaApis`` and ``GroupCoordinatorService`` that are alike for them. Members say by a
heartbeat what they are, and hear by its answer what is theirs; groups are described with what their members
have, those of the first two kinds by the names of topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from minikafka.coordinator.group.messages import (
    DescribedModernGroup,
    DescribedModernMember,
    ModernGroupHeartbeatResult,
)
from minikafka.coordinator.group.shard import GroupShard
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import TopicPartitions
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import (
    NOT_ASKED,
    authorized_operations,
    denied,
    permission,
    require,
)
from minikafka.server.apis.shared.coordinator_requests import check_group_id
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.requests import NO_ERROR, RequestContext, error_fields
from minikafka.server.services import Services
from minikafka.steps import Steps, each

Described = TypeVar("Described", bound=DescribedModernGroup)

MEMBERS_A_STEP = 16
"""At 10 to 20 µs each."""
TOPICS_DENIED = "The group has described topic(s) that the client is not authorized to describe."


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


def describe_groups(
    services: Services,
    context: RequestContext,
    request: Any,
    *,
    kind: type[Described],
    describe: Callable[[GroupShard, str], Described],
    topics: Callable[[Described], Iterable[str]],
    member: Callable[[Any], Body],
    more: Callable[[Described], Body] | None = None,
    topics_denied: str = TOPICS_DENIED,
) -> Steps[Body]:
    """The groups that ``request`` names, each with its own error: without DESCRIBE on the group it is
    GROUP_AUTHORIZATION_FAILED, an empty id is INVALID_GROUP_ID, and without DESCRIBE on one of its ``topics``
    it is TOPIC_AUTHORIZATION_FAILED. ``describe`` is given the shard of a group, and its id; ``member``
    writes one member, ``more`` what only groups of this kind have. A group that is named again is answered
    once, unlike Kafka's: all its members, for each few bytes."""
    describable = permission(services, context, AclOperation.DESCRIBE, ResourceType.TOPIC)

    def read(group_id: str) -> Described:
        require(services, context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        check_group_id(group_id)
        found = describe(services.groups.shard_of(group_id), group_id)
        if describable is not None and not all(describable[name] for name in topics(found)):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topics_denied)
        return found

    groups = []
    for group_id in dict.fromkeys(request.group_ids):
        try:
            found = read(group_id)
        except KafkaError as error:
            found = kind(group_id=group_id, error=error.code, error_message=error.message)
        operations = NOT_ASKED
        if found.error is ErrorCode.NONE:
            asked = request.include_authorized_operations
            operations = authorized_operations(services, context, ResourceType.GROUP, group_id, asked=asked)
        members = yield from each(member, found.members, a_step=MEMBERS_A_STEP)
        groups.append(
            {
                **error_fields(KafkaError(found.error, found.error_message)),
                "group_id": found.group_id,
                "group_state": found.state,
                "group_epoch": found.group_epoch,
                "assignment_epoch": found.assignment_epoch,
                "assignor_name": found.assignor_name,
                "members": members,
                "authorized_operations": operations,
                **({} if more is None else more(found)),
            }
        )
        yield
    return {"throttle_time": 0, "groups": groups}


def assigned_topics(metadata: MetadataCache, members: Iterable[DescribedModernMember]) -> set[str]:
    """The names of the topics that members have or shall have, as far as they have one."""
    ids = {topic_id for member in members for topic_id in member.topic_ids()}
    return {topic.name for topic_id in ids if (topic := metadata.topic_by_id(topic_id)) is not None}


def member_body(metadata: MetadataCache, member: DescribedModernMember) -> dict[str, Any]:
    """What those of members of consumer and share groups have."""
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": list(member.subscribed_topic_names),
        "assignment": assignment_body(metadata, member.assignment),
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
