"""Schemas that are written here and not taken from kio say what kio's say."""

from __future__ import annotations

import pytest

from minikafka.errors import InvariantError
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.schema import (
    Direction,
    api_versions_message_schema,
    kio_message_schema,
    message_schema,
    names_by_version,
)


@pytest.mark.parametrize("direction", ["request", "response"])
@pytest.mark.parametrize("version", range(5))
def test_api_versions_is_as_in_kio(version: int, direction: Direction) -> None:
    own = api_versions_message_schema(version, direction)
    assert own == kio_message_schema(ApiKey.API_VERSIONS, version, direction)
    assert message_schema(ApiKey.API_VERSIONS, version, direction) == own


def test_version_5_of_api_versions_is_as_in_kafkas_message_definition() -> None:
    """``ApiVersionsRequest.json`` and ``ApiVersionsResponse.json`` of Kafka 4.4 (KIP-1242)."""
    before, request = (message_schema(ApiKey.API_VERSIONS, version, "request").body for version in (4, 5))
    *known, cluster_id, node_id = request.fields
    assert tuple(known) == before.fields and request.flexible
    assert (cluster_id.name, cluster_id.kafka_type, cluster_id.nullable, cluster_id.default) == (
        *("cluster_id", "string", True, None),
    )
    assert (node_id.name, node_id.kafka_type, node_id.nullable, node_id.default) == (
        *("node_id", "int32", False, -1),
    )
    answers = [message_schema(ApiKey.API_VERSIONS, version, "response").body for version in (4, 5)]
    assert answers[0] == answers[1]


def test_a_version_that_api_versions_does_not_have_is_refused() -> None:
    with pytest.raises(InvariantError, match="no schema for a request of ApiVersions, version 6"):
        message_schema(ApiKey.API_VERSIONS, 6, "request")


def test_the_names_of_all_versions_of_api_versions_the_newest_first() -> None:
    entries = names_by_version(ApiKey.API_VERSIONS, "response", ("supported_features",))
    assert list(entries) == [frozenset({"name", "min_version", "max_version"})] * 3
