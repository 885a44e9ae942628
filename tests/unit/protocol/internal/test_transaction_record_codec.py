"""The records of ``__transaction_state`` have Kafka's bytes, and damaged ones are named, never believed.

The golden bytes follow Kafka 4.1's schemas (``transaction-coordinator/src/main/resources/common/message``).
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.errors import InvariantError
from minikafka.protocol.internal.transaction_record_codec import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionRecord,
    UnreadableTransactionRecord,
    decode_record,
    encode_record,
    read_value,
)
from minikafka.types import TopicPartition

KEY = TransactionLogKey("pay")
KEY_BYTES = "0000 0003 706179"
ONGOING = TransactionLogValue(
    producer_id=7,
    previous_producer_id=6,
    producer_epoch=3,
    transaction_timeout_ms=60_000,
    transaction_status=1,
    transaction_partitions=frozenset(
        {TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("a", 0)}
    ),
    transaction_last_update_timestamp_ms=1000,
    transaction_start_timestamp_ms=900,
    client_transaction_version=2,
)
EMPTY = TransactionLogValue(
    producer_id=7,
    producer_epoch=0,
    transaction_timeout_ms=60_000,
    transaction_status=0,
    transaction_partitions=frozenset(),
    transaction_last_update_timestamp_ms=1000,
)
GOLDEN = {
    "version 1": (
        ONGOING,
        "0001 0000000000000007 0003 0000ea60 01"
        " 03 02 61 03 00000000 00000002 00 02 62 02 00000001 00"
        " 00000000000003e8 0000000000000384 02 00 08 0000000000000006 02 02 0002",
    ),
    "the next producer id": (
        TransactionLogValue(
            producer_id=7,
            next_producer_id=9,
            producer_epoch=32_767,
            transaction_timeout_ms=1,
            transaction_status=2,
            transaction_partitions=frozenset(),
            transaction_last_update_timestamp_ms=1,
            transaction_start_timestamp_ms=1,
        ),
        "0001 0000000000000007 7fff 00000001 02 01 0000000000000001 0000000000000001"
        " 01 01 08 0000000000000009",
    ),
    "an empty one": (
        EMPTY,
        "0001 0000000000000007 0000 0000ea60 00 00 00000000000003e8 ffffffffffffffff 00",
    ),
    "version 0": (
        TransactionLogValue(
            producer_id=7,
            producer_epoch=3,
            transaction_timeout_ms=60_000,
            transaction_status=4,
            transaction_partitions=frozenset({TopicPartition("a", 2)}),
            transaction_last_update_timestamp_ms=1000,
            transaction_start_timestamp_ms=900,
            version=0,
        ),
        "0000 0000000000000007 0003 0000ea60 04 00000001 0001 61 00000001 00000002"
        " 00000000000003e8 0000000000000384",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_bytes_are_kafkas(name: str) -> None:
    value, value_bytes = GOLDEN[name]
    record = TransactionRecord(KEY, value)
    key, encoded = encode_record(record)
    assert key.hex() == KEY_BYTES.replace(" ", "")
    assert encoded is not None and encoded.hex() == value_bytes.replace(" ", "")
    assert decode_record(memoryview(key), memoryview(encoded)) == record


def test_a_tombstone_has_no_value() -> None:
    record = TransactionRecord(KEY, None)
    assert encode_record(record) == (bytes.fromhex(KEY_BYTES), None)
    assert decode_record(*encode_record(record)) == record


def test_a_field_of_a_newer_kafka_is_skipped() -> None:
    """KIP-939 has the next producer's epoch in tag 3."""
    _, encoded = encode_record(TransactionRecord(KEY, EMPTY))
    assert encoded is not None
    newer = encoded[:-1] + bytes.fromhex("01 03 02 0005")
    assert decode_record(bytes.fromhex(KEY_BYTES), newer) == TransactionRecord(KEY, EMPTY)


def test_kafkas_names_are_shown() -> None:
    _, encoded = encode_record(TransactionRecord(KEY, ONGOING))
    assert encoded is not None
    version, body = read_value(encoded, transactional_id="pay")
    assert version == 1
    assert body.transaction_partitions[0].topic == "a"
    assert (body.producer_id, body.previous_producer_id, body.next_producer_id) == (7, 6, -1)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (None, None, "it has no key"),
        ("00", None, "its key has 1 bytes"),
        ("0000 0003 7061", None, "its key cannot be read: a string of 3 bytes where 2 remain"),
        ("0000 0001 ff", None, "its key cannot be read: a string is not UTF-8"),
        (KEY_BYTES, "00", "'pay': its value has 1 bytes"),
        (KEY_BYTES, "0002 00", "'pay': value version 2 is not known"),
        (KEY_BYTES, "0000 0000", "'pay': its value, version 0, cannot be read: it ends too early"),
    ],
)
def test_damage_is_named(key: str | None, value: str | None, why: str) -> None:
    with pytest.raises(UnreadableTransactionRecord, match=why) as raised:
        decode_record(
            None if key is None else bytes.fromhex(key), None if value is None else bytes.fromhex(value)
        )
    assert not raised.value.is_of_unknown_type


def test_a_record_of_another_type_says_so() -> None:
    with pytest.raises(UnreadableTransactionRecord, match="key version 1 is not known") as raised:
        decode_record(bytes.fromhex("0001 0003 706179"), None)
    assert raised.value.is_of_unknown_type


def test_what_does_not_fit_is_not_written() -> None:
    with pytest.raises(InvariantError):
        encode_record(TransactionRecord(TransactionLogKey("x" * 40_000), None))


values = st.builds(
    TransactionLogValue,
    producer_id=st.integers(0, 2**63 - 1),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    producer_epoch=st.integers(-1, 32_767),
    transaction_timeout_ms=st.integers(1, 2**31 - 1),
    transaction_status=st.integers(1, 5),
    transaction_partitions=st.frozensets(
        st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 99)), max_size=5
    ),
    transaction_last_update_timestamp_ms=st.integers(0, 2**63 - 1),
    transaction_start_timestamp_ms=st.integers(-1, 2**63 - 1),
    client_transaction_version=st.integers(0, 2),
)


@given(st.text(max_size=9), values, st.data())
def test_what_is_written_is_read_and_damage_never_crashes(
    transactional_id: str, value: TransactionLogValue, data: st.DataObject
) -> None:
    record = TransactionRecord(TransactionLogKey(transactional_id), value)
    key, encoded = encode_record(record)
    assert encoded is not None
    assert decode_record(key, encoded) == record
    position = data.draw(st.integers(0, len(encoded) - 1))
    damaged = bytearray(encoded)
    damaged[position] ^= data.draw(st.integers(1, 255))
    for bad in (bytes(damaged), encoded[:position]):
        try:
            decode_record(key, bad)
        except UnreadableTransactionRecord as error:
            assert repr(transactional_id) in str(error)
