"""Records: what other clients wrote is read, what is built here they read, and what is wrong is named."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from minikafka.errors import ErrorCode, InvariantError
from minikafka.protocol.records import records as module
from minikafka.protocol.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    CorruptBatch,
    TimestampType,
    crc_is_valid,
    pack_header,
    read_header,
)
from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.records.records import (
    BUFFER_BYTES,
    ControlRecordType,
    EndTransactionMarker,
    InvalidRecords,
    Record,
    build_batch,
    iterate_records,
    parse_records,
    read_end_transaction_marker,
    read_varint,
    recompress,
    timestamp_deltas,
    validate_records,
)

BYTES_MAX = 1 << 20
small = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=8), small), max_size=3).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn, base_offset: int = 0) -> list[Record]:
    start = draw(st.integers(0, 2**41))
    many = draw(
        st.lists(st.tuples(st.integers(-(2**33), 2**33), small, small, headers), min_size=1, max_size=80)
    )
    return [
        Record(base_offset + index, max(0, start + delta), key, value, pairs)
        for index, (delta, key, value, pairs) in enumerate(many)
    ]


@pytest.fixture(autouse=True, scope="module", params=["compiled", "python"])
def checked_by(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every story is told by both, where there is a compiler."""
    was = module.IS_COMPILED
    if request.param == "compiled" and not was:
        pytest.skip("bin/test says so: there was no C compiler")
    module.IS_COMPILED = request.param == "compiled"
    yield
    module.IS_COMPILED = was


def validate(batch: bytes, **options: Any) -> Any:
    return validate_records(batch, read_header(batch), **{"decompressed_bytes_max": BYTES_MAX} | options)


def with_records(batch: bytes, body: bytes, **changes: Any) -> bytes:
    """``batch`` with other bytes for records, everything around them consistent."""
    header = read_header(batch)._replace(batch_length=HEADER_SIZE - LOG_OVERHEAD + len(body), **changes)
    return pack_header(header, body) + body


def varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes((*out, zigzag))


def raw_record(offset: int, content: bytes = b"\x01\x02v\x00", timestamp: int = 0) -> bytes:
    body = b"\x00" + varint(timestamp) + varint(offset) + content
    return varint(len(body)) + body


@settings(max_examples=60, deadline=None)
@given(record_lists(), st.sampled_from(CompressionType))
def test_what_is_built_is_read_back_validated_and_read_by_both_clients(
    records: list[Record], compression: CompressionType
) -> None:
    batch = build_batch(records, compression=compression, producer_id=5, producer_epoch=2, base_sequence=9)
    header = read_header(batch)
    assert header.size == len(batch) and crc_is_valid(batch, 0, header)
    assert list(iterate_records(batch, decompressed_bytes_max=BYTES_MAX)) == records
    summary = validate(batch)
    latest = max(record.timestamp for record in records)
    first = next(record.offset for record in records if record.timestamp == latest)
    assert summary[:4] == (len(records), min(r.timestamp for r in records), latest, first)
    for read in (DefaultRecordBatch(batch),) + ((KafkaPythonBatch(batch),) if compression < 2 else ()):
        assert read.validate_crc()
        theirs = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in read]
        assert theirs == [tuple(record) for record in records]


@settings(max_examples=40, deadline=None)
@given(record_lists())
def test_an_uncompressed_batch_is_byte_for_byte_what_both_clients_build(records: list[Record]) -> None:
    ours = build_batch(records)
    for make in (DefaultRecordBatchBuilder, KafkaPythonBuilder):
        builder = make(2, 0, 0, -1, -1, -1, 1 << 20)
        for record in records:
            builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
        theirs = bytes(builder.build())
        assert (theirs[:12], theirs[16:]) == (ours[:12], ours[16:])  # kafka-python says leader epoch 0


@pytest.mark.parametrize("compression", range(5))
def test_batches_that_aiokafka_compressed_are_read(compression: int) -> None:
    builder = DefaultRecordBatchBuilder(2, compression, 0, -1, -1, -1, 1 << 20)
    for index in range(200):
        builder.append(index, 1000 + index, b"key", b"value " * 30, [])
    batch = bytes(builder.build())
    assert read_header(batch).compression == compression
    assert validate(batch).record_count == 200
    assert [record.timestamp for record in iterate_records(batch)] == list(range(1000, 1200))
    for target in CompressionType:
        again = recompress(batch, target)
        header = read_header(again)
        assert header.compression == target and crc_is_valid(again, 0, header)
        assert list(iterate_records(again)) == list(iterate_records(batch))


