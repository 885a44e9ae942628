"""ConsumerGroupDescribe (key 69): KIP-848 groups, with what their members own and shall own.

Behaviour (``GroupCoordinatorService.consumerGroupDescribe``): each group has its own error; one that is not
there, or is a classic group, is GROUP_ID_NOT_FOUND, and an empty id INVALID_GROUP_ID; without DESCRIBE on the
group it is GROUP_AUTHORIZATION_FAILED, and without DESCRIBE on a topic that one of its members owns or shall
own TOPIC_AUTHORIZATION_FAILED. Topics that are gone are left out of the assignments, for they have no name
any more. A group that is named again is answered once, unlike Kafka's: all its members, for each few bytes.

Versions: 0; 1 whether a member speaks the classic protocol (KIP-1099).
"""

from __future__ import annotations

from typing import Any

from minikafka.coordinator.group.messages import DescribedConsumerGroup, DescribedConsumerMember
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import TopicPartitions
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import (
    NOT_ASKED,
    Permission,
    authorized_operations,
    permission,
    require,
)
from minikafka.server.apis.shared.coordinator_requests import check_group_id, outcome
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import error_fields
from minikafka.server.services import Services
from minikafka.steps import Steps


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    describable = permission(services, context, AclOperation.DESCRIBE, ResourceType.TOPIC)
    groups = []
    for group_id in dict.fromkeys(request.group_ids):
        group = _describe(services, context, describable, group_id)
        operations = NOT_ASKED
        if group.error is ErrorCode.NONE:
            asked = request.include_authorized_operations
            operations = authorized_operations(services, context, ResourceType.GROUP, group_id, asked=asked)
        groups.append(_body(services.metadata, group, operations))
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


def _body(metadata: MetadataCache, group: DescribedConsumerGroup, operations: int) -> dict[str, Any]:
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
