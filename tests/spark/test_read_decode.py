"""The decoder over columns says what the plain record reader says, of every batch there can be."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.log.cleaner import rebuild_batch
from minikafka.protocol.records.batch import (
    HEADER_SIZE,
    CompressionType,
    TimestampType,
    pack_header,
    read_header,
)
from minikafka.protocol.records.compression import CorruptBatch, compress
from minikafka.protocol.records.records import (
    Record,
    build_batch,
    iterate_records,
    parse_records,
    plain_batch,
    read_varint,
)
from minikafka.spark.source.decode import (
    RECORD_SCHEMA,
    OffsetRange,
    Origin,
    PlainBatches,
    decode,
    has_dense_offsets,
    read_varints,
    rows_of_headers,
    skip_varints,
)
from minikafka.spark.source.log_files import HEADER_DTYPE

ORIGIN = Origin("orders", 3, "00000000000000000000.log", "/logs")
ALL = OffsetRange(-(2**63), 2**63 - 1)
COLUMNS = [name for name in RECORD_SCHEMA.names if name != "error"]

some_bytes = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=200)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=9)), max_size=3)
records = st.lists(
    st.tuples(st.integers(1, 70), st.integers(0, 2**40), some_bytes, some_bytes, headers.map(tuple)),
    min_size=1,
    max_size=60,
)


def built(
    drawn: Sequence[tuple[int, int, Any, Any, Any]], base_offset: int, codec: CompressionType, **more: Any
) -> bytes:
    """A batch with gaps: each record says how far it is from the one before."""
    offset = base_offset - drawn[0][0]
    found = []
    for gap, timestamp, key, value, its_headers in drawn:
        offset += gap
        found.append(Record(offset, timestamp, key, value, its_headers))
    return build_batch(found, base_offset=base_offset, compression=codec, **more)


def plain(batches: Sequence[bytes]) -> PlainBatches:
    heads = np.frombuffer(b"".join(each[:HEADER_SIZE] for each in batches), dtype=HEADER_DTYPE)
    bodies = [bytes(plain_batch(each, read_header(each), 1 << 30)[HEADER_SIZE:]) for each in batches]
    ends = np.cumsum([len(body) for body in bodies], dtype=np.int64)
    starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])
    return PlainBatches(b"".join(bodies), starts, ends, heads)


def expected(batches: Sequence[bytes]) -> list[dict[str, Any]]:
    """What the reference makes of them."""
    rows = []
    for each in batches:
        header = read_header(each)
        for record in iterate_records(each):
            sequence = header.base_sequence
            if sequence >= 0:
                sequence = (sequence + record.offset - header.base_offset) & (2**31 - 1)
            its_headers = [{"key": name, "value": content} for name, content in record.headers]
            rows.append(
                {
                    "key": record.key,
                    "value": record.value,
                    "value_size": None if record.value is None else len(record.value),
                    "topic": "orders",
                    "partition": 3,
                    "offset": record.offset,
                    "timestamp": record.timestamp * 1000,
                    "timestampType": int(header.timestamp_type),
                    "headers": its_headers or None,
                    "leader_epoch": header.partition_leader_epoch,
                    "producer_id": header.producer_id,
                    "producer_epoch": header.producer_epoch,
                    "sequence": sequence,
                    "batch_offset": header.base_offset,
                    "codec": CompressionType(header.compression).name.lower(),
                    "segment": ORIGIN.segment,
                    "log_dir": "/logs",
                }
            )
    return rows


def rows_of(batch: Any) -> list[dict[str, Any]]:
    if "timestamp" in batch.schema.names:
        index = batch.schema.get_field_index("timestamp")
        batch = batch.set_column(index, "timestamp", batch["timestamp"].cast("int64"))
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


@settings(max_examples=150)
@given(
    drawn=st.lists(st.tuples(records, st.sampled_from(CompressionType)), min_size=1, max_size=4),
    base_offset=st.sampled_from([0, 7, 2**40, 2**62]),
    timestamp_type=st.sampled_from(TimestampType),
    producer_id=st.sampled_from([-1, 9]),
    columns=st.just(COLUMNS) | st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True),
)
def test_columns_are_what_the_plain_reader_says(
    drawn: list[Any], base_offset: int, timestamp_type: TimestampType, producer_id: int, columns: list[str]
) -> None:
    batches = []
    for its_records, codec in drawn:
        more = {"producer_id": producer_id, "producer_epoch": 2, "base_sequence": 2**31 - 20}
        batch = built(
            its_records,
            base_offset,
            codec,
            timestamp_type=timestamp_type,
            leader_epoch=5,
            **(more if producer_id >= 0 else {}),
        )
        batches.append(batch)
        base_offset = read_header(batch).next_offset
    found, bad = decode(plain(batches), columns, ORIGIN, ALL)
    assert bad == []
    wanted = expected(batches)
    assert rows_of(found) == [{name: row[name] for name in columns} for row in wanted]


@settings(max_examples=100)
@given(st.lists(records, min_size=1, max_size=3), st.integers(0, 400), st.integers(0, 400))
def test_only_the_offsets_that_are_wanted_come_out(drawn: list[Any], first: int, length: int) -> None:
    batches, base_offset = [], 0
    for its_records in drawn:
        batches.append(built(its_records, base_offset, CompressionType.NONE))
        base_offset = read_header(batches[-1]).next_offset
    wanted = OffsetRange(first, first + length)
    found, _ = decode(plain(batches), ["offset", "value", "headers"], ORIGIN, wanted)
    assert rows_of(found) == [
        {name: row[name] for name in ("offset", "value", "headers")}
        for row in expected(batches)
        if first <= row["offset"] < first + length
    ]


@given(st.lists(st.integers(1, 300), min_size=1, max_size=5), st.integers(0, 600), st.integers(0, 600))
def test_headers_alone_know_the_offsets_of_batches_without_gaps(
    counts: list[int], first: int, length: int
) -> None:
    batches, base_offset = [], 0
    for count in counts:
        made = [Record(base_offset + each, 5, None, b"x") for each in range(count)]
        batches.append(build_batch(made, base_offset=base_offset))
        base_offset += count
    columns = ["offset", "batch_offset", "sequence", "topic"]
    wanted = OffsetRange(first, first + length)
    heads = plain(batches).headers
    assert has_dense_offsets(heads).all()
    told = rows_of_headers(heads, columns, ORIGIN, wanted)
    assert told.equals(decode(plain(batches), columns, ORIGIN, wanted)[0])


def test_records_of_one_size_and_of_many_sizes_are_found_alike() -> None:
    """A load generator's batch: one size, but for the deltas that grow by a byte; then one of mixed sizes."""
    even = [Record(each, 1000 + each, b"k", b"v" * 100) for each in range(9000)]
    dice = random.Random(7)
    mixed = [Record(9000 + each, 0, None, b"v" * dice.randrange(300)) for each in range(3000)]
    batches = [build_batch(even), build_batch(mixed, base_offset=9000)]
    found, bad = decode(plain(batches), ["offset", "key", "value", "timestamp"], ORIGIN, ALL)
    assert not bad
    assert found["offset"].to_pylist() == list(range(12000))
    assert found["value"].to_pylist() == [each.value for each in even + mixed]


