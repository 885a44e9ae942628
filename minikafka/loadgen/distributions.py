"""Distributions of sizes, keys and compressibility, as people write them.

Numbers: ``1024`` or ``fixed:1024``, ``uniform:LOW-HIGH``, ``normal:MEAN,DEVIATION``,
``lognormal:MEDIAN,SIGMA``. Keys: ``none``, ``sequential:COUNT`` (one after the other), ``uniform:COUNT``,
``zipf:COUNT,EXPONENT``. Dice are an argument, so that a seed gives the same records again.
"""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Callable, Sequence
from typing import assert_never

import msgspec

from minikafka.errors import ConfigError

KEYS_MAX = 10_000_000
"""Zipf's table takes 8 bytes a key."""


class Fixed(msgspec.Struct, frozen=True):
    """Always the same."""

    value: float


class Uniform(msgspec.Struct, frozen=True):
    """Every number from ``low`` to ``high``."""

    low: float
    high: float


class Normal(msgspec.Struct, frozen=True):
    """Gauss'."""

    mean: float
    deviation: float


class LogNormal(msgspec.Struct, frozen=True):
    """Its logarithm is normal: ``median`` in the middle, and a long tail that grows with ``sigma``."""

    median: float
    sigma: float


Distribution = Fixed | Uniform | Normal | LogNormal


def parse_distribution(name: str, text: str, *, low: float, high: float) -> Distribution:
    """See the module header; samples are kept from ``low`` to ``high``.

    Raises:
        ConfigError: it cannot be; names ``name``.
    """
    kind, found, rest = text.strip().partition(":")
    if not found:
        kind, rest = "fixed", kind
    distribution: Distribution
    match kind:
        case "fixed":
            (value,) = _numbers(name, text, rest, ["VALUE"])
            distribution = Fixed(value)
        case "uniform":
            distribution = Uniform(*_numbers(name, text, rest, ["LOW", "HIGH"], separator="-"))
            if distribution.low > distribution.high:
                raise ConfigError(f"{name} {text}: LOW is above HIGH")
        case "normal":
            distribution = Normal(*_numbers(name, text, rest, ["MEAN", "DEVIATION"]))
        case "lognormal":
            distribution = LogNormal(*_numbers(name, text, rest, ["MEDIAN", "SIGMA"]))
        case _:
            raise ConfigError(f"{name} {text}: must be a number, or fixed:, uniform:, normal: or lognormal:")
    for middle in _middles(distribution):
        if not low <= middle <= high:
            raise ConfigError(f"{name} {text}: must be from {low:g} to {high:g}")
    return distribution


def sample(distribution: Distribution, rng: random.Random, *, low: float, high: float) -> float:
    """One number, pulled to ``low`` or ``high`` where it lies outside."""
    match distribution:
        case Fixed():
            drawn = distribution.value
        case Uniform():
            drawn = rng.uniform(distribution.low, distribution.high)
        case Normal():
            drawn = rng.normalvariate(distribution.mean, distribution.deviation)
        case LogNormal():
            drawn = distribution.median * rng.lognormvariate(0.0, distribution.sigma)
        case _:
            assert_never(distribution)
    return min(max(drawn, low), high)


def key_picker(name: str, text: str, rng: random.Random) -> Callable[[int], bytes | None]:
    """A function from a record's number to its key. Raises ConfigError, which names ``name``."""
    kind, _, rest = text.strip().partition(":")
    match kind:
        case "none":
            return lambda number: None
        case "sequential" | "uniform":
            (count,) = _numbers(name, text, rest, ["COUNT"])
            keys = _checked_count(name, text, count)
            if kind == "sequential":
                return lambda number: b"key-%d" % (number % keys)
            return lambda number: b"key-%d" % rng.randrange(keys)
        case "zipf":
            count, exponent = _numbers(name, text, rest, ["COUNT", "EXPONENT"])
            table = _zipf_table(_checked_count(name, text, count), exponent)
            return lambda number: b"key-%d" % bisect.bisect_left(table, rng.random() * table[-1])
        case _:
            raise ConfigError(f"{name} {text}: must be none, sequential:, uniform: or zipf:")


def _zipf_table(keys: int, exponent: float) -> Sequence[float]:
    """The sums of the weights 1 / rank ** exponent."""
    return list(itertools.accumulate(rank**-exponent for rank in range(1, keys + 1)))


def _checked_count(name: str, text: str, count: float) -> int:
    if not 1 <= count <= KEYS_MAX or count != int(count):
        raise ConfigError(f"{name} {text}: COUNT must be a whole number from 1 to {KEYS_MAX}")
    return int(count)


def _middles(distribution: Distribution) -> tuple[float, ...]:
    match distribution:
        case Fixed():
            return (distribution.value,)
        case Uniform():
            return (distribution.low, distribution.high)
        case Normal():
            return (distribution.mean,)
        case LogNormal():
            return (distribution.median,)
        case _:
            assert_never(distribution)


def _numbers(
    name: str, text: str, rest: str, wanted: Sequence[str], *, separator: str = ","
) -> tuple[float, ...]:
    parts = rest.split(separator)
    try:
        numbers = tuple(float(part) for part in parts)
    except ValueError:
        numbers = ()
    if len(numbers) != len(wanted) or any(number < 0 or number == float("inf") for number in numbers):
        shape = f"{text.partition(':')[0]}:" if ":" in text else ""
        raise ConfigError(f"{name} {text}: must be {shape}{separator.join(wanted)}, numbers from 0")
    return numbers
