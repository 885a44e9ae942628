"""The records that a producer sends: a pool of keys and values, the same for the same seed, used in a circle.

A record that is to be timed begins with a stamp: the moment at which it was due. ``UNTIMED`` is the stamp of
records that are only counted (a backlog).

Sizes, keys and compressibility are distributions, as people write them. Numbers: ``1024`` or ``fixed:1024``,
``uniform:LOW-HIGH``, ``normal:MEAN,DEVIATION``, ``lognormal:MEDIAN,SIGMA``. Keys: ``none``,
``sequential:COUNT`` (one after the other), ``uniform:COUNT``, ``zipf:COUNT,EXPONENT``. Dice are an argument,
so that a seed gives the same records again.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from minikafka.errors import ConfigError

KEYS_MAX = 10_000_000
"""Zipf's table takes 8 bytes a key."""

SIGMA_MAX = 50.0
"""Beyond, floats have no room for the tail."""

POOL_RECORDS = 16_384
POOL_BYTES_MAX = 64 * 1024 * 1024
"""Big records make a smaller pool, of ``POOL_RECORDS_MIN`` at least."""
POOL_RECORDS_MIN = 16

SIZE_MAX = 100 * 1024 * 1024
STAMP = struct.Struct(">Q")
UNTIMED = 0


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


class Pool(msgspec.Struct, frozen=True):
    """``keys[i]`` and ``values[i]`` are record ``i`` modulo the length of the pool."""

    keys: list[bytes | None]
    values: list[bytes]

    @property
    def is_keyed(self) -> bool:
        return self.keys[0] is not None


def make_pool(
    *, record_size: str, keys: str, compressibility: str, seed: int, payload: bytes | None = None
) -> Pool:
    """Records by the given distributions; ``payload`` is every value when it is given.

    Raises:
        ConfigError: a distribution cannot be; it names the option.
    """
    rng = random.Random(seed)
    pick = key_picker("--keys", keys, rng)
    if payload is not None:
        return Pool([pick(number) for number in range(POOL_RECORDS)], [payload] * POOL_RECORDS)
    draw = value_maker(record_size, compressibility, rng)
    pool = Pool([], [])
    size = 0
    while len(pool.values) < POOL_RECORDS and (size < POOL_BYTES_MAX or len(pool.values) < POOL_RECORDS_MIN):
        pool.keys.append(pick(len(pool.values)))
        pool.values.append(draw())
        size += len(pool.values[-1])
    return pool


def value_maker(record_size: str, compressibility: str, rng: random.Random) -> Callable[[], bytes]:
    """What draws one value after the other: of the size, and that share of it one repeated byte."""
    sizes = parse_distribution("--record-size", record_size, low=0, high=SIZE_MAX)
    shares = parse_distribution("--compressibility", compressibility, low=0, high=1)

    def draw() -> bytes:
        size = round(sample(sizes, rng, low=0, high=SIZE_MAX))
        repeated = round(size * sample(shares, rng, low=0, high=1))
        return rng.randbytes(size - repeated) + b"x" * repeated

    return draw


def mean_size(record_size: str, payload: bytes | None) -> int:
    """Bytes of an average record, 1 at least."""
    values = make_pool(
        record_size=record_size, keys="none", compressibility="1", seed=0, payload=payload
    ).values
    return max(sum(map(len, values)) // len(values), 1)


def stamped(value: bytes, due_ns: int) -> bytes:
    """The value with its first bytes replaced by the stamp; a smaller one grows to the stamp's size."""
    return STAMP.pack(due_ns) + value[STAMP.size :]


def stamp_of(value: bytes | None) -> int:
    """When the record was due, ``UNTIMED`` for one without a stamp."""
    return STAMP.unpack_from(value)[0] if value is not None and len(value) >= STAMP.size else UNTIMED
