"""The records inside a batch: read, validated, built.

Kafka: ``DefaultRecord``, ``DefaultRecordBatch.iterator``, ``MemoryRecordsBuilder``, and the per-record half
of ``LogValidator`` (KIP-467 record errors, KIP-32 timestamps).

Records that are read are aiokafka's compiled codec's, those that it refuses the parser's below: it alone
says what is valid and why not. Records that are only validated are ``record_scan``'s (compiled, see
``bin/.build.py``), and where that is not, those of one size ``timestamp_deltas``' by columns.

Differences from Kafka: the offset deltas of a produced batch must be 0, 1, 2 … (Kafka rebuilds a compressed
batch whose deltas are not, for clients of 2016, and looks away in an uncompressed one); and a varint inside
a record may be longer than Java reads (5 bytes for an int) without being noticed.

Measured (µs a record of 1 KiB without key): ``validate_records`` by ``record_scan`` 1.1 in a batch of one,
0.08 in a batch of 16, 0.01 in a batch of 1,000. Without it, on an older machine where an empty Python call
took 0.07, 2.3 in a batch of one, 0.46 in a batch of 16, 0.16 in a batch of 1,000 of one size, 0.33 of mixed
sizes. For comparison, there: aiokafka's iteration alone 0.22, a Python walk over lengths and deltas alone
0.85, the whole record in Python 1.3, the parser 5. ``iterate_records`` 0.87, ``build_batch`` 1.3.

**Records that look alike** are validated at the speed of C: runs of records of one size, compared column by
column. Load generators, sensors and fixed-width formats send records of one size. Within such a run the bytes
that give a record its structure stand at equal distances, so a strided slice has one byte of every record,
and one comparison checks them all. The first record of a run is parsed exactly; a record whose structure
bytes equal the first's, at the same place, is as well-formed as the first. Anything that is not plain enough
(headers, many sizes, offsets that are not consecutive) is left to the slow path: this module never refuses,
it says "I do not know".

Measured (ns a record of 100 bytes): 120 in batches of 1,000 to 10,000, half of it for the columns; aiokafka's
iteration with the comparisons of timestamps 195. Equal at 200.

**Records read one by one** in Python: slow, exact, and never past the end. What it refuses is refused. Kafka:
``DefaultRecord.readFrom``, ``ByteUtils.readVarint`` (an int takes at most 5 bytes, a long 10).

    length varint | attributes 1 | timestamp delta varlong | offset delta varint
    key length varint, key | value length varint, value | header count varint, headers (key length, key, …)

Signed varints are zigzag-encoded. A length below 0 is null, for a header's key an error. A header key that
is not UTF-8 is read with U+FFFD, as Java reads it.

**Control records**: what a batch with the control bit holds instead of data. Kafka: ``ControlRecordType``,
``EndTransactionMarker`` (KIP-98). The key is version (int16) and type (int16), the value of an
end-of-transaction marker version (int16) and coordinator epoch (int32).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from struct import Struct, error, unpack
from typing import Final

from minikafka.errors import ErrorCode, InvariantError
from minikafka.named_tuple import NamedTuple
from minikafka.protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    CompressionType,
    CorruptBatch,
    TimestampType,
    pack_header,
    read_header,
)
from minikafka.protocol.records.compression import compress, decompress, decompress_into
from minikafka.protocol.records.record_codec import load as codec
from minikafka.types import NO_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, Buffer

try:
    from minikafka.protocol.records.record_scan import scan
except ImportError:  # there was no compiler when this was installed
    IS_COMPILED = False
else:
    IS_COMPILED = True

__all__ = [
    "InvalidRecords",
    "Record",
    "RecordError",
    "RecordsSummary",
    "build_batch",
    "iterate_records",
    "recompress",
    "validate_records",
]

INT_BYTES_MAX: Final = 5
LONG_BYTES_MAX: Final = 10
_LONG_MASK: Final = (1 << 64) - 1
_LONG_SIGN: Final = 1 << 63

COUNT_MIN: Final = 128
"""Below, a run costs as much as it saves."""
COUNT_MAX: Final = 1 << 14
"""Librdkafka's batches have up to 10,000 records. Each more costs the tables three bytes."""

