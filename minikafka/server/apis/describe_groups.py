"""DescribeGroups (key 15): classic groups and their members.

Behaviour (``KafkaApis.handleDescribeGroupsRequest``, ``GroupMetadataManager.describeGroups``): each group has
its own error, without DESCRIBE GROUP_AUTHORIZATION_FAILED. A group that is not there, or is one of KIP-848,
is a group in state Dead without an error; since version 6 it is GROUP_ID_NOT_FOUND, and says so. The group id
may be empty, as in Kafka. A group that is named again is answered once, unlike Kafka's: all its members, for
each few bytes.

Versions: 1 throttle time; 3 authorized operations; 4 group instance ids; 5 flexible; 6 GROUP_ID_NOT_FOUND and
error messages (KIP-1043).
"""

from __future__ import annotations

from typing import Any

from minikafka.coordinator.group.messages import DescribedGroup
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import NOT_ASKED, authorized_operations, require
from minikafka.server.apis.shared.coordinator_requests import outcome
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps

FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 6

DEAD = "Dead"


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    asked = field(request, "include_authorized_operations", False)
    groups = []
    for group_id in dict.fromkeys(request.groups):
        group = _describe(services, context, group_id)
        if (
            group.error is ErrorCode.GROUP_ID_NOT_FOUND
            and context.api_version < FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND
        ):
            group = DescribedGroup(group_id=group_id, state=DEAD)
        operations = NOT_ASKED
        if group.error is ErrorCode.NONE:
            operations = authorized_operations(services, context, ResourceType.GROUP, group_id, asked=asked)
        groups.append(_body(group, operations))
        yield
    return {"throttle_time": 0, "groups": groups}


def _describe(services: Services, context: RequestContext, group_id: str) -> DescribedGroup:
    def read() -> DescribedGroup:
        require(services, context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id)
        return services.groups.shard_of(group_id).describe_group(group_id)

    found = outcome(read)
    if isinstance(found, KafkaError):
        state = DEAD if found.code is ErrorCode.GROUP_ID_NOT_FOUND else ""
        return DescribedGroup(group_id=group_id, error=found.code, error_message=found.message, state=state)
    return found


def _body(group: DescribedGroup, operations: int) -> dict[str, Any]:
    return {
        "error_code": group.error,
        "error_message": group.error_message,
        "group_id": group.group_id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in group.members
        ],
        "authorized_operations": operations,
    }
