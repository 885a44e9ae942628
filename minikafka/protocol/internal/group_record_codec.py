"""Bytes of the records of ``__consumer_offsets``, both ways. Kafka: ``CoordinatorRecordSerde``.

All versions of all values are read; ``group_record_bodies`` says which are written. Committed offsets take a
short road (``offset_commit_codec``), the others go by the schemas.

Where it differs: Kafka puts U+FFFD where a string is not UTF-8; here the record is unreadable, because one
name must not become another. A record of type 0 may have a value of any version, as in Kafka 3: Kafka 4
reads only version 0.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Any, Final

import msgspec

from minikafka.protocol.internal.group_record_bodies import KIND_OF_KEY, KIND_OF_TYPE
from minikafka.protocol.internal.group_record_schemas import (
    SCHEMAS,
    key_reader,
    key_writer,
    value_reader,
    value_writer,
)
from minikafka.protocol.internal.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from minikafka.protocol.internal.offset_commit_codec import decode_offset_commit, encode_offset_commit
from minikafka.protocol.internal.record_reading import UNREADABLE, read_body, why_unreadable

_I16: Final = Struct(">h")


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
        """Of a newer broker, a share or a streams group: Kafka skips such records
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
    return encode_generally(record)


def decode_record(key: bytes | memoryview | None, value: bytes | memoryview | None) -> GroupRecord:
    """Every version that Kafka has ever written (3.0 and later).

    Raises:
        UnreadableRecord: see there.
    """
    if key is not None:
        record = decode_offset_commit(key, value)
        if record is not None:
            return record
    return decode_generally(key, value)


def encode_generally(record: GroupRecord) -> tuple[bytes, bytes | None]:
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


def decode_generally(key: bytes | memoryview | None, value: bytes | memoryview | None) -> GroupRecord:
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
