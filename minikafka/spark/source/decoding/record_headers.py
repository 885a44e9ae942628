"""The headers of many records as one Arrow array of lists. Kafka: ``DefaultRecord.readHeaders``, KIP-82.

In step: the first header of every record that has one, then the second of those that have two, and so on;
each step reads its field for all records at once. A record without headers gets null, as in Spark's own
Kafka source. A header's key that is not UTF-8 is read with U+FFFD, as Java reads it.

Records with more headers than ``_STEPS_MAX`` go one by one behind that: a million headers in one record must
not cost a million steps over arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minikafka.protocol.records.compression import CorruptBatch
from minikafka.protocol.records.record_parser import INT_BYTES_MAX, read_varint
from minikafka.spark.source.decoding.varints import Bools, Octets, read_varints
from minikafka.spark.source.segment_scan import Int64s
from minikafka.types import Buffer

_STEPS_MAX = 64

_KEY, _VALUE = pa.string(), pa.binary()
_LIST = pa.list_(pa.field("element", pa.struct([pa.field("key", _KEY), pa.field("value", _VALUE)])))


class _Found:
    """Headers as they turn up: of which record, and where their parts lie."""

    def __init__(self) -> None:
        self._parts: list[tuple[Int64s, ...]] = []

    def add(self, *parts: Any) -> None:
        self._parts.append(tuple(np.asarray(part, dtype=np.int64) for part in parts))

    def by_record(self) -> tuple[Int64s, ...]:
        """Record, key start, key end, value start, value end, value is null; by record, in their order."""
        if not self._parts:
            return (np.empty(0, dtype=np.int64),) * 6
        columns = [np.concatenate(column) for column in zip(*self._parts, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return tuple(column[order] for column in columns)


def read_headers(
    data: Buffer, octets: Octets, positions: Int64s, ends: Int64s, counts: Int64s
) -> tuple[pa.Array, Bools]:
    """The headers of records whose first one lies at ``positions``, and which records are malformed.

    Args:
        ends: where each record ends; its last header must end there too.
        counts: how many headers each has; 0 for a record that is not to be looked at.
    """
    malformed = np.zeros(positions.size, dtype=np.bool_)
    found = _Found()
    active = np.flatnonzero(counts > 0)
    at = positions[active]
    for step in range(_STEPS_MAX):
        if not active.size:
            break
        at, is_bad = _step(octets, active, at, ends[active], found)
        goes_on = ~is_bad & (counts[active] > step + 1)
        is_bad |= ~goes_on & (at != ends[active])
        malformed[active[is_bad]] = True
        active, at = active[goes_on], at[goes_on]
    with memoryview(data) as view:
        for record, position in zip(active.tolist(), at.tolist(), strict=True):
            rest = int(counts[record]) - _STEPS_MAX
            malformed[record] = not _one_by_one(view, record, position, int(ends[record]), rest, found)
    return _lists(data, found, counts, malformed), malformed


def _step(octets: Octets, active: Int64s, at: Int64s, ends: Int64s, found: _Found) -> tuple[Int64s, Bools]:
    """The next header of each of these records; the positions behind, and which records are malformed."""
    key_size, key_start, key_too_long = read_varints(octets, at, INT_BYTES_MAX)
    is_bad = (key_size < 0) | (key_size > ends - key_start)
    key_end = key_start + np.where(is_bad, 0, key_size)
    value_size, value_start, value_too_long = read_varints(octets, key_end, INT_BYTES_MAX)
    is_bad |= value_size > ends - value_start
    value_end = value_start + np.where(is_bad, 0, np.maximum(value_size, 0))
    is_bad |= value_end > ends
    for too_long in (key_too_long, value_too_long):
        if too_long is not None:
            is_bad |= too_long
    good = ~is_bad
    found.add(
        active[good], key_start[good], key_end[good], value_start[good], value_end[good], value_size[good] < 0
    )
    return value_end, is_bad


def _one_by_one(view: memoryview, record: int, at: int, end: int, count: int, found: _Found) -> bool:
    """The headers of one record that has very many; whether they are well-formed."""
    rows = []
    try:
        for _ in range(count):
            key_size, key_start = read_varint(view, at, INT_BYTES_MAX)
            key_end = key_start + key_size
            value_size, value_start = read_varint(view, key_end, INT_BYTES_MAX)
            at = value_start + max(0, value_size)
            if key_size < 0 or at > end:
                return False
            rows.append((record, key_start, key_end, value_start, at, value_size < 0))
    except (IndexError, CorruptBatch):
        return False
    found.add(*zip(*rows, strict=True))
    return at == end


def _lists(data: Buffer, found: _Found, counts: Int64s, malformed: Bools) -> pa.Array:
    record, key_start, key_end, value_start, value_end, value_is_null = found.by_record()
    # Four edges a header: of an array over the whole buffer, one element in four is a key, another a value.
    edges = np.empty(4 * record.size, dtype=np.int32)
    for slot, edge in enumerate((key_start, key_end, value_start, value_end)):
        edges[slot::4] = edge
    keys = _strings(_taken(data, edges, 0, None))
    values = _taken(data, edges, 2, value_is_null.astype(np.bool_))
    present = np.bincount(record, minlength=counts.size)
    offsets = np.zeros(counts.size + 1, dtype=np.int32)
    np.cumsum(present, out=offsets[1:])
    is_null = np.append((counts == 0) | malformed, False)
    structs = pa.StructArray.from_arrays([keys, values], fields=list(_LIST.value_type))
    return pa.ListArray.from_arrays(
        pa.array(offsets, mask=is_null if is_null.any() else None), structs, type=_LIST
    )


def _taken(data: Buffer, edges: npt.NDArray[np.int32], first: int, is_null: Bools | None) -> pa.Array:
    if not edges.size:
        return pa.array([], type=_VALUE)
    whole = pa.Array.from_buffers(_VALUE, edges.size - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    return whole.take(pa.array(np.arange(first, edges.size, 4, dtype=np.int32), mask=is_null))


def _strings(octets: pa.Array) -> pa.Array:
    try:
        return octets.cast(_KEY)
    except pa.ArrowInvalid:  # one of them is no UTF-8
        return pa.array([each.decode("utf-8", "replace") for each in octets.to_pylist()], type=_KEY)
