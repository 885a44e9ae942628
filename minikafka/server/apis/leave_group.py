"""LeaveGroup (key 13): members leave a classic group, by themselves or by an administrator's hand.

Behaviour (``GroupCoordinatorService.leaveGroup``, ``LeaveGroupResponse``): each member has its own error;
before version 3 there is one member, and its error is that of the whole. An empty group id is
INVALID_GROUP_ID, one without READ GROUP_AUTHORIZATION_FAILED.

Versions: 1 throttle time; 3 several members, by id or by instance id (KIP-345); 4 flexible; 5 why a member
leaves (KIP-800).
"""

from __future__ import annotations

from typing import Any

from minikafka.coordinator.group.messages import LeaveGroup, LeaveGroupResult, LeavingMember
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import Result
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import denied
from minikafka.server.apis.shared.coordinator_requests import ask_group, check_group_id
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services

FIRST_VERSION_WITH_SEVERAL_MEMBERS = 3


def handle(services: Services, context: RequestContext, request: Any) -> Body | Result:
    leave = LeaveGroup(request.group_id, _members(context, request))

    def body(result: LeaveGroupResult | KafkaError) -> Body:
        if isinstance(result, KafkaError):
            return {"throttle_time": 0, "error_code": result.code, "members": []}
        code = ErrorCode.NONE
        if context.api_version < FIRST_VERSION_WITH_SEVERAL_MEMBERS and result.members:
            _, code = result.members[0]
        return {
            "throttle_time": 0,
            "error_code": code,
            "members": [
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.group_instance_id,
                    "error_code": error,
                }
                for member, error in result.members
            ],
        }

    error = denied(services, context, AclOperation.READ, ResourceType.GROUP, leave.group_id)
    if error is not None:
        return body(error)

    def call(shard: Any, ticket: Any, now_ms: int) -> Any:
        check_group_id(leave.group_id)
        return shard.leave_group(leave, ticket, now_ms)

    return ask_group(services, context, leave.group_id, call, body)


def _members(context: RequestContext, request: Any) -> tuple[LeavingMember, ...]:
    if context.api_version < FIRST_VERSION_WITH_SEVERAL_MEMBERS:
        return (LeavingMember(request.member_id),)
    return tuple(
        LeavingMember(member.member_id, member.group_instance_id, field(member, "reason", None))
        for member in request.members
    )
