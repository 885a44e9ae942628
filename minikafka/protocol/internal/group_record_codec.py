"""Bytes of the records of ``__consumer_offsets``, both ways. Kafka: ``CoordinatorRecordSerde``.

All versions of all values are read; ``Kind`` says which are written. Committed offsets take a
fast path, the others go by the schemas.

Where it differs: Kafka puts U+FFFD where a string is not UTF-8; here the record is unreadable, because one
name must not become another. A record of type 0 may have a value of any version, as in Kafka 3: Kafka 4
reads only version 0.

**Typed records** as the bodies that the schemas read and write, and back. Kafka:
``GroupCoordinatorRecordHelpers`` of 4.1, which decides on the version that is written: OffsetCommitValue 4,
or 1 where the client has set an expire timestamp (version 1 alone has one, so the topic id is lost, as in
Kafka); GroupMetadataValue 3; and 0 of the others. A topic's partitions are written in ascending order, so
that equal records are equal bytes.

**The fast path** of a committed offset's record gives the bytes that the schemas give. A partition of
``__consumer_offsets`` holds hundreds of thousands of these records, and all are read before its groups are
served. Taken are the forms that are written today, versions 3 and 4 of the value; everything else, damage
too, is left to the schemas, which says what is wrong.

**The schemas**, as data, and readers and writers compiled from them. Kafka 4.1:
``group-coordinator/src/main/resources/common/message/*.json`` and ``CoordinatorRecordSerde``. A key is an
int16, the record's type, and a body that is never flexible; a value is an int16, its version, and a body.
Names are Kafka's in snake case, so that ``dump-log`` can show them as Kafka does.

Fields that Kafka has added since as tagged fields (a group's creation time, an assignment's time) are
skipped, as KIP-915 means them to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from struct import Struct, error
from typing import Any, Final
from uuid import UUID

import msgspec

from minikafka.errors import PeerProtocolError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.internal import group_records as records
from minikafka.protocol.internal import streams_record_bodies
from minikafka.protocol.internal.group_records import (
    GroupRecord,
    Key,
    OffsetCommitKey,
    OffsetCommitValue,
    TopicPartitions,
    Value,
)
from minikafka.protocol.wire.reading import ELEMENTS_MAX, MALFORMED, Reader, compile_reader, topic_uuid
from minikafka.protocol.wire.schema import REQUIRED, EntitySchema, FieldSchema
from minikafka.protocol.wire.writing import Body, Writer, compile_writer, unsigned_varint

UNREADABLE: Final = (PeerProtocolError, *MALFORMED)
"""What ``read_body`` raises of a body that is not what its version says."""

_FOREVER: Final = 0x7FFF

NO_TIMESTAMP: Final = -1
"""Where there is none (``OffsetCommitRequest.DEFAULT_TIMESTAMP``)."""

OFFSET_COMMIT: Final = 1
"""The type of a committed offset's record."""

_ZERO_UUID = UUID(int=0)

_I32: Final = Struct(">i")
_I64: Final = Struct(">q")
_KEY_START: Final = Struct(">hh")
_VALUE_3_START: Final = Struct(">hqih")
_VALUE_4_START: Final = Struct(">hqiB")
_VALUE_4_END: Final = Struct(">qB")
_VALUE_4_FIXED: Final = Struct(">hqi")
_TOPIC_ID_TAG: Final = b"\x01\x00\x10"
"""One tagged field: tag 0, 16 bytes."""

_I16: Final = Struct(">h")


def read_body(reader: Reader, data: bytes | memoryview) -> Any:
    return reader(memoryview(data), 2, [ELEMENTS_MAX])[0]


