"""ApiVersions (key 18): which APIs and versions this broker speaks; the first thing a client asks.

Behaviour (``KafkaApis.handleApiVersionsRequest``, KIP-511): the advertised ranges together look like one
Kafka release, because clients infer the broker's version from them (``protocol.wire.api_versions`` says which
and why). From version 3 on the client's software name and version are kept with the connection; a malformed
one is INVALID_REQUEST.

The APIs of client metrics are hidden while nothing is subscribed (Kafka: while there is no receiver), because
librdkafka prints a line about itself when it finds them, and every client asks in vain from time to time. A
subscription is found by clients that connect after it was made.

``api.versions`` of the broker's configuration has it look like an older release, but to our own brokers
and tools (``protocol.wire.api_versions``).

It says, too, which levels of which features the broker supports, and at which the cluster stands
(``server.cluster.features``). By ``transaction.version`` producers choose the protocol of their transactions.

From version 5 on (KIP-1242) a client says which broker of which cluster it means to reach; it gets
REBOOTSTRAP_REQUIRED from another one, to which a stale address or a load balancer has brought it. Kafka
looks only once a client has logged in; here one that says so earlier, as franz-go does, sends no password to
the wrong broker.

Versions: 0 to 5; the response header is version 0 always, so that a client too new for the broker can read
it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from minikafka.errors import ErrorCode
from minikafka.protocol.wire.api_versions import ADVERTISED, BETWEEN_BROKERS, ApiKey, Release, VersionRange
from minikafka.protocol.wire.codec import Body
from minikafka.server.cluster.features import FEATURES, FIRST_EPOCH, FinalizedFeatures
from minikafka.server.requests import RequestContext
from minikafka.server.services import Services

OF_LEADERS = (ApiKey.ALTER_PARTITION, ApiKey.ALLOCATE_PRODUCER_IDS)
"""What brokers of Apache Kafka on the same ZooKeeper ask of a controller that offers it."""
CLIENT_METRICS = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""What KIP-511 allows as the name and the version of a client's software."""


def handle_api_versions(services: Services, context: RequestContext, request: Any) -> Body:
    version, release = context.api_version, services.imitated
    features = _features(services.features, version)
    if version >= 3:
        software, software_version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(software) and _SOFTWARE.fullmatch(software_version)):
            return _body(ErrorCode.INVALID_REQUEST, [], features)
        context.connection.client_software_name = software
        context.connection.client_software_version = software_version
        if version >= 5 and request.cluster_id is not None and _is_another(services, request):
            return _body(ErrorCode.REBOOTSTRAP_REQUIRED, [], features)
    hidden = () if services.configs.client_metrics_subscriptions() else CLIENT_METRICS
    advertised: Mapping[ApiKey, VersionRange] = ADVERTISED
    if release is not None and release.advertises_to(context.connection.client_software_name):
        advertised = release.advertised
        features = _features_of_release(release)
    ranges = [_range(key, versions) for key, versions in advertised.items() if key not in hidden]
    if (
        services.config.zookeeper_connect
        and context.connection.listener_name == services.config.inter_broker_listener()
    ):
        ranges += [_range(key, BETWEEN_BROKERS[key]) for key in OF_LEADERS]
    return _body(ErrorCode.NONE, ranges, features)


def _is_another(services: Services, request: Any) -> bool:
    return (request.cluster_id, request.node_id) != (services.cluster_id, services.node_id)


def unsupported_version(versions: VersionRange) -> Body:
    """The version 0 answer to a version of ApiVersions that is none of ``versions``."""
    return _body(ErrorCode.UNSUPPORTED_VERSION, [_range(ApiKey.API_VERSIONS, versions)], {})


def _range(key: ApiKey, versions: VersionRange) -> dict[str, Any]:
    return {"api_key": int(key), "min_version": versions.min, "max_version": versions.max}


def _features(features: FinalizedFeatures, version: int) -> Body:
    return {
        "supported_features": [
            {"name": name, "min_version": levels.min, "max_version": levels.max}
            for name, levels in FEATURES.items()
            # Clients up to version 3 take a lowest level of 0 for a mistake (KIP-1022).
            if version >= 4 or levels.min > 0
        ],
        "finalized_features_epoch": features.epoch,
        "finalized_features": _finalized(features.levels()),
    }


def _features_of_release(release: Release) -> Body:
    return {
        "supported_features": [
            {"name": name, "min_version": level, "max_version": level}
            for name, level in release.features.items()
        ],
        "finalized_features_epoch": FIRST_EPOCH,
        "finalized_features": _finalized(release.features),
    }


def _finalized(levels: Mapping[str, int]) -> list[dict[str, Any]]:
    return [
        {"name": name, "min_version_level": level, "max_version_level": level}
        for name, level in levels.items()
    ]


def _body(code: ErrorCode, api_keys: list[dict[str, Any]], features: Body) -> Body:
    return {
        "error_code": code,
        "api_keys": api_keys,
        "throttle_time": 0,
        **features,
        "zk_migration_ready": False,
    }
