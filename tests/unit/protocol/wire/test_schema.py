"""Schemas that are written here and not taken from kio say what kio's say."""

from __future__ import annotations

import pytest

from minikafka.errors import InvariantError
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.protocol.wire.schema import (
    _API_VERSIONS_RANGE,
    Direction,
    api_versions_message_schema,
    kio_message_schema,
    message_schema,
    names_by_version,
)


@pytest.mark.parametrize("direction", ["request", "response"])
@pytest.mark.parametrize("version", _API_VERSIONS_RANGE)
def test_api_versions_is_as_in_kio(version: int, direction: Direction) -> None:
    own = api_versions_message_schema(version, direction)
    assert own == kio_message_schema(ApiKey.API_VERSIONS, version, direction)
    assert message_schema(ApiKey.API_VERSIONS, version, direction) == own


def test_a_version_that_api_versions_does_not_have_is_refused() -> None:
    with pytest.raises(InvariantError, match="no schema for a request of ApiVersions, version 5"):
        message_schema(ApiKey.API_VERSIONS, 5, "request")


def test_the_names_of_all_versions_of_api_versions_the_newest_first() -> None:
    entries = names_by_version(ApiKey.API_VERSIONS, "response", ("supported_features",))
    assert list(entries) == [frozenset({"name", "min_version", "max_version"})] * 2
