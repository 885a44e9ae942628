"""ListGroups (key 16): the groups that this broker coordinates.

Behaviour (``GroupCoordinatorService.listGroups``): when one of its partitions is being loaded the whole
answer is COORDINATOR_LOAD_IN_PROGRESS, because some groups would be missing. Filters do not care about case;
a state or type that there is none of matches nothing. Groups that the client may not describe are left out.

Versions: 1 throttle time; 3 flexible; 4 states, and a filter by state (KIP-518); 5 types, and a filter by
type (KIP-848).
"""

from __future__ import annotations

from typing import Any

from minikafka.coordinator.group.messages import ListedGroup
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body, field
from minikafka.security.acl import AclOperation, ResourceType
from minikafka.server.apis.shared.authorization import is_authorized_on_cluster, permission
from minikafka.server.requests.context import RequestContext
from minikafka.server.services import Services
from minikafka.steps import Steps, each


def handle(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    states = {state.lower() for state in field(request, "states_filter", ())}
    types = {kind.lower() for kind in field(request, "types_filter", ())}

    def is_wanted(group: ListedGroup) -> bool:
        return (not states or group.state.lower() in states) and (
            not types or group.group_type.lower() in types
        )

    # DESCRIBE on the cluster shows all of them, as before KIP-88.
    describable = None
    if not is_authorized_on_cluster(services, context, AclOperation.DESCRIBE, logs_denied=False):
        describable = permission(
            services, context, AclOperation.DESCRIBE, ResourceType.GROUP, logs_denied=False
        )
    try:
        groups = []
        for shard in services.groups.shards():
            for group in shard.list_groups():
                if is_wanted(group) and (describable is None or describable[group.group_id]):
                    groups.append(group)
                yield
    except KafkaError as error:
        return {"throttle_time": 0, "error_code": error.code, "groups": []}
    listed = yield from each(_listed, groups)
    return {"throttle_time": 0, "error_code": ErrorCode.NONE, "groups": listed}


def _listed(group: ListedGroup) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "protocol_type": group.protocol_type,
        "group_state": group.state,
        "group_type": group.group_type,
    }
