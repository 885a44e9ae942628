"""DescribeClientQuotas (key 48): the quotas that are set, by a filter; and the last throttles (KIP-546).

Behaviour (``ZkAdminManager.describeClientQuotas``, ``ClientQuotasImage.describe``): a filter has a component
for an entity type at most, which wants a name, the default, or any; ``strict`` leaves entities out that have
other parts too. The client id comes before the user, and values in the order of ``QuotaType``. An address
(``ip``, KIP-612) stands alone.

It needs DESCRIBE_CONFIGS on the cluster.

Minikafka's own: a filter with the entity type ``throttle`` asks why clients of *this broker* were slowed
down, with any other components for user and client id. Kafka refuses that type, and no client sends it
unless told to. Each entry is one throttle, the oldest first: its entity is the user, the client id and
``throttle``, named by the quota's key with ``#`` and a number; its values are ``observed``, ``bound``,
``window_ms``, ``throttle_time_ms`` and ``at_ms`` (``metrics.throttle.Throttle``). An exact match of
``throttle`` is by the quota's key.

Versions: 1 flexible.
"""

from __future__ import annotations

from typing import Any

from minikafka.config.client_quotas import (
    CLIENT_ID,
    THROTTLE,
    USER,
    QuotaEntity,
    Quotas,
    QuotaType,
    quota_filter,
)
from minikafka.errors import KafkaError
from minikafka.metrics.registry import Throttle
from minikafka.protocol.wire.codec import Body
from minikafka.security.acl import AclOperation
from minikafka.server.apis.shared.authorization import denied_on_cluster
from minikafka.server.requests.context import RequestContext
from minikafka.server.runtime.error_fields import NO_ERROR, error_fields
from minikafka.server.services import Services


def handle(services: Services, context: RequestContext, request: Any) -> Body:
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
