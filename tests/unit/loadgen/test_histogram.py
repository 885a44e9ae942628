"""Latencies counted in many places have the percentiles of all of them together."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.loadgen.messages import HIGHEST_US, Latencies, empty, merged, percentiles


def encoded(latencies: list[int]) -> str:
    counted = Latencies()
    for latency in latencies:
        counted.add(latency)
    return counted.encoded()


@settings(max_examples=25)  # each latency is a case of its own; the histogram of the library is slow
@given(st.lists(st.lists(st.integers(1, HIGHEST_US), max_size=50), max_size=5))
def test_merged_is_as_if_counted_in_one_place(parts: list[list[int]]) -> None:
    whole = empty()
    for part in parts:
        for latency in part:
            whole.record_value(latency)
    assert percentiles(merged(map(encoded, parts))) == percentiles(whole)


def test_percentiles_are_milliseconds() -> None:
    found = percentiles(merged([encoded([1000] * 98 + [2_000_000] * 2)]))
    assert found is not None
    assert (found.count, found.at(50)) == (100, 1.0)
    assert 1999 < found.at(99) <= found.at(99.99) <= found.max_ms < 2001


def test_many_alike_are_counted_at_once() -> None:
    counted = Latencies()
    counted.add(5, 1000)
    assert percentiles(merged([counted.encoded()])) == percentiles(merged([encoded([5] * 1000)]))


def test_nothing_has_no_percentiles() -> None:
    assert percentiles(merged([encoded([]), ""])) is None


def test_what_is_longer_than_an_hour_counts_as_one() -> None:
    found = percentiles(merged([encoded([HIGHEST_US * 10])]))
    assert found is not None and 3_590_000 < found.max_ms < 3_610_000
