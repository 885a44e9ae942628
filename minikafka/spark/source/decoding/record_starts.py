"""Where the records of an uncompressed batch begin: the one pass that has to go from record to record.

A record says how long it is, so the next begins where it ends. Records of one size are found without a step
each: if the record at p takes s bytes and the bytes of its length stand at p + s too, the next takes s bytes
as well, and so on; one strided comparison finds how far that goes. It is exact, not a guess.

Nothing is judged here. The decoder checks that each record ends where the next begins.
"""

from __future__ import annotations

from array import array

from minikafka.protocol.records.record_parser import INT_BYTES_MAX, InvalidRecords, read_varint

_RUN_MIN = 8
_SHORT_RUNS_MAX = 3
"""A comparison costs as much as a few steps: where runs are short, they are no longer looked for."""


def append_record_starts(view: memoryview, start: int, end: int, count: int, starts: array[int]) -> None:
    """Append the positions of ``count`` records that lie between ``start`` and ``end`` of ``view``.

    Raises:
        InvalidRecords: they do not fit.
    """
    position, missing, short_runs = start, count, 0
    try:
        while missing >= _RUN_MIN and short_runs < _SHORT_RUNS_MAX:
            run, size = _run(view, position, end, missing)
            starts.extend(range(position, position + run * size, size))
            position += run * size
            missing -= run
            short_runs += run < _RUN_MIN
        append = starts.append
        for _ in range(missing):
            append(position)
            first = view[position]
            if first < 0x80:
                position += 1 + (first >> 1)
            elif (second := view[position + 1]) < 0x80:
                position += 2 + ((first & 0x7F | second << 7) >> 1)
            else:
                position += _size(view, position)[0]
    except IndexError:
        raise InvalidRecords("the records are cut off") from None
    if position != end:
        raise InvalidRecords(f"the records end at {position - start} of {end - start} bytes")


def _run(view: memoryview, position: int, end: int, count_max: int) -> tuple[int, int]:
    """How many records from ``position`` on have one size, at least 1, and that size."""
    size, width = _size(view, position)
    run = min(count_max, (end - position) // size)
    stop = position + run * size
    for at in range(position, position + width):
        column = view[at : stop + at - position : size].tobytes()
        run = min(run, len(column) - len(column.lstrip(column[:1])))
    return max(1, run), size


def _size(view: memoryview, position: int) -> tuple[int, int]:
    """Bytes of the record at ``position``, and how many of them are its length."""
    length, behind = read_varint(view, position, INT_BYTES_MAX)
    if length < 0:
        raise InvalidRecords(f"a record of length {length}")
    return behind - position + length, behind - position