def why_unreadable(cause: Exception) -> str:
    if isinstance(cause, PeerProtocolError):
        return str(cause)
    return "a string is not UTF-8" if isinstance(cause, UnicodeDecodeError) else "it ends too early"


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
_NAMED_TOPIC = (Field("topic_id", "uuid"), Field("topic_name", "string"))
_NAMED_PARTITIONS = (*_NAMED_TOPIC, Field("partitions", "int32", is_array=True))
_CLASSIC_MEMBER_METADATA = (
    Field("session_timeout_ms", "int32"),
    Field("supported_protocols", (Field("name", "string"), Field("metadata", "bytes")), is_array=True),
)
_KEY_VALUE = (Field("key", "string"), Field("value", "string"))
_TASK_IDS = (Field("subtopology_id", "string"), Field("partitions", "int32", is_array=True))
_TASK_EPOCHS = (
    *_TASK_IDS,
    Field("assignment_epochs", "int32", is_array=True, nullable=True, default=None, tag=0),
)
_TOPIC_INFO = (
    Field("name", "string"),
    Field("partitions", "int32"),
    Field("replication_factor", "int16"),
    Field("topic_configs", _KEY_VALUE, is_array=True),
)
_COPARTITION_GROUP = tuple(
    Field(name, "int16", is_array=True)
    for name in ("source_topics", "source_topic_regex", "repartition_source_topics")
)
_SUBTOPOLOGY = (
    Field("subtopology_id", "string"),
    Field("source_topics", "string", is_array=True),
    Field("source_topic_regex", "string", is_array=True),
    Field("state_changelog_topics", _TOPIC_INFO, is_array=True),
    Field("repartition_sink_topics", "string", is_array=True),
    Field("repartition_source_topics", _TOPIC_INFO, is_array=True),
    Field("copartition_groups", _COPARTITION_GROUP, is_array=True),
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
    10: RecordSchema(
        "ShareGroupMemberMetadata",
        _MEMBER,
        (
            Field("rack_id", "string", nullable=True),
            Field("client_id", "string"),
            Field("client_host", "string"),
            Field("subscribed_topic_names", "string", is_array=True),
        ),
    ),
    11: RecordSchema(
        "ShareGroupMetadata", _GROUP_ID, (Field("epoch", "int32"), Field("metadata_hash", "int64"))
    ),
    12: RecordSchema(
        "ShareGroupTargetAssignmentMetadata",
        _GROUP_ID,
        (Field("assignment_epoch", "int32"), Field("assignment_timestamp", "int64", default=0, tag=0)),
    ),
    13: RecordSchema(
        "ShareGroupTargetAssignmentMember",
        _MEMBER,
        (Field("topic_partitions", _TOPIC_PARTITIONS, is_array=True),),
    ),
    14: RecordSchema(
        "ShareGroupCurrentMemberAssignment",
        _MEMBER,
        (
            Field("member_epoch", "int32"),
            Field("previous_member_epoch", "int32"),
            Field("state", "int8"),
            Field("assigned_partitions", _TOPIC_PARTITIONS, is_array=True),
        ),
    ),
    15: RecordSchema(
        "ShareGroupStatePartitionMetadata",
        _GROUP_ID,
        (
            Field("initializing_topics", _NAMED_PARTITIONS, is_array=True),
            Field("initialized_topics", _NAMED_PARTITIONS, is_array=True),
            Field("deleting_topics", _NAMED_TOPIC, is_array=True),
        ),
    ),
    16: RecordSchema(
        "ConsumerGroupRegularExpression",
        (*_GROUP_ID, Field("regular_expression", "string")),
        (Field("topics", "string", is_array=True), Field("version", "int64"), Field("timestamp", "int64")),
    ),
    17: RecordSchema(
        "StreamsGroupMetadata",
        _GROUP_ID,
        (
            Field("epoch", "int32"),
            Field("metadata_hash", "int64"),
            Field("validated_topology_epoch", "int32", default=-1, tag=0),
            Field("last_assignment_configs", _KEY_VALUE, is_array=True, nullable=True, default=None, tag=1),
            Field("stored_description_topology_epoch", "int32", default=-1, tag=2),
            Field("failed_description_topology_epoch", "int32", default=-1, tag=3),
        ),
    ),
    19: RecordSchema(
        "StreamsGroupMemberMetadata",
        _MEMBER,
        (
            Field("instance_id", "string", nullable=True),
            Field("rack_id", "string", nullable=True),
            Field("client_id", "string"),
            Field("client_host", "string"),
            Field("rebalance_timeout_ms", "int32", default=-1),
            Field("topology_epoch", "int32"),
            Field("process_id", "string"),
            Field("user_endpoint", (Field("host", "string"), Field("port", "uint16")), nullable=True),
            Field("client_tags", _KEY_VALUE, is_array=True),
        ),
    ),
    20: RecordSchema(
        "StreamsGroupTargetAssignmentMetadata",
        _GROUP_ID,
        (Field("assignment_epoch", "int32"), Field("assignment_timestamp", "int64", default=0, tag=0)),
    ),
    21: RecordSchema(
        "StreamsGroupTargetAssignmentMember",
        _MEMBER,
        tuple(Field(name, _TASK_IDS, is_array=True) for name in streams_record_bodies.TASK_FIELDS),
    ),
    22: RecordSchema(
        "StreamsGroupCurrentMemberAssignment",
        _MEMBER,
        (
            Field("member_epoch", "int32"),
            Field("previous_member_epoch", "int32"),
            Field("state", "int8"),
            *(Field(name, _TASK_EPOCHS, is_array=True) for name in streams_record_bodies.TASK_FIELDS),
            *(
                Field(f"{name}_pending_revocation", _TASK_EPOCHS, is_array=True)
                for name in streams_record_bodies.TASK_FIELDS
            ),
        ),
    ),
    23: RecordSchema(
        "StreamsGroupTopology",
        _GROUP_ID,
        (Field("epoch", "int32"), Field("subtopologies", _SUBTOPOLOGY, is_array=True)),
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


class Kind(NamedTuple):
    """How a type's structs become bodies and back. Keys have the fields of their schema, in its order."""

    record_type: int
    key: type[Key]
    version: Callable[[Any], int]
    """Of the value, when it is written."""
    body: Callable[[Any], Body]
    value: Callable[[Any], Value]
    """From the named tuple that a reader gives, of any version."""


def _offset_commit_version(value: OffsetCommitValue) -> int:
    return 4 if value.expire_timestamp_ms is None else 1


def _offset_commit_body(value: OffsetCommitValue) -> Body:
    body: dict[str, Any] = {
        "offset": value.offset,
        "metadata": value.metadata,
        "commit_timestamp": value.commit_timestamp_ms,
    }
    if value.expire_timestamp_ms is not None:
        return body | {"expire_timestamp": value.expire_timestamp_ms}
    return body | {"leader_epoch": value.leader_epoch, "topic_id": value.topic_id}


def _offset_commit(body: Any) -> OffsetCommitValue:
    expire_timestamp_ms = getattr(body, "expire_timestamp", NO_TIMESTAMP)
    return OffsetCommitValue(
        offset=body.offset,
        leader_epoch=getattr(body, "leader_epoch", -1),
        metadata=body.metadata,
        commit_timestamp_ms=body.commit_timestamp,
        expire_timestamp_ms=None if expire_timestamp_ms == NO_TIMESTAMP else expire_timestamp_ms,
        topic_id=getattr(body, "topic_id", None),
    )


def _group_metadata_body(value: records.GroupMetadataValue) -> Body:
    return {
        "protocol_type": value.protocol_type,
        "generation": value.generation,
        "protocol": value.protocol,
        "leader": value.leader,
        "current_state_timestamp": value.current_state_timestamp_ms,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "rebalance_timeout": member.rebalance_timeout_ms,
                "session_timeout": member.session_timeout_ms,
                "subscription": member.subscription,
                "assignment": member.assignment,
            }
            for member in value.members
        ],
    }


