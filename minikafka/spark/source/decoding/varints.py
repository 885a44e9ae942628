"""Signed varints at many positions of one buffer at once. Kafka: ``ByteUtils.readVarint``, ``readVarlong``.

As ``record_parser.read_varint``: zigzag, at most 5 bytes for an int and 10 for a long, bits that do
not fit are dropped. Positions past the end read the last byte instead of failing: the caller checks where a
field ended before it believes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from minikafka.protocol.records.record_parser import INT_BYTES_MAX

Octets = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_INT_MASK = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)


def read_varints(octets: Octets, positions: Int64s, bytes_max: int) -> tuple[Int64s, Int64s, Bools | None]:
    """The values at ``positions``, the positions behind them, and which are too long (None: none is)."""
    byte = octets.take(positions, mode="clip")
    value = (byte & 0x7F).astype(np.uint64)
    behind = positions + 1
    index: Any = np.flatnonzero(byte & 0x80)
    if index.size == byte.size:
        index = slice(None)
    shift = 7
    too_long: Bools | None = None
    while _size(index, byte):
        if shift == 7 * bytes_max:
            too_long = np.zeros(byte.size, dtype=np.bool_)
            too_long[index] = True
            break
        following = octets.take(behind[index], mode="clip")
        value[index] |= (following & 0x7F).astype(np.uint64) << np.uint64(shift)
        behind[index] += 1
        goes_on = following > 0x7F
        index = np.flatnonzero(goes_on) if isinstance(index, slice) else index[goes_on]
        shift += 7
    if bytes_max == INT_BYTES_MAX and shift > 28:
        value &= _INT_MASK
    return ((value >> _ONE) ^ (~(value & _ONE) + _ONE)).view(np.int64), behind, too_long


def skip_varints(octets: Octets, positions: Int64s, bytes_max: int) -> tuple[Int64s, Bools | None]:
    """The positions behind the varints at ``positions``, and which are too long (None: none is)."""
    byte = octets.take(positions, mode="clip")
    behind = positions + 1
    index = np.flatnonzero(byte & 0x80)
    read = 1
    while index.size:
        if read == bytes_max:
            too_long = np.zeros(byte.size, dtype=np.bool_)
            too_long[index] = True
            return behind, too_long
        following = octets.take(behind[index], mode="clip")
        behind[index] += 1
        index = index[following > 0x7F]
        read += 1
    return behind, None


def _size(index: Any, byte: Octets) -> int:
    return byte.size if isinstance(index, slice) else int(index.size)
