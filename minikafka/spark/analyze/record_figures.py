"""From the few rows that records came to, the figures of partitions and topics: plain arithmetic, no Spark.

Sizes are counted in buckets (``record_sums.size_buckets``): a partition has some hundred of them. How many
records keys have differs little: a partition has a row for each such number (``key_frequencies``), and
numbers that differ cannot be many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from minikafka.spark.source.record_sums import BUCKETS_PER_DOUBLING

TIES_MAX = 1_000
"""Keys with the same number of records among which some may be top keys."""


class SizeTotals(NamedTuple):
    """Of a partition's records; sizes are bytes."""

    records: int
    bytes: int
    tombstones: int
    size_min: int
    size_max: int
    quantiles: list[int]
    """The smallest size that at least that share of the records does not exceed."""


class KeyTotals(NamedTuple):
    """Of a partition's keys; null is none."""

    keys: int
    keys_once: int
    """With one record."""
    records_max: int
    """Of one key."""
    superseded_records: int
    """Those whose key has a newer one."""
    superseded_bytes: int
    newest_tombstones: int
    """Keys whose newest record is one."""
    newest_tombstone_bytes: int


class SizesFrom(NamedTuple):
    """Records of ``size_min`` (0, 1, 2, 4 …) to below twice as many bytes."""

    size_min: int
    records: int
    bytes: int


class KeysFrom(NamedTuple):
    """Keys with ``records_min`` (1, 2, 4 …) to below twice as many records; one in several partitions counts
    in each."""

    records_min: int
    keys: int
    records: int


def size_of_bucket(bucket: int) -> int:
    """The size in bytes that a bucket stands for."""
    return round(math.pow(2.0, bucket / BUCKETS_PER_DOUBLING) - 1)


def size_totals(sizes: Iterable[Any], quantiles: Sequence[float]) -> SizeTotals:
    """Of one partition's rows (bucket, records, bytes, tombstones), at least one; ``quantiles`` ascend."""
    rows = sorted(sizes, key=lambda row: row.bucket)
    records = sum(row.records for row in rows)
    found: list[int] = []
    up_to = 0
    for row in rows:
        up_to += row.records
        while len(found) < len(quantiles) and up_to >= quantiles[len(found)] * records:
            found.append(size_of_bucket(row.bucket))
    return SizeTotals(
        records,
        sum(row.bytes for row in rows),
        sum(row.tombstones for row in rows),
        size_of_bucket(rows[0].bucket),
        size_of_bucket(rows[-1].bucket),
        found,
    )


def size_histogram(sizes: Iterable[Any]) -> list[SizesFrom]:
    """Of a topic's rows, by size."""
    found: dict[int, SizesFrom] = {}
    for row in sizes:
        least = _power_of_two(size_of_bucket(row.bucket))
        _, records, size = found.get(least, SizesFrom(least, 0, 0))
        found[least] = SizesFrom(least, records + row.records, size + row.bytes)
    return [found[least] for least in sorted(found)]


def key_totals(frequencies: Sequence[Any]) -> KeyTotals:
    """Of one partition's rows of ``key_frequencies``, at least one."""
    return KeyTotals(
        keys=sum(row["keys"] for row in frequencies),
        keys_once=sum(row["keys"] for row in frequencies if row.records == 1),
        records_max=max(row.records for row in frequencies),
        superseded_records=sum((row.records - 1) * row["keys"] for row in frequencies),
        superseded_bytes=sum(row.superseded_bytes for row in frequencies),
        newest_tombstones=sum(row.newest_tombstones for row in frequencies),
        newest_tombstone_bytes=sum(row.newest_tombstone_bytes for row in frequencies),
    )


def key_histogram(frequencies: Iterable[Any]) -> list[KeysFrom]:
    """Of a topic's rows of ``key_frequencies``, by number."""
    found: dict[int, KeysFrom] = {}
    for row in frequencies:
        least = _power_of_two(row.records)
        _, keys, records = found.get(least, KeysFrom(least, 0, 0))
        found[least] = KeysFrom(least, keys + row["keys"], records + row.records * row["keys"])
    return [found[least] for least in sorted(found)]


def top_keys_least(frequencies: Iterable[Any], *, count: int, ties_max: int = TIES_MAX) -> int | None:
    """How many records a partition's ``count`` top keys have at least; None: there are none.

    No key stands out that has one record, or as many as more than ``ties_max`` others: such are left out.
    """
    least, above = None, 0
    for row in sorted(frequencies, key=lambda row: -row.records):
        if row.records > 1 and row["keys"] <= ties_max and above < count:
            least = row.records
        above += row["keys"]
    return least


def _power_of_two(number: int) -> int:
    """The greatest that is not above; 0 for 0."""
    return 1 << number.bit_length() - 1 if number else 0