def _group_metadata(body: Any) -> records.GroupMetadataValue:
    return records.GroupMetadataValue(
        protocol_type=body.protocol_type,
        generation=body.generation,
        protocol=body.protocol,
        leader=body.leader,
        current_state_timestamp_ms=getattr(body, "current_state_timestamp", NO_TIMESTAMP),
        members=tuple(map(_member_metadata, body.members)),
    )


def _member_metadata(body: Any) -> records.MemberMetadata:
    rebalance_timeout_ms = getattr(body, "rebalance_timeout", -1)
    return records.MemberMetadata(
        member_id=body.member_id,
        group_instance_id=getattr(body, "group_instance_id", None),
        client_id=body.client_id,
        client_host=body.client_host,
        # Version 0 had none: Kafka takes the session's, as it did when that version was written.
        rebalance_timeout_ms=body.session_timeout if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        session_timeout_ms=body.session_timeout,
        subscription=body.subscription,
        assignment=body.assignment,
    )


def _member_body(value: records.ConsumerGroupMemberMetadataValue) -> Body:
    body = msgspec.structs.asdict(value)
    classic = value.classic_member_metadata
    if classic is not None:
        body["classic_member_metadata"] = {
            "session_timeout_ms": classic.session_timeout_ms,
            "supported_protocols": [
                {"name": protocol.name, "metadata": protocol.metadata}
                for protocol in classic.supported_protocols
            ],
        }
    return body