def test_a_compacted_batch_with_a_delete_horizon_keeps_its_timestamps() -> None:
    batch = build_batch([Record(each, 1000 + each, b"k%d" % each, None) for each in range(4)])
    kept = [record for record in iterate_records(batch) if record.offset in (1, 3)]
    rebuilt = rebuild_batch(read_header(batch), kept, delete_horizon_ms=99_000)
    found, _ = decode(plain([rebuilt]), ["offset", "timestamp", "value"], ORIGIN, ALL)
    assert [(row["offset"], row["timestamp"]) for row in rows_of(found)] == [(1, 1001000), (3, 1003000)]


def test_headers_that_are_no_utf8_and_headers_beyond_count() -> None:
    many = tuple((f"h{each}", b"%d" % each) for each in range(500))
    batch = build_batch([Record(0, 0, None, None, many), Record(1, 0, None, None, (("odd", None),))])
    damaged = _with_body(batch, lambda body: body.replace(b"odd", b"\xffdd"))
    found, bad = decode(plain([damaged]), ["headers"], ORIGIN, ALL)
    assert not bad
    first, second = found["headers"].to_pylist()
    assert [(each["key"], each["value"]) for each in first] == list(many)
    assert second == [{"key": "\ufffddd", "value": None}]


@settings(max_examples=300)
@given(records, st.sampled_from([CompressionType.NONE, CompressionType.ZSTD]), st.data())
def test_a_malformed_batch_is_left_out_and_its_neighbours_are_not(
    drawn: Any, codec: CompressionType, data: st.DataObject
) -> None:
    """The CRC is right, the records are not: what a broken client may have written long ago."""
    good = built(drawn, 0, CompressionType.NONE)
    other = built(drawn, 10_000, codec)
    body = bytes(plain_batch(other, read_header(other), 1 << 20)[HEADER_SIZE:])
    place = data.draw(st.integers(0, len(body) - 1))
    replaced = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([0, 0, 1, 5]))
    broken = _with_body(
        other, lambda body: (body[:place] + bytes([replaced]) + body[place + 1 :])[: len(body) - cut]
    )
    last = built(drawn, 20_000, CompressionType.NONE)
    columns = ["offset", "timestamp", "key", "value", "headers"]
    try:
        wanted = _parsed(broken)
    except CorruptBatch:
        wanted = None
    found, bad = decode(plain([good, broken, last]), columns, ORIGIN, ALL)
    if wanted is None or any(abs(row["timestamp"]) >= 2**63 for row in wanted):
        assert [each.place for each in bad] == [1]
        wanted = []
    else:
        assert not bad
    rest = [{name: row[name] for name in columns} for row in expected([good, last])]
    assert rows_of(found) == rest[: len(drawn)] + wanted + rest[len(drawn) :]


