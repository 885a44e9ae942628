"""Records added up by key and by size, piece by piece, against plain Python."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.types import TopicPartition
from tests.spark.analysis_model import Record

pytest.importorskip("pyspark")

import numpy as np

from minikafka.spark.analyze.passes import size_of_bucket
from minikafka.spark.source import datasource
from minikafka.spark.source.datasource import BUCKETS_PER_DOUBLING, size_buckets, summed
from tests.spark.record_batches import record_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

LOG = TopicPartition("t", 3)

KEYS = st.sampled_from([None, b"", b"a", b"bb", b"\xff\x00", b"a key of some length"])
VALUES = st.one_of(st.none(), st.binary(max_size=12))


def record(offset: int | None, key: bytes | None, value: bytes | None, error: str | None = None) -> Record:
    return Record(LOG.topic, LOG.partition, offset, key, value, error)


def rows_of(chunks: Sequence[Sequence[Record]]) -> list[dict[str, Any]]:
    batches = list(summed(map(record_batch, chunks), LOG))
    assert all(each.num_rows for each in batches)
    found = [row for each in batches for row in each.to_pylist()]
    assert all((row["topic"], row["partition"]) == LOG for row in found)
    return found


def check(rows: list[dict[str, Any]], records: Sequence[Record]) -> None:
    """Partial sums are those of ``records`` when they are added up."""
    by_key = [row for row in rows if row["bucket"] is None and row["error"] is None]
    assert {row["key"] for row in by_key} == {each.key for each in records}
    for key in {each.key for each in records}:
        members = [each for each in records if each.key == key]
        parts = [row for row in by_key if row["key"] == key]
        assert sum(row["records"] for row in parts) == len(members)
        assert sum(row["bytes"] for row in parts) == sum(each.size for each in members)
        newest = max(members, key=lambda each: each.offset or 0)
        last = max(parts, key=lambda row: row["offset"])
        assert last["offset"] == newest.offset
        assert last["newest"] == 2 * newest.size + (newest.value is None)
    by_size = [row for row in rows if row["bucket"] is not None]
    assert Counter({row["bucket"]: row["records"] for row in by_size}) == Counter(
        int(size_buckets(np.array([each.size]))[0]) for each in records
    )
    assert sum(row["bytes"] for row in by_size) == sum(each.size for each in records)
    assert sum(row["tombstones"] for row in by_size) == sum(each.value is None for each in records)


@settings(deadline=None)
@given(
    st.lists(st.tuples(KEYS, VALUES), max_size=40),
    st.lists(st.integers(0, 40), max_size=6),
    st.sampled_from([2, 8, 1 << 20]),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_chunks_add_up_to_the_whole(
    drawn: list[tuple[bytes | None, bytes | None]],
    cuts: list[int],
    rows_max: int,
    random: Any,
    is_shuffled: bool,
) -> None:
    """In whatever order they come, and however little is held."""
    records = [record(5 + offset, *each) for offset, each in enumerate(drawn)]
    if is_shuffled:
        random.shuffle(records)
    edges = sorted({0, len(records), *(min(cut, len(records)) for cut in cuts)})
    chunks = [records[start:end] for start, end in pairwise(edges)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasource, "SUMMED_ROWS_MAX", rows_max)
        check(rows_of(chunks), records)


def test_a_key_that_comes_back_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as there is room for all keys: what is held is added up, not handed on."""
    monkeypatch.setattr(datasource, "SUMMED_ROWS_MAX", 10)
    records = [record(offset, b"k%d" % (offset % 3), b"v") for offset in range(100)]
    rows = rows_of([records[start : start + 4] for start in range(0, 100, 4)])
    assert sorted(row["key"] for row in rows if row["key"] is not None) == [b"k0", b"k1", b"k2"]
    check(rows, records)


def test_long_keys_are_not_held_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasource, "SUMMED_KEY_BYTES_MAX", 1_000)
    records = [record(offset, b"%0400d" % offset, b"v") for offset in range(12)]
    sizes = [each.num_rows for each in summed((record_batch([each]) for each in records), LOG)]
    assert len(sizes) > 4 and max(sizes[:-1]) <= 3
    check(rows_of([[each] for each in records]), records)


def test_what_is_no_record_is_handed_on_as_it_is() -> None:
    good = [record(1, b"k", None), record(2, None, b"v")]
    bad = record(None, None, None, "position 7: no batch")
    rows = rows_of([[good[0], bad, good[1]], [bad]])
    assert [row["error"] for row in rows if row["error"] is not None] == [bad.error] * 2
    check([row for row in rows if row["error"] is None], good)


def test_buckets_are_exact_at_their_limits() -> None:
    """Size n is in bucket b from 2^((b - 1/2) / 32) ≤ n + 1 on, which whole numbers can say."""
    double = 2 * BUCKETS_PER_DOUBLING
    least = 0
    for bucket in range(32 * BUCKETS_PER_DOUBLING):
        limit = 1 << max(0, 2 * bucket - 1)
        step = max(1, least // 100)
        while (least + 1) ** double < limit:  # up to it, with steps that become smaller
            while step > 1 and (least + step + 1) ** double >= limit:
                step = max(1, step // 2)
            least += step
        assert size_buckets(np.array([least]))[0] >= bucket
        if bucket and least:
            assert size_buckets(np.array([least - 1]))[0] < bucket
    for size in range(45):
        assert size_of_bucket(int(size_buckets(np.array([size]))[0])) == size