def _member(body: Any) -> records.ConsumerGroupMemberMetadataValue:
    fields = body._asdict()
    classic = body.classic_member_metadata
    if classic is not None:
        fields["classic_member_metadata"] = records.ClassicMemberMetadata(
            classic.session_timeout_ms,
            tuple(records.ClassicProtocol(*protocol) for protocol in classic.supported_protocols),
        )
    return records.ConsumerGroupMemberMetadataValue(**fields)


def _topics_body(topic_partitions: TopicPartitions) -> list[Body]:
    return [
        {"topic_id": topic_id, "partitions": sorted(partitions)}
        for topic_id, partitions in topic_partitions.items()
    ]


def _topics(body: Iterable[Any]) -> TopicPartitions:
    return {each.topic_id or _ZERO_UUID: frozenset(each.partitions) for each in body if each.partitions}


def _current_assignment_body(value: records.ConsumerGroupCurrentMemberAssignmentValue) -> Body:
    return {
        "member_epoch": value.member_epoch,
        "previous_member_epoch": value.previous_member_epoch,
        "state": value.state,
        "assigned_partitions": _topics_body(value.assigned_partitions),
        "partitions_pending_revocation": _topics_body(value.partitions_pending_revocation),
    }


def _current_assignment(body: Any) -> records.ConsumerGroupCurrentMemberAssignmentValue:
    return records.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=body.member_epoch,
        previous_member_epoch=body.previous_member_epoch,
        state=body.state,
        assigned_partitions=_topics(body.assigned_partitions),
        partitions_pending_revocation=_topics(body.partitions_pending_revocation),
    )


def _share_assignment_body(value: records.ShareGroupCurrentMemberAssignmentValue) -> Body:
    return {
        "member_epoch": value.member_epoch,
        "previous_member_epoch": value.previous_member_epoch,
        "state": value.state,
        "assigned_partitions": _topics_body(value.assigned_partitions),
    }


def _share_assignment(body: Any) -> records.ShareGroupCurrentMemberAssignmentValue:
    return records.ShareGroupCurrentMemberAssignmentValue(
        member_epoch=body.member_epoch,
        previous_member_epoch=body.previous_member_epoch,
        state=body.state,
        assigned_partitions=_topics(body.assigned_partitions),
    )


def _share_state_body(value: records.ShareGroupStatePartitionMetadataValue) -> Body:
    return {
        "initializing_topics": _named_partitions_body(value.initializing),
        "initialized_topics": _named_partitions_body(value.initialized),
        "deleting_topics": [
            {"topic_id": topic_id, "topic_name": name} for topic_id, name in value.deleting.items()
        ],
    }


def _share_state(body: Any) -> records.ShareGroupStatePartitionMetadataValue:
    return records.ShareGroupStatePartitionMetadataValue(
        initializing=_named_partitions(body.initializing_topics),
        initialized=_named_partitions(body.initialized_topics),
        deleting={each.topic_id or _ZERO_UUID: each.topic_name for each in body.deleting_topics},
    )


def _named_partitions_body(topics: Mapping[UUID, records.NamedPartitions]) -> list[Body]:
    return [
        {"topic_id": topic_id, "topic_name": each.topic, "partitions": sorted(each.partitions)}
        for topic_id, each in topics.items()
    ]


def _named_partitions(body: Iterable[Any]) -> dict[UUID, records.NamedPartitions]:
    return {
        each.topic_id or _ZERO_UUID: records.NamedPartitions(each.topic_name, frozenset(each.partitions))
        for each in body
    }


def _zero(value: Value) -> int:
    return 0


