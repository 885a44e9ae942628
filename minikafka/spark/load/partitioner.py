"""Which partition a record goes to. Kafka: ``BuiltInPartitioner``, ``Utils.murmur2`` (KIP-794).

A record with a key goes where Kafka's producers send it, by the murmur2 hash of the key's bytes; so a topic
may get further records from a producer, and those of one key stay together. Records without a key go to one
partition until a batch is full, then to the next: in turn, where Kafka draws them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minikafka.spark.load.encode import Int64s, Octets, parts_of

UInt32s = npt.NDArray[np.uint32]

_SEED: Final = np.uint32(0x9747B28C)
_M: Final = np.uint32(0x5BD1E995)
_R: Final = np.uint32(24)
_NOT_NEGATIVE: Final = np.uint32(0x7FFFFFFF)

_STEPS_MAX: Final = 256
"""Words of keys that are hashed in step with others; a longer key would be a step over arrays for each."""


def murmur2(keys: pa.Array) -> UInt32s:
    """The hash of each element of a binary column; that of no bytes for null."""
    offsets, octets = parts_of(keys)
    starts, sizes = offsets[:-1], np.diff(offsets)
    if keys.null_count:
        sizes = np.where(keys.is_null().to_numpy(zero_copy_only=False), 0, sizes)
    padded = octets if octets.size >= 4 else np.concatenate([octets, np.zeros(4, dtype=np.uint8)])
    words: Any = np.ndarray(shape=(padded.size - 3,), dtype="<u4", buffer=padded, strides=(1,))
    hashes = _SEED ^ sizes.astype(np.uint32)
    word_counts = sizes >> 2
    longest = int(word_counts.max()) if word_counts.size else 0
    for step in range(min(longest, _STEPS_MAX)):
        index: Any = np.flatnonzero(word_counts > step)
        if index.size == sizes.size:
            index = slice(None)
        hashes[index] = _mixed(hashes[index], words[starts[index] + 4 * step])
    if longest > _STEPS_MAX:
        for row in np.flatnonzero(word_counts > _STEPS_MAX).tolist():
            hashes[row] = _rest_of(hashes[row], words, int(starts[row]), int(word_counts[row]))
    return _finished(hashes, octets, starts + 4 * word_counts, sizes & 3)


def _mixed(hashes: Any, word: Any) -> Any:
    k = word.astype(np.uint32) * _M
    k ^= k >> _R
    k *= _M
    return hashes * _M ^ k


def _rest_of(value: Any, words: Any, start: int, count: int) -> int:
    """A long key's hash, word by word. Python's numbers: numpy's warn of what overflows alone."""
    mask, m = 0xFFFFFFFF, int(_M)
    h = int(value)
    for k in words[start + 4 * _STEPS_MAX : start + 4 * count : 4].tolist():
        k = k * m & mask
        k ^= k >> 24
        h = (h * m & mask) ^ (k * m & mask)
    return h


def _finished(hashes: UInt32s, octets: Octets, tails: Int64s, left: Int64s) -> UInt32s:
    """With the one to three bytes behind the last whole word, and the last mixing."""
    for place in (2, 1, 0):
        index = np.flatnonzero(left > place)
        if index.size:
            hashes[index] ^= octets[tails[index] + place].astype(np.uint32) << np.uint32(8 * place)
    index = np.flatnonzero(left)
    hashes[index] *= _M
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes


class Partitioner:
    """Assigns the records of one task."""

    def __init__(self, partitions: int, *, batch_bytes: int, first: int = 0) -> None:
        """``first``: where records without a key begin, so that tasks do not all begin at the same."""
        self._partitions = partitions
        self._batch_bytes = batch_bytes
        self._turn_bytes = first % partitions * batch_bytes

    def assign(self, keys: pa.Array, sizes: Int64s) -> npt.NDArray[np.int32]:
        """The partition of each record. ``sizes``: bytes of each record, at most."""
        count = len(keys)
        if self._partitions == 1:
            return np.zeros(count, dtype=np.int32)
        if keys.null_count == count:
            return self._in_turn(sizes)
        chosen = ((murmur2(keys) & _NOT_NEGATIVE) % np.uint32(self._partitions)).astype(np.int32)
        if keys.null_count:
            without = np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))
            chosen[without] = self._in_turn(sizes[without])
        return chosen

    def _in_turn(self, sizes: Int64s) -> npt.NDArray[np.int32]:
        ends = np.cumsum(sizes) + self._turn_bytes
        begun = (ends - sizes) // self._batch_bytes
        if ends.size:
            self._turn_bytes = int(ends[-1]) % (self._batch_bytes * self._partitions)
        return (begun % self._partitions).astype(np.int32)
