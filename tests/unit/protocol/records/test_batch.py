"""Batch headers: read as the reference clients write them, stamped without touching the CRC, refused when
they lie."""

from __future__ import annotations

import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from minikafka.errors import ErrorCode
from minikafka.protocol.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    CorruptBatch,
    TimestampType,
    crc_is_valid,
    is_transactional,
    iterate_headers,
    read_header,
    rewrite,
    stamp,
)
from minikafka.protocol.records.records import Record, build_batch, iterate_records


def aiokafka_batch(count: int = 3, *, transactional: int = 0, compression: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(2, compression, transactional, 7, 1, 40, 1 << 20)
    for index in range(count):
        builder.append(index, 1000 + index, b"k", b"v" * 100, [("h", None)])
    return bytes(builder.build())


def test_the_header_of_a_batch_from_aiokafka() -> None:
    batch = aiokafka_batch(transactional=1, compression=1)
    header = read_header(batch)
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (0, 2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1002)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (
        7,
        1,
        40,
        42,
    )
    assert header.record_count == 3 and header.compression == 1
    assert header.is_transactional and not header.is_control and header.producer_id >= 0
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert header.delete_horizon_ms is None
    assert crc_is_valid(batch, 0, header)
    assert is_transactional(batch) and not is_transactional(aiokafka_batch())


def test_sequences_wrap_to_zero_and_none_stays_none() -> None:
    header = read_header(aiokafka_batch())
    assert header._replace(base_sequence=2**31 - 2, last_offset_delta=3).last_sequence == 1
    assert header._replace(base_sequence=2**31 - 1, last_offset_delta=0).last_sequence == 2**31 - 1
    assert header._replace(base_sequence=-1).last_sequence == -1


def test_a_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    header = read_header(aiokafka_batch())
    assert header._replace(attributes=0x40).delete_horizon_ms == 1000


def test_a_stamp_changes_offset_and_epoch_and_no_crc() -> None:
    batch = aiokafka_batch()
    stamped = stamp(read_header(batch), base_offset=2**40, leader_epoch=9) + batch[16:]
    header = read_header(stamped)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 9)
    assert crc_is_valid(stamped, 0, header)
    assert [record.offset for record in iterate_records(stamped)] == [2**40, 2**40 + 1, 2**40 + 2]


def test_a_rewritten_header_has_the_crc_that_readers_expect() -> None:
    prefix = b"some earlier batch"
    batch = aiokafka_batch()
    buffer = prefix + batch
    header = read_header(buffer, len(prefix))
    head = rewrite(
        buffer,
        header,
        position=len(prefix),
        base_offset=5,
        leader_epoch=3,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_timestamp=99,
        producer_id=8,
    )
    changed = head + batch[HEADER_SIZE:]
    assert DefaultRecordBatch(changed).validate_crc()
    new = read_header(changed)
    assert new.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (new.max_timestamp, new.producer_id, new.producer_epoch) == (99, 8, 1)
    assert {record.timestamp for record in iterate_records(changed)} == {99}
    back = rewrite(changed, new, timestamp_type=TimestampType.CREATE_TIME, max_timestamp=1002, producer_id=7)
    assert back[21:] == batch[21:HEADER_SIZE] and back[17:21] == batch[17:21]


def test_batches_are_walked_up_to_the_one_that_is_cut_off() -> None:
    batches = [aiokafka_batch(count) for count in (1, 2, 3)]
    buffer = b"".join(batches)
    found = list(iterate_headers(buffer))
    assert [position for position, _ in found] == [0, len(batches[0]), len(batches[0]) + len(batches[1])]
    assert [header.record_count for _, header in found] == [1, 2, 3]
    for cut in (1, 50, len(batches[2]) - 1):
        assert len(list(iterate_headers(memoryview(buffer)[:-cut]))) == 2
    assert [header.record_count for _, header in iterate_headers(buffer, len(batches[0]))] == [2, 3]


def test_one_flipped_bit_is_seen_by_the_crc_wherever_it_covers() -> None:
    batch = aiokafka_batch()
    header = read_header(batch)
    for position in (17, 21, 30, 60, HEADER_SIZE, len(batch) - 1):
        damaged = bytearray(batch)
        damaged[position] ^= 0x10
        assert not crc_is_valid(damaged, 0, header if position > 20 else read_header(damaged))
    assert not crc_is_valid(batch[:-1], 0, header)


@pytest.mark.parametrize(
    ("position", "content", "code"),
    [
        (16, b"\x01", ErrorCode.INVALID_RECORD),
        (16, b"\x03", ErrorCode.INVALID_RECORD),
        (8, struct.pack(">i", 48), ErrorCode.CORRUPT_MESSAGE),
        (8, struct.pack(">i", -1), ErrorCode.CORRUPT_MESSAGE),
        (8, struct.pack(">i", -(2**31)), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_a_header_that_cannot_be_is_refused(position: int, content: bytes, code: ErrorCode) -> None:
    damaged = bytearray(aiokafka_batch())
    damaged[position : position + len(content)] = content
    with pytest.raises(CorruptBatch) as raised:
        read_header(damaged)
    assert raised.value.code is code
    with pytest.raises(CorruptBatch):
        list(iterate_headers(damaged))


@given(st.binary(max_size=200))
def test_random_bytes_are_a_header_or_a_corrupt_batch(data: bytes) -> None:
    try:
        assert isinstance(read_header(data), BatchHeader)
    except CorruptBatch:
        pass
    try:
        list(iterate_headers(data))
    except CorruptBatch:
        pass


def test_too_few_bytes_for_a_header() -> None:
    batch = build_batch([Record(0, 1, None, b"v")])
    with pytest.raises(CorruptBatch, match="60 bytes"):
        read_header(batch[:60])
    with pytest.raises(CorruptBatch):
        is_transactional(batch[:22])