KINDS: Final = (
    Kind(OFFSET_COMMIT, OffsetCommitKey, _offset_commit_version, _offset_commit_body, _offset_commit),
    Kind(2, records.GroupMetadataKey, lambda value: 3, _group_metadata_body, _group_metadata),
    Kind(
        3,
        records.ConsumerGroupMetadataKey,
        _zero,
        msgspec.structs.asdict,
        lambda body: records.ConsumerGroupMetadataValue(**body._asdict()),
    ),
    Kind(
        4,
        records.ConsumerGroupPartitionMetadataKey,
        _zero,
        lambda value: {"topics": ()},
        lambda body: records.ConsumerGroupPartitionMetadataValue(),
    ),
    Kind(5, records.ConsumerGroupMemberMetadataKey, _zero, _member_body, _member),
    Kind(
        6,
        records.ConsumerGroupTargetAssignmentMetadataKey,
        _zero,
        msgspec.structs.asdict,
        lambda body: records.ConsumerGroupTargetAssignmentMetadataValue(body.assignment_epoch),
    ),
    Kind(
        7,
        records.ConsumerGroupTargetAssignmentMemberKey,
        _zero,
        lambda value: {"topic_partitions": _topics_body(value.topic_partitions)},
        lambda body: records.ConsumerGroupTargetAssignmentMemberValue(_topics(body.topic_partitions)),
    ),
    Kind(
        8,
        records.ConsumerGroupCurrentMemberAssignmentKey,
        _zero,
        _current_assignment_body,
        _current_assignment,
    ),
    Kind(
        10,
        records.ShareGroupMemberMetadataKey,
        _zero,
        msgspec.structs.asdict,
        lambda body: records.ShareGroupMemberMetadataValue(**body._asdict()),
    ),
    Kind(
        11,
        records.ShareGroupMetadataKey,
        _zero,
        msgspec.structs.asdict,
        lambda body: records.ShareGroupMetadataValue(**body._asdict()),
    ),
    Kind(
        12,
        records.ShareGroupTargetAssignmentMetadataKey,
        _zero,
        lambda value: {
            "assignment_epoch": value.assignment_epoch,
            "assignment_timestamp": value.assignment_timestamp_ms,
        },
        lambda body: records.ShareGroupTargetAssignmentMetadataValue(*body),
    ),
    Kind(
        13,
        records.ShareGroupTargetAssignmentMemberKey,
        _zero,
        lambda value: {"topic_partitions": _topics_body(value.topic_partitions)},
        lambda body: records.ShareGroupTargetAssignmentMemberValue(_topics(body.topic_partitions)),
    ),
    Kind(
        14,
        records.ShareGroupCurrentMemberAssignmentKey,
        _zero,
        _share_assignment_body,
        _share_assignment,
    ),
    Kind(15, records.ShareGroupStatePartitionMetadataKey, _zero, _share_state_body, _share_state),
    Kind(
        16,
        records.ConsumerGroupRegularExpressionKey,
        _zero,
        lambda value: {"topics": value.topics, "version": value.version, "timestamp": value.timestamp_ms},
        lambda body: records.ConsumerGroupRegularExpressionValue(
            topics=body.topics, version=body.version, timestamp_ms=body.timestamp
        ),
    ),
    Kind(
        17,
        records.StreamsGroupMetadataKey,
        _zero,
        streams_record_bodies.group_body,
        streams_record_bodies.group_value,
    ),
    Kind(
        19,
        records.StreamsGroupMemberMetadataKey,
        _zero,
        streams_record_bodies.member_body,
        streams_record_bodies.member_value,
    ),
    Kind(
        20,
        records.StreamsGroupTargetAssignmentMetadataKey,
        _zero,
        lambda value: {
            "assignment_epoch": value.assignment_epoch,
            "assignment_timestamp": value.assignment_timestamp_ms,
        },
        lambda body: records.StreamsGroupTargetAssignmentMetadataValue(*body),
    ),
    Kind(
        21,
        records.StreamsGroupTargetAssignmentMemberKey,
        _zero,
        streams_record_bodies.target_body,
        streams_record_bodies.target_value,
    ),
    Kind(
        22,
        records.StreamsGroupCurrentMemberAssignmentKey,
        _zero,
        streams_record_bodies.current_body,
        streams_record_bodies.current_value,
    ),
    Kind(
        23,
        records.StreamsGroupTopologyKey,
        _zero,
        streams_record_bodies.topology_body,
        streams_record_bodies.topology_value,
    ),
)
KIND_OF_KEY: Final = {kind.key: kind for kind in KINDS}
KIND_OF_TYPE: Final = {kind.record_type: kind for kind in KINDS} | {0: KINDS[0]}


