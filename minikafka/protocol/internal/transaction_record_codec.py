"""The records of ``__transaction_state``: what they say, and their bytes. Kafka: ``TransactionLog`` of 4.1.

Keys have version 0; values version 0, which is not flexible, or 1. A topic's partitions are written in
ascending order, so that equal records are equal bytes. Names are Kafka's in snake case, so that ``dump-log``
can show them as Kafka does. Tagged fields that Kafka has added since (KIP-939) are skipped, as KIP-915 means
them to be.

Where it differs: Kafka puts U+FFFD where a string is not UTF-8; here the record is unreadable, because one
name must not become another.

**What they say**, as keys and values of Kafka's names. Kafka:
``transaction-coordinator/src/main/resources/common/message/*.json``, ``TransactionLog``. A record is a key
and a value, or a key and None: a tombstone. Bytes: ``transaction_record_codec``. The last epoch of a producer
(KIP-360) is not in the log.
"""

from __future__ import annotations

from functools import cache
from itertools import groupby
from struct import Struct
from typing import Any, Final

import msgspec

from minikafka.protocol.internal.group_record_codec import (
    UNREADABLE,
    Field,
    entity_schema,
    no_names,
    read_body,
    why_unreadable,
)
from minikafka.protocol.wire.reading import Reader, compile_reader
from minikafka.protocol.wire.writing import Writer, compile_writer
from minikafka.types import NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

NEWEST_VALUE_VERSION: Final = 1
"""Flexible (KIP-915), and with KIP-890's producer ids. Written when ``transaction.version`` is 1 or more."""

KEY_VERSION: Final = 0
"""Also the type of the record (``CoordinatorRecordType.TRANSACTION_LOG``)."""

STATUS_EMPTY: Final = 0
"""``TransactionState.EMPTY``: written with null instead of partitions."""

_I16: Final = Struct(">h")
_KEY: Final = (Field("transactional_id", "string"),)
_PARTITIONS: Final = (Field("topic", "string"), Field("partition_ids", "int32", is_array=True))
_VALUE: Final = (
    Field("producer_id", "int64"),
    Field("producer_epoch", "int16"),
    Field("transaction_timeout_ms", "int32"),
    Field("transaction_status", "int8"),
    Field("transaction_partitions", _PARTITIONS, is_array=True, nullable=True),
    Field("transaction_last_update_timestamp_ms", "int64"),
    Field("transaction_start_timestamp_ms", "int64"),
    Field("previous_producer_id", "int64", default=-1, tag=0, since=1),
    Field("next_producer_id", "int64", default=-1, tag=1, since=1),
    Field("client_transaction_version", "int16", default=0, tag=2, since=1),
)

_TAGGED: Final = tuple(field.name for field in _VALUE if field.tag is not None)


class TransactionLogKey(msgspec.Struct, frozen=True):
    transactional_id: str


class TransactionLogValue(msgspec.Struct, frozen=True, kw_only=True):
    """A state of a transactional id. Times are milliseconds since the Unix epoch, or -1."""

    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    """As all other fields with a default, not in version 0."""
    next_producer_id: int = NO_PRODUCER_ID
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: int
    """Kafka's ``TransactionState.id``."""
    transaction_partitions: frozenset[TopicPartition]
    transaction_last_update_timestamp_ms: int
    transaction_start_timestamp_ms: int = NO_TIMESTAMP
    client_transaction_version: int = 0
    version: int = NEWEST_VALUE_VERSION
    """Of the format, when it is written."""


class TransactionRecord(msgspec.Struct, frozen=True):
    """One record of ``__transaction_state``. A value of None is a tombstone."""

    key: TransactionLogKey
    value: TransactionLogValue | None


