"""ApiVersions (key 18): which APIs and versions this broker speaks; the first thing a client asks.

Behaviour (``KafkaApis.handleApiVersionsRequest``, KIP-511): the advertised ranges together look like one
Kafka release, because clients infer the broker's version from them (``protocol.wire.api_versions`` says which
and why). From version 3 on the client's software name and version are kept with the connection; a malformed
one is INVALID_REQUEST.

The APIs of client metrics are hidden while nothing is subscribed (Kafka: while there is no receiver), because
librdkafka prints a line about itself when it finds them, and every client asks in vain from time to time. A
subscription is found by clients that connect after it was made.

``api.versions`` of the broker's configuration has it look like an older release, but to our own brokers
and tools (``protocol.wire.releases``).

The finalized level of ``transaction.version`` has producers choose the protocol of their transactions (see
``server.runtime.features``).

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
from minikafka.protocol.wire.api_versions import ADVERTISED, BETWEEN_BROKERS, ApiKey, VersionRange
from minikafka.protocol.wire.codec import Body
from minikafka.server.requests import RequestContext
from minikafka.server.runtime.features import FINALIZED_FEATURES_EPOCH, LEVELS
from minikafka.server.services import Services

OF_LEADERS = (ApiKey.ALTER_PARTITION, ApiKey.ALLOCATE_PRODUCER_IDS)
"""What brokers of Apache Kafka on the same ZooKeeper ask of a controller that offers it."""
CLIENT_METRICS = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""What KIP-511 allows as the name and the version of a client's software."""


def handle_api_versions(services: Services, context: RequestContext, request: Any) -> Body:
    if context.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return _body(ErrorCode.INVALID_REQUEST, [], LEVELS)
        context.connection.client_software_name = name
        context.connection.client_software_version = version
        if context.api_version >= 5 and request.cluster_id is not None and _is_another(services, request):
            return _body(ErrorCode.REBOOTSTRAP_REQUIRED, [], LEVELS)
    hidden = () if services.configs.client_metrics_subscriptions() else CLIENT_METRICS
    release = services.imitated
    advertised: Mapping[ApiKey, VersionRange] = ADVERTISED
    levels: Mapping[str, int] = LEVELS
    if release is not None and release.advertises_to(context.connection.client_software_name):
        advertised, levels = release.advertised, release.features
    ranges = [_range(key, versions) for key, versions in advertised.items() if key not in hidden]
    if (
        services.config.zookeeper_connect
        and context.connection.listener_name == services.config.inter_broker_listener()
    ):
        ranges += [_range(key, BETWEEN_BROKERS[key]) for key in OF_LEADERS]
    return _body(ErrorCode.NONE, ranges, levels)


def _is_another(services: Services, request: Any) -> bool:
    return (request.cluster_id, request.node_id) != (services.cluster_id, services.node_id)


def unsupported_version(versions: VersionRange) -> Body:
    """The version 0 answer to a version of ApiVersions that is none of ``versions``."""
    return _body(ErrorCode.UNSUPPORTED_VERSION, [_range(ApiKey.API_VERSIONS, versions)], LEVELS)


def _range(key: ApiKey, versions: VersionRange) -> dict[str, Any]:
    return {"api_key": int(key), "min_version": versions.min, "max_version": versions.max}


def _body(code: ErrorCode, api_keys: list[dict[str, Any]], levels: Mapping[str, int]) -> Body:
    return {
        "error_code": code,
        "api_keys": api_keys,
        "throttle_time": 0,
        "supported_features": [
            {"name": name, "min_version": level, "max_version": level} for name, level in levels.items()
        ],
        "finalized_features_epoch": FINALIZED_FEATURES_EPOCH,
        "finalized_features": [
            {"name": name, "min_version_level": level, "max_version_level": level}
            for name, level in levels.items()
        ],
        "zk_migration_ready": False,
    }