_RUN_MIN: Final = 32
_SHORT_RUNS_MAX: Final = 4
"""A run costs some microseconds, however many records it has, so many short ones gain nothing. A few come
from deltas that grow by a byte."""

_OFFSETS_END: Final = {1: 1 << 6, 2: 1 << 13, 3: COUNT_MAX}
"""By the size of an offset delta: the first that needs more."""

_DOUBLED: Final = bytes(2 * value & 0xFF for value in range(256))
_CONTINUED: Final = bytes(range(0x80, 0x100))
_NEGATIVE: Final = bytes(range(1, 0x100, 2))
"""Low bytes of zigzag numbers that stand for negative ones."""

DECOMPRESSED_BYTES_MAX: Final = 1 << 30
"""Where the caller states no bound: for batches that have been validated once."""

BUFFER_BYTES: Final = 1 << 20
"""What a batch is decompressed into that is only validated: librdkafka's have up to 1,000,000 bytes."""
_BUFFERS: Final[list[bytearray]] = []
"""Of batches that have been validated. New ones would have to be zeroed, and their memory to come from the
system, which together may cost as much as the decompression; and how large one must be would be a guess."""

_OFFSET_DELTA_MAX: Final = 2**31 - 1

_BASE_TIMESTAMP_MAX: Final = 1 << 62
"""Above it a timestamp might leave 64 bits; the slow path knows what happens then."""

_CONTROL_KEY = Struct(">hh")
_CONTROL_VALUE = Struct(">hi")
_CONTROL_VERSION = 0


