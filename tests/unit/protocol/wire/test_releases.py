"""The releases that can be imitated look as their brokers do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.broker_version_data import infer_broker_version_from_api_versions

from minikafka.config.broker import BROKER_CONFIG_KEYS
from minikafka.protocol.wire.api_versions import OLDER, ApiKey
from minikafka.server.cluster.features import DEFAULT_LEVELS

DATA = Path("tests/support/data")
"""As brokers of 3.9.1, 4.1.0 and 4.4.0 with their defaults, in KRaft mode, answered ApiVersions. They had no
receiver of client metrics, which hides its APIs."""

CLIENT_METRICS = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0), ApiKey.PUSH_TELEMETRY: (0, 0)}

OF_DYNAMIC_QUORUMS = {"kraft.version"}
"""Level 1, where controllers can be added (KIP-853); the recorded brokers had a static quorum."""
NEWER = {"streams.version", "share.version"}
"""Which older releases have at level 0, or not yet."""


def read(name: str) -> Any:
    return json.loads((DATA / name).read_text())


@pytest.mark.parametrize("release", OLDER)
def test_the_ranges_are_those_of_the_release(release: str) -> None:
    recorded = read(f"kafka_{release.replace('.', '_')}_api_versions.json")
    expected = {ApiKey(int(key)): tuple(versions) for key, versions in recorded.items()}
    assert OLDER[release].advertised == expected | CLIENT_METRICS
    assert list(OLDER[release].advertised) == sorted(OLDER[release].advertised)


@pytest.mark.parametrize("release", ["3.9", "4.1", "4.4"])
def test_the_features_are_those_of_a_new_cluster(release: str) -> None:
    features = OLDER[release].features if release in OLDER else DEFAULT_LEVELS
    levels = {name: level for name, level in features.items() if name not in OF_DYNAMIC_QUORUMS}
    recorded = read("kafka_features.json")[release]
    assert {name: recorded[name] for name in recorded.keys() - (NEWER - levels.keys())} == levels


def test_what_is_switched_off_is_advertised_nevertheless() -> None:
    for release in OLDER.values():
        assert release.switched_off <= release.advertised.keys()


@pytest.mark.parametrize(("release", "inferred"), [("3.9", (3, 9)), ("4.1", (4, 1))])
def test_kafka_python_takes_the_broker_for_its_release(release: str, inferred: tuple[int, int]) -> None:
    assert infer_broker_version_from_api_versions(OLDER[release].advertised) == inferred


def test_these_can_be_configured() -> None:
    key = BROKER_CONFIG_KEYS["api.versions"]
    assert set(key.choices) == {*OLDER, key.default}
