"""The newest records of their keys: from a map, and from offsets side by side with the batches that have
them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.errors import KafkaError
from minikafka.log.cleaner import ENTRY_BYTES, OffsetMap, RawRecord, RetainedOffsets, raw_records
from minikafka.protocol.records.batch import read_header
from minikafka.protocol.records.records import Record, build_batch

ROOMY = 1 << 20
keys = st.lists(st.lists(st.sampled_from([b"a", b"b", None, b"c" * 20]), min_size=1, max_size=5), max_size=8)


def batches_of(keys: list[list[bytes | None]]) -> Iterator[list[RawRecord]]:
    base_offset = 0
    for each in keys:
        records = [Record(base_offset + index, 0, key, b"") for index, key in enumerate(each)]
        batch = build_batch(records, base_offset=base_offset)
        yield raw_records(batch, read_header(batch), decompressed_bytes_max=ROOMY)
        base_offset += len(each) + 3  # a gap, as compaction leaves them


def test_a_full_map_takes_newer_offsets_of_keys_that_it_has() -> None:
    offsets = OffsetMap(buffer_bytes=4 * ENTRY_BYTES, load_factor=0.5)
    assert offsets.put(b"a", 0) and offsets.put(b"b" * 40, 1)
    assert not offsets.put(b"c", 2) and offsets.put(b"a", 3)
    assert [offsets.get(key) for key in (b"a", b"b" * 40, b"c")] == [3, 1, -1]


@given(keys)
def test_offsets_select_what_a_map_selects(keys: list[list[bytes | None]]) -> None:
    newest = OffsetMap(buffer_bytes=ROOMY, load_factor=1.0)
    offsets: dict[bytes, int] = {}
    for batch in batches_of(keys):
        for record in batch:
            if record.key is not None:
                newest.put(record.key, record.offset)
                offsets[record.key] = record.offset
    retained = RetainedOffsets(iter(sorted(offsets.values())), latest_offset=1000)
    for batch in batches_of(keys):
        expected = [record.offset for record in newest.select(batch)]
        assert [record.offset for record in retained.select(batch)] == expected
    retained.finish()


def test_an_offset_that_is_in_no_batch_is_told() -> None:
    (batch,) = batches_of([[b"a", b"b"]])
    with pytest.raises(KafkaError, match="the record at offset 5, the newest of its key, is not in the log"):
        (beyond := RetainedOffsets(iter([0, 5]), latest_offset=9)).select(batch)
        beyond.finish()
    (between,) = (each for number, each in enumerate(batches_of([[b"a"], [b"b"]])) if number == 1)
    with pytest.raises(KafkaError, match="the record at offset 2"):
        RetainedOffsets(iter([2]), latest_offset=9).select(between)
