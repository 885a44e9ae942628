"""The fields of every message and version, in the form that ``reading`` and ``writing`` compile from.

They come from ``messages.jsonl``: Kafka's own message definitions (``common/message/*.json`` in its clients'
jar), one message a line, without their texts. ``python -m minikafka.protocol.wire.message_definitions``
writes that file from a jar. A unit test holds every version that kio knows equal to kio's schema.

``OWN_FIELDS`` are the few that this project's brokers tell each other beyond Kafka's: tagged fields, which
Apache Kafka skips.

Fields have Kafka's names in snake case, without the unit: ``ThrottleTimeMs`` is ``throttle_time``, in
milliseconds.

Kafka: ``MessageSpec``, ``FieldSpec``, ``StructSpec`` and ``Versions`` of its generator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from minikafka.errors import InvariantError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.wire.api_versions import ApiKey

Direction = Literal["request", "response"]

REQUIRED: Final = object()
"""The default of a field that has none."""

MESSAGES: Final = Path(__file__).with_name("messages.jsonl")

_VERSION_MAX: Final = 0x7FFF
_WORD_BEGINS: Final = re.compile("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_IMPLICIT_DEFAULTS: Final[Mapping[str, Any]] = {"string": "", "bytes": b"", "uuid": None, "bool": False}
"""Of tagged fields, which need not be there; of all other types 0."""


class FieldSchema(NamedTuple):
    """One field of one entity in one version."""

    name: str
    kafka_type: str | None
    """As Kafka has it, such as ``int32``, but ``error_code`` for the int16 of an error; None for an
    entity."""
    entity: EntitySchema | None
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any
    """In wire terms: ints, strings, dicts. ``REQUIRED`` when there is none."""


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


class FieldDefinition(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A field in all its versions. ``FieldSpec``."""

    name: str
    type: str
    """``int32``, ``[]string``, a structure's name, an array of it."""
    versions: str = ""
    """``3+``, ``0-4``, ``2``, ``none``; always there in a message."""
    nullable_versions: str = "none"
    tagged_versions: str = "none"
    tag: int | None = None
    default: str | int | bool | None = None
    """As text mostly. None: there is none."""
    fields: tuple[FieldDefinition, ...] = ()


class StructDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A structure that several fields of a message have. ``StructSpec``."""

    name: str
    fields: tuple[FieldDefinition, ...]


class MessageDefinition(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A message in all its versions. ``MessageSpec``."""

    name: str
    api_key: int
    type: Direction
    valid_versions: str
    flexible_versions: str = "none"
    latest_version_unstable: bool = False
    common_structs: tuple[StructDefinition, ...] = ()
    fields: tuple[FieldDefinition, ...] = ()


def _own(
    name: str, kafka_type: str, tag: int, *, versions: str, default: int | None = None
) -> FieldDefinition:
    return FieldDefinition(
        name=name, type=kafka_type, versions=versions, tagged_versions=versions, tag=tag, default=default
    )


OWN_FIELDS: Final[Mapping[tuple[int, Direction], Mapping[str, tuple[FieldDefinition, ...]]]] = {
    (ApiKey.LEADER_AND_ISR, "request"): {
        "LeaderAndIsrPartitionState": (_own("EligibleLeaderReplicas", "[]int32", 10_000, versions="4+"),),
    },
    (ApiKey.UPDATE_METADATA, "request"): {
        "UpdateMetadataPartitionState": (
            _own("EligibleLeaderReplicas", "[]int32", 10_000, versions="6+"),
            _own("LastKnownLeader", "int32", 10_001, versions="6+", default=-1),
        ),
        "UpdateMetadataBroker": (
            _own("BrokerEpoch", "int64", 10_000, versions="6+", default=-1),
            _own("HttpHost", "string", 10_001, versions="6+"),
            _own("HttpPort", "int32", 10_002, versions="6+", default=-1),
        ),
    },
    (ApiKey.ALTER_PARTITION, "request"): {
        "PartitionData": (_own("MinIsr", "int32", 10_000, versions="2+", default=-1),),
    },
    (ApiKey.ALTER_PARTITION, "response"): {
        "PartitionData": (_own("EligibleLeaderReplicas", "[]int32", 10_000, versions="2+"),),
    },
}
"""By message and structure. Kafka counts its tags from 0."""


@cache
def message_schema(api_key: int, api_version: int, direction: Direction) -> MessageSchema:
    """The schema of one message.

    Raises:
        InvariantError: there is no such API or version; callers check against ``ANSWERED`` first.
    """
    definition = message_definition(api_key, direction)
    if not is_in(api_version, definition.valid_versions):
        raise InvariantError(f"there is no schema for a {definition.name}, version {api_version}")
    return schema_of(definition, api_version)