def encode_offset_commit(
    key: OffsetCommitKey, value: OffsetCommitValue | None
) -> tuple[bytes, bytes | None] | None:
    """None when there is an expire timestamp, or something does not fit."""
    try:
        if value is None:
            return _encode_key(key), None
        if value.expire_timestamp_ms is None:
            return _encode_key(key), _encode_value(value)
    except error:
        pass
    return None


def _encode_key(key: OffsetCommitKey) -> bytes:
    group = key.group_id.encode()
    topic = key.topic.encode()
    return b"".join(
        (
            _KEY_START.pack(OFFSET_COMMIT, len(group)),
            group,
            _I16.pack(len(topic)),
            topic,
            _I32.pack(key.partition),
        )
    )


def _encode_value(value: OffsetCommitValue) -> bytes:
    metadata = value.metadata.encode()
    topic_id = value.topic_id
    return b"".join(
        (
            _VALUE_4_FIXED.pack(4, value.offset, value.leader_epoch),
            unsigned_varint(len(metadata) + 1),
            metadata,
            _I64.pack(value.commit_timestamp_ms),
            b"\0" if topic_id is None else _TOPIC_ID_TAG + topic_id.bytes,
        )
    )


def decode_offset_commit(key: bytes | memoryview, value: bytes | memoryview | None) -> GroupRecord | None:
    """None for any other record, or one that is damaged."""
    try:
        record_type, group_size = _KEY_START.unpack_from(key)
        if record_type != OFFSET_COMMIT or group_size < 0:
            return None
        group_end = 4 + group_size
        (topic_size,) = _I16.unpack_from(key, group_end)
        if topic_size < 0:
            return None
        topic_end = group_end + 2 + topic_size
        (partition,) = _I32.unpack_from(key, topic_end)
        commit_key = OffsetCommitKey(
            str(key[4:group_end], "utf-8"), str(key[group_end + 2 : topic_end], "utf-8"), partition
        )
        if value is None:
            return GroupRecord(commit_key, None)
        commit_value = _decode_value(value)
        return None if commit_value is None else GroupRecord(commit_key, commit_value)
    except (error, UnicodeDecodeError):
        return None


def _decode_value(value: bytes | memoryview) -> OffsetCommitValue | None:
    """None for a version or form that is left to the slow path."""
    topic_id = None
    version, offset, leader_epoch, size = _VALUE_4_START.unpack_from(value)
    if version == 4 and 0 < size < 0x80:
        start, end = 15, 14 + size
        commit_timestamp_ms, tags = _VALUE_4_END.unpack_from(value, end)
        if tags:
            raw = bytes(value[end + 8 : end + 27])
            if len(raw) != 19 or raw[:3] != _TOPIC_ID_TAG:
                return None
            topic_id = topic_uuid(raw[3:])
    elif version == 3:
        version, offset, leader_epoch, size = _VALUE_3_START.unpack_from(value)
        if size < 0:
            return None
        start, end = 16, 16 + size
        (commit_timestamp_ms,) = _I64.unpack_from(value, end)
    else:
        return None
    return OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=str(value[start:end], "utf-8"),
        commit_timestamp_ms=commit_timestamp_ms,
        topic_id=topic_id,
    )


