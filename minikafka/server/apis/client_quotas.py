"""Describe- and AlterClientQuotas (keys 48, 49; KIP-546)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from minikafka.config.client_quotas import (
    CLIENT_ID,
    COMPACTION,
    KILL,
    SESSIONS,
    SWAP_IN,
    THROTTLE,
    USER,
    QuotaEntity,
    Quotas,
    QuotaType,
    checked_quota,
    invalid,
    known_quota,
    quota_entity,
    quota_filter,
)
from minikafka.errors import KafkaError
from minikafka.log.files import DirectoryKind, parse_directory_name
from minikafka.metrics.sensors import Throttle
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.authorization import denied_on_cluster, require_on_cluster
from minikafka.server.requests import NO_ERROR, RequestContext, error_fields
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.server.services import Services

_Parts = frozenset[tuple[str, str | None]]


def handle_describe_client_quotas(services: Services, context: RequestContext, request: Any) -> Body:
    """DescribeClientQuotas (key 48): the quotas that are set, by a filter; and the last throttles (KIP-546).

    Behaviour (``ZkAdminManager.describeClientQuotas``, ``ClientQuotasImage.describe``): a filter has a
    component for an entity type at most, which wants a name, the default, or any; ``strict`` leaves entities
    out that have other parts too. The client id comes before the user, and values in the order of
    ``QuotaType``. An address (``ip``, KIP-612) stands alone.

    It needs DESCRIBE_CONFIGS on the cluster.

    Minikafka's own: a filter with the entity type ``throttle`` asks why clients of *this broker* were slowed
    down, with any other components for user and client id. Kafka refuses that type, and no client sends it
    unless told to. Each entry is one throttle, the oldest first: its entity is the user, the client id and
    ``throttle``, named by the quota's key with ``#`` and a number; its values are ``observed``, ``bound``,
    ``window_ms``, ``throttle_time_ms`` and ``at_ms`` (``metrics.throttle.Throttle``). An exact match of
    ``throttle`` is by the quota's key.

    Versions: 1 flexible.
    """
    denied = denied_on_cluster(services, context, AclOperation.DESCRIBE_CONFIGS)
    if denied is not None:
        return _refused(denied)
    try:
        wanted = quota_filter(
            ((each.entity_type, each.match_type, each.match) for each in request.components),
            strict=request.strict,
        )
    except KafkaError as error:
        return _refused(error)
    if THROTTLE in wanted.names:
        throttles = services.client_quotas.throttles(wanted)
        entries = [_throttle(number, each) for number, each in enumerate(throttles, start=1)]
    else:
        described = services.configs.client_quotas.describe(wanted)
        entries = [_entry(entity, quotas) for entity, quotas in described.items()]
    return {"throttle_time": 0, **NO_ERROR, "entries": entries}


def _refused(error: KafkaError) -> Body:
    return {"throttle_time": 0, **error_fields(error), "entries": None}


def _entry(entity: QuotaEntity, quotas: Quotas) -> dict[str, Any]:
    return {
        "entity": [
            {"entity_type": kind, "entity_name": name if isinstance(name, str) else None}
            for kind, name in entity.parts().items()
        ],
        "values": _values({quota.value: quotas[quota] for quota in QuotaType if quota in quotas}),
    }


def _throttle(number: int, throttle: Throttle) -> dict[str, Any]:
    entity = {
        USER: throttle.user,
        CLIENT_ID: throttle.client_id,
        THROTTLE: f"{throttle.quota.value}#{number}",
    }
    values = {
        "observed": throttle.observed,
        "bound": throttle.bound,
        "window_ms": throttle.window_ms,
        "throttle_time_ms": throttle.throttle_time_ms,
        "at_ms": throttle.at_ms,
    }
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "values": _values(values),
    }


def _values(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": float(value)} for key, value in values.items()]


async def handle_alter_client_quotas(services: Services, context: RequestContext, request: Any) -> Body:
    """AlterClientQuotas (key 49): set and remove quotas of users, client ids and addresses (KIP-546,
    KIP-612).

    Behaviour (``ZkAdminManager.alterClientQuotas``, ``ClientQuotaControlManager``): each entity has its own
    result, and is changed as a whole or not at all; an entity that appears twice is INVALID_REQUEST each
    time, and so is a quota that appears twice for one. Without ALTER_CONFIGS on the cluster each is
    CLUSTER_AUTHORIZATION_FAILED. Unknown entity types and keys, and values that no quota can have, are
    INVALID_REQUEST with the value in the message. With ``validate_only`` nothing is written. Any broker does
    it; a changed quota holds here at once, on the others as soon as they hear of it.

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
