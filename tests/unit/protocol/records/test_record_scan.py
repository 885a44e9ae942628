"""The compiled check of records calls valid what the parser in Python calls valid, and nothing else."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.protocol.records import records
from minikafka.protocol.records.batch import HEADER_SIZE, BatchHeader, read_header
from minikafka.protocol.records.records import (
    InvalidRecords,
    Record,
    build_batch,
    parse_records,
    read_varint,
    timestamp_deltas,
)

ROOT = Path(__file__).resolve().parents[4]

pytestmark = pytest.mark.skipif(not records.IS_COMPILED, reason="bin/test says so: there was no C compiler")

Deltas = tuple[int, int, int]
BASE_MS = 10**12
content = st.none() | st.binary(max_size=40) | st.just(b"v" * 300)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=9)), max_size=3).map(tuple)


def scan(batch: bytes, *, keys_required: bool = False) -> Deltas | None:
    return records.scan(batch, HEADER_SIZE, read_header(batch).record_count, keys_required)


def expected(batch: bytes, *, keys_required: bool = False) -> Deltas | None:
    """What the parser finds; None where a record is not valid, or not the next."""
    header = read_header(batch)
    try:
        found = list(parse_records(memoryview(batch), header))
    except InvalidRecords:
        return None
    if [record.offset for record in found] != list(range(len(found))):
        return None
    if keys_required and any(record.key is None for record in found):
        return None
    deltas = [record.timestamp - header.base_timestamp for record in found]
    return min(deltas), max(deltas), deltas.index(max(deltas))


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    many = draw(
        st.lists(st.tuples(st.integers(-(2**33), 2**33), content, content, headers), min_size=1, max_size=140)
    )
    return build_batch(
        [
            Record(index, max(0, BASE_MS + delta), key, value, pairs)
            for index, (delta, key, value, pairs) in enumerate(many)
        ]
    )


@settings(max_examples=150, deadline=None)
@given(batches(), st.booleans())
def test_what_is_valid_is_recognised(batch: bytes, keys_required: bool) -> None:
    found = scan(batch, keys_required=keys_required)
    assert found == expected(batch, keys_required=keys_required)
    if not keys_required:
        assert found is not None


@settings(max_examples=400, deadline=None)
@given(st.data(), batches())
def test_what_is_damaged_is_called_valid_by_both_or_by_none(data: st.DataObject, batch: bytes) -> None:
    """But for varints with bits that Java drops, which only the parser reads."""
    damaged = bytearray(batch)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(HEADER_SIZE, len(damaged) - 1))
        match data.draw(st.sampled_from(["set", "insert", "remove"])):
            case "set":
                damaged[at] = data.draw(st.integers(0, 255))
            case "insert":
                damaged.insert(at, data.draw(st.integers(0, 255)))
            case "remove" if len(damaged) > HEADER_SIZE + 1:
                del damaged[at]
    found = scan(bytes(damaged))
    if found is not None:
        assert found == expected(bytes(damaged))
    elif has_short_varints_only(bytes(damaged)):
        assert expected(bytes(damaged)) is None


def has_short_varints_only(batch: bytes) -> bool:
    """No byte sequence in it could be a varint of five bytes or more."""
    return re.search(rb"[\x80-\xff]{4}", batch[HEADER_SIZE:]) is None


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.integers(1, 4))
def test_of_any_bytes_it_says_what_the_parser_says(body: bytes, count: int) -> None:
    batch = with_body(body, count)
    if (found := scan(batch)) is not None:
        assert found == expected(batch)
    elif has_short_varints_only(batch):
        assert expected(batch) is None


def with_body(body: bytes, count: int) -> bytes:
    head = bytearray(build_batch([Record(0, BASE_MS, None, b"")])[:HEADER_SIZE])
    struct.pack_into(">i", head, 57, count)
    return bytes(head + body)


def varint(value: int) -> bytes:
    zigzag, out = (value << 1) ^ (value >> 63), bytearray()
    zigzag &= (1 << 64) - 1
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*out, zigzag])


def a_record(
    *, timestamp: bytes = b"\0", offset: bytes = b"\0", behind: bytes = b"\x01\x01\0", length: bytes = b""
) -> bytes:
    """A record with no key, no value and no headers, but for what is given."""
    body = b"\0" + timestamp + offset + behind
    return (length or varint(len(body))) + body


@pytest.mark.parametrize("value", [0, 1, -1, 63, -64, 64, 8191, 8192, -(2**31), 2**40, -(2**61), 2**61])
def test_timestamp_deltas_of_every_length_are_read(value: int) -> None:
    assert scan(with_body(a_record(timestamp=varint(value)), 1)) == (value, value, 0)


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(a_record(timestamp=varint(2**61 + 1)), id="a timestamp that might leave 64 bits"),
        pytest.param(a_record(timestamp=b"\x80" * 9 + b"\x02"), id="a timestamp of 65 bits"),
        pytest.param(a_record(timestamp=b"\x80" * 10 + b"\0"), id="a timestamp of eleven bytes"),
        pytest.param(a_record(offset=b"\x80\x80\x80\x80\x10"), id="an offset of 33 bits"),
        pytest.param(a_record(offset=b"\x80" * 5 + b"\0"), id="an offset of six bytes"),
        pytest.param(a_record(offset=b"\x02"), id="an offset that is not the next"),
        pytest.param(a_record(behind=b"\x81\x80\x80\x80\x10\x01\0"), id="a key's length of 33 bits"),
        pytest.param(a_record(behind=b"\x02\x01\0"), id="a key beyond the record"),
        pytest.param(a_record(behind=b"\x01\xfe\xff\xff\xff\x0f\0"), id="a value of 2 GiB"),
        pytest.param(a_record(behind=b"\x01\x01\x01"), id="minus one headers"),
        pytest.param(a_record(behind=b"\x01\x01\x02"), id="a header that is not there"),
        pytest.param(a_record(behind=b"\x01\x01\x02\x01\x01"), id="a header without a key"),
        pytest.param(a_record(behind=b"\x01\x01\xfe\xff\xff\xff\x0f"), id="2,147,483,647 headers"),
        pytest.param(a_record(behind=b"\x01\x01\0\0"), id="a byte behind the headers"),
        pytest.param(a_record(length=b"\0"), id="a record of no bytes"),
        pytest.param(a_record(length=b"\x01"), id="a record of minus one byte"),
        pytest.param(a_record(length=b"\x7f"), id="a record of minus 64 bytes"),
        pytest.param(a_record(length=b"\x10"), id="a record beyond the batch"),
        pytest.param(a_record()[:-1], id="a record that is cut off"),
        pytest.param(a_record() + b"\0", id="a byte behind the last record"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x80", id="a length that is cut off"),
    ],
)
def test_what_is_not_plainly_valid_is_left_to_the_parser(record: bytes) -> None:
    assert scan(with_body(a_record(), 1)) == (0, 0, 0)
    assert scan(with_body(record, 1)) is None


def test_a_count_or_a_place_that_cannot_be_is_no_batch() -> None:
    batch = with_body(a_record(), 1)
    end = len(batch)
    for start, count in ((HEADER_SIZE, 0), (HEADER_SIZE, -1), (-1, 1), (end, 0), (end, 1), (end + 1, 1)):
        assert records.scan(batch, start, count, False) is None
    with pytest.raises(TypeError):
        records.scan("text", 0, 1, False)  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        records.scan(memoryview(batch)[::2], 0, 1, False)


def test_what_the_columns_know_the_walk_knows_too() -> None:
    for size, key in ((0, None), (100, b"k"), (5, b"")):
        batch = build_batch([Record(i, BASE_MS + i // 3, key, b"v" * size) for i in range(9_000)])
        header: BatchHeader = read_header(batch)
        by_columns: Sequence[int] | None = timestamp_deltas(memoryview(batch), header, keys_required=False)
        assert by_columns is not None
        assert scan(batch) == tuple(by_columns)
        _, at = read_varint(memoryview(batch), HEADER_SIZE, 5)
        damaged = bytearray(batch)
        damaged[at + 2] ^= 2  # the first record's offset
        assert scan(bytes(damaged)) is None


def test_the_library_is_made_again_where_its_source_is_another() -> None:
    """``bin/.environment.sh`` makes environments again when pyproject.toml has changed."""
    source = ROOT / "minikafka" / "protocol" / "records" / "record_scan.c"
    assert hashlib.sha256(source.read_bytes()).hexdigest() in (ROOT / "pyproject.toml").read_text()
