"""The fields of every message, in the form that ``reading`` and ``writing`` compile from.

They are kio's, but for those of ApiVersions: every client asks for
it first, and a broker that has just started would have to import kio for its answer, 20 ms.

The schemas of ApiVersions, as data; a unit test holds them equal to kio's, which has none of version 5.

Kafka: ``ApiVersionsRequest.json``, ``ApiVersionsResponse.json``. The response header is version 0 always, so
that a client which is too new for the broker can read it (KIP-511).

What kio knows of the messages.

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
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

from minikafka.errors import InvariantError
from minikafka.protocol.wire.api_versions import FLEXIBLE_SINCE, SUPPORTED, ApiKey

Direction = Literal["request", "response"]

REQUIRED: Final = object()
"""The default of a field that has none."""


class FieldSchema(NamedTuple):
    """One field of one entity in one version. ``kafka_type`` is kio's name of the type; None for an
    entity."""

    name: str
    kafka_type: str | None
    entity: EntitySchema | None
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any
    """In wire terms: milliseconds, ints, dicts. ``REQUIRED`` when there is none."""


class EntitySchema(NamedTuple):
    """A message, or a structure inside one."""

    name: str
    flexible: bool
    fields: tuple[FieldSchema, ...]
    """Untagged fields in wire order, then tagged ones by tag."""


class MessageSchema(NamedTuple):
    """A request or response with what its header needs."""

    api_name: str
    api_version: int
    header_flexible: bool
    body: EntitySchema


@cache
def message_schema(api_key: int, api_version: int, direction: Direction) -> MessageSchema:
    """The schema of one message.

    Raises:
        InvariantError: there is no such API or version; callers check against ``ANSWERED`` first.
    """
    if api_key == ApiKey.API_VERSIONS:
        return api_versions_message_schema(api_version, direction)
    return kio_message_schema(api_key, api_version, direction)


def names_by_version(api_key: int, direction: Direction, path: tuple[str, ...]) -> Iterator[frozenset[str]]:
    """The field names of the entity at ``path`` in the versions of the API, the newest first. Each version is
    imported when it is its turn."""
    versions = _API_VERSIONS_RANGE if api_key == ApiKey.API_VERSIONS else _kio_versions(api_key)
    for api_version in reversed(versions):
        entity: EntitySchema | None = message_schema(api_key, api_version, direction).body
        for step in path:
            fields = {field.name: field for field in entity.fields} if entity else {}
            entity = fields[step].entity if step in fields else None
        if entity is not None:
            yield frozenset(field.name for field in entity.fields)


_API_VERSIONS_RANGE: Final = range(SUPPORTED[ApiKey.API_VERSIONS].min, SUPPORTED[ApiKey.API_VERSIONS].max + 1)
_FLEXIBLE_SINCE: Final = FLEXIBLE_SINCE[ApiKey.API_VERSIONS]
_THROTTLE_TIME_SINCE: Final = 1
_MEANT_FOR_SINCE: Final = 5


def api_versions_message_schema(api_version: int, direction: Direction) -> MessageSchema:
    """The schema of ApiVersions in one version. Raises InvariantError: there is none."""
    if api_version not in _API_VERSIONS_RANGE:
        raise InvariantError(f"there is no schema for a {direction} of ApiVersions, version {api_version}")
    flexible = api_version >= _FLEXIBLE_SINCE
    if direction == "request":
        fields: tuple[FieldSchema, ...] = (
            _own_field("client_software_name", "string"),
            _own_field("client_software_version", "string"),
        )
        if api_version >= _MEANT_FOR_SINCE:
            fields += (
                _own_field("cluster_id", "string", nullable=True, default=None),
                _own_field("node_id", "int32", default=-1),
            )
        body = EntitySchema("ApiVersionsRequest", flexible, fields if flexible else ())
        return MessageSchema("ApiVersions", api_version, flexible, body)
    return MessageSchema("ApiVersions", api_version, False, _response(api_version, flexible=flexible))


def _response(api_version: int, *, flexible: bool) -> EntitySchema:
    def entities(name: str, *fields: FieldSchema) -> EntitySchema:
        return EntitySchema(name, flexible, fields)

    def range_of(what: FieldSchema, smaller: str, larger: str) -> tuple[FieldSchema, ...]:
        return what, _own_field(smaller, "int16"), _own_field(larger, "int16")

    api_key = range_of(_own_field("api_key", "int16"), "min_version", "max_version")
    fields = [
        _own_field("error_code", "error_code"),
        _array("api_keys", entities("ApiVersion", *api_key)),
    ]
    if api_version >= _THROTTLE_TIME_SINCE:
        fields.append(_own_field("throttle_time", "timedelta_i32"))
    if flexible:
        supported = range_of(_own_field("name", "string"), "min_version", "max_version")
        finalized = range_of(_own_field("name", "string"), "max_version_level", "min_version_level")
        fields += [
            _array("supported_features", entities("SupportedFeatureKey", *supported), tag=0),
            _own_field("finalized_features_epoch", "int64", tag=1, default=-1),
            _array("finalized_features", entities("FinalizedFeatureKey", *finalized), tag=2),
            _own_field("zk_migration_ready", "bool", tag=3, default=False),
        ]
    return EntitySchema("ApiVersionsResponse", flexible, tuple(fields))


def _own_field(
    name: str, kafka_type: str, *, nullable: bool = False, tag: int | None = None, default: Any = REQUIRED
) -> FieldSchema:
    return FieldSchema(name, kafka_type, None, is_array=False, nullable=nullable, tag=tag, default=default)


def _array(name: str, entity: EntitySchema, *, tag: int | None = None) -> FieldSchema:
    default = REQUIRED if tag is None else ()
    return FieldSchema(name, None, entity, is_array=True, nullable=False, tag=tag, default=default)


def kio_message_schema(api_key: int, api_version: int, direction: Direction) -> MessageSchema:
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


def _kio_versions(api_key: int) -> Sequence[int]:
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
