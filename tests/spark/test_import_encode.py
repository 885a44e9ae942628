"""The encoder of an import, column by column, against readers and writers that go record by record."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.partitioner import murmur2 as reference_murmur2
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.config.topic import TopicConfig
from minikafka.files import OsFiles
from minikafka.log.segment.segment import LogSegment
from minikafka.protocol.records.batch import HEADER_SIZE, crc_is_valid, read_header
from minikafka.protocol.records.compression import CompressionType
from minikafka.protocol.records.records import Record, build_batch, iterate_records, validate_records
from minikafka.spark.load.rows import Partitioner, murmur2
from minikafka.spark.load.segments import (
    RECORD_OVERHEAD_MAX,
    EncodedBatch,
    Records,
    cut_into_batches,
    encode,
    encode_headers,
    index_entries,
    sizes_at_most,
    varint_sizes,
    write_varints,
    zigzag,
)
from minikafka.spark.runtime.session import JobError

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIMESTAMP_MAX = 1 << 52

texts = st.one_of(st.none(), st.binary(max_size=20), st.integers(100, 20_000).map(lambda size: b"x" * size))
headers = st.one_of(
    st.none(),
    st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=9))), max_size=5),
)
timestamps = st.one_of(st.integers(0, TIMESTAMP_MAX), st.integers(1_700_000_000_000, 1_700_000_000_200))
records_strategy = st.lists(st.tuples(texts, texts, timestamps, headers), min_size=1, max_size=200)


def columns(rows: list[tuple[Any, Any, int, Any]]) -> Records:
    keys, values, times, lists = zip(*rows, strict=True)
    dicts = [
        None if each is None else [{"key": name, "value": value} for name, value in each] for each in lists
    ]
    return Records(
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        np.array(times, dtype=np.int64),
        encode_headers(pa.array(dicts, HEADERS)),
    )


def as_bytes(batch: EncodedBatch) -> bytes:
    return batch.header + bytes(batch.records)


def encoded(rows: list[tuple[Any, Any, int, Any]], codec: CompressionType, batch_bytes: int) -> list[bytes]:
    records = columns(rows)
    starts = cut_into_batches(sizes_at_most(records), np.array([0]), batch_bytes)
    return [as_bytes(batch) for batch in encode(records, starts, codec)]


@settings(max_examples=150, deadline=None)
@given(records_strategy, st.sampled_from(CompressionType), st.sampled_from([1_024, 16_384, 1 << 20]))
def test_what_is_encoded_is_what_aiokafka_decodes(
    rows: list[tuple[Any, Any, int, Any]], codec: CompressionType, batch_bytes: int
) -> None:
    found, ours = [], []
    for data in encoded(rows, codec, batch_bytes):
        header = read_header(data)
        assert header.size == len(data) and crc_is_valid(data, 0, header)
        assert (
            header.max_timestamp
            == validate_records(
                data, header, keys_required=False, decompressed_bytes_max=1 << 26
            ).max_timestamp
        )
        batch = DefaultRecordBatch(data)
        assert batch.validate_crc()
        of_batch = list(batch)
        assert [each.offset for each in of_batch] == list(range(header.record_count))
        found += [(each.key, each.value, each.timestamp, each.headers) for each in of_batch]
        ours += list(iterate_records(data))
    expected = [(key, value, time, [*(lists or ())]) for key, value, time, lists in rows]
    assert found == expected
    assert [(each.key, each.value, each.timestamp, [*each.headers]) for each in ours] == expected


@settings(max_examples=60, deadline=None)
@given(records_strategy)
def test_a_batch_has_the_bytes_that_the_reference_builds(rows: list[tuple[Any, Any, int, Any]]) -> None:
    """Byte for byte: every length, delta and the CRC."""
    (data,) = encoded(rows, CompressionType.NONE, 1 << 30)
    reference = build_batch(
        [
            Record(offset, time, key, value, tuple(lists or ()))
            for offset, (key, value, time, lists) in enumerate(rows)
        ],
        base_offset=0,
        leader_epoch=-1,
    )
    assert data == bytes(reference)


def test_numbers_at_the_edges_of_varints() -> None:
    edges = [sign * (1 << bits) + step for bits in range(63) for step in (-1, 0, 1) for sign in (1, -1)]
    values = np.array(edges, dtype=np.int64)
    numbers = zigzag(values)
    sizes = varint_sizes(numbers)
    ends = np.cumsum(sizes)
    octets = np.zeros(int(ends[-1]), dtype=np.uint8)
    write_varints(octets, ends - sizes, numbers, sizes)
    for value, end, size in zip(edges, ends.tolist(), sizes.tolist(), strict=True):
        read = 0
        for place, byte in enumerate(octets[end - size : end].tolist()):
            assert (byte > 0x7F) == (place < size - 1)
            read |= (byte & 0x7F) << 7 * place
        assert (read >> 1) ^ -(read & 1) == value


def test_a_column_that_is_a_slice_of_another() -> None:
    """Arrow's slices have an offset into buffers that are whole."""
    rows = [
        (b"k%d" % i if i % 3 else None, b"v" * i, i, [("h", b"%d" % i)] if i % 2 else None) for i in range(60)
    ]
    whole = columns(rows)
    assert whole.headers is not None
    part = Records(whole.keys[10:40], whole.values[10:40], whole.timestamps[10:40], whole.headers[10:40])
    starts = cut_into_batches(sizes_at_most(part), np.array([0]), 1 << 20)
    (data,) = (as_bytes(batch) for batch in encode(part, starts, CompressionType.NONE))
    found = [(each.key, each.value, each.timestamp, [*each.headers]) for each in iterate_records(data)]
    assert found == [(key, value, time, [*(lists or ())]) for key, value, time, lists in rows[10:40]]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(RECORD_OVERHEAD_MAX, 5_000), min_size=1, max_size=300),
    st.integers(1_024, 20_000),
    st.data(),
)
def test_batches_keep_to_their_size_and_their_partition(
    sizes: list[int], batch_bytes: int, data: st.DataObject
) -> None:
    groups = sorted({0, *data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=5))})
    starts = cut_into_batches(np.array(sizes), np.array(groups), batch_bytes).tolist()
    assert starts[0] == 0 and set(groups) <= set(starts)
    for start, end in zip(starts, [*starts[1:], len(sizes)], strict=True):
        assert end - start == 1 or sum(sizes[start:end]) + HEADER_SIZE <= batch_bytes
        if end not in groups and end < len(sizes):  # no smaller than it must be
            assert sum(sizes[start : end + 1]) + HEADER_SIZE > batch_bytes


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), min_size=1, max_size=50))
def test_keys_hash_as_in_kafka(keys: list[bytes | None]) -> None:
    found = murmur2(pa.array(keys, pa.binary())).tolist()
    for key, hashed in zip(keys, found, strict=True):
        if key is not None:
            assert hashed & 0x7FFF_FFFF == reference_murmur2(key) & 0x7FFF_FFFF


