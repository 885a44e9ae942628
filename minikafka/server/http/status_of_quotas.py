"""Quotas of clients and of replication, and the last throttles, for the status page. See ``status``."""

from __future__ import annotations

import msgspec

from minikafka.config.client_quotas import QuotaFilter
from minikafka.server.services import Services

QUOTAS_MAX = 200
THROTTLES_MAX = 20

_ANYBODY = QuotaFilter({}, strict=False)


class ClientQuotaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A quota that is set."""

    entity: str
    quota: str
    """Kafka's key, such as producer_byte_rate."""
    bound: float


class MeasuredQuota(msgspec.Struct, frozen=True, kw_only=True):
    """What counts for some client of this broker now. An empty user or client id: it is shared."""

    user: str
    client_id: str
    quota: str
    observed: float
    """A rate; for controller_mutation_rate the tokens that are left."""
    bound: float


class ThrottleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Why a client waited, once."""

    at_ms: int
    user: str
    client_id: str
    quota: str
    throttle_time_ms: int
    formula: str


class ReplicationQuotaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes a second."""

    name: str
    rate: float
    bound: int | None
    """None: no limit."""


class QuotasStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The throttles: the newest first."""

    set: list[ClientQuotaStatus]
    set_left_out: int
    measured: list[MeasuredQuota]
    measured_left_out: int
    throttles: list[ThrottleStatus]
    throttles_left_out: int
    replication: list[ReplicationQuotaStatus]


def describe_quotas(services: Services) -> QuotasStatus:
    """All that counts for this broker."""
    quotas, now_ms = services.client_quotas, services.clock.monotonic_ms()
    bounds = [
        ClientQuotaStatus(entity=str(entity), quota=quota.value, bound=bound)
        for entity, values in quotas.entities().items()
        for quota, bound in values.items()
    ]
    sensors = quotas.sensors()
    throttles = quotas.throttles(_ANYBODY)
    replication = services.replication_quotas
    return QuotasStatus(
        set=bounds[:QUOTAS_MAX],
        set_left_out=max(0, len(bounds) - QUOTAS_MAX),
        measured=[
            MeasuredQuota(
                user=each.user,
                client_id=each.client_id,
                quota=each.quota.value,
                observed=each.measure(now_ms),
                bound=each.bound,
            )
            for each in sensors[:QUOTAS_MAX]
        ],
        measured_left_out=max(0, len(sensors) - QUOTAS_MAX),
        throttles=[
            ThrottleStatus(
                at_ms=each.at_ms,
                user=each.user,
                client_id=each.client_id,
                quota=each.quota.value,
                throttle_time_ms=each.throttle_time_ms,
                formula=each.formula,
            )
            for each in reversed(throttles[-THROTTLES_MAX:])
        ],
        throttles_left_out=max(0, len(throttles) - THROTTLES_MAX),
        replication=[
            ReplicationQuotaStatus(name=name, rate=quota.rate(now_ms), bound=quota.bound)
            for name, quota in (
                ("LeaderReplication", replication.leader),
                ("FollowerReplication", replication.follower),
                ("AlterLogDirsReplication", replication.alter_log_dirs),
            )
        ],
    )
