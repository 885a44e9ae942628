"""What Spark's filters say about where to look. Pure: filters in, a narrowed search out.

Only what skips partitions, segments or batches is taken from them; Spark evaluates every filter again on the
rows that come back, so nothing here needs to be exact, only never to leave out a row that matches. The search
knows topics, partitions, a range of offsets and the earliest timestamp. (A latest timestamp would skip
nothing: an index knows the largest timestamp of a segment, not the smallest.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from minikafka.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Search:
    """Where rows may be that match all filters; None: anywhere."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first_offset: int | None = None
    end_offset: int | None = None
    timestamp_ms_min: int | None = None

    def includes(self, topic_partition: TopicPartition) -> bool:
        topic, partition = topic_partition
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )


def narrowed(filters: Iterable[Filter]) -> Search:
    """The search that all of ``filters`` leave; those that it cannot use leave it as it is."""
    search = Search()
    for each in filters:
        search = _narrow(search, each)
    return search


def _narrow(search: Search, each: Filter) -> Search:
    values: tuple[Any, ...]
    match each:
        case EqualTo(attribute, value) | EqualNullSafe(attribute, value):
            values = (value,)
        case In(attribute, listed):
            values = tuple(listed)
        case GreaterThan((name,), value) | GreaterThanOrEqual((name,), value):
            return _above(search, name, value, is_open=isinstance(each, GreaterThan))
        case LessThan(("offset",), int(value)):
            return _below(search, value)
        case LessThanOrEqual(("offset",), int(value)):
            return _below(search, value + 1)
        case _:
            return search
    match attribute:
        case ("topic",):
            return replace(search, topics=_both(search.topics, values))
        case ("partition",):
            return replace(search, partitions=_both(search.partitions, values))
        case ("offset",) if values and all(isinstance(value, int) for value in values):
            return _below(_above(search, "offset", min(values), is_open=False), max(values) + 1)
        case ("timestamp",) if values and all(isinstance(value, datetime) for value in values):
            return _above(search, "timestamp", min(values), is_open=False)
    return search


def _both(known: frozenset[Any] | None, values: tuple[Any, ...]) -> frozenset[Any]:
    return frozenset(values) if known is None else known & frozenset(values)


def _above(search: Search, name: str, value: Any, *, is_open: bool) -> Search:
    if name == "offset" and isinstance(value, int):
        first = value + is_open
        return replace(search, first_offset=max(first, search.first_offset or first))
    if name == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
        earliest = int(value.timestamp() // 0.001)  # rounded down: a timestamp in the log is whole ms
        return replace(search, timestamp_ms_min=max(earliest, search.timestamp_ms_min or earliest))
    return search


def _below(search: Search, end: int) -> Search:
    return replace(search, end_offset=end if search.end_offset is None else min(end, search.end_offset))