@settings(max_examples=60, deadline=None)
@given(record_lists(base_offset=1000))
def test_the_parser_agrees_with_the_compiled_codec(records: list[Record]) -> None:
    batch = build_batch(records, base_offset=1000)
    assert list(parse_records(memoryview(batch), read_header(batch))) == records
    assert validate(batch, keys_required=all(record.key is not None for record in records))[0] == len(records)


def test_log_append_time_is_the_time_of_every_record() -> None:
    records = [Record(0, 77, None, b"a"), Record(1, 77, None, b"b")]
    batch = build_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME)
    header = read_header(batch)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert list(iterate_records(batch)) == records == list(parse_records(memoryview(batch), header))


def test_records_without_a_timestamp_are_valid_and_within_any_bounds() -> None:
    batch = build_batch([Record(0, -1, None, b"a"), Record(1, -1, None, b"b")])
    assert validate(batch, timestamp_ms_min=500, timestamp_ms_max=600)[1:4] == (-1, -1, 0)
    assert [record.timestamp for record in iterate_records(batch)] == [-1, -1]


def test_offsets_may_have_gaps_when_built_for_compaction_but_not_when_produced() -> None:
    batch = build_batch([Record(10, 1, b"k", b"a"), Record(15, 1, b"k", b"b")], base_offset=10)
    assert [record.offset for record in iterate_records(batch)] == [10, 15]
    with pytest.raises(InvalidRecords, match="last offset delta is 5"):
        validate(batch)
    with pytest.raises(InvariantError, match="offset 4"):
        build_batch([Record(5, 1, None, b""), Record(4, 1, None, b"")])
    with pytest.raises(InvariantError, match="without records"):
        build_batch([])


BASE = build_batch([Record(0, 100, None, b"v"), Record(1, 100, None, b"v")])
GOOD = raw_record(0) + raw_record(1)
MALFORMED = {
    "offsets not consecutive": raw_record(0) + raw_record(2),
    "offsets from one": raw_record(1) + raw_record(2),
    "one record too few": raw_record(0),
    "one record too many": GOOD + raw_record(2),
    "bytes behind the last": GOOD + b"\0",
    "cut off": GOOD[:-1],
    "nothing": b"",
    "key beyond the record": raw_record(0) + raw_record(1, b"\x14v"),
    "value beyond the record": raw_record(0) + raw_record(1, b"\x01\x14v"),
    "too many headers": raw_record(0) + raw_record(1, b"\x01\x01" + varint(1000)),
    "negative headers": raw_record(0) + raw_record(1, b"\x01\x01\x01"),
    "header without key": raw_record(0) + raw_record(1, b"\x01\x01\x02\x01\x01"),
    "header beyond the record": raw_record(0) + raw_record(1, b"\x01\x01\x02\x14"),
    "length too large": raw_record(0) + b"\x14" + raw_record(1)[1:],
    "length too small": raw_record(0) + b"\x04" + raw_record(1)[1:],
    "negative length": raw_record(0) + b"\x01" + raw_record(1)[1:],
    "endless varint": raw_record(0) + b"\xff" * 30,
    "length near 2^63": raw_record(0) + raw_record(1, varint(2**63 - 1)),
    "length near 2^63 less a little": raw_record(0) + raw_record(1, varint(2**63 - 60)),
}


@pytest.mark.parametrize("more", [-1, 0, 1, BUFFER_BYTES])
@pytest.mark.parametrize("codec", [CompressionType.LZ4, CompressionType.ZSTD])
def test_batches_are_validated_in_a_buffer_or_beside_it_as_they_fit(
    codec: CompressionType, more: int
) -> None:
    size = BUFFER_BYTES + more - 100
    plain = build_batch([Record(0, 1, None, bytes(size))])
    size += BUFFER_BYTES + more - (len(plain) - HEADER_SIZE)
    batch = build_batch([Record(0, 1, None, bytes(size))], compression=codec)
    assert validate(batch, decompressed_bytes_max=BUFFER_BYTES + max(more, 0)).uncompressed_size == (
        BUFFER_BYTES + more
    )
    with pytest.raises(CorruptBatch) as caught:
        validate(batch, decompressed_bytes_max=BUFFER_BYTES + more - 1)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_batches_that_threads_validate_at_once_do_not_share_a_buffer() -> None:
    batches = [
        build_batch([Record(i, 1000 * n + i, None, b"v" * n) for i in range(n)], compression=codec)
        for n in range(400, 420)
        for codec in (CompressionType.LZ4, CompressionType.ZSTD)
    ]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(validate, batches * 5))
    assert found == [validate(batch) for batch in batches] * 5


