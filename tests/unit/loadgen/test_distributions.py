"""Distributions are what they say, and a seed gives the same records again."""

from __future__ import annotations

import random
import statistics
from collections import Counter

import pytest

from minikafka.errors import ConfigError
from minikafka.loadgen.workload import (
    UNTIMED,
    key_picker,
    make_pool,
    parse_distribution,
    sample,
    stamp_of,
    stamped,
)


def draw(text: str, *, count: int = 20_000) -> list[float]:
    rng = random.Random(5)
    distribution = parse_distribution("--record-size", text, low=0, high=1e9)
    return [sample(distribution, rng, low=0, high=1e9) for _ in range(count)]


def test_numbers_are_distributed_as_they_say() -> None:
    assert set(draw("100", count=10)) == {100} == set(draw("fixed:100", count=10))
    uniform = draw("uniform:100-300")
    assert min(uniform) >= 100 and max(uniform) <= 300
    assert statistics.mean(uniform) == pytest.approx(200, rel=0.02)
    normal = draw("normal:1000,50")
    assert statistics.mean(normal) == pytest.approx(1000, rel=0.01)
    assert statistics.stdev(normal) == pytest.approx(50, rel=0.05)
    lognormal = draw("lognormal:1000,1")
    assert statistics.median(lognormal) == pytest.approx(1000, rel=0.05)
    assert statistics.mean(lognormal) > 1500, "the tail is long"


def test_samples_stay_within_bounds() -> None:
    distribution = parse_distribution("--compressibility", "normal:0.5,5", low=0, high=1)
    rng = random.Random(1)
    assert all(0 <= sample(distribution, rng, low=0, high=1) <= 1 for _ in range(1000))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x", "must be VALUE"),
        ("uniform:5", "must be uniform:LOW-HIGH"),
        ("uniform:9-5", "LOW is above HIGH"),
        ("normal:1", "must be normal:MEAN,DEVIATION"),
        ("lognormal:-1,2", "must be lognormal:MEDIAN,SIGMA"),
        ("pareto:1", "must be a number, or fixed:"),
        ("fixed:2e9", "must be from 0 to 1e+09"),
        ("nan", "must be VALUE"),
        ("normal:5,nan", "must be normal:MEAN,DEVIATION"),
        ("lognormal:5,1e9", "SIGMA must be from 0 to 50"),
    ],
)
def test_what_cannot_be_is_said_with_the_name_of_the_option(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=r"^--record-size ") as caught:
        parse_distribution("--record-size", text, low=0, high=1e9)
    assert complaint in str(caught.value)


def keys(text: str, count: int) -> list[bytes | None]:
    pick = key_picker("--keys", text, random.Random(3))
    return [pick(number) for number in range(count)]


def test_keys_are_chosen_as_asked() -> None:
    assert keys("none", 2) == [None, None]
    assert keys("sequential:3", 4) == [b"key-0", b"key-1", b"key-2", b"key-0"]
    assert len(set(keys("uniform:50", 5000))) == 50
    counts = [count for _, count in Counter(keys("zipf:1000,1", 50_000)).most_common()]
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.2), "the tenth has a tenth of the first"


@pytest.mark.parametrize("text", ["zipf:10", "uniform:0", "uniform:1.5", "sequential:x", "round-robin:3"])
def test_keys_that_cannot_be(text: str) -> None:
    with pytest.raises(ConfigError, match=f"--keys {text}: "):
        key_picker("--keys", text, random.Random(0))


def test_a_seed_gives_the_same_records_again() -> None:
    def pool(seed: int) -> object:
        return make_pool(record_size="uniform:10-90", keys="zipf:9,1", compressibility="0.5", seed=seed)

    assert pool(1) == pool(1) != pool(2)


def test_the_compressible_share_is_one_byte_over_and_over() -> None:
    value = make_pool(record_size="1000", keys="none", compressibility="0.75", seed=1).values[0]
    assert len(value) == 1000 and value.endswith(b"x" * 750)
    assert len(set(value[:250])) > 100


def test_big_records_make_a_small_pool() -> None:
    assert len(make_pool(record_size="10000000", keys="none", compressibility="1", seed=1).values) == 16


def test_a_stamp_says_when_a_record_was_due() -> None:
    assert stamp_of(stamped(b"v" * 100, 123)) == 123
    assert len(stamped(b"v" * 100, 1)) == 100
    assert len(stamped(b"", 1)) == 8
    assert stamp_of(b"short") == stamp_of(None) == UNTIMED
