"""JoinGroup (key 11): a member joins a classic group, or joins again because the group rebalances.

Behaviour (``KafkaApis.handleJoinGroupRequest``, ``GroupCoordinatorService.joinGroup``): the answer waits
until the rebalance has gathered its members, and only the leader's lists them. An empty group id is
INVALID_GROUP_ID, one without READ GROUP_AUTHORIZATION_FAILED. What else is wrong is for the groups to say
(``classic_groups``).

Versions: 1 a rebalance timeout apart from the session timeout, which before is both; 2 throttle time; 4
members without an id get one first (KIP-394); 5 group instance ids (KIP-345); 6 flexible; 7 the protocol type
in the answer, and null for a protocol that is not there; 8 why a member joins (KIP-800); 9 members that may
skip the assignment (KIP-814). Versions 0 and 1 were gone in 4.0 and came back (KAFKA-19444).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from minikafka.coordinator.group.messages import JoinGroup, JoinGroupResult
from minikafka.errors import KafkaError
from minikafka.network.connection import Result
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import Permission, denied
from minikafka.server.apis.shared.coordinator_requests import (
    GroupQuestion,
    answer_of_group,
    ask_group,
    check_group_id,
    client_host,
    client_id,
)
from minikafka.server.apis.shared.group_regexes import describable_topics, matched_and_decided, regexes_due
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services

FIRST_VERSION_WITH_KNOWN_MEMBERS = 4
FIRST_VERSION_WITH_NULL_PROTOCOL = 7
FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT = 9

REASON_LENGTH_MAX = 255
"""``JoinGroupRequest.maybeTruncateReason``."""


def handle(
    services: Services, context: RequestContext, request: Any
) -> Body | Result | Coroutine[Any, Any, Body]:
    error = denied(services, context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    if error is not None:
        return _body(JoinGroupResult(error=error.code, member_id=""), context.api_version)
    if regexes_due(services, request.group_id):  # it is a KIP-848 group
        return _with_regexes(services, context, request)
    return ask_group(services, context, *_question(context, request, describable_topics(services, context)))


async def _with_regexes(services: Services, context: RequestContext, request: Any) -> Body:
    describable = await matched_and_decided(services, context, request.group_id)
    return await answer_of_group(services, _question(context, request, describable))


def _question(context: RequestContext, request: Any, describable: Permission | None) -> GroupQuestion:
    version = context.api_version
    join = _join(context, request, describable)

    def call(shard: Any, ticket: Any, now_ms: int) -> Any:
        check_group_id(join.group_id)
        return shard.join_group(join, ticket, now_ms)

    def body(result: JoinGroupResult | KafkaError) -> Body:
        if isinstance(result, KafkaError):
            result = JoinGroupResult(error=result.code, member_id=request.member_id)
        return _body(result, version)

    return GroupQuestion(join.group_id, call, body)


def _join(context: RequestContext, request: Any, describable: Permission | None) -> JoinGroup:
    version = context.api_version
    group_instance_id = field(request, "group_instance_id", None)
    reason = field(request, "reason", None)
    return JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=group_instance_id,
        client_id=client_id(context),
        client_host=client_host(context),
        session_timeout_ms=request.session_timeout,
        rebalance_timeout_ms=field(request, "rebalance_timeout", request.session_timeout),
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in request.protocols),
        requires_known_member_id=version >= FIRST_VERSION_WITH_KNOWN_MEMBERS and group_instance_id is None,
        supports_skipping_assignment=version >= FIRST_VERSION_WITH_SKIPPED_ASSIGNMENT,
        reason=None if reason is None else reason[:REASON_LENGTH_MAX],
        may_describe=None if describable is None else describable.__getitem__,
    )


def _body(result: JoinGroupResult, version: int) -> Body:
    protocol_name = result.protocol_name
    if protocol_name is None and version < FIRST_VERSION_WITH_NULL_PROTOCOL:
        protocol_name = ""
    return {
        "throttle_time": 0,
        "error_code": result.error,
        "generation_id": result.generation,
        "protocol_type": result.protocol_type,
        "protocol_name": protocol_name,
        "leader": result.leader,
        "skip_assignment": result.skip_assignment,
        "member_id": result.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "metadata": member.metadata,
            }
            for member in result.members
        ],
    }
