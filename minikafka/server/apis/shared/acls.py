"""ACLs of requests as values, and back into responses.

Kafka: ``CreateAclsRequest.aclBinding``, ``DeleteAclsRequest.aclBindingFilter``, ``DescribeAclsResponse``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minikafka.errors import ErrorCode, KafkaError
from minikafka.security.acl import AccessControlEntry, AclBinding, AclBindingFilter, ResourcePattern
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
