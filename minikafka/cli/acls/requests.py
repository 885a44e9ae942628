"""What the commands about ACLs ask a cluster. Kafka: the part of ``KafkaAdminClient`` that is about ACLs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minikafka.cli.shared.admin_client import AdminClient, raise_error
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.security.acl import AccessControlEntry, AclBinding, AclBindingFilter, ResourcePattern


async def describe_acls(admin: AdminClient, wanted: AclBindingFilter) -> list[AclBinding]:
    """The ACLs that a filter finds, sorted. Raises KafkaError, BrokerUnavailable."""
    answer = await admin.ask_any(ApiKey.DESCRIBE_ACLS, wanted.fields())
    raise_error(answer)
    return sorted(
        AclBinding(
            ResourcePattern.of_codes(resource.resource_type, resource.resource_name, resource.pattern_type),
            AccessControlEntry.of_fields(each),
        )
        for resource in answer.resources
        for each in resource.acls
    )


async def create_acls(admin: AdminClient, bindings: Iterable[AclBinding]) -> None:
    """Raises KafkaError: the first that was refused. BrokerUnavailable."""
    creations = [
        {
            "resource_type": pattern.resource_type,
            "resource_name": pattern.name,
            "resource_pattern_type": pattern.pattern_type,
            **entry._asdict(),
        }
        for pattern, entry in bindings
    ]
    answer = await _ask_controller(admin, ApiKey.CREATE_ACLS, {"creations": creations})
    for result in answer.results:
        raise_error(result)


async def delete_acls(admin: AdminClient, filters: Iterable[AclBindingFilter]) -> int:
    """Returns how many are deleted. Raises KafkaError: the first that was refused. BrokerUnavailable."""
    answer = await _ask_controller(
        admin, ApiKey.DELETE_ACLS, {"filters": [each.fields() for each in filters]}
    )
    deleted = 0
    for result in answer.filter_results:
        raise_error(result)
        for each in result.matching_acls:
            raise_error(each)
            deleted += 1
    return deleted


async def _ask_controller(admin: AdminClient, api_key: ApiKey, body: dict[str, Any]) -> Any:
    """As Kafka's client does. Where there is no controller any broker will do, as before Kafka 3.7."""
    try:
        return await admin.ask_controller(api_key, body)
    except KafkaError as error:
        if error.code is not ErrorCode.NOT_CONTROLLER:
            raise
        return await admin.ask_any(api_key, body)
