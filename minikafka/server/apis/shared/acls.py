"""ACLs of requests as values, and back into responses.

Kafka: ``CreateAclsRequest.aclBinding``, ``DeleteAclsRequest.aclBindingFilter``, ``DescribeAclsResponse``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.security.acl import (
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    by_code,
)
from minikafka.server.services import Services

if TYPE_CHECKING:
    from minikafka.server.security.acl_store import AclStore


def configured_acls(services: Services, message: str) -> AclStore:
    """Raises KafkaError: SECURITY_DISABLED with ``message``, which is not the same in all APIs."""
    if services.acls is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, message)
    return services.acls


def binding_of(creation: Any) -> AclBinding:
    """What is to be created; UNKNOWN where a number is none."""
    return AclBinding(
        ResourcePattern(
            by_code(ResourceType, creation.resource_type),
            creation.resource_name,
            by_code(PatternType, creation.resource_pattern_type),
        ),
        AccessControlEntry(
            creation.principal,
            creation.host,
            by_code(AclOperation, creation.operation),
            by_code(AclPermissionType, creation.permission_type),
        ),
    )


def filter_of(wanted: Any) -> AclBindingFilter:
    """Raises KafkaError: INVALID_REQUEST, a number is none."""
    found = AclBindingFilter(
        ResourcePatternFilter(
            by_code(ResourceType, wanted.resource_type_filter),
            wanted.resource_name_filter,
            by_code(PatternType, wanted.pattern_type_filter),
        ),
        AccessControlEntryFilter(
            wanted.principal_filter,
            wanted.host_filter,
            by_code(AclOperation, wanted.operation),
            by_code(AclPermissionType, wanted.permission_type),
        ),
    )
    unknown = found.unknown_part()
    if unknown is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, unknown)
    return found


def pattern_fields(pattern: ResourcePattern) -> dict[str, Any]:
    return {
        "resource_type": pattern.resource_type,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern_type,
    }


def entry_fields(entry: AccessControlEntry) -> dict[str, Any]:
    return entry._asdict()
