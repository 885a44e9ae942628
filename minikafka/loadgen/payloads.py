"""The records that a producer sends: a pool of keys and values, the same for the same seed, used in a circle.

A record that is to be timed begins with a stamp: the moment at which it was due. ``UNTIMED`` is the stamp of
records that are only counted (a backlog).
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import msgspec

from minikafka.loadgen.distributions import key_picker, parse_distribution, sample

POOL_RECORDS = 16_384
POOL_BYTES_MAX = 64 * 1024 * 1024
"""Big records make a smaller pool, of ``POOL_RECORDS_MIN`` at least."""
POOL_RECORDS_MIN = 16

SIZE_MAX = 100 * 1024 * 1024
STAMP = struct.Struct(">Q")
UNTIMED = 0


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
