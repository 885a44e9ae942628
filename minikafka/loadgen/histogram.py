"""Latencies, counted where they arise and merged over processes: HDR histograms of three digits.

``Latencies`` is what a worker fills: a dict from latency to count, which costs a fraction of a recording into
the histogram; latencies that the histogram would not tell apart are counted as one already here. ``encoded``
is how it travels, ``merged`` what becomes of many.

Invariant: ``merged`` of any split of the latencies has the percentiles of all of them together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from minikafka.deferred import deferred

if TYPE_CHECKING:
    from hdrh import histogram as hdr
else:
    hdr = deferred("hdrh.histogram")  # so that the command line of `bench` is there without the extra

LOWEST_US = 1
HIGHEST_US = 3_600_000_000
"""An hour; what takes longer counts as that."""
DIGITS = 3

_KEPT_BITS = 11
"""The histogram's own resolution: 2048 steps between powers of two."""

PERCENTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99)


class Latencies(dict[int, int]):
    """Latency in microseconds → how many."""

    def add(self, latency_us: int, count: int = 1) -> None:
        """Count one, or ``count`` alike."""
        shift = latency_us.bit_length() - _KEPT_BITS
        if shift > 0:
            latency_us = latency_us >> shift << shift
        self[latency_us] = self.get(latency_us, 0) + count

    def encoded(self) -> str:
        """HdrHistogram's own compressed form, base64; ``""`` for none at all."""
        if not self:
            return ""
        histogram = empty()
        for latency_us, count in self.items():
            histogram.record_value(min(max(latency_us, LOWEST_US), HIGHEST_US), count)
        text: bytes = histogram.encode()
        return text.decode()


class Percentiles(msgspec.Struct, frozen=True):
    """What is said of many latencies, in milliseconds."""

    count: int
    mean_ms: float
    max_ms: float
    at_ms: dict[str, float]
    """Percentile (``"50"``, ``"99.9"``) → latency."""

    def at(self, percentile: float) -> float:
        return self.at_ms[f"{percentile:g}"]


def empty() -> hdr.HdrHistogram:
    return hdr.HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS)


def merged(encoded: Iterable[str]) -> hdr.HdrHistogram:
    """All of them in one."""
    histogram = empty()
    for text in encoded:
        if text:
            histogram.decode_and_add(text.encode())
    return histogram


def percentiles(histogram: hdr.HdrHistogram) -> Percentiles | None:
    """None when nothing was counted."""
    if not histogram.get_total_count():
        return None
    return Percentiles(
        count=histogram.get_total_count(),
        mean_ms=histogram.get_mean_value() / 1000,
        max_ms=histogram.get_max_value() / 1000,
        at_ms={f"{each:g}": histogram.get_value_at_percentile(each) / 1000 for each in PERCENTILES},
    )
