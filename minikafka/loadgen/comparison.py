"""Two targets that took turns: ratios of neighbouring turns, and how far they spread.

A ratio is of two turns next to each other, so that it holds while the machine's speed drifts; what is said of
many is their median, the least and the greatest, and a bootstrap interval of the median.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence

import msgspec

RESAMPLES = 2000
CONFIDENCE = 0.95
SEED = 8


class Spread(msgspec.Struct, frozen=True):
    """Of several measurements of one thing. ``low`` and ``high``: the median's interval, of 95 %."""

    median: float
    least: float
    greatest: float
    low: float
    high: float

    def text(self) -> str:
        return f"{number(self.median)} ({number(self.least)} – {number(self.greatest)})"


class Row(msgspec.Struct, frozen=True):
    """One measure of one workload, for both targets; ``ratio`` is of the first to the second."""

    workload: str
    measure: str
    unit: str
    first: Spread | None
    second: Spread | None
    ratio: Spread | None
    first_values: list[float]
    second_values: list[float]


def spread(values: Sequence[float]) -> Spread | None:
    """None of nothing. The same values have the same interval: the dice are seeded."""
    if not values:
        return None
    rng = random.Random(SEED)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = (1 - CONFIDENCE) / 2
    return Spread(
        median=statistics.median(values),
        least=min(values),
        greatest=max(values),
        low=medians[int(tail * RESAMPLES)],
        high=medians[int((1 - tail) * RESAMPLES) - 1],
    )


def row(
    workload: str, measure: str, unit: str, first: Sequence[float | None], second: Sequence[float | None]
) -> Row:
    """``first[i]`` and ``second[i]`` are neighbours; None: that turn failed, and no ratio is made of it."""
    pairs = [
        (one, other)
        for one, other in zip(first, second, strict=True)
        if one is not None and other is not None and other > 0
    ]
    first_values = [value for value in first if value is not None]
    second_values = [value for value in second if value is not None]
    return Row(
        workload=workload,
        measure=measure,
        unit=unit,
        first=spread(first_values),
        second=spread(second_values),
        ratio=spread([one / other for one, other in pairs]),
        first_values=first_values,
        second_values=second_values,
    )


def number(value: float) -> str:
    """Three digits that count."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def lines(rows: Sequence[Row], names: tuple[str, str]) -> list[str]:
    """A table in Markdown."""
    table = [
        f"| workload | {names[0]} | {names[1]} | ratio (least – greatest) | 95 % interval |",
        "|---|---|---|---|---|",
    ]
    for each in rows:
        cells = [
            f"{each.workload}: {each.measure}, {each.unit}",
            *(number(one.median) if one is not None else "failed" for one in (each.first, each.second)),
            each.ratio.text() if each.ratio is not None else "–",
            f"{number(each.ratio.low)} – {number(each.ratio.high)}" if each.ratio is not None else "–",
        ]
        table.append("| " + " | ".join(cells) + " |")
    return table