class UnreadableRecord(Exception):
    """A record that is not what its version says, or of an unknown type: it says which, and of what group if
    that could be read."""

    def __init__(
        self,
        why: str,
        *,
        record_type: int | None = None,
        version: int | None = None,
        group: str | None = None,
    ) -> None:
        name = SCHEMAS[record_type].name if record_type in SCHEMAS else f"type {record_type}"
        what = "a record without a type" if record_type is None else f"a record {name}"
        if version is not None:
            what += f", version {version}"
        if group is not None:
            what += f", of group {group!r}"
        super().__init__(f"{what}: {why}")
        self.record_type = record_type
        self.version = version
        self.group = group

    @property
    def is_of_unknown_type(self) -> bool:
        """Of a newer broker, or a streams group: Kafka skips such records
        (``UnknownRecordTypeException``), and fails to load a partition with any other unreadable one."""
        return self.record_type is not None and self.record_type not in SCHEMAS


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value as Kafka 4.1 writes them.

    Raises:
        InvariantError: something does not fit its field.
    """
    if type(record.key) is OffsetCommitKey:
        assert record.value is None or type(record.value) is OffsetCommitValue
        encoded = encode_offset_commit(record.key, record.value)
        if encoded is not None:
            return encoded
    return encode_by_schema(record)


def decode_record(key: bytes | memoryview | None, value: bytes | memoryview | None) -> GroupRecord:
    """Every version that Kafka has ever written (3.0 and later).

    Raises:
        UnreadableRecord: see there.
    """
    if key is not None:
        record = decode_offset_commit(key, value)
        if record is not None:
            return record
    return decode_by_schema(key, value)


def encode_by_schema(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """``encode_record`` by the schemas alone."""
    kind = KIND_OF_KEY[type(record.key)]
    names = (field.name for field in SCHEMAS[kind.record_type].key)
    key = bytearray(_I16.pack(kind.record_type))
    key_writer(kind.record_type)(key, dict(zip(names, msgspec.structs.astuple(record.key), strict=True)))
    if record.value is None:
        return bytes(key), None
    version = kind.version(record.value)
    value = bytearray(_I16.pack(version))
    value_writer(kind.record_type, version)(value, kind.body(record.value))
    return bytes(key), bytes(value)


def decode_by_schema(key: bytes | memoryview | None, value: bytes | memoryview | None) -> GroupRecord:
    """``decode_record`` by the schemas alone."""
    record_type, key_body = read_key(key)
    kind = KIND_OF_TYPE[record_type]
    decoded = kind.key(*key_body)
    if value is None:
        return GroupRecord(decoded, None)
    _, value_body = read_value(record_type, value, group=key_body[0])
    return GroupRecord(decoded, kind.value(value_body))


def read_key(key: bytes | memoryview | None) -> tuple[int, Any]:
    """A key's type and its body, a named tuple of the names in ``SCHEMAS``; its first field is the group.

    Raises:
        UnreadableRecord: see there.
    """
    if key is None or len(key) < 2:
        raise UnreadableRecord("it has no key" if key is None else f"its key has {len(key)} bytes")
    (record_type,) = _I16.unpack_from(key)
    if record_type not in SCHEMAS:
        raise UnreadableRecord("this type is not known", record_type=record_type, group=_first_string(key))
    try:
        return record_type, read_body(key_reader(record_type), key)
    except UNREADABLE as cause:
        raise UnreadableRecord(
            f"its key cannot be read: {why_unreadable(cause)}",
            record_type=record_type,
            group=_first_string(key),
        ) from cause


def read_value(record_type: int, value: bytes | memoryview, *, group: str) -> tuple[int, Any]:
    """A value's version and its body, a named tuple of those names in ``SCHEMAS`` that the version has.

    Raises:
        UnreadableRecord: see there. ``group`` is only for saying so.
    """
    if len(value) < 2:
        raise UnreadableRecord(f"its value has {len(value)} bytes", record_type=record_type, group=group)
    (version,) = _I16.unpack_from(value)
    if not 0 <= version <= SCHEMAS[record_type].newest_version:
        raise UnreadableRecord(
            "this version is not known", record_type=record_type, version=version, group=group
        )
    try:
        return version, read_body(value_reader(record_type, version), value)
    except UNREADABLE as cause:
        raise UnreadableRecord(
            f"its value cannot be read: {why_unreadable(cause)}",
            record_type=record_type,
            version=version,
            group=group,
        ) from cause


def _first_string(key: bytes | memoryview) -> str | None:
    """The group, if it can be read: the first field of every type."""
    try:
        (size,) = _I16.unpack_from(key, 2)
        if not 0 <= size <= len(key) - 4:
            return None
        return str(key[4 : 4 + size], "utf-8")
    except (error, UnicodeDecodeError):
        return None
