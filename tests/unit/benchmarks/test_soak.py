"""``bin/bench soak``: what is called flat."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.benchmarks import soak
from tests.benchmarks.soak import SERIES, Series

MEMORY = Series("resident", "MB", 0.05, 4)


def verdict(values: list[float]) -> soak.Verdict:
    return soak.judged(MEMORY, [{"at_s": 10.0 * at, "resident": value} for at, value in enumerate(values)])


@pytest.mark.parametrize(
    ("values", "is_flat"),
    [
        ([*range(50, 100), *[100.0] * 50], True),  # it warms up
        ([100.0 + at % 7 for at in range(100)], True),  # segments come and go
        ([100.0 - at / 10 for at in range(100)], True),
        ([100.0 + at / 5 for at in range(100)], False),
        ([*[100.0] * 60, *(100.0 + at for at in range(40))], False),  # a leak that begins late
        ([100.0], False),
        ([], False),
    ],
)
def test_the_second_half_may_not_rise(values: list[float], is_flat: bool) -> None:
    assert verdict(values).is_flat is is_flat, verdict(values)


def test_a_sample_has_the_latencies_of_its_own_ten_seconds() -> None:
    points = [{"at_s": at, "p50_ms": at, "p99_ms": None if at < 15 else 10 * at} for at in range(30)]
    assert soak.latencies(points, 20) == {"p50": 14.5, "p99": 170}
    assert soak.latencies(points, 10) == {"p50": 4.5}
    assert soak.latencies(points, 60) == {}


def test_the_picture_is_an_svg_with_a_panel_for_each_series() -> None:
    samples = [{"at_s": 10.0 * at, **{series.name: 1.0 for series in SERIES}} for at in range(6)]
    picture = soak.picture(samples, [soak.judged(series, samples) for series in SERIES])
    lines = ElementTree.fromstring(picture).findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == len(SERIES)
    assert all(len(line.attrib["points"].split()) == len(samples) for line in lines)
