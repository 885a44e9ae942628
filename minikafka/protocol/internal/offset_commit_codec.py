"""The short road of a committed offset's record: the bytes that ``group_record_codec`` gives by the schemas.

A partition of ``__consumer_offsets`` holds hundreds of thousands of these records, and all are read before
its groups are served. Taken are the forms that are written today, versions 3 and 4 of the value; everything
else, damage too, is left to the general road, which says what is wrong.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from minikafka.protocol.internal.group_record_bodies import OFFSET_COMMIT
from minikafka.protocol.internal.group_records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from minikafka.protocol.wire.reading import topic_uuid
from minikafka.protocol.wire.writing import unsigned_varint

_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")
_KEY_START: Final = Struct(">hh")
_VALUE_3_START: Final = Struct(">hqih")
_VALUE_4_START: Final = Struct(">hqiB")
_VALUE_4_END: Final = Struct(">qB")
_VALUE_4_FIXED: Final = Struct(">hqi")
_TOPIC_ID_TAG: Final = b"\x01\x00\x10"
"""One tagged field: tag 0, 16 bytes."""


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
    """None for a version or form that is left to the general road."""
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
