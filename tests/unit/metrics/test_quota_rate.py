"""A client that takes all it can get has what its quota allows, over any time that is long enough."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.metrics.sensors import DEBT_WINDOWS, QuotaRate, Rate, WindowConfig, rate_throttle_time_ms

WINDOWS = WindowConfig(samples=11, window_ms=1000)
BOUND = 1000


def rate_of_bound(bound: float = BOUND) -> QuotaRate:
    return QuotaRate(WINDOWS, bound=bound)


def throttle_time_ms(rate: QuotaRate | Rate, now_ms: int, bound: float = BOUND) -> int:
    observed = rate.measure(now_ms)
    if observed <= bound:
        return 0
    return rate_throttle_time_ms(observed=observed, bound=bound, window_ms=rate.window_size_ms(now_ms))


def greedy(rate: QuotaRate | Rate, *, clients: int, size: int, seconds: int) -> list[tuple[int, int]]:
    """When each request of clients came who share a quota and wait for nothing else; and its size."""
    due = [(number, number) for number in range(clients)]
    requests: list[tuple[int, int]] = []
    while due[0][0] < seconds * 1000:
        now_ms, client = heapq.heappop(due)
        rate.record(size, now_ms)
        requests.append((now_ms, size))
        heapq.heappush(due, (now_ms + 1 + throttle_time_ms(rate, now_ms), client))
    return requests


def had(requests: list[tuple[int, int]], start_s: int, stop_s: int) -> int:
    return sum(size for at_ms, size in requests if start_s * 1000 <= at_ms < stop_s * 1000)


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 5000)), min_size=1, max_size=40))
def test_it_is_kafkas_rate_until_the_first_sample_is_forgotten(steps: list[tuple[int, int]]) -> None:
    """And so are the throttle times that clients see."""
    ours, kafkas = rate_of_bound(), Rate(WINDOWS)
    now_ms = 0
    for pause_ms, value in steps:
        now_ms += pause_ms
        if now_ms >= WINDOWS.all_ms:
            break
        ours.record(value, now_ms)
        kafkas.record(value, now_ms)
        assert ours.measure(now_ms) == pytest.approx(kafkas.measure(now_ms))
        assert ours.window_size_ms(now_ms) == kafkas.window_size_ms(now_ms)


@pytest.mark.parametrize(("clients", "size"), [(1, 20), (1, 1000), (10, 200), (10, 1000), (10, 2000)])
def test_greedy_clients_have_what_is_allowed_and_no_more(clients: int, size: int) -> None:
    requests = greedy(rate_of_bound(), clients=clients, size=size, seconds=200)
    for second in range(45, 200):
        assert had(requests, 0, second) <= BOUND * second + clients * size
    for start_s in range(60, 160, 7):
        assert had(requests, start_s, start_s + 30) == pytest.approx(30 * BOUND, abs=size)


@pytest.mark.parametrize(("clients", "size", "lowest", "highest"), [(1, 20, 0.8, 1.09), (10, 1000, 1.4, 1.5)])
def test_what_kafkas_rate_allows_them(clients: int, size: int, lowest: float, highest: float) -> None:
    """It is no defect of ours that is mended here: one client's bursts come back, ten clients' debts go."""
    requests = greedy(Rate(WINDOWS), clients=clients, size=size, seconds=200)
    found = [had(requests, start_s, start_s + 30) / (30 * BOUND) for start_s in range(12, 170)]
    assert min(found) < lowest if clients == 1 else min(found) > lowest
    assert max(found) > highest


def test_what_was_not_taken_is_forgotten() -> None:
    """After an hour of silence there are ten seconds' worth, and not an hour's."""
    rate = rate_of_bound()
    rate.record(500, 0)
    rate.record(10 * BOUND, 3_600_000)
    assert throttle_time_ms(rate, 3_600_000) == 0
    rate.record(2 * BOUND, 3_600_000)
    assert throttle_time_ms(rate, 3_600_000) == 2000
    slow = rate_of_bound()
    for second in range(100):
        slow.record(BOUND / 10, 1000 * second)
    slow.record(12 * BOUND, 100_000)
    assert throttle_time_ms(slow, 100_000) >= 1000, "twelve seconds are remembered, at most"


def test_a_debt_is_remembered_but_not_for_ever() -> None:
    rate = rate_of_bound()
    rate.record(60 * BOUND, 0)
    assert throttle_time_ms(rate, 0) == 50_000
    assert throttle_time_ms(rate, 30_000) == 30_000, "in Kafka it is forgotten after eleven seconds"
    assert throttle_time_ms(rate, 59_000) == 1000
    assert throttle_time_ms(rate, 60_000) == 0
    rate = rate_of_bound()
    rate.record(1e9, 0)
    over_ms = (DEBT_WINDOWS + 1) * WINDOWS.all_ms
    assert throttle_time_ms(rate, over_ms - 1) > 0
    assert throttle_time_ms(rate, over_ms) == 0


def test_what_was_within_another_bound_is_no_debt_now() -> None:
    rate = rate_of_bound(1_000_000)
    rate.record(1_000_000, 0)
    rate.bound = 100
    assert throttle_time_ms(rate, 0, bound=100) > 0, "as in Kafka, while it is in the windows"
    rate.record(100, 12_000)
    assert throttle_time_ms(rate, 12_000, bound=100) == 0


def test_what_is_undone_was_never_there() -> None:
    rate = rate_of_bound()
    rate.record(5 * BOUND, 0)
    for second in range(10):
        rate.record(1e6, 1000 * second)
        rate.record(-1e6, 1000 * second)
    assert throttle_time_ms(rate, 9000) == 0
    rate.record(6 * BOUND, 9000)
    assert throttle_time_ms(rate, 9000) == 1000
    assert "QuotaRate" in repr(rate)