def test_a_batch_that_cannot_be_decompressed_leaves_the_buffer_to_the_next() -> None:
    good = build_batch([Record(i, 5, None, b"v") for i in range(9)], compression=CompressionType.ZSTD)
    validate(good)
    buffers = list(map(id, module._BUFFERS))
    assert buffers
    for _ in range(3):
        with pytest.raises(CorruptBatch, match="ZSTD records cannot be decompressed"):
            validate(with_records(good, good[HEADER_SIZE:-3]))
        assert validate(good).record_count == 9
        assert list(map(id, module._BUFFERS)) == buffers


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.SNAPPY])
def test_malformed_records_are_invalid_whatever_the_crc_says(name: str, compression: CompressionType) -> None:
    batch = recompress(with_records(BASE, MALFORMED[name]), compression)
    assert crc_is_valid(batch, 0, read_header(batch))
    with pytest.raises(InvalidRecords) as raised:
        validate(batch)
    assert raised.value.code is ErrorCode.INVALID_RECORD
    assert raised.value.record_errors == ()
    if not name.startswith("offsets"):
        with pytest.raises(InvalidRecords):
            list(iterate_records(batch))


@pytest.mark.parametrize(
    "changes",
    [
        {"record_count": 0},
        {"record_count": -1},
        {"record_count": 3},
        {"last_offset_delta": 0},
        {"last_offset_delta": -1, "record_count": 0},
        {"last_offset_delta": 2**31 - 1, "record_count": -(2**31)},
    ],
)
def test_counts_must_agree(changes: dict[str, int]) -> None:
    with pytest.raises(InvalidRecords):
        validate(with_records(BASE, GOOD, **changes))
    assert validate(with_records(BASE, GOOD)).record_count == 2


def test_a_count_of_two_thousand_million_costs_nothing() -> None:
    claims = with_records(BASE, GOOD, record_count=2**31 - 1, last_offset_delta=2**31 - 2)
    with pytest.raises(InvalidRecords, match="cut off"):
        validate(claims)


def test_a_header_key_that_is_not_utf_8_is_read_as_java_reads_it() -> None:
    batch = with_records(BASE, raw_record(0) + raw_record(1, b"\x01\x02v\x02\x04\xc3\x28\x02x"))
    assert validate(batch).record_count == 2
    assert list(iterate_records(batch))[1].headers == (("\ufffd(", b"x"),)


def test_every_keyless_record_of_a_compacted_topic_is_named() -> None:
    keys = [b"k", None, b"k", None]
    batch = build_batch([Record(index, 1, key, b"v") for index, key in enumerate(keys)])
    assert validate(batch).record_count == 4
    with pytest.raises(InvalidRecords) as raised:
        validate(batch, keys_required=True)
    assert raised.value.code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in raised.value.record_errors] == [1, 3]


def test_every_record_outside_of_the_time_bounds_is_named() -> None:
    times = [100, 99, 200, 201, -1]
    batch = build_batch([Record(index, time, None, b"v") for index, time in enumerate(times)])
    with pytest.raises(InvalidRecords) as raised:
        validate(batch, timestamp_ms_min=100, timestamp_ms_max=200)
    assert raised.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in raised.value.record_errors] == [1, 3]
    assert validate(batch, timestamp_ms_min=99, timestamp_ms_max=201).offset_of_max_timestamp == 3


def test_a_batch_that_is_cut_off_is_corrupt() -> None:
    header = read_header(BASE)
    with pytest.raises(CorruptBatch) as raised:
        validate_records(BASE[:-1], header, decompressed_bytes_max=BYTES_MAX)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=120), st.integers(0, 7), st.integers(0, len(GOOD)), st.integers(1, 5))
def test_random_records_are_refused_with_a_declared_error(
    noise: bytes, compression: int, at: int, count: int
) -> None:
    for body in (noise, GOOD[:at] + noise[:4] + GOOD[at + len(noise[:4]) :]):
        batch = with_records(
            BASE, body, attributes=compression, record_count=count, last_offset_delta=count - 1
        )
        try:
            summary = validate(batch)
        except CorruptBatch:
            continue
        assert summary.record_count == count == len(list(iterate_records(batch)))


