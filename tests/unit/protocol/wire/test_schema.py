"""The schemas that are made from Kafka's message definitions say what kio's say, which has them from there
too."""

from __future__ import annotations

import dataclasses
import datetime
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

import pytest

from minikafka.errors import InvariantError
from minikafka.protocol.wire.api_versions import ANSWERED, FLEXIBLE_SINCE, ApiKey
from minikafka.protocol.wire.schema import (
    REQUIRED,
    Direction,
    EntitySchema,
    FieldSchema,
    field_name,
    message_definition,
    message_schema,
    names_by_version,
    version_range,
)
from tests.support.kio_schemas import OTHERWISE_NAMED, kio_class, kio_versions

DIRECTIONS: tuple[Direction, Direction] = ("request", "response")
NUMBERS = {"timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}
NUMBERS_OF_KIO = ("topic_config_error_code", "acknowledge_error_code")  # error codes here


def kio_fields(message: Any) -> list[tuple[Any, ...]]:
    """In wire order: name, type or fields, whether it is an array, whether it may be null, tag, default."""
    found = []
    for field in dataclasses.fields(message):
        inner, nullable = without_none(field.type)
        is_array = get_origin(inner) is tuple
        if is_array:
            inner, _ = without_none(get_args(inner)[0])
        tag = field.metadata.get("tag")
        default = REQUIRED if field.default is dataclasses.MISSING else plain(field.default)
        if dataclasses.is_dataclass(inner):
            kind: Any = (inner.__name__, *kio_fields(inner))
            if nullable and field.default is dataclasses.MISSING:
                default = None  # kio leaves the default null out of arrays of structures
        else:
            kafka_type = field.metadata["kafka_type"]
            nullable &= is_array or kafka_type not in (
                "uuid",
                "datetime_i64",
            )  # whose zero, or -1, kio calls None
            kind = NUMBERS.get(kafka_type, kafka_type)
        if field.metadata.get("kafka_type") == "datetime_i64" and default is None:
            default = -1
        found.append((OTHERWISE_NAMED.get(field.name, field.name), kind, is_array, nullable, tag, default))
    return sorted(found, key=lambda each: -1 if each[4] is None else each[4])


def without_none(option: Any) -> tuple[Any, bool]:
    if get_origin(option) is not UnionType:
        return option, False
    return next(inner for inner in get_args(option) if inner is not NoneType), True


def plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, datetime.timedelta):
        return round(value / datetime.timedelta(milliseconds=1))
    return value


def own_kind(field: FieldSchema) -> Any:
    if field.entity is not None:
        return (field.entity.name, *own_fields(field.entity))
    return "int16" if field.name in NUMBERS_OF_KIO else field.kafka_type


def own_fields(schema: EntitySchema) -> list[tuple[Any, ...]]:
    return [
        (
            OTHERWISE_NAMED.get(field.name, field.name),
            own_kind(field),
            field.is_array,
            field.nullable,
            field.tag,
            None if field.entity and field.nullable and field.default is REQUIRED else field.default,
        )
        for field in schema.fields
    ]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("api_key", [key for key in sorted(ANSWERED) if kio_versions(key)])
def test_what_kio_knows_is_the_same(api_key: int, direction: Direction) -> None:
    first, last = version_range(message_definition(api_key, direction).valid_versions)
    both = [version for version in kio_versions(api_key) if first <= version <= last]
    assert both
    for version in both:
        known = kio_class(api_key, version, direction)
        schema = message_schema(api_key, version, direction)
        assert own_fields(schema.body) == kio_fields(known)
        assert schema.body.flexible == known.__flexible__
        assert schema.header_flexible == known.__header_schema__.__flexible__


@pytest.mark.parametrize("api_key", sorted(ANSWERED))
def test_all_that_is_answered_is_defined(api_key: ApiKey) -> None:
    versions = ANSWERED[api_key]
    for direction in DIRECTIONS:
        first, last = version_range(message_definition(api_key, direction).valid_versions)
        assert first <= versions.min <= versions.max <= last
        flexible, _ = version_range(message_definition(api_key, direction).flexible_versions)
        for version in range(versions.min, versions.max + 1):
            is_flexible = version >= FLEXIBLE_SINCE.get(api_key, version + 1)
            assert message_schema(api_key, version, direction).body.flexible == is_flexible, flexible


def test_version_5_of_api_versions_names_the_cluster_that_is_meant() -> None:
    """KIP-1242, which kio does not know."""
    before, request = (message_schema(ApiKey.API_VERSIONS, version, "request").body for version in (4, 5))
    assert request.fields == (
        *before.fields,
        FieldSchema("cluster_id", "string", None, is_array=False, nullable=True, tag=None, default=None),
        FieldSchema("node_id", "int32", None, is_array=False, nullable=False, tag=None, default=-1),
    )


def test_a_version_that_is_not_defined_is_refused() -> None:
    with pytest.raises(InvariantError, match="no schema for a ApiVersionsRequest, version 6"):
        message_schema(ApiKey.API_VERSIONS, 6, "request")
    with pytest.raises(InvariantError, match="no schema for a request of api key 4711"):
        message_schema(4711, 0, "request")


def test_the_names_of_all_versions_the_newest_first() -> None:
    entries = names_by_version(ApiKey.API_VERSIONS, "response", ("supported_features",))
    assert list(entries) == [frozenset({"name", "min_version", "max_version"})] * 3


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("ThrottleTimeMs", "throttle_time"),
        ("timeoutMs", "timeout"),
        ("GenerationIdOrMemberEpoch", "generation_id_or_member_epoch"),
        ("HWMark", "hw_mark"),
    ],
)
def test_names_are_kafkas_in_snake_case_without_the_unit(name: str, own: str) -> None:
    assert field_name(name) == own