class Record(NamedTuple):
    """One record, with its own copy of key, value and headers. ``timestamp`` is in ms, NO_TIMESTAMP (-1) for
    none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class RecordError(NamedTuple):
    """Why one record was refused (KIP-467)."""

    batch_index: int
    message: str | None


class InvalidRecords(CorruptBatch):
    """Records that break the rules (Kafka's ``InvalidRecordException`` and ``RecordValidationException``)."""

    def __init__(
        self,
        message: str,
        record_errors: Sequence[RecordError] = (),
        code: ErrorCode = ErrorCode.INVALID_RECORD,
    ) -> None:
        super().__init__(message, code)
        self.record_errors = tuple(record_errors)


def parse_records(plain: memoryview, header: BatchHeader) -> Iterator[Record]:
    """The records of an uncompressed batch; ``plain`` ends with the batch.

    Raises:
        InvalidRecords: a record is malformed, or the batch holds more or fewer bytes than its records.
    """
    position = HEADER_SIZE
    for index in range(header.record_count):
        try:
            record, position = _parse_record(plain, position, header)
        except IndexError:
            raise InvalidRecords(f"record {index} of {header.record_count} is cut off") from None
        except InvalidRecords as error:
            raise InvalidRecords(f"record {index} of {header.record_count}: {error.message}") from None
        yield record
    if position != len(plain):
        raise InvalidRecords(f"{len(plain) - position} bytes behind the last record")


def _parse_record(plain: memoryview, position: int, header: BatchHeader) -> tuple[Record, int]:
    length, position = read_varint(plain, position, INT_BYTES_MAX)
    if not 0 <= length <= len(plain) - position:
        raise InvalidRecords(f"a length of {length} where {len(plain) - position} bytes remain")
    record = plain[position : position + length]
    timestamp_delta, at = read_varint(record, 1, LONG_BYTES_MAX)  # byte 0: attributes, unused
    offset_delta, at = read_varint(record, at, INT_BYTES_MAX)
    key, at = _nullable_bytes(record, at)
    value, at = _nullable_bytes(record, at)
    header_count, at = read_varint(record, at, INT_BYTES_MAX)
    if not 0 <= header_count <= length - at:
        raise InvalidRecords(f"{header_count} headers where {length - at} bytes remain")
    headers = []
    for _ in range(header_count):
        name, at = _nullable_bytes(record, at)
        if name is None:
            raise InvalidRecords("a header without a key")
        content, at = _nullable_bytes(record, at)
        headers.append((name.decode("utf-8", "replace"), content))
    if at != length:
        raise InvalidRecords(f"a length of {length}, but {at} bytes are used")
    timestamp = header.max_timestamp
    if header.timestamp_type is TimestampType.CREATE_TIME:  # adds up in 64 bits, as a Java long does
        timestamp = ((header.base_timestamp + timestamp_delta + _LONG_SIGN) & _LONG_MASK) - _LONG_SIGN
    return Record(header.base_offset + offset_delta, timestamp, key, value, tuple(headers)), position + length


def _nullable_bytes(view: memoryview, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(view, position, INT_BYTES_MAX)
    if length < 0:
        return None, position
    end = position + length
    if end > len(view):
        raise InvalidRecords(f"{length} bytes are announced where {len(view) - position} remain")
    return view[position:end].tobytes(), end


def read_varint(view: memoryview, position: int, bytes_max: int) -> tuple[int, int]:
    """A zigzag varint and the position behind it; bits that an int or a long has no room for are dropped.

    Raises:
        IndexError: the view ends inside it.
        InvalidRecords: it is longer than ``bytes_max``.
    """
    value = 0
    for shift in range(0, 7 * bytes_max, 7):
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if bytes_max == INT_BYTES_MAX:
                value &= 0xFFFFFFFF
            elif bytes_max == LONG_BYTES_MAX:
                value &= _LONG_MASK
            return (value >> 1) ^ -(value & 1), position
    raise InvalidRecords(f"a varint of more than {bytes_max} bytes")


def _offset_column(size: int, place: int) -> bytes:
    """The byte at ``place`` of the offset delta of record 0, 1, 2 …, as a zigzag varint of ``size`` bytes."""
    end = _OFFSETS_END[size]
    continued = 0x80 if place < size - 1 else 0
    if place == 0:  # zigzag doubles
        return (bytes(range(continued, continued + 128, 2)) * -(-end // 64))[:end]
    run = 1 << 7 * place - 1  # deltas in a row that share the byte
    values = (value & 0x7F | continued for value in range(-(-end // run)))
    return b"".join(bytes([value]) * run for value in values)[:end]


_OFFSET_COLUMNS: Final = {
    size: tuple(_offset_column(size, place) for place in range(size)) for size in _OFFSETS_END
}


class TimestampDeltas(NamedTuple):
    """What there is to know of the timestamps of a batch, relative to its base timestamp. Milliseconds."""

    least: int
    greatest: int
    index_of_greatest: int
    """Of the first record that has it."""


class _Shape(NamedTuple):
    """Where the structure of a record stands, relative to its start."""

    size: int
    structure: tuple[int, ...]
    timestamp_at: int
    timestamp_size: int
    offset_at: int
    offset_size: int
    has_key: bool


def timestamp_deltas(
    plain: memoryview, header: BatchHeader, *, keys_required: bool
) -> TimestampDeltas | None:
    """Those of a batch with valid records of one size, found by columns; None where that is not certain."""
    count = header.record_count
    if not COUNT_MIN <= count <= COUNT_MAX or header.timestamp_type is not TimestampType.CREATE_TIME:
        return None
    quadrupled: list[int] = []
    position = HEADER_SIZE
    short_runs = 0
    while (index := len(quadrupled)) < count:
        shape = _shape(plain, position)
        if shape is None or (keys_required and not shape.has_key):
            return None
        run = min(
            count - index, (len(plain) - position) // shape.size, _OFFSETS_END[shape.offset_size] - index
        )
        found = _run(plain, position, shape, index, run) if run > 0 else None
        if found is None:
            return None
        quadrupled += found
        position += len(found) * shape.size
        if len(found) < _RUN_MIN:
            short_runs += 1
            if index == 0 or short_runs > _SHORT_RUNS_MAX:
                return None
    if position != len(plain):
        return None
    greatest = max(quadrupled)
    return TimestampDeltas(min(quadrupled) // 4, greatest // 4, quadrupled.index(greatest))


def _shape(plain: memoryview, start: int) -> _Shape | None:
    """Of the record at ``start``; None unless it is well-formed, without headers, with short deltas."""
    try:
        length, at = read_varint(plain, start, INT_BYTES_MAX)
        end = at + length
        if not 0 < length <= len(plain) - at:
            return None
        structure = list(range(start, at))
        timestamp_at = at + 1
        _, at = read_varint(plain, timestamp_at, 2)
        offset_at = at
        _, at = read_varint(plain, offset_at, 3)
        offset_size = at - offset_at
        key_size, behind = read_varint(plain, at, INT_BYTES_MAX)
        structure += range(at, behind)
        at = behind + max(0, key_size)
        value_size, behind = read_varint(plain, at, INT_BYTES_MAX)
        structure += range(at, behind)
        at = behind + max(0, value_size)
        if at + 1 != end or plain[at] != 0:
            return None
    except (IndexError, InvalidRecords):
        return None
    structure.append(at)
    return _Shape(
        end - start,
        tuple(place - start for place in structure),
        timestamp_at - start,
        offset_at - timestamp_at,
        offset_at - start,
        offset_size,
        key_size >= 0,
    )


def _run(plain: memoryview, start: int, shape: _Shape, index: int, run: int) -> Sequence[int] | None:
    """Of the records that follow each other in this shape, at most ``run``: four times their time deltas."""
    size = shape.size
    end = start + run * size
    for place in shape.structure:
        column = plain[start + place : end : size].tobytes()
        alike = run - len(column.lstrip(column[:1]))
        if alike < run:
            run = alike
            end = start + run * size
    for place, expected in enumerate(_OFFSET_COLUMNS[shape.offset_size], shape.offset_at):
        if plain[start + place : end : size].tobytes() != expected[index : index + run]:
            return None
    return _quadrupled(
        *(
            plain[start + shape.timestamp_at + place : end : size].tobytes()
            for place in range(shape.timestamp_size)
        )
    )


def _quadrupled(low: bytes, high: bytes | None = None) -> Sequence[int] | None:
    """Zigzag varints, of which these are the bytes, as four times their values; None when they end elsewhere.

    Most of what a record costs here would be Python's arithmetic. A zigzag number is twice the value, where
    that is not negative, and twice the number is what its two bytes say without their bits of continuation.
    """
    doubled: Sequence[int]
    if high is None:
        if not low.isascii():
            return None
        doubled = low.translate(_DOUBLED)
    else:
        if low.translate(None, _CONTINUED) or not high.isascii():
            return None
        pairs = bytearray(2 * len(low))
        pairs[0::2] = low.translate(_DOUBLED)
        pairs[1::2] = high
        doubled = unpack(f"<{len(low)}H", pairs)
    if len(low.translate(None, _NEGATIVE)) < len(low):
        return [-value - 2 if value & 2 else value for value in doubled]
    return doubled


class RecordsSummary(NamedTuple):
    """What the broker needs to know of a validated batch. Timestamps as the records have them, before
    LogAppendTime."""

    record_count: int
    min_timestamp: int
    max_timestamp: int
    offset_of_max_timestamp: int
    """Of the first record with ``max_timestamp``; counted from the header's base offset."""
    uncompressed_size: int


def iterate_records(
    batch: Buffer, *, decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """The records of one whole batch. Keys and values are copies.

    Raises:
        CorruptBatch: the batch is cut off, cannot be decompressed within the bound, or a record is malformed.
    """
    header = read_header(batch)
    plain = plain_batch(batch, header, decompressed_bytes_max)
    try:
        records = [
            Record(
                record.offset,
                NO_TIMESTAMP if record.timestamp is None else record.timestamp,
                record.key,
                record.value,
                tuple(record.headers),
            )
            for record in codec().Batch(plain)
        ]
    except codec().refusals:
        return parse_records(plain, header)
    return iter(records)


def validate_records(
    batch: Buffer,
    header: BatchHeader,
    decompressed_bytes_max: int,
    keys_required: bool = False,
    timestamp_ms_min: int | None = None,
    timestamp_ms_max: int | None = None,
) -> RecordsSummary:
    """Check every record of a produced batch whose CRC is known to be right.

    ``keys_required`` is for compacted topics; the timestamp bounds (both included) are for CreateTime, a
    record without a timestamp passes them.

    Raises:
        InvalidRecords: INVALID_RECORD or INVALID_TIMESTAMP; ``record_errors`` names the records when it is a
            matter of single ones.
        CorruptBatch: the batch is cut off or cannot be decompressed within the bound.
    """
    count = header.record_count
    if header.last_offset_delta + 1 != count or count <= 0:
        raise InvalidRecords(
            f"a batch of {count} records whose last offset delta is {header.last_offset_delta}"
        )
    if header.attributes & COMPRESSION_MASK == 0:
        return _validate_plain(
            plain_batch(batch, header, decompressed_bytes_max),
            header,
            keys_required,
            timestamp_ms_min,
            timestamp_ms_max,
        )
    try:
        buffer = _BUFFERS.pop()
    except IndexError:  # the first, or a thread validates another batch
        buffer = bytearray(HEADER_SIZE + BUFFER_BYTES)
    try:
        return _validate_plain(
            plain_batch(batch, header, decompressed_bytes_max, buffer),
            header,
            keys_required,
            timestamp_ms_min,
            timestamp_ms_max,
        )
    finally:
        _BUFFERS.append(buffer)


def _validate_plain(
    plain: memoryview,
    header: BatchHeader,
    keys_required: bool,
    timestamp_ms_min: int | None,
    timestamp_ms_max: int | None,
) -> RecordsSummary:
    count = header.record_count
    base = header.base_timestamp
    deltas: Sequence[int] | None = None
    if 0 <= base <= _BASE_TIMESTAMP_MAX and header.attributes & TIMESTAMP_TYPE_MASK == 0:
        if IS_COMPILED:
            deltas = scan(plain, HEADER_SIZE, count, keys_required)
        elif count > 1:
            deltas = timestamp_deltas(plain, header, keys_required=keys_required)
    if deltas is None and count == 1:  # what a producer without linger sends: no columns, no minimum of one
        only = _only_timestamp(plain, header, keys_required, timestamp_ms_min, timestamp_ms_max)
        if only is not None:
            return RecordsSummary(1, only, only, header.base_offset, len(plain) - HEADER_SIZE)
    if deltas is not None:
        least, greatest, index_of_latest = deltas
        earliest, latest = base + least, base + greatest
    else:
        timestamps = _all_timestamps(plain, header, keys_required)
        earliest, latest = min(timestamps), max(timestamps)
        index_of_latest = timestamps.index(latest)
    too_early = timestamp_ms_min is not None and earliest < timestamp_ms_min
    if too_early or (timestamp_ms_max is not None and latest > timestamp_ms_max):
        timestamps = _all_timestamps(plain, header, keys_required)
        _check_timestamps(timestamps, timestamp_ms_min, timestamp_ms_max)
    return RecordsSummary(
        count,
        earliest,
        latest,
        header.base_offset + index_of_latest,
        len(plain) - HEADER_SIZE,
    )


def _only_timestamp(
    plain: memoryview,
    header: BatchHeader,
    keys_required: bool,
    timestamp_ms_min: int | None,
    timestamp_ms_max: int | None,
) -> int | None:
    """The timestamp of the only record; None unless it is certainly valid."""
    timestamp: int | None = None
    try:
        for record in codec().Batch(plain):
            timestamp = record.timestamp
            if record.offset != header.base_offset or (keys_required and record.key is None):
                return None
    except codec().refusals:
        return None
    if (
        timestamp is None
        or (timestamp_ms_min is not None and timestamp < timestamp_ms_min)
        or (timestamp_ms_max is not None and timestamp > timestamp_ms_max)
    ):
        return None
    return timestamp


def _all_timestamps(plain: memoryview, header: BatchHeader, keys_required: bool) -> list[int]:
    """In order. Raises InvalidRecords."""
    timestamps = _timestamps(plain, header, keys_required)
    return _timestamps_one_by_one(plain, header, keys_required) if timestamps is None else timestamps


def _timestamps(plain: memoryview, header: BatchHeader, keys_required: bool) -> list[int] | None:
    """The timestamps in order; None unless every record is certainly valid."""
    offset = header.base_offset
    timestamps: list[int] = []
    append = timestamps.append
    try:
        if keys_required:
            for record in codec().Batch(plain):
                if record.offset != offset or record.key is None:
                    return None
                offset += 1
                append(record.timestamp)
        else:
            for record in codec().Batch(plain):
                if record.offset != offset:
                    return None
                offset += 1
                append(record.timestamp)
    except codec().refusals:
        return None
    return None if None in timestamps else timestamps


def _timestamps_one_by_one(plain: memoryview, header: BatchHeader, keys_required: bool) -> list[int]:
    timestamps = []
    keyless = []
    for index, record in enumerate(parse_records(plain, header)):
        if record.offset != header.base_offset + index:
            raise InvalidRecords(
                f"record {index} has offset delta {record.offset - header.base_offset}, expected {index}"
            )
        if keys_required and record.key is None:
            keyless.append(RecordError(index, "A compacted topic does not accept a record without a key."))
        timestamps.append(record.timestamp)
    if keyless:
        raise InvalidRecords(f"{len(keyless)} records without a key in a compacted topic", keyless)
    return timestamps


def _check_timestamps(timestamps: list[int], minimum: int | None, maximum: int | None) -> None:
    errors = [
        RecordError(index, f"Timestamp {timestamp} is not within {minimum} and {maximum}.")
        for index, timestamp in enumerate(timestamps)
        if timestamp != NO_TIMESTAMP
        and ((minimum is not None and timestamp < minimum) or (maximum is not None and timestamp > maximum))
    ]
    if errors:
        raise InvalidRecords(
            f"{len(errors)} records with a timestamp out of range", errors, ErrorCode.INVALID_TIMESTAMP
        )


def plain_batch(
    batch: Buffer, header: BatchHeader, decompressed_bytes_max: int, into: bytearray | None = None
) -> memoryview:
    """The batch with its records uncompressed; the header's attributes say so, its length and CRC are
    unchanged. Where there is room ``into`` is used, so that the batch is the caller's for as long as that.

    The memory behind it ends with the batch or continues with bytes of the same buffer: aiokafka may look a
    few bytes past the end before it notices.
    """
    size = LOG_OVERHEAD + header.batch_length
    view = memoryview(batch)
    if size != len(view):
        if size > len(view):
            raise CorruptBatch(f"{len(view)} bytes of a batch of {size}")
        view = view[:size]
    if header.attributes & COMPRESSION_MASK == 0:
        return view
    records = view[HEADER_SIZE:]
    plain = None
    if into is not None:
        room = memoryview(into)
        codec = header.attributes & COMPRESSION_MASK
        found = decompress_into(records, codec, room[HEADER_SIZE : HEADER_SIZE + decompressed_bytes_max])
        if found is not None:
            plain = room[: HEADER_SIZE + found]
    if plain is None:
        plain = memoryview(
            decompress(records, header.compression, bytes_max=decompressed_bytes_max, reserve=HEADER_SIZE)
        )
    HEADER.pack_into(plain, 0, *header._replace(attributes=header.attributes & ~COMPRESSION_MASK))
    return plain


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    compression: CompressionType = CompressionType.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = NO_EPOCH,
) -> bytes:
    """A batch of at least one record; their offsets are absolute, ascending, from ``base_offset`` on.

    Raises:
        InvariantError: no records, or offsets that do not fit.
    """
    builder = codec().Builder(MAGIC, 0, 0, -1, -1, -1, _OFFSET_DELTA_MAX)
    previous = -1
    count = 0
    for record in records:
        delta = record.offset - base_offset
        if not previous < delta <= _OFFSET_DELTA_MAX:
            raise InvariantError(
                f"offset {record.offset} in a batch from {base_offset}, after delta {previous}"
            )
        appended = builder.append(delta, record.timestamp, record.key, record.value, list(record.headers))
        if appended is None:
            raise InvariantError("a batch of more than 2 GiB")
        previous = delta
        count += 1
    if count == 0:
        raise InvariantError("a batch without records")
    built = builder.build()
    plain = HEADER.unpack_from(built)
    attributes = int(compression)
    attributes |= TIMESTAMP_TYPE_MASK if timestamp_type else 0
    attributes |= TRANSACTIONAL_MASK if transactional else 0
    attributes |= CONTROL_MASK if control else 0
    body = compress(memoryview(built)[HEADER_SIZE:], compression)
    header = BatchHeader(
        base_offset,
        HEADER_SIZE - LOG_OVERHEAD + len(body),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        previous,
        plain[7],
        plain[8],
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    return pack_header(header, body) + body


def recompress(
    batch: Buffer,
    compression: CompressionType,
    *,
    level: int | None = None,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> bytes:
    """The same batch with its records in another compression (``compression.type`` of the topic, and the
    ``level`` that it has for that).

    Raises:
        CorruptBatch: the batch is cut off or cannot be decompressed within the bound.
    """
    header = read_header(batch)
    body = compress(plain_batch(batch, header, decompressed_bytes_max)[HEADER_SIZE:], compression, level)
    header = header._replace(
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(body),
        attributes=header.attributes & ~COMPRESSION_MASK | compression,
    )
    return pack_header(header, body) + body


class ControlRecordType(IntEnum):
    """The types that end a transaction; KRaft's own never get into a partition of data."""

    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    """How a transaction ended, and the epoch of the coordinator that ended it."""

    type: ControlRecordType
    coordinator_epoch: int

    def key(self) -> bytes:
        return _CONTROL_KEY.pack(_CONTROL_VERSION, self.type)

    def value(self) -> bytes:
        return _CONTROL_VALUE.pack(_CONTROL_VERSION, self.coordinator_epoch)


def marker_batch(
    marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, timestamp_ms: int
) -> bytes:
    """The control batch that ends a producer's transaction (``MemoryRecords.withEndTransactionMarker``)."""
    return build_batch(
        [Record(0, timestamp_ms, marker.key(), marker.value(), ())],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_end_transaction_marker(key: bytes | None, value: bytes | None) -> EndTransactionMarker | None:
    """The marker in a control record; None for a control record of another type.

    Newer versions may append fields, which are ignored.

    Raises:
        CorruptBatch: INVALID_RECORD: too short, or a version below 0.
    """
    try:
        version, kind = _CONTROL_KEY.unpack_from(key or b"")
        if version < 0:
            raise CorruptBatch(f"a control record of version {version}", ErrorCode.INVALID_RECORD)
        if kind not in ControlRecordType.__members__.values():
            return None
        value_version, coordinator_epoch = _CONTROL_VALUE.unpack_from(value or b"")
    except error:
        raise CorruptBatch("a control record is cut off", ErrorCode.INVALID_RECORD) from None
    if value_version < 0:
        raise CorruptBatch(
            f"an end-of-transaction marker of version {value_version}", ErrorCode.INVALID_RECORD
        )
    return EndTransactionMarker(ControlRecordType(kind), coordinator_epoch)
