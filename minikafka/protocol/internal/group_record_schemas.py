"""The schemas of the records of ``__consumer_offsets``, as data, and readers and writers compiled from them.

Kafka 4.1: ``group-coordinator/src/main/resources/common/message/*.json`` and ``CoordinatorRecordSerde``. A
key is an int16, the record's type, and a body that is never flexible; a value is an int16, its version, and
a body. Names are Kafka's in snake case, so that ``dump-log`` can show them as Kafka does.

Fields that Kafka has added since as tagged fields (a group's creation time, an assignment's time) are
skipped, as KIP-915 means them to be.

Reading the body of a key or a value behind its first two bytes, and saying why that cannot be done.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

from minikafka.errors import PeerProtocolError
from minikafka.protocol.wire.reading import ELEMENTS_MAX, MALFORMED, Reader, compile_reader
from minikafka.protocol.wire.schema import REQUIRED, EntitySchema, FieldSchema
from minikafka.protocol.wire.writing import Writer, compile_writer

UNREADABLE: Final = (PeerProtocolError, *MALFORMED)
"""What ``read_body`` raises of a body that is not what its version says."""


def read_body(reader: Reader, data: bytes | memoryview) -> Any:
    return reader(memoryview(data), 2, [ELEMENTS_MAX])[0]


def why_unreadable(cause: Exception) -> str:
    if isinstance(cause, PeerProtocolError):
        return str(cause)
    return "a string is not UTF-8" if isinstance(cause, UnicodeDecodeError) else "it ends too early"


_FOREVER: Final = 0x7FFF


class Field(NamedTuple):
    """A field in all versions of its record. ``kafka_type`` is a type's name or a structure's fields."""

    name: str
    kafka_type: str | tuple[Field, ...]
    is_array: bool = False
    nullable: bool = False
    default: Any = REQUIRED
    tag: int | None = None
    since: int = 0
    until: int = _FOREVER


class RecordSchema(NamedTuple):
    """One type of record: ``name`` without Kafka's suffixes Key and Value."""

    name: str
    key: tuple[Field, ...]
    value: tuple[Field, ...]
    newest_version: int = 0
    flexible_since: int = 0


_GROUP = (Field("group", "string"),)
_GROUP_ID = (Field("group_id", "string"),)
_MEMBER = (*_GROUP_ID, Field("member_id", "string"))
_OFFSET_COMMIT = RecordSchema(
    "OffsetCommit",
    (*_GROUP, Field("topic", "string"), Field("partition", "int32")),
    (
        Field("offset", "int64"),
        Field("leader_epoch", "int32", default=-1, since=3),
        Field("metadata", "string"),
        Field("commit_timestamp", "int64"),
        Field("expire_timestamp", "int64", default=-1, since=1, until=1),
        Field("topic_id", "uuid", default=None, tag=0, since=4),
    ),
    newest_version=4,
    flexible_since=4,
)
_MEMBER_METADATA = (
    Field("member_id", "string"),
    Field("group_instance_id", "string", nullable=True, since=3),
    Field("client_id", "string"),
    Field("client_host", "string"),
    Field("rebalance_timeout", "int32", default=-1, since=1),
    Field("session_timeout", "int32"),
    Field("subscription", "bytes"),
    Field("assignment", "bytes"),
)
_TOPIC_PARTITIONS = (Field("topic_id", "uuid"), Field("partitions", "int32", is_array=True))
_PARTITION_METADATA = (Field("partition", "int32"), Field("racks", "string", is_array=True))
_TOPIC_METADATA = (
    Field("topic_id", "uuid"),
    Field("topic_name", "string"),
    Field("num_partitions", "int32"),
    Field("partition_metadata", _PARTITION_METADATA, is_array=True),
)
_CLASSIC_MEMBER_METADATA = (
    Field("session_timeout_ms", "int32"),
    Field("supported_protocols", (Field("name", "string"), Field("metadata", "bytes")), is_array=True),
)

