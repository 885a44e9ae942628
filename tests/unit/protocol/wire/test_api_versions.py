"""The advertised ranges are those of Kafka 4.4, and clients infer just that from them."""

from __future__ import annotations

import json
from pathlib import Path

from kafka.protocol.broker_version_data import BROKER_API_VERSIONS, infer_broker_version_from_api_versions

from minikafka.protocol.wire.api_versions import (
    ADVERTISED,
    ANSWERED,
    FLEXIBLE_SINCE,
    REFUSED,
    SUPPORTED,
    ApiKey,
    VersionRange,
)

RECORDED = Path("tests/support/data/kafka_4_4_api_versions.json")
"""As a real 4.4.0 broker (KRaft, its defaults) answered ApiVersions, by api key. It had no receiver of
client metrics, which hides their APIs (see ``server.apis.api_versions``)."""

TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0), ApiKey.PUSH_TELEMETRY: (0, 0)}
"""From ``GetTelemetrySubscriptionsRequest.json`` and ``PushTelemetryRequest.json`` of 4.4."""


def test_every_range_is_the_one_of_kafka_4_4() -> None:
    recorded = {int(key): tuple(versions) for key, versions in json.loads(RECORDED.read_text()).items()}
    assert {int(key): tuple(versions) for key, versions in ADVERTISED.items()} == {
        **recorded,
        **{int(key): versions for key, versions in TELEMETRY.items()},
    }, "with one API missing, franz-go's VersionGuess (kcl misc probe-version) knows no release"


def test_kafka_python_takes_the_broker_for_the_newest_that_it_knows() -> None:
    assert infer_broker_version_from_api_versions(ADVERTISED) == max(BROKER_API_VERSIONS)


def test_librdkafka_may_compress_and_be_idempotent() -> None:
    # rdkafka_feature.c: a feature is on when every range it depends on overlaps with the broker's.
    depends = {
        "MsgVer2": {0: (3, 3), 1: (4, 4)},
        "ZSTD": {0: (7, 7), 1: (10, 10)},
        "LZ4": {10: (0, 0)},
        "OffsetTime": {2: (1, 1)},
        "IdempotentProducer": {22: (0, 0)},
        "BrokerGroupCoordinator": {10: (0, 0)},
        "ThrottleTime": {0: (1, 2), 1: (1, 2)},
        "MsgVer1": {0: (2, 2), 1: (2, 2)},
        "BrokerBalancedConsumer": {
            10: (0, 0),
            8: (1, 2),
            9: (1, 1),
            11: (0, 0),
            12: (0, 0),
            13: (0, 0),
            14: (0, 0),
        },
    }

    def overlaps(key: int, low: int, high: int) -> bool:
        versions = ADVERTISED.get(ApiKey(key), VersionRange(1, 0))
        return low <= versions.max and versions.min <= high

    on = {name for name, need in depends.items() if all(overlaps(key, *r) for key, r in need.items())}
    assert on == depends.keys() - {"MsgVer1", "ThrottleTime"}
    assert ADVERTISED[ApiKey.PRODUCE].min == 0, "KAFKA-18659: compression needs version 0 in the range"


def test_what_is_served_in_fewer_versions_than_are_advertised() -> None:
    assert {key for key in ADVERTISED if ADVERTISED[key] != ANSWERED[key]} == {ApiKey.PRODUCE}
    assert SUPPORTED[ApiKey.PRODUCE] == (3, 13)
    assert ANSWERED.keys() - FLEXIBLE_SINCE.keys() == {ApiKey.OFFSET_DELETE, ApiKey.SASL_HANDSHAKE}, "never"
    assert not SUPPORTED.keys() & REFUSED.keys()
    assert list(ADVERTISED) == sorted(ADVERTISED)
