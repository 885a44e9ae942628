"""Sums and rates over sliding windows are those of Kafka's ``SampledStat`` and ``SimpleRate``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.metrics.sensors import SimpleRate, WindowConfig, WindowedSum

ELEVEN_SECONDS = WindowConfig(samples=11, window_ms=1000)


def rate_of(*events: tuple[int, int], windows: WindowConfig = ELEVEN_SECONDS) -> SimpleRate:
    """``events`` are values with their times in ms."""
    rate = SimpleRate(windows)
    for value, now_ms in events:
        rate.record(value, now_ms)
    return rate


def test_the_usual_windows_are_two_of_thirty_seconds() -> None:
    assert WindowConfig() == (2, 30_000)


def test_nothing_recorded_is_a_rate_of_nothing() -> None:
    assert SimpleRate(ELEVEN_SECONDS).measure(5) == 0


@pytest.mark.parametrize(("now_ms", "expected"), [(0, 500), (999, 500), (1000, 500), (2000, 250), (9999, 50)])
def test_the_first_values_are_taken_to_fill_a_window_then_time_goes_on(now_ms: int, expected: float) -> None:
    assert rate_of((500, 0)).measure(now_ms) == pytest.approx(expected, rel=1e-3)


def test_a_steady_stream_has_its_rate() -> None:
    rate = rate_of(*((100, now_ms) for now_ms in range(0, 60_000, 100)))
    assert rate.measure(60_000) == pytest.approx(1000, rel=0.1)


def test_what_is_as_old_as_all_windows_is_forgotten() -> None:
    rate = rate_of((500, 0))
    assert rate.measure(10_999) > 0
    assert rate.measure(11_000) == 0


def test_a_sample_is_as_old_as_its_last_value() -> None:
    windows = WindowedSum(ELEVEN_SECONDS)
    windows.record(1, 0)
    windows.record(1, 900)
    assert windows.sum_and_start(11_899) == (2, 0)
    assert windows.sum_and_start(11_900) == (0, 11_900)


def test_one_sample_more_than_configured_is_kept() -> None:
    windows = WindowedSum(WindowConfig(samples=1, window_ms=1000))
    for now_ms in (0, 999, 1000):
        windows.record(1, now_ms)
    assert windows.sum_and_start(1000) == (3, 0), "of the first sample a value is 1 ms old"
    windows.record(1, 2000)
    assert windows.sum_and_start(2000) == (1, 2000), "there is room for two, but the other one is too old"


class Model:
    """The plain words of the definition: a list of samples, each with the events that it holds."""

    def __init__(self, samples: int, window_ms: int) -> None:
        self.samples = samples
        self.window_ms = window_ms
        self.kept: list[tuple[int, list[tuple[int, int]]]] = []  # when it began, its events: time and value

    def record(self, value: int, now_ms: int) -> None:
        if not self.kept or now_ms >= self.kept[-1][0] + self.window_ms:
            self.kept = [*self.kept, (now_ms, [])][-(self.samples + 1) :]
        self.kept[-1][1].append((now_ms, value))

    def measure(self, now_ms: int) -> tuple[int, int]:
        oldest_allowed_ms = now_ms - self.samples * self.window_ms
        self.kept = [
            (now_ms, [])
            if max([began_ms, *(at for at, _ in events)]) <= oldest_allowed_ms
            else (began_ms, events)
            for began_ms, events in self.kept
        ]
        total = sum(value for _, events in self.kept for _, value in events)
        return total, min([now_ms, *(began_ms for began_ms, _ in self.kept)])


@given(
    samples=st.integers(1, 5),
    window_ms=st.sampled_from([1, 10, 1000]),
    steps=st.lists(
        st.tuples(
            st.sampled_from([0, 1, 5, 9, 10, 100, 400, 999, 1000, 1001, 2500]), st.none() | st.integers(0, 9)
        ),
        max_size=60,
    ),
)
def test_windows_sum_up_what_a_plain_model_sums_up(
    samples: int, window_ms: int, steps: list[tuple[int, int | None]]
) -> None:
    """Steps: time passes, then a value comes, or it is measured."""
    windows, rate = (kind(WindowConfig(samples, window_ms)) for kind in (WindowedSum, SimpleRate))
    assert isinstance(windows, WindowedSum) and isinstance(rate, SimpleRate)
    model, rate_model = Model(samples, window_ms), Model(samples, window_ms)
    now_ms = 0
    for passing_ms, value in steps:
        now_ms += passing_ms
        if value is not None:
            for each in (windows, rate, model, rate_model):
                each.record(value, now_ms)
            continue
        assert windows.sum_and_start(now_ms) == model.measure(now_ms)
        total, oldest_ms = rate_model.measure(now_ms)
        assert rate.measure(now_ms) == pytest.approx(1000 * total / max(window_ms, now_ms - oldest_ms))


@given(
    samples=st.integers(1, 12),
    others=st.lists(st.integers(0, 400), max_size=200),
    behind_ms=st.integers(0, 20_000),
)
def test_a_value_counts_for_all_windows_and_less_than_one_more(
    samples: int, others: list[int], behind_ms: int
) -> None:
    windows = WindowedSum(WindowConfig(samples, 100))
    windows.record(1, 0)
    now_ms = 0
    for passing_ms in others:
        now_ms += passing_ms
        windows.record(0, now_ms)
    now_ms += behind_ms
    counted, _ = windows.sum_and_start(now_ms)
    if now_ms < samples * 100:
        assert counted == 1
    if now_ms >= (samples + 1) * 100:
        assert counted == 0
