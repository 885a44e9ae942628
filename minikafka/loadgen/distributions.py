"""Distributions of sizes, keys and compressibility, as people write them.

Numbers: ``1024`` or ``fixed:1024``, ``uniform:LOW-HIGH``, ``normal:MEAN,DEVIATION``,
``lognormal:MEDIAN,SIGMA``. Keys: ``none``, ``sequential:COUNT`` (one after the other), ``uniform:COUNT``,
``zipf:COUNT,EXPONENT``. Dice are an argument, so that a seed gives the same records again.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from minikafka.errors import ConfigError

KEYS_MAX = 10_000_000
"""Zipf's table takes 8 bytes a key."""


class Shape(NamedTuple):
    """A kind of distribution: what its numbers are called, and what draws one from them."""

    names: tuple[str, ...]
    draw: Callable[..., float]
    """Of the dice and the numbers."""
    middles: int = 1
    """How many of the numbers, from the first on, are such as are drawn."""
    separator: str = ","


SHAPES = {
    "fixed": Shape(("VALUE",), lambda rng, value: value),
    "uniform": Shape(("LOW", "HIGH"), random.Random.uniform, middles=2, separator="-"),
    "normal": Shape(("MEAN", "DEVIATION"), random.Random.normalvariate),
    "lognormal": Shape(
        ("MEDIAN", "SIGMA"), lambda rng, median, sigma: median * rng.lognormvariate(0.0, sigma)
    ),
}
SIGMA_MAX = 50.0
"""Beyond, floats have no room for the tail."""


class Distribution(NamedTuple):
    """One of the shapes with its numbers."""

    shape: Shape
    numbers: tuple[float, ...]


def parse_distribution(name: str, text: str, *, low: float, high: float) -> Distribution:
    """See the module header; samples are kept from ``low`` to ``high``.

    Raises:
        ConfigError: it cannot be; names ``name``.
    """
    kind, found, rest = text.strip().partition(":")
    if not found:
        kind, rest = "fixed", kind
    shape = SHAPES.get(kind)
    if shape is None:
        raise ConfigError(f"{name} {text}: must be a number, or fixed:, uniform:, normal: or lognormal:")
    numbers = _numbers(name, text, rest, shape.names, separator=shape.separator)
    middles = numbers[: shape.middles]
    if sorted(middles) != list(middles):
        raise ConfigError(f"{name} {text}: LOW is above HIGH")
    if any(not low <= middle <= high for middle in middles):
        raise ConfigError(f"{name} {text}: must be from {low:g} to {high:g}")
    if kind == "lognormal" and numbers[1] > SIGMA_MAX:
        raise ConfigError(f"{name} {text}: SIGMA must be from 0 to {SIGMA_MAX:g}")
    return Distribution(shape, numbers)


def sample(distribution: Distribution, rng: random.Random, *, low: float, high: float) -> float:
    """One number, pulled to ``low`` or ``high`` where it lies outside."""
    return min(max(distribution.shape.draw(rng, *distribution.numbers), low), high)


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


def _numbers(
    name: str, text: str, rest: str, wanted: Sequence[str], *, separator: str = ","
) -> tuple[float, ...]:
    parts = rest.split(separator)
    try:
        numbers = tuple(float(part) for part in parts)
    except ValueError:
        numbers = ()
    if len(numbers) != len(wanted) or not all(0 <= number < math.inf for number in numbers):
        shape = f"{text.partition(':')[0]}:" if ":" in text else ""
        raise ConfigError(f"{name} {text}: must be {shape}{separator.join(wanted)}, numbers from 0")
    return numbers
