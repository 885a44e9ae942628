"""Java's string hash, by which Kafka spreads partitions over fetchers and groups over partitions.

Kafka: ``String.hashCode`` and ``Utils.abs``.
"""

from __future__ import annotations

_INT_MIN = -(2**31)


def string_hash(text: str) -> int:
    """``String.hashCode`` as Java's int: of the UTF-16 code units."""
    number = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        number = (31 * number + (high << 8 | low)) & 0xFFFF_FFFF
    return to_int(number)


def to_int(number: int) -> int:
    """The lower 32 bits as Java's int."""
    return (number - _INT_MIN) % 2**32 + _INT_MIN


def java_abs(number: int) -> int:
    """The absolute value of a Java int, which for the smallest one is 0 (``Utils.abs``)."""
    return 0 if number == _INT_MIN else abs(number)
