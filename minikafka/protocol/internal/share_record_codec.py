"""Bytes of the records of ``__share_group_state``, both ways. Kafka: ``ShareCoordinatorRecordSerde``.

The version of a key is the type of its record; keys are not flexible, values are. Names are Kafka's in snake
case, so that ``dump-log`` can show them as Kafka does.
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import Any, Final

from minikafka.protocol.internal.group_record_codec import (
    UNREADABLE,
    Field,
    entity_schema,
    no_names,
    read_body,
    why_unreadable,
)
from minikafka.protocol.internal.share_records import (
    SharePartitionKey,
    ShareRecord,
    ShareSnapshotValue,
    ShareUpdateValue,
    StateBatch,
)
from minikafka.protocol.wire.reading import Reader, compile_reader
from minikafka.protocol.wire.writing import Writer, compile_writer

SNAPSHOT: Final = 0
UPDATE: Final = 1
TYPE_NAMES: Final = {SNAPSHOT: "ShareSnapshot", UPDATE: "ShareUpdate"}
VALUE_VERSION: Final = 0
"""The only one."""

_I16: Final = Struct(">h")
_KEY: Final = (Field("group_id", "string"), Field("topic_id", "uuid"), Field("partition", "int32"))
_STATE_BATCH: Final = (
    Field("first_offset", "int64"),
    Field("last_offset", "int64"),
    Field("delivery_state", "int8"),
    Field("delivery_count", "int16"),
)
_COUNT: Final = Field("delivery_complete_count", "int32", default=-1, tag=0)
_BATCHES: Final = Field("state_batches", _STATE_BATCH, is_array=True)
_VALUES: Final = {
    SNAPSHOT: (
        Field("snapshot_epoch", "int32"),
        Field("state_epoch", "int32"),
        Field("leader_epoch", "int32"),
        Field("start_offset", "int64"),
        _COUNT,
        Field("create_timestamp", "int64"),
        Field("write_timestamp", "int64"),
        _BATCHES,
    ),
    UPDATE: (
        Field("snapshot_epoch", "int32"),
        Field("leader_epoch", "int32"),
        Field("start_offset", "int64"),
        _COUNT,
        _BATCHES,
    ),
}


class UnreadableShareRecord(Exception):
    """A record that is not what its version says, or of a version that is not known."""

    def __init__(self, why: str, *, key_version: int | None = None) -> None:
        super().__init__(f"a record {TYPE_NAMES.get(key_version or 0, 'of the share coordinator')}: {why}")
        self.key_version = key_version

    @property
    def is_of_unknown_type(self) -> bool:
        """Of a newer broker: Kafka skips such records (``UnknownKey``)."""
        return self.key_version is not None and self.key_version not in TYPE_NAMES


def encode_record(record: ShareRecord) -> tuple[bytes, bytes | None]:
    """Key and value.

    Raises:
        InvariantError: something does not fit its field.
    """
    kind = UPDATE if isinstance(record.value, ShareUpdateValue) else SNAPSHOT
    key = bytearray(_I16.pack(kind))
    _key_writer()(key, record.key._asdict())
    if record.value is None:
        return bytes(key), None
    value = bytearray(_I16.pack(VALUE_VERSION))
    body = {name: getattr(record.value, name) for name in record.value.__struct_fields__}
    body["state_batches"] = [batch._asdict() for batch in record.value.state_batches]
    _value_writer(kind)(value, body)
    return bytes(key), bytes(value)


def decode_record(key: bytes | memoryview | None, value: bytes | memoryview | None) -> ShareRecord:
    """Raises:
    UnreadableShareRecord: see there.
    """
    kind, of = read_key(key)
    decoded = SharePartitionKey(of.group_id, of.topic_id, of.partition)
    if value is None:
        return ShareRecord(decoded, None)
    body = read_value(kind, value)
    batches = tuple(StateBatch(*batch) for batch in body.state_batches)
    if kind == UPDATE:
        return ShareRecord(
            decoded,
            ShareUpdateValue(
                snapshot_epoch=body.snapshot_epoch,
                leader_epoch=body.leader_epoch,
                start_offset=body.start_offset,
                delivery_complete_count=body.delivery_complete_count,
                state_batches=batches,
            ),
        )
    return ShareRecord(
        decoded,
        ShareSnapshotValue(
            snapshot_epoch=body.snapshot_epoch,
            state_epoch=body.state_epoch,
            leader_epoch=body.leader_epoch,
            start_offset=body.start_offset,
            delivery_complete_count=body.delivery_complete_count,
            create_timestamp=body.create_timestamp,
            write_timestamp=body.write_timestamp,
            state_batches=batches,
        ),
    )


def read_key(key: bytes | memoryview | None) -> tuple[int, Any]:
    """A key's type and its body, a named tuple of ``group_id``, ``topic_id`` and ``partition``.

    Raises:
        UnreadableShareRecord: see there.
    """
    if key is None or len(key) < 2:
        raise UnreadableShareRecord("it has no key" if key is None else f"its key has {len(key)} bytes")
    (kind,) = _I16.unpack_from(key)
    if kind not in TYPE_NAMES:
        raise UnreadableShareRecord(f"key version {kind} is not known", key_version=kind)
    try:
        return kind, read_body(_key_reader(), key)
    except UNREADABLE as cause:
        raise UnreadableShareRecord(
            f"its key cannot be read: {why_unreadable(cause)}", key_version=kind
        ) from cause


def read_value(kind: int, value: bytes | memoryview) -> Any:
    """A value's body, a named tuple of the names above.

    Raises:
        UnreadableShareRecord: see there.
    """
    if len(value) < 2:
        raise UnreadableShareRecord(f"its value has {len(value)} bytes", key_version=kind)
    (version,) = _I16.unpack_from(value)
    if version != VALUE_VERSION:
        raise UnreadableShareRecord(f"value version {version} is not known", key_version=kind)
    try:
        return read_body(_value_reader(kind), value)
    except UNREADABLE as cause:
        raise UnreadableShareRecord(
            f"its value cannot be read: {why_unreadable(cause)}", key_version=kind
        ) from cause


@cache
def _key_reader() -> Reader:
    return compile_reader(entity_schema("ShareSnapshotKey", _KEY, 0, flexible=False))


@cache
def _key_writer() -> Writer:
    return compile_writer(entity_schema("ShareSnapshotKey", _KEY, 0, flexible=False), no_names)


@cache
def _value_reader(kind: int) -> Reader:
    return compile_reader(entity_schema(f"{TYPE_NAMES[kind]}Value", _VALUES[kind], 0, flexible=True))


@cache
def _value_writer(kind: int) -> Writer:
    schema = entity_schema(f"{TYPE_NAMES[kind]}Value", _VALUES[kind], 0, flexible=True)
    return compile_writer(schema, no_names)
