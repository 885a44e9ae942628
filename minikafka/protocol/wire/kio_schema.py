"""What kio knows of the messages.

kio generates one dataclass per (API, version, request or response) from Kafka's message JSON. Only these
classes are used at run time, as schemas; bytes are read and written by ``reading`` and ``writing``, because
kio 0.6.5's own reader
- reserves memory for the count that an array claims, and aborts the process when it cannot (12 bytes do it),
- raises KeyError on a tagged field that it does not know, which KIP-482 says to skip,
- takes a null array where the schema allows none,
- copies records, and refuses buffers that are writable.
Unit tests hold both directions equal to kio's.

A message module of kio is imported when its API and version are first used (1 to 5 ms each), never at start.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from minikafka.errors import InvariantError
from minikafka.protocol.wire.schema import REQUIRED, Direction, EntitySchema, FieldSchema, MessageSchema


def message_schema(api_key: int, api_version: int, direction: Direction) -> MessageSchema:
    """The schema of one message, not remembered.

    Raises:
        InvariantError: kio has no such API or version.
    """
    message = _message_class(api_key, api_version, direction)
    return MessageSchema(
        message.__name__.removesuffix("Request").removesuffix("Response"),
        api_version,
        message.__header_schema__.__flexible__,
        _entity(message),
    )


def versions(api_key: int) -> Sequence[int]:
    """Those that kio has, ascending."""
    from kio.schema.index import api_key_map, schema_name_map

    return sorted(schema_name_map[api_key_map[api_key]])


def _message_class(api_key: int, api_version: int, direction: Direction) -> Any:
    from kio.schema.index import api_key_map, schema_name_map
    from kio.static.constants import EntityType

    kind: Literal[EntityType.request, EntityType.response]
    kind = EntityType.request if direction == "request" else EntityType.response
    try:
        path = schema_name_map[api_key_map[api_key]][api_version][kind]
    except KeyError:
        raise InvariantError(
            f"there is no schema for a {direction} of api key {api_key}, version {api_version}"
        ) from None
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def _entity(message: Any) -> EntitySchema:
    fields = [_field(field) for field in dataclasses.fields(message)]
    untagged = [field for field in fields if field.tag is None]
    tagged = sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)
    return EntitySchema(message.__name__, message.__flexible__, (*untagged, *tagged))


def _field(field: dataclasses.Field[Any]) -> FieldSchema:
    inner, nullable = _without_none(field.type)
    is_array = get_origin(inner) is tuple
    if is_array:
        inner, _ = _without_none(get_args(inner)[0])
    entity = _entity(inner) if dataclasses.is_dataclass(inner) else None
    default: Any = REQUIRED
    if field.default is not dataclasses.MISSING:
        default = _plain(field.default)
    return FieldSchema(
        field.name,
        None if entity else field.metadata["kafka_type"],
        entity,
        is_array,
        nullable,
        field.metadata.get("tag"),
        default,
    )


def _without_none(option: Any) -> tuple[Any, bool]:
    """``X | None`` → (X, True), anything else → (itself, False)."""
    if get_origin(option) is not UnionType:
        return option, False
    return next(inner for inner in get_args(option) if inner is not NoneType), True


def _plain(value: Any) -> Any:
    """kio's default as bodies hold it."""
    import datetime

    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, datetime.timedelta):
        return round(value / datetime.timedelta(milliseconds=1))
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    return value
