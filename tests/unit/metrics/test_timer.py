"""Timers and one-minute rates give the numbers of Yammer's, which are Kafka's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.clock import ManualClock
from minikafka.metrics.request_metrics import RESERVOIR_SIZE, TICK_MS, KafkaTimer, OneMinuteRate

ALPHA = 1 - math.exp(-5 / 60)


def test_a_timer_counts_all_and_has_the_quantiles_of_the_latest_in_milliseconds() -> None:
    timer = KafkaTimer()
    assert (timer.count, timer.quantiles_ms([0.5, 0.99])) == (0, [0, 0])
    for _ in range(RESERVOIR_SIZE):
        timer.update(9_000_000)
    for duration_ms in range(RESERVOIR_SIZE):
        timer.update(duration_ms * 1_000_000)
    assert timer.count == 2 * RESERVOIR_SIZE
    assert timer.quantiles_ms([0, 0.5, 1]) == [0, (RESERVOIR_SIZE - 1) / 2, RESERVOIR_SIZE - 1]


def test_a_rate_is_known_after_the_first_tick_and_then_fades() -> None:
    clock = ManualClock()
    rate = OneMinuteRate(clock.monotonic_ms)
    for _ in range(10):
        rate.mark()
    clock.advance(TICK_MS - 1)
    assert rate.per_second() == 0
    clock.advance(1)
    assert rate.per_second() == 2
    clock.advance(60_000)
    assert rate.per_second() == pytest.approx(2 / math.e), "a minute without any"


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 5)), max_size=40))
def test_a_rate_that_is_asked_now_and_then_is_that_of_a_clock_that_ticks(
    steps: list[tuple[int, int]],
) -> None:
    """Yammer's ``EWMA``, ticked every five seconds, whatever came in between."""
    clock = ManualClock()
    rate = OneMinuteRate(clock.monotonic_ms)
    expected, counted, next_tick_ms = math.nan, 0, TICK_MS
    for pause_ms, marks in steps:
        clock.advance(pause_ms)
        while next_tick_ms <= clock.monotonic_ms():
            instant, counted = counted / 5, 0
            expected = instant if math.isnan(expected) else expected + ALPHA * (instant - expected)
            next_tick_ms += TICK_MS
        for _ in range(marks):
            rate.mark()
        counted += marks
    assert rate.per_second() == pytest.approx(0 if math.isnan(expected) else expected)
