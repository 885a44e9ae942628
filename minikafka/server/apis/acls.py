"""CreateAcls, DeleteAcls, DescribeAcls (keys 30, 31, 29): the access control lists. Kafka: ``AclApis``.

ACLs of requests become values, and these become responses. Kafka: ``CreateAclsRequest.aclBinding``,
``DeleteAclsRequest.aclBindingFilter``, ``DescribeAclsResponse``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from minikafka.server.apis.shared.authorization import require_on_cluster
from minikafka.server.requests import NO_ERROR, RequestContext, error_fields
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.server.services import Services
from minikafka.steps import ELEMENTS_A_STEP, Steps, each

if TYPE_CHECKING:
    from minikafka.server.security.acl_authorizer import AclStore, Deletion


def configured_acls(services: Services, message: str) -> AclStore:
    """Raises KafkaError: SECURITY_DISABLED with ``message``, which is not the same in all APIs."""
    if services.acls is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, message)
    return services.acls


def binding_of(creation: Any) -> AclBinding:
    """What is to be created; UNKNOWN where a number is none."""
    pattern = ResourcePattern.of_codes(
        creation.resource_type, creation.resource_name, creation.resource_pattern_type
    )
    return AclBinding(pattern, AccessControlEntry.of_fields(creation))


def filter_of(fields: Any) -> AclBindingFilter:
    """Raises KafkaError: INVALID_REQUEST, a number is none."""
    wanted = AclBindingFilter.of_fields(fields)
    unknown = wanted.unknown_part()
    if unknown is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, unknown)
    return wanted


def pattern_fields(pattern: ResourcePattern) -> dict[str, Any]:
    return {
        "resource_type": pattern.resource_type,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern_type,
    }


def entry_fields(entry: AccessControlEntry) -> dict[str, Any]:
    return entry._asdict()


async def handle_create_acls(services: Services, context: RequestContext, request: Any) -> Body:
    """CreateAcls (key 30): access control lists to add (KIP-11, KIP-140).

    Behaviour (``AclApis.handleCreateAcls``, ``AclControlManager.validateNewAcl``,
    ``AclAuthorizer.createAcls``): needs ALTER on the cluster; each ACL has its own result, and one that is
    there already is a success. Any broker writes them to the store; when it answers it decides by them, the
    others as soon as they hear of it. A name with a slash is refused: it would be two nodes. No text is
    longer than 32767 bytes, which the codec sees to. SECURITY_DISABLED without an authorizer.

    Versions: 1 patterns (KIP-290); 2 flexible; 3 user resources (KIP-373).
    """
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


async def handle_delete_acls(services: Services, context: RequestContext, request: Any) -> Body:
    """DeleteAcls (key 31): access control lists to remove, by filters (KIP-11, KIP-140).

    Behaviour (``AclApis.handleDeleteAcls``, ``AclAuthorizer.deleteAcls``): needs ALTER on the cluster; each
    filter has its own result, with the ACLs that are removed. One that several filters find is the first
    one's, so the answer has each ACL once, whatever the filters are. SECURITY_DISABLED without an authorizer.

    Versions: 1 patterns (KIP-290); 2 flexible; 3 user resources (KIP-373).
    """
    try:
        require_on_cluster(services, context, AclOperation.ALTER)
        acls = configured_acls(services, "No Authorizer is configured.")
    except KafkaError as error:
        return {"throttle_time": 0, "filter_results": [_refused(error)] * len(request.filters)}
    filters, results = [], []
    time_slice = TimeSlice()
    for wanted in request.filters:
        await time_slice.give_way()
        try:
            filters.append(filter_of(wanted))
            results.append({**NO_ERROR})
        except KafkaError as error:
            results.append(_refused(error))
    deletions = iter(await acls.delete(filters))
    for result in results:
        if "matching_acls" not in result:
            result["matching_acls"] = matching = []
            of_filter = next(deletions)
            if isinstance(of_filter, KafkaError):
                result |= error_fields(of_filter)
                continue
            for deletion in of_filter:
                await time_slice.give_way()
                matching.append(_deleted(deletion))
    return {"throttle_time": 0, "filter_results": results}


def _refused(error: KafkaError) -> dict[str, Any]:
    return {**error_fields(error), "matching_acls": []}


def _deleted(deletion: Deletion) -> dict[str, Any]:
    (pattern, entry), error = deletion
    outcome = NO_ERROR if error is None else error_fields(error)
    return {**outcome, **pattern_fields(pattern), **entry_fields(entry)}


def handle_describe_acls(services: Services, context: RequestContext, request: Any) -> Steps[Body]:
    """DescribeAcls (key 29): which access control lists there are (KIP-11, KIP-140).

    Behaviour (``AclApis.handleDescribeAcls``): needs DESCRIBE on the cluster; the ACLs that the filter finds,
    by resource, as this broker knows them. SECURITY_DISABLED without an authorizer, which MirrorMaker takes
    for "nothing to copy".

    Versions: 1 patterns (KIP-290); 2 flexible; 3 user resources (KIP-373).
    """
    try:
        require_on_cluster(services, context, AclOperation.DESCRIBE)
        acls = configured_acls(services, "No Authorizer is configured on the broker")
        wanted = filter_of(request)
    except KafkaError as error:
        return {"throttle_time": 0, **error_fields(error), "resources": []}
    by_pattern: dict[ResourcePattern, list[dict[str, Any]]] = {}
    for count, (pattern, entry) in enumerate((yield from acls.matching(wanted)), start=1):
        by_pattern.setdefault(pattern, []).append(entry_fields(entry))
        if count % ELEMENTS_A_STEP == 0:
            yield
    resources = yield from each(
        lambda found: pattern_fields(found[0]) | {"acls": found[1]},
        by_pattern.items(),
        a_step=ELEMENTS_A_STEP,
    )
    return {"throttle_time": 0, **NO_ERROR, "resources": resources}
