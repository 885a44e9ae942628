"""Percentiles are as exact as their buckets are wide, over sliding windows."""

from __future__ import annotations

import math
from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.metrics.percentiles import Percentiles, constant_buckets, linear_buckets
from minikafka.metrics.windows import WindowConfig

WINDOWS = WindowConfig(samples=2, window_ms=1000)


def test_buckets_are_equally_wide_or_wider_and_wider() -> None:
    assert constant_buckets(4, smallest=2, largest=10) == [2, 4, 6, 8]
    assert linear_buckets(5, largest=100) == [0, 10, 30, 60, 100]


def test_of_a_hundred_values_the_percentile_is_the_number() -> None:
    percentiles = Percentiles(WINDOWS, constant_buckets(100, smallest=0, largest=100))
    for value in range(100):
        percentiles.record(value, 0)
    assert [percentiles.at(quantile).measure(0) for quantile in (0.01, 0.5, 0.99, 1)] == [0, 49, 98, 99]


def test_values_leave_with_their_window_and_none_is_no_number() -> None:
    percentiles = Percentiles(WINDOWS, [0, 10, 20])
    percentiles.record(25, 0)
    percentiles.record(5, 1000)
    assert percentiles.value(0.99, 1000) == 20
    assert percentiles.value(0.99, 2000) == 0, "the first window is over"
    assert math.isnan(percentiles.value(0.5, 3000))


@given(
    values=st.lists(st.integers(-10, 200), min_size=1, max_size=80),
    quantile=st.sampled_from([0.01, 0.5, 0.9, 0.99]),
)
def test_a_percentile_is_the_bucket_of_the_exact_one(values: list[int], quantile: float) -> None:
    bounds = linear_buckets(12, largest=150)
    percentiles = Percentiles(WINDOWS, bounds)
    for value in values:
        percentiles.record(value, 0)
    exact = sorted(values)[max(0, math.ceil(quantile * len(values)) - 1)]
    assert percentiles.value(quantile, 0) == pytest.approx(bounds[max(0, bisect_right(bounds, exact) - 1)])