SCHEMAS: Final[dict[int, RecordSchema]] = {
    0: _OFFSET_COMMIT._replace(name="LegacyOffsetCommit"),
    1: _OFFSET_COMMIT,
    2: RecordSchema(
        "GroupMetadata",
        _GROUP,
        (
            Field("protocol_type", "string"),
            Field("generation", "int32"),
            Field("protocol", "string", nullable=True),
            Field("leader", "string", nullable=True),
            Field("current_state_timestamp", "int64", default=-1, since=2),
            Field("members", _MEMBER_METADATA, is_array=True),
        ),
        newest_version=4,
        flexible_since=4,
    ),
    3: RecordSchema(
        "ConsumerGroupMetadata",
        _GROUP_ID,
        (Field("epoch", "int32"), Field("metadata_hash", "int64", default=0, tag=0)),
    ),
    4: RecordSchema(
        "ConsumerGroupPartitionMetadata",
        _GROUP_ID,
        (Field("topics", _TOPIC_METADATA, is_array=True),),
    ),
    5: RecordSchema(
        "ConsumerGroupMemberMetadata",
        _MEMBER,
        (
            Field("instance_id", "string", nullable=True),
            Field("rack_id", "string", nullable=True),
            Field("client_id", "string"),
            Field("client_host", "string"),
            Field("subscribed_topic_names", "string", is_array=True),
            Field("subscribed_topic_regex", "string", nullable=True),
            Field("rebalance_timeout_ms", "int32"),
            Field("server_assignor", "string", nullable=True),
            Field("classic_member_metadata", _CLASSIC_MEMBER_METADATA, nullable=True, default=None, tag=0),
        ),
    ),
    6: RecordSchema(
        "ConsumerGroupTargetAssignmentMetadata", _GROUP_ID, (Field("assignment_epoch", "int32"),)
    ),
    7: RecordSchema(
        "ConsumerGroupTargetAssignmentMember",
        _MEMBER,
        (Field("topic_partitions", _TOPIC_PARTITIONS, is_array=True),),
    ),
    8: RecordSchema(
        "ConsumerGroupCurrentMemberAssignment",
        _MEMBER,
        (
            Field("member_epoch", "int32"),
            Field("previous_member_epoch", "int32"),
            Field("state", "int8"),
            Field("assigned_partitions", _TOPIC_PARTITIONS, is_array=True),
            Field("partitions_pending_revocation", _TOPIC_PARTITIONS, is_array=True),
        ),
    ),
    16: RecordSchema(
        "ConsumerGroupRegularExpression",
        (*_GROUP_ID, Field("regular_expression", "string")),
        (Field("topics", "string", is_array=True), Field("version", "int64"), Field("timestamp", "int64")),
    ),
}
"""By record type. Type 0 is a committed offset as Kafka 0.8 wrote it."""


@cache
def key_reader(record_type: int) -> Reader:
    """Of the body behind the type."""
    return compile_reader(_key_schema(record_type))


@cache
def value_reader(record_type: int, version: int) -> Reader:
    """Of the body behind the version."""
    return compile_reader(_value_schema(record_type, version))


@cache
def key_writer(record_type: int) -> Writer:
    return compile_writer(_key_schema(record_type), no_names)


@cache
def value_writer(record_type: int, version: int) -> Writer:
    return compile_writer(_value_schema(record_type, version), no_names)


def no_names(path: tuple[str, ...]) -> tuple[frozenset[str], ...]:
    """A body is made for one version: it has no names of others."""
    return ()


def _key_schema(record_type: int) -> EntitySchema:
    schema = SCHEMAS[record_type]
    return entity_schema(f"{schema.name}Key", schema.key, 0, flexible=False)


def _value_schema(record_type: int, version: int) -> EntitySchema:
    schema = SCHEMAS[record_type]
    flexible = version >= schema.flexible_since
    return entity_schema(f"{schema.name}Value", schema.value, version, flexible=flexible)


def entity_schema(name: str, fields: tuple[Field, ...], version: int, *, flexible: bool) -> EntitySchema:
    present = tuple(
        _field(field, version, flexible=flexible) for field in fields if field.since <= version <= field.until
    )
    return EntitySchema(name, flexible, present)


def _field(field: Field, version: int, *, flexible: bool) -> FieldSchema:
    kafka_type = entity = None
    if isinstance(field.kafka_type, str):
        kafka_type = field.kafka_type
    else:
        entity = entity_schema(field.name, field.kafka_type, version, flexible=flexible)
    return FieldSchema(
        field.name, kafka_type, entity, field.is_array, field.nullable, field.tag, field.default
    )
