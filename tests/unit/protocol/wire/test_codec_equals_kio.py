"""Both directions of the codec are held equal to kio's own writer and reader, for every supported version."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import io
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from minikafka.protocol.wire.api_versions import FLEXIBLE_SINCE, SUPPORTED, ApiKey
from minikafka.protocol.wire.codec import (
    RequestHeader,
    decode_response,
    encode_request,
    read_request_header,
)
from minikafka.protocol.wire.schema import EntitySchema, FieldSchema, message_schema
from tests.support.codec import decode_request, encode_response
from tests.support.kio_schemas import OTHERWISE_NAMED, kio_class, kio_versions

ALL = [
    (int(key), version)
    for key, versions in SUPPORTED.items()
    for version in range(versions.min, versions.max + 1)
    if version in kio_versions(key)  # of others, which are newer: see test_schema and the recorded exchanges
]
INTS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "timedelta_i32": 32, "timedelta_i64": 48}
"""In bits; a ``timedelta`` holds no more than 999,999,999 days."""
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@functools.cache
def values(kafka_type: str, nullable: bool) -> st.SearchStrategy[Any]:
    if kafka_type in INTS:
        bits = INTS[kafka_type] - 1
        strategy: st.SearchStrategy[Any] = st.integers(-(2**bits), 2**bits - 1)
    elif kafka_type == "uint16":
        strategy = st.integers(0, 2**16 - 1)
    elif kafka_type == "bool":
        strategy = st.booleans()
    elif kafka_type == "string":
        strategy = st.text(max_size=200)
    elif kafka_type in ("bytes", "records"):
        strategy = st.binary(max_size=200)
    elif kafka_type == "uuid":
        return st.uuids() | st.none()
    elif kafka_type == "error_code":
        return st.sampled_from([int(code) for code in KioErrorCode])
    elif kafka_type == "float64":
        return st.floats(allow_nan=False)
    elif kafka_type == "datetime_i64":  # seconds: what kio's own type admits
        times = st.integers(0, 2**32).map(lambda seconds: seconds * 1000)
        return times | st.just(-1) if nullable else times  # of others kio reads -1, no time, but writes none
    else:
        raise NotImplementedError(kafka_type)
    return strategy | st.none() if nullable else strategy


def field_values(field: FieldSchema) -> st.SearchStrategy[Any]:
    nullable = field.nullable and field.tag is None
    if field.entity is not None:
        inner = bodies(field.entity)
    else:
        inner = values(field.kafka_type or "", nullable and not field.is_array)
    if field.is_array:
        inner = st.lists(inner, max_size=3)
    return inner | st.none() if nullable else inner


def bodies(schema: EntitySchema) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({field.name: field_values(field) for field in schema.fields})


def with_kio_types(schema: EntitySchema, cls: Any) -> EntitySchema:
    """The schema with kio's types of durations and times, and of error codes, where it has narrower ones."""
    fields = []
    types = {OTHERWISE_NAMED.get(field.name, field.name): field for field in dataclasses.fields(cls)}
    for field in schema.fields:
        known = types[OTHERWISE_NAMED.get(field.name, field.name)]
        if field.entity is not None:
            entity = with_kio_types(field.entity, _entity_class(known.type))
            fields.append(field._replace(entity=entity))
        else:
            fields.append(field._replace(kafka_type=known.metadata["kafka_type"]))
    return schema._replace(fields=tuple(fields))


def as_kio(schema: EntitySchema, cls: Any, body: dict[str, Any]) -> Any:
    arguments = {}
    types = {OTHERWISE_NAMED.get(field.name, field.name): field for field in dataclasses.fields(cls)}
    for field in schema.fields:
        value = body[field.name]
        known = types[OTHERWISE_NAMED.get(field.name, field.name)]
        kio_type: Any = known.type
        if field.entity is not None:
            nested = _entity_class(kio_type)
            if field.is_array:
                value = None if value is None else tuple(as_kio(field.entity, nested, item) for item in value)
            elif value is not None:
                value = as_kio(field.entity, nested, value)
        elif field.is_array:
            value = None if value is None else tuple(value)
        elif field.kafka_type in ("timedelta_i32", "timedelta_i64"):
            value = datetime.timedelta(milliseconds=value)
        elif field.kafka_type == "datetime_i64":
            value = None if value in (None, -1) else EPOCH + datetime.timedelta(milliseconds=value)
        elif field.kafka_type == "error_code":
            value = KioErrorCode(value)
        arguments[known.name] = value
    return cls(**arguments)


