"""Rates, totals and the token bucket give Kafka's numbers (KAFKA-2084, KIP-13, KIP-599)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.metrics.sensors import (
    INT_MAX,
    Avg,
    Max,
    Quota,
    Rate,
    TokenBucket,
    WindowConfig,
    rate_throttle_time_ms,
    tokens_throttle_time_ms,
)

ELEVEN_SECONDS = WindowConfig(samples=11, window_ms=1000)
STEPS = st.lists(
    st.tuples(st.sampled_from([0, 1, 9, 100, 999, 1000, 1001, 2500, 12_000]), st.integers(-5, 50)),
    min_size=1,
    max_size=60,
)


class NaiveSamples:
    """Every value is kept; what counts is worked out from scratch."""

    def __init__(self, config: WindowConfig) -> None:
        self.config = config
        self.samples: list[tuple[int, list[tuple[int, int]]]] = []
        self.restarts: list[int] = []

    def record(self, value: int, now_ms: int) -> None:
        if not self.samples or now_ms - self.samples[-1][0] >= self.config.window_ms:
            self.samples.append((now_ms, []))
            self.samples = self.samples[-(self.config.samples + 1) :]
        self.samples[-1][1].append((now_ms, value))

    def alive(self, now_ms: int) -> list[tuple[int, list[int]]]:
        """When each sample began, and what is in it; those that are over begin now, and stay so."""
        over_ms = now_ms - self.config.samples * self.config.window_ms
        self.samples = [
            (now_ms, []) if max([start, *(at for at, _ in events)]) <= over_ms else (start, events)
            for start, events in self.samples
        ]
        return [(start, [value for _, value in events]) for start, events in self.samples]


@pytest.mark.parametrize(
    ("now_ms", "window_ms"),
    [
        (0, 10_000),
        (1, 10_001),
        (999, 10_999),
        (1000, 10_000),
        (5500, 10_500),
        (10_000, 10_000),
        (11_400, 11_400),
    ],
)
def test_a_rate_is_over_all_windows_but_one_at_least(now_ms: int, window_ms: int) -> None:
    """Formula 2: eleven samples of a second, a burst at 0, and one byte every half second."""
    rate = Rate(ELEVEN_SECONDS)
    rate.record(5000, 0)
    for at_ms in range(500, now_ms + 1, 500):
        rate.record(0, at_ms)
    assert rate.window_size_ms(now_ms) == window_ms
    assert rate.measure(now_ms) == pytest.approx(5000 * 1000 / window_ms)


def test_a_rate_over_one_sample_is_over_a_millisecond_at_least() -> None:
    rate = Rate(WindowConfig(samples=1, window_ms=1000))
    rate.record(5, 100)
    assert (rate.window_size_ms(100), rate.measure(100)) == (1, 5000)


@given(samples=st.integers(1, 12), steps=STEPS)
def test_rates_means_and_largest_values_are_those_of_a_naive_model(
    samples: int, steps: list[tuple[int, int]]
) -> None:
    config = WindowConfig(samples, 1000)
    rate, avg, largest = Rate(config), Avg(config), Max(config)
    naive = NaiveSamples(config)
    now_ms = 0
    for passing_ms, value in steps:
        now_ms += passing_ms
        for each in (rate, avg, largest, naive):
            each.record(value, now_ms)  # type: ignore[attr-defined]
        alive = naive.alive(now_ms)
        values = [each for _, inside in alive for each in inside]
        elapsed_ms = now_ms - min(start for start, _ in alive)
        while elapsed_ms // 1000 < samples - 1:
            elapsed_ms += 1000
        assert rate.measure(now_ms) == pytest.approx(sum(values) * 1000 / max(1, elapsed_ms))
        assert avg.measure(now_ms) == pytest.approx(sum(values) / len(values))
        assert largest.measure(now_ms) == max(values)


def test_without_values_there_is_no_mean_and_no_largest() -> None:
    assert math.isnan(Avg(ELEVEN_SECONDS).measure(0)) and math.isnan(Max(ELEVEN_SECONDS).measure(0))


# Throttle times


@pytest.mark.parametrize(
    ("observed", "bound", "window_ms", "expected"),
    [(560, 500, 10_000, 1200), (500.0001, 500, 10_000, 0), (501, 500, 10_250, 21), (1e9, 1, 10_000, INT_MAX)],
)
def test_a_rate_waits_until_it_is_at_its_bound(
    observed: float, bound: float, window_ms: int, expected: int
) -> None:
    """Formula 3: round((observed - bound) / bound × window)."""
    assert rate_throttle_time_ms(observed=observed, bound=bound, window_ms=window_ms) == expected


def test_after_the_throttle_time_the_rate_is_at_its_bound() -> None:
    rate = Rate(ELEVEN_SECONDS)
    rate.record(5300, 0)
    waiting_ms = rate_throttle_time_ms(observed=rate.measure(0), bound=500, window_ms=rate.window_size_ms(0))
    assert waiting_ms == 600
    assert rate.measure(waiting_ms) == 500


def test_an_overspent_bucket_waits_for_its_tokens() -> None:
    """Formula 5, with the numbers of Kafka's own example: 100 windows of a second, 5 a second."""
    bucket = TokenBucket(WindowConfig(samples=100, window_ms=1000), 5)
    assert bucket.measure(0) == 500, "it is full at first"
    bucket.record(560, 0)
    assert bucket.measure(0) == -60
    assert tokens_throttle_time_ms(tokens=-60, tokens_per_s=5) == 12_000
    assert bucket.measure(12_000) == 0
    assert bucket.measure(10_000_000) == 500


def test_a_bucket_without_a_rate_is_never_empty_and_a_new_rate_limits_what_is_in_it() -> None:
    bucket = TokenBucket(WindowConfig(samples=10, window_ms=1000))
    bucket.record(1e9, 0)
    assert bucket.measure(0) == math.inf
    bucket.tokens_per_s = 2
    assert bucket.measure(0) == 20
    bucket.record(15, 0)
    bucket.tokens_per_s = 100
    assert bucket.measure(0) == 5


@given(rate=st.sampled_from([0.5, 1, 3]), steps=STEPS)
def test_a_bucket_holds_what_a_naive_one_holds(rate: float, steps: list[tuple[int, int]]) -> None:
    bucket, burst = TokenBucket(ELEVEN_SECONDS, rate), 11 * rate
    tokens, now_ms = burst, 0
    for passing_ms, value in steps:
        now_ms += passing_ms
        tokens = min(burst, tokens + passing_ms / 1000 * rate)
        assert bucket.measure(now_ms) == pytest.approx(tokens)
        bucket.record(value, now_ms)
        tokens = min(burst, tokens - value)
    assert bucket.measure(now_ms) == pytest.approx(tokens)


def test_a_bound_is_acceptable_itself() -> None:
    assert Quota(5).acceptable(5) and not Quota(5).acceptable(5.1)
    assert Quota(0, is_upper=False).acceptable(0) and not Quota(0, is_upper=False).acceptable(-0.1)
