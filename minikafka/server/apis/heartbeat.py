"""Heartbeat (key 12): a member of a classic group lives.

Behaviour (``GroupCoordinatorService.heartbeat``): the answer says whether the group rebalances
(REBALANCE_IN_PROGRESS). While the group is being loaded all is well: its sessions begin when that is done. An
empty group id is INVALID_GROUP_ID, one without READ GROUP_AUTHORIZATION_FAILED.

Versions: 1 throttle time; 3 group instance ids; 4 flexible.
"""

from __future__ import annotations

from typing import Any

from minikafka.coordinator.group.messages import Heartbeat
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import Result
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import denied
from minikafka.server.apis.shared.coordinator_requests import (
    GroupQuestion,
    ask_group,
    check_group_id,
    error_code,
)
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services


def handle(services: Services, context: RequestContext, request: Any) -> Body | Result:
    error = refusal(services, context, request)
    if error is not None:
        return _body(error)
    return ask_group(services, context, *question(context, request))


def refusal(
    services: Services, context: RequestContext, request: Any, *, logs: bool = True
) -> KafkaError | None:
    """Why who asks may not ask that."""
    return denied(services, context, AclOperation.READ, ResourceType.GROUP, request.group_id, logs=logs)


def question(context: RequestContext, request: Any) -> GroupQuestion:
    """What ``request`` asks, the same for all requests with these bytes of this connection."""
    heartbeat = Heartbeat(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        group_instance_id=field(request, "group_instance_id", None),
    )

    def call(shard: Any, ticket: Any, now_ms: int) -> Any:
        check_group_id(heartbeat.group_id)
        return shard.heartbeat(heartbeat, ticket, now_ms)

    return GroupQuestion(heartbeat.group_id, call, _body)


def _body(result: Any) -> Body:
    code = error_code(result)
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        code = ErrorCode.NONE
    return {"throttle_time": 0, "error_code": code}