class UnreadableTransactionRecord(Exception):
    """A record that is not what its version says, or of a version that is not known."""

    def __init__(
        self, why: str, *, key_version: int | None = None, transactional_id: str | None = None
    ) -> None:
        of = "" if transactional_id is None else f" of transactional id {transactional_id!r}"
        super().__init__(f"a record TransactionLog{of}: {why}")
        self.key_version = key_version
        self.transactional_id = transactional_id

    @property
    def is_of_unknown_type(self) -> bool:
        """Of a newer broker: Kafka skips such records (``UnknownKey``)."""
        return self.key_version is not None and self.key_version != KEY_VERSION


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Key and value, the value in the version that it names.

    Raises:
        InvariantError: something does not fit its field.
    """
    key = bytearray(_I16.pack(KEY_VERSION))
    _key_writer()(key, {"transactional_id": record.key.transactional_id})
    if record.value is None:
        return bytes(key), None
    value = bytearray(_I16.pack(record.value.version))
    _value_writer(record.value.version)(value, _body(record.value))
    return bytes(key), bytes(value)


def decode_record(key: bytes | memoryview | None, value: bytes | memoryview | None) -> TransactionRecord:
    """Of every version.

    Raises:
        UnreadableTransactionRecord: see there.
    """
    transactional_id = read_key(key).transactional_id
    decoded = TransactionLogKey(transactional_id)
    if value is None:
        return TransactionRecord(decoded, None)
    version, body = read_value(value, transactional_id=transactional_id)
    return TransactionRecord(decoded, _value(version, body))


def read_key(key: bytes | memoryview | None) -> Any:
    """A key's body, a named tuple of ``transactional_id``.

    Raises:
        UnreadableTransactionRecord: see there.
    """
    if key is None or len(key) < 2:
        raise UnreadableTransactionRecord("it has no key" if key is None else f"its key has {len(key)} bytes")
    (version,) = _I16.unpack_from(key)
    if version != KEY_VERSION:
        raise UnreadableTransactionRecord(f"key version {version} is not known", key_version=version)
    try:
        return read_body(_key_reader(), key)
    except UNREADABLE as cause:
        raise UnreadableTransactionRecord(
            f"its key cannot be read: {why_unreadable(cause)}", key_version=version
        ) from cause


def read_value(value: bytes | memoryview, *, transactional_id: str) -> tuple[int, Any]:
    """A value's version and its body, a named tuple of those names above that the version has.

    Raises:
        UnreadableTransactionRecord: see there. ``transactional_id`` is only for saying so.
    """
    if len(value) < 2:
        raise UnreadableTransactionRecord(
            f"its value has {len(value)} bytes", transactional_id=transactional_id
        )
    (version,) = _I16.unpack_from(value)
    if not 0 <= version <= NEWEST_VALUE_VERSION:
        raise UnreadableTransactionRecord(
            f"value version {version} is not known", transactional_id=transactional_id
        )
    try:
        return version, read_body(_value_reader(version), value)
    except UNREADABLE as cause:
        raise UnreadableTransactionRecord(
            f"its value, version {version}, cannot be read: {why_unreadable(cause)}",
            transactional_id=transactional_id,
        ) from cause


def _body(value: TransactionLogValue) -> dict[str, Any]:
    by_topic = groupby(sorted(value.transaction_partitions), key=lambda each: each.topic)
    partitions = [
        {"topic": topic, "partition_ids": [each.partition for each in of_topic]}
        for topic, of_topic in by_topic
    ]
    body: dict[str, Any] = {
        "producer_id": value.producer_id,
        "producer_epoch": value.producer_epoch,
        "transaction_timeout_ms": value.transaction_timeout_ms,
        "transaction_status": value.transaction_status,
        "transaction_partitions": None if value.transaction_status == STATUS_EMPTY else partitions,
        "transaction_last_update_timestamp_ms": value.transaction_last_update_timestamp_ms,
        "transaction_start_timestamp_ms": value.transaction_start_timestamp_ms,
    }
    if value.version == 0:
        return body
    return body | {
        "previous_producer_id": value.previous_producer_id,
        "next_producer_id": value.next_producer_id,
        "client_transaction_version": value.client_transaction_version,
    }


def _value(version: int, body: Any) -> TransactionLogValue:
    tagged = {name: getattr(body, name) for name in _TAGGED} if version else {}
    return TransactionLogValue(
        producer_id=body.producer_id,
        producer_epoch=body.producer_epoch,
        transaction_timeout_ms=body.transaction_timeout_ms,
        transaction_status=body.transaction_status,
        transaction_partitions=frozenset(
            TopicPartition(of_topic.topic, partition)
            for of_topic in body.transaction_partitions or ()
            for partition in of_topic.partition_ids
        ),
        transaction_last_update_timestamp_ms=body.transaction_last_update_timestamp_ms,
        transaction_start_timestamp_ms=body.transaction_start_timestamp_ms,
        version=version,
        **tagged,
    )


@cache
def _key_reader() -> Reader:
    return compile_reader(entity_schema("TransactionLogKey", _KEY, KEY_VERSION, flexible=False))


@cache
def _key_writer() -> Writer:
    return compile_writer(entity_schema("TransactionLogKey", _KEY, KEY_VERSION, flexible=False), no_names)


@cache
def _value_reader(version: int) -> Reader:
    return compile_reader(entity_schema("TransactionLogValue", _VALUE, version, flexible=version > 0))


@cache
def _value_writer(version: int) -> Writer:
    schema = entity_schema("TransactionLogValue", _VALUE, version, flexible=version > 0)
    return compile_writer(schema, no_names)
