"""``api/access``: ACLs, users with passwords (SCRAM), and quotas."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from minikafka.cli.acls import describe_acls
from minikafka.cli.console.cluster import ClusterView
from minikafka.cli.console.exchange import why_not
from minikafka.cli.quotas import entity_text
from minikafka.cli.shared.admin_client import raise_error
from minikafka.cli.shared.credentials import describe_users
from minikafka.errors import KafkaError
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.security.acl import AclBinding, AclBindingFilter, camel_case

ROWS_MAX: Final = 1_000


async def access(view: ClusterView) -> dict[str, Any]:
    """What is not known is null, and why is beside it."""
    acls, users, quotas = await asyncio.gather(_acls(view), _users(view), _quotas(view))
    return {
        "acls": None if isinstance(acls, str) else acls[:ROWS_MAX],
        "acls_left_out": 0 if isinstance(acls, str) else max(0, len(acls) - ROWS_MAX),
        "why_no_acls": acls if isinstance(acls, str) else None,
        "users": None if isinstance(users, str) else users[:ROWS_MAX],
        "users_left_out": 0 if isinstance(users, str) else max(0, len(users) - ROWS_MAX),
        "why_no_users": users if isinstance(users, str) else None,
        "quotas": None if isinstance(quotas, str) else quotas[:ROWS_MAX],
        "quotas_left_out": 0 if isinstance(quotas, str) else max(0, len(quotas) - ROWS_MAX),
        "why_no_quotas": quotas if isinstance(quotas, str) else None,
    }


def no_access(why: str) -> dict[str, Any]:
    """The same for who may not see it."""
    names = ("acls", "users", "quotas")
    return {
        **dict.fromkeys(names),
        **{f"{name}_left_out": 0 for name in names},
        **{f"why_no_{name}": why for name in names},
    }


async def _acls(view: ClusterView) -> list[dict[str, Any]] | str:
    try:
        found = await describe_acls(view.admin, AclBindingFilter())
    except (KafkaError, BrokerUnavailable) as error:
        return why_not(error)
    return [_acl(each) for each in found]


def _acl(binding: AclBinding) -> dict[str, Any]:
    pattern, entry = binding
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": camel_case(entry.operation),
        "resource_type": camel_case(pattern.resource_type),
        "pattern_type": camel_case(pattern.pattern_type),
        "name": pattern.name,
        "permission": camel_case(entry.permission_type),
    }


async def _users(view: ClusterView) -> list[dict[str, Any]] | str:
    try:
        found = await describe_users(view.admin)
    except (KafkaError, BrokerUnavailable) as error:
        return why_not(error)
    return [
        {"name": name, "mechanisms": [each.mechanism_name for each in sorted(mechanisms)]}
        for name, mechanisms in found.items()
    ]


async def _quotas(view: ClusterView) -> list[dict[str, Any]] | str:
    try:
        answer = await view.admin.ask_any(ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": [], "strict": False})
        raise_error(answer)
    except (KafkaError, BrokerUnavailable) as error:
        return why_not(error)
    return sorted(
        (
            {
                "entity": entity_text({part.entity_type: part.entity_name for part in entry.entity}),
                "quota": value.key,
                "value": value.value,
            }
            for entry in answer.entries or ()
            for value in entry.values
        ),
        key=lambda each: (each["entity"], each["quota"]),
    )
