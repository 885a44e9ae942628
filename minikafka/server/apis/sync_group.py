"""SyncGroup (key 14): the leader brings what each member of a classic group is to do, each member fetches it.

Behaviour (``KafkaApis.handleSyncGroupRequest``, ``GroupCoordinatorService.syncGroup``): the answer waits for
the leader. An empty group id is INVALID_GROUP_ID, one without READ GROUP_AUTHORIZATION_FAILED; since version
5 a request that does not name the protocol type and the protocol is INCONSISTENT_GROUP_PROTOCOL.

Versions: 1 throttle time; 3 group instance ids; 4 flexible; 5 protocol type and name, both ways (KIP-559).
"""

from __future__ import annotations

from typing import Any

from minikafka.coordinator.group.messages import SyncGroup, SyncGroupResult
from minikafka.errors import ErrorCode, KafkaError
from minikafka.network.connection import Result
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import denied
from minikafka.server.apis.shared.coordinator_requests import ask_group, check_group_id
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services

FIRST_VERSION_WITH_PROTOCOL = 5


def handle(services: Services, context: RequestContext, request: Any) -> Body | Result:
    sync = SyncGroup(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        group_instance_id=field(request, "group_instance_id", None),
        protocol_type=field(request, "protocol_type", None),
        protocol_name=field(request, "protocol_name", None),
        assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
    )
    names_protocol = sync.protocol_type is not None and sync.protocol_name is not None
    if context.api_version >= FIRST_VERSION_WITH_PROTOCOL and not names_protocol:
        return _body(KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    error = denied(services, context, AclOperation.READ, ResourceType.GROUP, sync.group_id)
    if error is not None:
        return _body(error)

    def call(shard: Any, ticket: Any, now_ms: int) -> Any:
        check_group_id(sync.group_id)
        return shard.sync_group(sync, ticket, now_ms)

    return ask_group(services, context, sync.group_id, call, _body)


def _body(result: SyncGroupResult | KafkaError) -> Body:
    if isinstance(result, KafkaError):
        result = SyncGroupResult(error=result.code)
    return {
        "throttle_time": 0,
        "error_code": result.error,
        "protocol_type": result.protocol_type,
        "protocol_name": result.protocol_name,
        "assignment": result.assignment,
    }
