"""ConsumerGroupDescribe (key 69): KIP-848 groups, with what their members own and shall own.

Behaviour (``GroupCoordinatorService.consumerGroupDescribe``): each group has its own error; one that is not
there, or is a classic group, is GROUP_ID_NOT_FOUND, and an empty id INVALID_GROUP_ID. Topics that are gone
are left out of the assignments, for they have no name any more. A group that is named again is answered once,
unlike Kafka's: all its members, for each few bytes.

Versions: 0; 1 whether a member speaks the classic protocol (KIP-1099).
"""

from __future__ import annotations

from typing import Any

from minikafka.coordinator.group.messages import DescribedConsumerGroup, DescribedConsumerMember
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import TopicPartitions
from minikafka.protocol.wire.codec import Body
from minikafka.server.apis.shared.authorized_operations import NOT_ASKED, group_operations
from minikafka.server.apis.shared.coordinator_requests import check_group_id, outcome
from minikafka.server.cluster.metadata_cache import MetadataCache
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import error_fields
from minikafka.server.services import Services
from minikafka.steps import Steps


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    operations = group_operations(asked=request.include_authorized_operations)
    groups = []
    for group_id in dict.fromkeys(request.group_ids):
        group = _describe(services, group_id)
        bits = operations if group.error is ErrorCode.NONE else NOT_ASKED
        groups.append(_body(services.metadata, group, bits))
        yield
    return {"throttle_time": 0, "groups": groups}


def _describe(services: Services, group_id: str) -> DescribedConsumerGroup:
    def read() -> DescribedConsumerGroup:
        check_group_id(group_id)
        return services.groups.shard_of(group_id).describe_consumer_group(group_id)

    found = outcome(read)
    if isinstance(found, KafkaError):
        return DescribedConsumerGroup(group_id=group_id, error=found.code, error_message=found.message)
    return found


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
