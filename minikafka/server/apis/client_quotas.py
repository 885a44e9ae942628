"""AlterClientQuotas (key 49): set and remove quotas of users, client ids and addresses (KIP-546, KIP-612).

Behaviour (``ZkAdminManager.alterClientQuotas``, ``ClientQuotaControlManager``): each entity has its own
result, and is changed as a whole or not at all; an entity that appears twice is INVALID_REQUEST each time,
and so is a quota that appears twice for one. Without ALTER_CONFIGS on the
cluster each is CLUSTER_AUTHORIZATION_FAILED. Unknown entity types and keys, and values that no quota can
have, are INVALID_REQUEST with the value in the message. With ``validate_only`` nothing is written. Any broker
does it; a changed quota holds here at once, on the others as soon as they hear of it.

Where it differs from Kafka: a value must be more than zero, and an ``ip`` is no host name.

Minikafka's own: an entity of the type ``compaction``, named ``<topic>-<partition>:<id>``, whose
``swap_in`` is set to 1, has *this broker* put in what ``minikafka compact`` has prepared beside that log,
or refuse it (``LogCleaner.swap_in_staged``); with ``validate_only`` it says whether it would. Nothing is
stored. Kafka refuses that type, and no client sends it unless told to.

Minikafka's own, too: an entity of the type ``sessions``, named by a user, whose ``kill`` is set to 1, has
*this broker* close the connections of that user at once, but for the one that asks (``minikafka users
kill-sessions``). It needs ALTER on the cluster.

Versions: 1 flexible.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from minikafka.config.client_quotas import (
    COMPACTION,
    KILL,
    SESSIONS,
    SWAP_IN,
    QuotaType,
    checked_quota,
    invalid,
    known_quota,
    quota_entity,
)
from minikafka.errors import KafkaError
from minikafka.log.files.names import DirectoryKind, parse_directory_name
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.authorization import denied_on_cluster, require_on_cluster
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import NO_ERROR, error_fields
from minikafka.server.runtime.time_slice import TimeSlice
from minikafka.server.services import Services

_Parts = frozenset[tuple[str, str | None]]


async def handle(services: Services, context: RequestContext, request: Any) -> Body:
    denied = denied_on_cluster(services, context, AclOperation.ALTER_CONFIGS)
    counts = Counter(_parts(entry) for entry in request.entries)
    entries = []
    time_slice = TimeSlice()
    for entry in request.entries:
        await time_slice.give_way()
        outcome = NO_ERROR
        try:
            if denied is not None:
                raise KafkaError(denied.code, denied.message)
            if any(part.entity_type == COMPACTION for part in entry.entity):
                await _swap_in(services, entry, validate_only=request.validate_only)
            elif any(part.entity_type == SESSIONS for part in entry.entity):
                _kill_sessions(services, context, entry, validate_only=request.validate_only)
            else:
                await _alter(services, entry, counts, validate_only=request.validate_only)
        except KafkaError as error:
            outcome = error_fields(error)
        entity_data = [
            {"entity_type": part.entity_type, "entity_name": part.entity_name}
            for part in sorted(entry.entity, key=lambda part: part.entity_type)  # client-id before user
        ]
        entries.append(outcome | {"entity": entity_data})
    return {"throttle_time": 0, "entries": entries}


async def _alter(services: Services, entry: Any, counts: Counter[_Parts], *, validate_only: bool) -> None:
    """Raises KafkaError."""
    entity = quota_entity((part.entity_type, part.entity_name) for part in entry.entity)
    if counts[_parts(entry)] > 1:
        raise invalid(f"Ignoring duplicate entity {entity}")
    changes = _changes(entry.ops, of_address=entity.ip is not None)
    await services.configs.client_quotas.alter(entity, changes, validate_only=validate_only)


async def _swap_in(services: Services, entry: Any, *, validate_only: bool) -> None:
    """Raises KafkaError."""
    name = entry.entity[0].entity_name or ""
    at, _, manifest_id = name.rpartition(":")
    parsed = parse_directory_name(at)
    if len(entry.entity) > 1 or parsed is None or parsed.kind is not DirectoryKind.CURRENT or not manifest_id:
        raise invalid(f"An entity {COMPACTION} is alone and named <topic>-<partition>:<id>, not {name!r}")
    if [(op.key, op.remove) for op in entry.ops] != [(SWAP_IN, False)]:
        raise invalid(f"All that can be altered of an entity {COMPACTION} is {SWAP_IN}")
    assert services.swap_in_staged is not None, "the log cleaner is there before the listeners"
    await services.swap_in_staged(parsed.topic_partition, manifest_id, validate_only=validate_only)


def _kill_sessions(services: Services, context: RequestContext, entry: Any, *, validate_only: bool) -> None:
    """Raises KafkaError."""
    require_on_cluster(services, context, AclOperation.ALTER)
    user = entry.entity[0].entity_name
    if len(entry.entity) > 1 or not user:
        raise invalid(f"An entity {SESSIONS} is alone and named by a user")
    if [(op.key, op.remove) for op in entry.ops] != [(KILL, False)]:
        raise invalid(f"All that can be altered of an entity {SESSIONS} is {KILL}")
    if not validate_only:
        services.close_sessions(user, but=context.connection)


def _parts(entry: Any) -> _Parts:
    return frozenset((part.entity_type, part.entity_name) for part in entry.entity)


def _changes(ops: Any, *, of_address: bool) -> dict[QuotaType, float | None]:
    """What is to be set, and (None) removed. Raises KafkaError: INVALID_REQUEST."""
    changes: dict[QuotaType, float | None] = {}
    for op in ops:
        value: float | None = None
        if op.remove:
            quota = known_quota(op.key, of_address=of_address)
        else:
            quota, value = checked_quota(op.key, op.value, of_address=of_address)
        if quota in changes:
            raise invalid(f"Duplicate quota key {op.key}")
        changes[quota] = value
    return changes