def _entity_class(kio_type: Any) -> Any:
    if dataclasses.is_dataclass(kio_type):
        return kio_type
    return next(found for option in kio_type.__args__ if (found := _entity_class_or_none(option)) is not None)


def _entity_class_or_none(option: Any) -> Any:
    if dataclasses.is_dataclass(option):
        return option
    if hasattr(option, "__args__"):
        return _entity_class(option)
    return None


def as_plain(entity: Any) -> Any:
    """A decoded entity, ours or kio's, as dicts and lists."""
    if hasattr(entity, "_asdict"):
        return {name: as_plain(value) for name, value in entity._asdict().items()}
    if dataclasses.is_dataclass(entity):
        return {field.name: as_plain(getattr(entity, field.name)) for field in dataclasses.fields(entity)}
    if isinstance(entity, (tuple, list)):
        return [as_plain(item) for item in entity]
    if isinstance(entity, memoryview):
        return bytes(entity)
    if isinstance(entity, datetime.timedelta):
        return round(entity / datetime.timedelta(milliseconds=1))
    if isinstance(entity, datetime.datetime):
        return round(entity.timestamp() * 1000)
    return int(entity) if isinstance(entity, int) else entity


def normal(schema: EntitySchema, plain: Any) -> Any:
    """kio says None for a missing time, the wire and we say -1."""
    if plain is None:
        return None
    result = {}
    for field in schema.fields:
        value = plain[field.name] if field.name in plain else plain[OTHERWISE_NAMED[field.name]]
        if field.entity is not None and value is not None:
            entity = field.entity
            value = [normal(entity, item) for item in value] if field.is_array else normal(entity, value)
        elif field.kafka_type == "datetime_i64" and value is None:
            value = -1
        result[field.name] = value
    return result


@pytest.mark.parametrize(("api_key", "version"), ALL)
def test_requests_equal_kio(api_key: int, version: int) -> None:
    schema = message_schema(api_key, version, "request")
    cls = kio_class(api_key, version, "request")
    body_schema = with_kio_types(schema.body, cls)
    write, read = entity_writer(cls), entity_reader(cls)
    assert schema.header_flexible == (version >= FLEXIBLE_SINCE.get(ApiKey(api_key), 1 << 15))

    @settings(max_examples=6, suppress_health_check=list(HealthCheck), deadline=None, database=None)
    @given(bodies(body_schema), st.text(max_size=9) | st.none())
    def equal(body: dict[str, Any], client_id: str | None) -> None:
        frame = encode_request(
            api_key=api_key, api_version=version, correlation_id=7, client_id=client_id, body=body
        )[4:]
        header = read_request_header(frame)
        assert header[:4] == (api_key, version, 7, client_id)
        expected = io.BytesIO()
        write(expected, as_kio(body_schema, cls, body))
        assert frame[header.body_start :] == expected.getvalue()
        theirs, _ = read(expected.getvalue(), 0)
        ours = as_plain(decode_request(header, frame))
        assert normal(body_schema, ours) == normal(body_schema, as_plain(theirs))

    equal()


@pytest.mark.parametrize(("api_key", "version"), ALL)
def test_responses_equal_kio(api_key: int, version: int) -> None:
    schema = message_schema(api_key, version, "response")
    cls = kio_class(api_key, version, "response")
    body_schema = with_kio_types(schema.body, cls)
    write, read = entity_writer(cls), entity_reader(cls)

    @settings(max_examples=6, suppress_health_check=list(HealthCheck), deadline=None, database=None)
    @given(bodies(body_schema))
    def equal(body: dict[str, Any]) -> None:
        frame = encode_response(api_key=api_key, api_version=version, correlation_id=-3, body=body)[4:]
        expected = io.BytesIO()
        write(expected, as_kio(body_schema, cls, body))
        header_size = 5 if schema.header_flexible else 4
        assert frame[header_size:] == expected.getvalue()
        theirs, _ = read(expected.getvalue(), 0)
        correlation_id, ours = decode_response(api_key=api_key, api_version=version, frame=frame)
        assert correlation_id == -3
        assert as_plain(ours) == normal(body_schema, as_plain(theirs))

    equal()


def test_a_header_is_read_where_the_frame_may_be_written_to() -> None:
    frame = encode_request(api_key=18, api_version=0, correlation_id=1, client_id="x", body={})[4:]
    for buffer in (frame, bytearray(frame), memoryview(bytearray(frame))):
        header = read_request_header(buffer)
        assert header == RequestHeader(18, 0, 1, "x", 11)
        assert decode_request(header, buffer) == ()
