"""CreateAcls (key 30): access control lists to add (KIP-11, KIP-140).

Behaviour (``AclApis.handleCreateAcls``, ``AclControlManager.validateNewAcl``, ``AclAuthorizer.createAcls``):
needs ALTER on the cluster; each ACL has its own result, and one that is there already is a success. Any
broker writes them to the store; when it answers it decides by them, the others as soon as they hear of it. A
name with a slash is refused: it would be two nodes. No text is longer than 32767 bytes, which the codec sees
to. SECURITY_DISABLED without an authorizer.

Versions: 1 patterns (KIP-290); 2 flexible; 3 user resources (KIP-373).
"""

from __future__ import annotations

from typing import Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from minikafka.server.apis.shared.acls import binding_of, configured_acls
from minikafka.server.apis.shared.authorization import require_on_cluster
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import NO_ERROR, error_fields
from minikafka.server.runtime.time_slice import TimeSlice
from minikafka.server.services import Services


async def handle(services: Services, context: RequestContext, request: Any) -> Body:
    try:
        require_on_cluster(services, context, AclOperation.ALTER)
        acls = configured_acls(services, "No Authorizer is configured.")
    except KafkaError as error:
        return {"throttle_time": 0, "results": [error_fields(error)] * len(request.creations)}
    time_slice = TimeSlice()
    bindings, results = [], []
    for creation in request.creations:
        await time_slice.give_way()
        binding = binding_of(creation)
        refusal = why_invalid(binding)
        if refusal is None:
            bindings.append(binding)
            results.append(NO_ERROR)
        else:
            results.append(error_fields(KafkaError(ErrorCode.INVALID_REQUEST, refusal)))
    failures = iter(await acls.create(bindings))
    for index, result in enumerate(results):
        if result is NO_ERROR and (failure := next(failures)) is not None:
            results[index] = error_fields(failure)
    return {"throttle_time": 0, "results": results}


def why_invalid(binding: AclBinding) -> str | None:
    """What no ACL can have; None: it is one."""
    (resource_type, name, pattern_type), (principal, host, operation, permission_type) = binding
    if resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"Invalid resourceType {resource_type.name}"
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {pattern_type.name}"
    if operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        return f"Invalid operation {operation.name}"
    if permission_type not in (AclPermissionType.ALLOW, AclPermissionType.DENY):
        return f"Invalid permissionType {permission_type.name}"
    if resource_type is ResourceType.CLUSTER and name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not name:
        return "Invalid empty resource name"
    if "/" in name:
        return f"ACL binding contains invalid resource name: {name}"
    if not principal.partition(":")[1]:
        return (
            f"Could not parse principal from `{principal}` (no colon is present separating the principal "
            "type from the principal name)"
        )
    if not host:
        return "Invalid empty host"
    return None