def test_markers_of_transactions() -> None:
    marker = EndTransactionMarker(ControlRecordType.COMMIT, 17)
    batch = build_batch(
        [Record(3, 1, marker.key(), marker.value())],
        base_offset=3,
        control=True,
        transactional=True,
        producer_id=1,
        producer_epoch=0,
        leader_epoch=4,
    )
    header = read_header(batch)
    assert header.is_control and header.is_transactional and header.partition_leader_epoch == 4
    record = next(iterate_records(batch))
    assert record.key == struct.pack(">hh", 0, 1)
    assert read_end_transaction_marker(record.key, record.value) == marker
    assert read_end_transaction_marker(struct.pack(">hh", 0, 2), b"") is None
    for key, value in (
        (b"\0", b""),
        (None, None),
        (marker.key(), b"\0\0"),
        (b"\xff\xff\0\0", marker.value()),
        (marker.key(), b"\xff\xff\0\0\0\0"),
    ):
        with pytest.raises(CorruptBatch):
            read_end_transaction_marker(key, value)


def deltas_of(records: list[Record], header: BatchHeader) -> tuple[int, int, int]:
    """The least, the greatest, and where that comes first."""
    deltas = [record.timestamp - header.base_timestamp for record in records]
    return min(deltas), max(deltas), deltas.index(max(deltas))


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_records_of_one_size_are_judged_as_the_parser_judges_them(data: st.DataObject) -> None:
    count = data.draw(st.sampled_from([128, 129, 200, 300, 8_250]))
    step = data.draw(st.sampled_from([0, 1, 3, 90, -1]))
    wave = data.draw(st.sampled_from([1, 2, 60]))
    key, value = (
        data.draw(st.sampled_from([None, b"", b"key"])),
        b"v" * data.draw(st.sampled_from([0, 5, 60, 200])),
    )
    records = [Record(index, 10**12 + step * index + index % wave, key, value) for index in range(count)]
    odd = data.draw(st.none() | st.integers(0, count - 1))
    if odd is not None:
        records[odd] = records[odd]._replace(value=data.draw(small), key=data.draw(small))
    batch = build_batch(records)
    body = bytearray(batch[HEADER_SIZE:])
    if data.draw(st.booleans()):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    batch = with_records(batch, bytes(body))
    header = read_header(batch)
    keys_required = data.draw(st.booleans())
    found = timestamp_deltas(memoryview(batch), header, keys_required=keys_required)
    if found is None:
        return
    exact = list(parse_records(memoryview(batch), header))
    assert [record.offset for record in exact] == list(range(count))
    assert found == deltas_of(exact, header)
    assert not keys_required or all(record.key is not None for record in exact)


@pytest.mark.parametrize("index", [0, 10, 63, 64, 100, 199])
def test_one_wrong_byte_in_a_record_of_one_size_is_seen(index: int) -> None:
    batch = build_batch([Record(i, 10**12 + i // 2, b"k", b"value") for i in range(200)])
    header = read_header(batch)
    ends = [HEADER_SIZE]
    for _ in range(200):
        length, at = read_varint(memoryview(batch), ends[-1], 5)
        ends.append(at + length)
    for position in range(ends[index], ends[index + 1]):
        for change in (0x01, 0x02, 0x40, 0x80):
            damaged = bytearray(batch)
            damaged[position] ^= change
            view = memoryview(damaged)
            try:
                exact = list(parse_records(view, header))
                consecutive = [record.offset for record in exact] == list(range(200))
            except InvalidRecords:
                consecutive = False
            found = timestamp_deltas(view, header, keys_required=False)
            if not consecutive:
                assert found is None
            elif found is not None:
                assert found == deltas_of(exact, header)


def test_records_of_one_size_are_recognised_over_every_change_of_width() -> None:
    # 64 and 8,192 are where an offset delta takes another byte, 64 ms where a timestamp delta does.
    records = [Record(index, 10**12 + index // 3, None, b"v" * 100) for index in range(10_000)]
    batch = build_batch(records)
    deltas = timestamp_deltas(memoryview(batch), read_header(batch), keys_required=False)
    assert deltas == (0, 3333, 9999)
    assert validate(batch, decompressed_bytes_max=2 * BYTES_MAX)[:4] == (10_000, 10**12, 10**12 + 3333, 9999)


def test_timestamps_at_the_ends_of_64_bits_wrap_as_a_java_long() -> None:
    body = b"".join(raw_record(index, timestamp=index) for index in range(40))
    changes = {"record_count": 40, "last_offset_delta": 39}
    batch = with_records(BASE, body, base_timestamp=2**63 - 10, **changes)
    exact = [record.timestamp for record in parse_records(memoryview(batch), read_header(batch))]
    assert exact[9] == 2**63 - 1 and exact[10] == -(2**63)
    assert validate(batch)[1:4] == (-(2**63), 2**63 - 1, 9)