def schema_of(definition: MessageDefinition, api_version: int) -> MessageSchema:
    """One of its valid versions."""
    flexible = is_in(api_version, definition.flexible_versions)
    structs = {each.name: each.fields for each in definition.common_structs}
    body = _entity(definition.name, definition.fields, structs, api_version, flexible=flexible)
    return MessageSchema(
        definition.name.removesuffix("Request").removesuffix("Response"),
        api_version,
        # A client that is too new for the broker reads the answer to ApiVersions, KIP-511.
        flexible and (definition.api_key != ApiKey.API_VERSIONS or definition.type == "request"),
        body,
    )


def names_by_version(api_key: int, direction: Direction, path: tuple[str, ...]) -> Iterator[frozenset[str]]:
    """The field names of the entity at ``path`` in the versions of the API, the newest first."""
    first, last = version_range(message_definition(api_key, direction).valid_versions)
    for api_version in range(last, first - 1, -1):
        entity: EntitySchema | None = message_schema(api_key, api_version, direction).body
        for step in path:
            fields = {field.name: field for field in entity.fields} if entity else {}
            entity = fields[step].entity if step in fields else None
        if entity is not None:
            yield frozenset(field.name for field in entity.fields)


@cache
def message_definition(api_key: int, direction: Direction) -> MessageDefinition:
    """All versions of one message. Raises InvariantError: it is not in ``messages.jsonl``."""
    for line in MESSAGES.read_bytes().splitlines():
        # Each line begins so; only the one that is asked for is decoded.
        if line.startswith(b'{"apiKey":%d,"type":"%s",' % (api_key, direction.encode())):
            definition = msgspec.json.decode(line, type=MessageDefinition)
            own = OWN_FIELDS.get((api_key, direction))
            return definition if own is None else _with_own_fields(definition, own)
    raise InvariantError(f"there is no schema for a {direction} of api key {api_key}")


def _with_own_fields(
    definition: MessageDefinition, own: Mapping[str, tuple[FieldDefinition, ...]]
) -> MessageDefinition:
    def extended(field: FieldDefinition) -> FieldDefinition:
        extra = own.get(field.type.removeprefix("[]"), ()) if field.fields else ()
        return msgspec.structs.replace(field, fields=(*map(extended, field.fields), *extra))

    structs = tuple(
        msgspec.structs.replace(each, fields=(*each.fields, *own.get(each.name, ())))
        for each in definition.common_structs
    )
    return msgspec.structs.replace(
        definition, common_structs=structs, fields=tuple(map(extended, definition.fields))
    )


def version_range(versions: str) -> tuple[int, int]:
    """The first and last version of ``3+``, ``0-4``, ``2`` or ``none``, for which the first is the larger."""
    if versions == "none":
        return 1, 0
    if versions.endswith("+"):
        return int(versions[:-1]), _VERSION_MAX
    first, _, last = versions.partition("-")
    return int(first), int(last or first)


def is_in(version: int, versions: str) -> bool:
    first, last = version_range(versions)
    return first <= version <= last


Structs = Mapping[str, Sequence[FieldDefinition]]


def _entity(
    name: str, definitions: Sequence[FieldDefinition], structs: Structs, version: int, *, flexible: bool
) -> EntitySchema:
    fields = [
        _field(each, structs, version, flexible=flexible)
        for each in definitions
        if is_in(version, each.versions)
    ]
    return EntitySchema(name, flexible, tuple(sorted(fields, key=_place)))


def _place(field: FieldSchema) -> int:
    return -1 if field.tag is None else field.tag


def _field(definition: FieldDefinition, structs: Structs, version: int, *, flexible: bool) -> FieldSchema:
    kafka_type = definition.type.removeprefix("[]")
    is_array = kafka_type != definition.type
    entity = None
    if fields := definition.fields or structs.get(kafka_type, ()):
        entity = _entity(kafka_type, fields, structs, version, flexible=flexible)
    elif kafka_type == "int16" and definition.name.endswith("ErrorCode"):
        kafka_type = "error_code"
    tag = definition.tag if is_in(version, definition.tagged_versions) else None
    return FieldSchema(
        field_name(definition.name),
        None if entity else kafka_type,
        entity,
        is_array,
        is_in(version, definition.nullable_versions),
        tag,
        _default(definition, kafka_type, entity, is_array=is_array, is_tagged=tag is not None),
    )


def field_name(name: str) -> str:
    """``ThrottleTimeMs`` → ``throttle_time``."""
    return _WORD_BEGINS.sub("_", name).lower().removesuffix("_ms")


def _default(
    definition: FieldDefinition,
    kafka_type: str,
    entity: EntitySchema | None,
    *,
    is_array: bool,
    is_tagged: bool,
) -> Any:
    text = definition.default
    if text is not None:
        if text == "null":
            return None
        if kafka_type == "bool":
            return text in (True, "true")
        return text if kafka_type == "string" else int(str(text), 0)
    if is_array:
        return () if is_tagged or entity is None else REQUIRED
    if not is_tagged:
        return REQUIRED
    if entity is None:
        return _IMPLICIT_DEFAULTS.get(kafka_type, 0)
    values = {field.name: field.default for field in entity.fields}
    return REQUIRED if REQUIRED in values.values() else values