def test_a_length_below_zero_is_not_taken_for_one_above() -> None:
    """The bit that makes a varint negative leaves the number of bytes that it would be."""
    made = [Record(each, 0, None, b"v" * each) for each in range(6)]
    batch = build_batch(made)
    starts = [0]
    for each in made:
        starts.append(starts[-1] + 7 + len(each.value or b""))
    for start in starts[:-1]:
        broken = _with_body(batch, lambda body, at=start: body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])
        _, bad = decode(plain([broken]), ["offset"], ORIGIN, ALL)
        assert [each.place for each in bad] == [0]
        assert "a length of -" in bad[0].reason


def _parsed(batch: bytes) -> list[dict[str, Any]]:
    """What the strict reader makes of one batch."""
    header = read_header(batch)
    view = memoryview(bytes(plain_batch(batch, header, 1 << 20)))
    return [
        {
            "offset": record.offset,
            "timestamp": record.timestamp * 1000,
            "key": record.key,
            "value": record.value,
            "headers": [{"key": name, "value": content} for name, content in record.headers] or None,
        }
        for record in parse_records(view, header)
    ]


def _with_body(batch: bytes, change: Any) -> bytes:
    """The batch with other records and the CRC that they have."""
    header = read_header(batch)
    body = bytes(plain_batch(batch, header, 1 << 20)[HEADER_SIZE:])
    packed = compress(change(body), CompressionType(header.compression))
    return pack_header(header._replace(batch_length=49 + len(packed)), packed) + packed


def test_a_timestamp_that_spark_has_no_room_for_is_named() -> None:
    batch = build_batch([Record(4, 2**62, None, b"x")], base_offset=4)
    _, bad = decode(plain([batch]), ["timestamp"], ORIGIN, ALL)
    assert bad[0].reason == f"offset 4 has timestamp {2**62}, which Spark has no room for"
    found, bad = decode(plain([batch]), ["value"], ORIGIN, ALL)
    assert not bad and found.num_rows == 1


@given(st.lists(st.binary(min_size=1, max_size=12), min_size=1, max_size=20), st.sampled_from([5, 10]))
def test_varints_are_read_as_one_by_one(encoded: list[bytes], bytes_max: int) -> None:
    data = b"".join(encoded) + bytes(16)
    positions = np.cumsum([0, *(len(each) for each in encoded[:-1])], dtype=np.int64)
    octets = np.frombuffer(data, dtype=np.uint8)
    values, behind, too_long = read_varints(octets, positions, bytes_max)
    skipped, too_long_to_skip = skip_varints(octets, positions, bytes_max)
    for index, position in enumerate(positions.tolist()):
        try:
            value, end = read_varint(memoryview(data), position, bytes_max)
        except CorruptBatch:
            assert too_long is not None and too_long[index]
            assert too_long_to_skip is not None and too_long_to_skip[index]
            continue
        assert (values[index], behind[index], skipped[index]) == (value, end, end)
        assert too_long is None or not too_long[index]


@pytest.mark.parametrize("claimed", [-1, 5, 10**9])
def test_a_header_that_claims_other_records_than_there_are(claimed: int) -> None:
    batch = build_batch([Record(0, 0, None, b"one"), Record(1, 0, None, b"two")])
    header = read_header(batch)._replace(record_count=claimed)
    lying = pack_header(header, batch[HEADER_SIZE:]) + batch[HEADER_SIZE:]
    found, bad = decode(plain([lying]), ["value"], ORIGIN, ALL)
    assert found.num_rows == 0
    assert [each.place for each in bad] == [0]
