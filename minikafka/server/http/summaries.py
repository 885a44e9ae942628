"""Samples of a summary, as a scrape shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from minikafka.metrics.series import QUANTILES, Sample, Series
from minikafka.metrics.timer import KafkaTimer

SHARES: Final = tuple(float(text) for text in QUANTILES)


def summary(
    series: Series, values: list[float], *, count: int, labels: tuple[str, ...] = ()
) -> Iterator[Sample]:
    """``values`` for ``SHARES``. Without a sum: where only some values are taken, there is none (nor does the
    JMX exporter give one)."""
    for quantile, value in zip(QUANTILES, values, strict=True):
        yield Sample(series, value, (*labels, quantile))
    yield Sample(series, count, labels, "_count")


def timer_summary(series: Series, timer: KafkaTimer) -> Iterator[Sample]:
    """Of a timer's durations."""
    return summary(series, timer.quantiles_ms(SHARES), count=timer.count)