def test_keys_whose_hashes_kafkas_own_test_names() -> None:
    """``UtilsTest.testMurmur2``."""
    cases = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    found = murmur2(pa.array(list(cases), pa.binary())).astype(np.int32).tolist()
    assert found == list(cases.values())


def test_long_keys_hash_as_in_kafka() -> None:
    dice = random.Random(3)
    keys = [dice.randbytes(size) for size in (0, 1, 1_023, 1_024, 1_025, 1_026, 1_027, 1_028, 5_000, 70_001)]
    found = (murmur2(pa.array(keys, pa.binary())) & 0x7FFF_FFFF).tolist()
    assert found == [reference_murmur2(key) & 0x7FFF_FFFF for key in keys]


def test_records_without_a_key_fill_a_batch_of_each_partition_in_turn() -> None:
    partitioner = Partitioner(3, batch_bytes=1_000, first=1)
    keys = pa.nulls(40, pa.binary())
    first = partitioner.assign(keys, np.full(40, 100)).tolist()
    assert first == [1] * 10 + [2] * 10 + [0] * 10 + [1] * 10
    again = partitioner.assign(keys[:15], np.full(15, 100)).tolist()
    assert again == [2] * 10 + [0] * 5
    mixed = partitioner.assign(pa.array([b"a", None, b"a"], pa.binary()), np.full(3, 100)).tolist()
    assert mixed[0] == mixed[2] == (reference_murmur2(b"a") & 0x7FFF_FFFF) % 3
    assert mixed[1] == 0


def test_a_header_without_a_key_is_refused() -> None:
    nameless = pa.array([[{"key": None, "value": b"v"}]], HEADERS)
    with pytest.raises(JobError, match="a header without a key"):
        encode_headers(nameless)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 50), st.integers(100, 6_000)), max_size=60),
    st.sampled_from([0, 4_096]),
)
def test_indexes_are_those_of_a_segment(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[int, int, int]], interval: int
) -> None:
    """What the broker's own segment writes, when it is told of the same batches."""
    directory = tmp_path_factory.mktemp("segment")
    config = TopicConfig(index_interval_bytes=interval)
    segment = LogSegment.create(str(directory), 1_000, config=config, files=OsFiles(), created_ms=0)
    spans, next_offset = [], 1_000
    for records, timestamp, size in batches:
        next_offset += records
        spans.append((next_offset - 1, timestamp, size))
        segment.append([bytes(size)], spans[-1:])
    segment.become_inactive()
    expected = [(directory / f"{1_000:020d}.{kind}").read_bytes() for kind in ("index", "timeindex")]
    assert list(index_entries(spans, 1_000, interval)) == expected
