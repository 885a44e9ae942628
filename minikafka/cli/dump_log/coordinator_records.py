"""``dump-log --offsets-decoder`` and ``--transaction-log-decoder``: the records of ``__consumer_offsets`` and
``__transaction_state`` in words.

Kafka: ``DumpLogSegments.OffsetsMessageParser``, ``TransactionLogMessageParser``. Keys and values have its
JSON: types and versions are strings, fields have the names of Kafka's schemas, bytes are base64, a tagged
field that has its default is left out. Of a group of consumers, subscriptions and assignments are decoded
too, where they can be.
"""

from __future__ import annotations

import base64
import struct
from functools import cache
from typing import Any, Final
from uuid import UUID

from minikafka.errors import PeerProtocolError
from minikafka.log.files.checkpoint import encode_uuid
from minikafka.protocol.internal import group_record_codec, transaction_record_codec
from minikafka.protocol.internal.group_record_schemas import SCHEMAS, Field, entity_schema
from minikafka.protocol.wire.reading import ELEMENTS_MAX, MALFORMED, Reader, compile_reader

_GROUP_METADATA = 2
_CONSUMER_PROTOCOL_TYPE = "consumer"
_CONSUMER_PROTOCOL_VERSION_MAX = 3
_TOPIC_PARTITIONS = (Field("topic", "string"), Field("partitions", "int32", is_array=True))
_SUBSCRIPTION: Final = (
    Field("topics", "string", is_array=True),
    Field("user_data", "bytes", nullable=True),
    Field("owned_partitions", _TOPIC_PARTITIONS, is_array=True, since=1),
    Field("generation_id", "int32", since=2),
    Field("rack_id", "string", nullable=True, since=3),
)
"""Kafka: ``ConsumerProtocolSubscription.json``."""
_ASSIGNMENT: Final = (
    Field("assigned_partitions", _TOPIC_PARTITIONS, is_array=True),
    Field("user_data", "bytes", nullable=True),
)
"""Kafka: ``ConsumerProtocolAssignment.json``."""
_ZERO_UUID = UUID(int=0)


def decoded_group_record(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """``key`` and ``value`` as objects; the value of a tombstone is None.

    Raises:
        UnreadableRecord: the record cannot be decoded, and why.
    """
    record_type, body = group_record_codec.read_key(key)
    item: dict[str, Any] = {
        "key": {"type": str(record_type), "data": _json_of(SCHEMAS[record_type].key, body)},
        "value": None,
    }
    if value is None:
        return item
    version, value_body = group_record_codec.read_value(record_type, value, group=body[0])
    data = _json_of(SCHEMAS[record_type].value, value_body)
    if record_type == _GROUP_METADATA and data["protocolType"] == _CONSUMER_PROTOCOL_TYPE:
        for member, shown in zip(value_body.members, data["members"], strict=True):
            for name, fields in (("subscription", _SUBSCRIPTION), ("assignment", _ASSIGNMENT)):
                shown[name] = _consumer_protocol(fields, getattr(member, name)) or shown[name]
    item["value"] = {"version": str(version), "data": data}
    return item


def _consumer_protocol(fields: tuple[Field, ...], data: bytes) -> dict[str, Any] | None:
    """None when it is something else: nothing obliges a member to send what consumers send."""
    try:
        (version,) = struct.unpack_from(">h", data)
        if not 0 <= version <= _CONSUMER_PROTOCOL_VERSION_MAX:
            return None
        body, _ = _consumer_protocol_reader(fields, version)(memoryview(data), 2, [ELEMENTS_MAX])
    except (PeerProtocolError, *MALFORMED):
        return None
    return _json_of(fields, body)


@cache
def _consumer_protocol_reader(fields: tuple[Field, ...], version: int) -> Reader:
    return compile_reader(entity_schema("ConsumerProtocol", fields, version, flexible=False))


def _json_of(fields: tuple[Field, ...], body: Any) -> dict[str, Any]:
    """Of a named tuple of some version: a field that the version lacks is left out."""
    shown = {}
    for field in fields:
        if not hasattr(body, field.name):
            continue
        value = getattr(body, field.name)
        if field.tag is None or value != field.default:
            first, *others = field.name.split("_")
            name = first + "".join(map(str.capitalize, others))
            shown[name] = (
                [_json_value(field, each) for each in value] if field.is_array else _json_value(field, value)
            )
    return shown


def _json_value(field: Field, value: Any) -> Any:
    if isinstance(field.kafka_type, tuple):
        return None if value is None else _json_of(field.kafka_type, value)
    if field.kafka_type == "uuid":
        return encode_uuid(value or _ZERO_UUID)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value


_TRANSACTION_FIELDS: Final = (
    ("producerId", "producer_id", None),
    ("previousProducerId", "previous_producer_id", -1),
    ("nextProducerId", "next_producer_id", -1),
    ("producerEpoch", "producer_epoch", None),
    ("transactionTimeoutMs", "transaction_timeout_ms", None),
    ("transactionStatus", "transaction_status", None),
    ("transactionPartitions", "transaction_partitions", None),
    ("transactionLastUpdateTimestampMs", "transaction_last_update_timestamp_ms", None),
    ("transactionStartTimestampMs", "transaction_start_timestamp_ms", None),
    ("clientTransactionVersion", "client_transaction_version", 0),
)
"""Kafka's name and order, ours, and the default of a tagged field."""


def decoded_transaction_record(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """``key`` and ``value`` as objects; the value of a tombstone is None.

    Raises:
        UnreadableTransactionRecord: the record cannot be decoded, and why.
    """
    transactional_id = transaction_record_codec.read_key(key).transactional_id
    item: dict[str, Any] = {
        "key": {
            "type": str(transaction_record_codec.KEY_VERSION),
            "data": {"transactionalId": transactional_id},
        },
        "value": None,
    }
    if value is not None:
        version, body = transaction_record_codec.read_value(value, transactional_id=transactional_id)
        item["value"] = {"version": str(version), "data": _transaction_data(body)}
    return item


def _transaction_data(body: Any) -> dict[str, Any]:
    shown = {}
    for name, attribute, default in _TRANSACTION_FIELDS:
        if default is not None and getattr(body, attribute, default) == default:
            continue
        value = getattr(body, attribute)
        if attribute == "transaction_partitions" and value is not None:
            value = [{"topic": each.topic, "partitionIds": list(each.partition_ids)} for each in value]
        shown[name] = value
    return shown
