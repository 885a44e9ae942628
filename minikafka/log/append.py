"""Deciding what an append writes: bytes and configuration in; out comes a plan, or the client's error. Pure.

Kafka: ``UnifiedLog.analyzeAndValidateRecords`` and ``LogValidator``; KIP-467 (which records were refused),
KIP-937 (timestamps before and after), KIP-126 (conversion of the codec).

A client sends exactly one batch of format 2, with base offset 0, and only the broker writes control batches.
Its records keep their bytes: what changes are the first 16 bytes (offset and leader epoch,
outside of the CRC), or the header when the timestamp type or the largest timestamp is not what the topic
wants. Only a topic with a codec of its own has batches rebuilt. A leader's batches are taken by a follower
as they come.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.producers.append import AppendOrigin, CheckedBatch
from minikafka.log.segment.segment import BatchSpan
from minikafka.protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    CompressionType,
    TimestampType,
    crc_is_valid,
    iterate_headers,
    read_header,
    rewrite,
    stamp,
)
from minikafka.protocol.records.compression import CorruptBatch
from minikafka.protocol.records.records import InvalidRecords, RecordsSummary, recompress, validate_records
from minikafka.types import NO_TIMESTAMP, Buffer, LeaderEpoch, Offset, TopicPartition

RECORDS_BYTES_MAX = 128 * 1024 * 1024
"""What one batch may decompress to. Kafka has no such bound; a request is at most 100 MiB by default, and a
client that sends a batch which becomes larger than this once decompressed gets MESSAGE_TOO_LARGE."""

RECORDS_MAX = 1_000_000
"""In one batch. Kafka has no such bound; its clients fill a batch with bytes, by default 16 KiB to 1 MB."""

RECORD_BYTES_MIN = 7
"""Length, attributes, both deltas, no key, no value, no header."""

CHECKED_HERE_BYTES_MAX = 4 << 20
"""What a client's batch may decompress to where the append is: 2 to 8 ms. A client with larger ones gets
``HeavyBatch``."""
CHECKED_HERE_RECORDS_MAX = 50_000
"""At 0.15 µs each."""
CONVERTED_HERE_BYTES_MAX = 256 << 10
"""Of records that are compressed again, at some 50 MB/s."""

_MAGIC_AT = 16
STAMP_BYTES = 16
_CLIENT = AppendOrigin.CLIENT  # looked up once: the member of an Enum costs 0.1 µs
_LOG_APPEND_TIME = "LogAppendTime"
_PRODUCERS_CODEC = "producer"


class UnexpectedAppendOffset(KafkaError):
    """A follower was handed batches that do not lie behind its log end (Kafka:
    ``UnexpectedAppendOffsetException``)."""

    def __init__(self, message: str, *, first_offset: int, last_offset: int) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class HeavyBatch(Exception):
    """Nothing was appended: the batch takes long to be checked. ``check`` does that in any thread, and the
    append that is given what it returns takes no longer than another."""

    def __init__(self, check: Callable[[], CheckedBatch]) -> None:
        super().__init__("a batch that takes long to be checked")
        self.check = check
        """Raises KafkaError."""


class AppendInfo(msgspec.Struct, frozen=True):
    """What an append did (``LogAppendInfo``). For a duplicate: where its first append went."""

    first_offset: Offset
    last_offset: Offset
    max_timestamp: int
    log_append_time: int
    """-1 unless the topic has LogAppendTime."""
    log_start_offset: Offset
    size_bytes: int
    rolled: bool
    """A segment was closed: ``begin_flush`` has something to do."""
    duplicate: bool


class AppendPlan(msgspec.Struct, frozen=True, gc=False):
    """A validated append.

    ``buffers`` go to the end of the segment file, one after the other; ``spans`` are for its indexes;
    ``headers`` and ``source`` are the batches for the producer state (a leader's single header has not its
    offset yet: ``first_offset`` is it).
    """

    buffers: list[Buffer]
    spans: list[BatchSpan]
    headers: list[BatchHeader]
    source: Buffer
    first_offset: Offset
    last_offset: Offset
    max_timestamp: int
    size: int
    last_leader_epoch: LeaderEpoch
    log_append_time: int


def plan_leader_append(
    records: Buffer,
    config: TopicConfig,
    origin: AppendOrigin,
    now_ms: int,
    next_offset: Offset,
    leader_epoch: LeaderEpoch,
    topic_partition: TopicPartition,
    checked: CheckedBatch | None = None,
) -> AppendPlan:
    """Validate what a producer or a coordinator sent and give it the offsets from ``next_offset`` on.
    ``checked``: it was validated before.

    Raises:
        KafkaError: see ``_check``.
        HeavyBatch: a producer's batch takes longer than a loop should.
    """
    if checked is None:
        checked = _check(records, config, origin, now_ms, topic_partition)
    records, header, max_timestamp = checked.records, checked.header, checked.max_timestamp
    by_broker = config.message_timestamp_type == _LOG_APPEND_TIME
    if by_broker:
        max_timestamp = now_ms
    size = header.batch_length + LOG_OVERHEAD
    last_offset = Offset(next_offset + header.last_offset_delta)
    if max_timestamp != header.max_timestamp or by_broker != (header.attributes & TIMESTAMP_TYPE_MASK != 0):
        changed = rewrite(
            records,
            header,
            base_offset=next_offset,
            leader_epoch=leader_epoch,
            timestamp_type=TimestampType.LOG_APPEND_TIME if by_broker else TimestampType.CREATE_TIME,
            max_timestamp=max_timestamp,
        )
        header = header._replace(max_timestamp=max_timestamp)
        buffers: list[Buffer] = [changed, memoryview(records)[HEADER_SIZE:]]
    else:
        stamped = stamp(header, next_offset, leader_epoch)
        buffers = [stamped, memoryview(records)[STAMP_BYTES:]]
    return AppendPlan(
        buffers,
        [(last_offset, max_timestamp, size)],
        [header],
        records,
        next_offset,
        last_offset,
        max_timestamp,
        size,
        leader_epoch,
        now_ms if by_broker else NO_TIMESTAMP,
    )


def check_client_batch(
    records: Buffer, *, config: TopicConfig, now_ms: int, topic_partition: TopicPartition
) -> CheckedBatch:
    """What an append of a client's batch does first, for who wants to know when that is done.

    Raises:
        KafkaError: see ``_check``.
        HeavyBatch: it takes longer than a loop should.
    """
    return _check(records, config, _CLIENT, now_ms, topic_partition)


def _check(
    records: Buffer,
    config: TopicConfig,
    origin: AppendOrigin,
    now_ms: int,
    topic_partition: TopicPartition,
    *,
    anywhere: bool = False,
) -> CheckedBatch:
    """Validate one batch. ``anywhere``: it may take as long as it takes.

    Raises:
        KafkaError: INVALID_RECORD, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, UNSUPPORTED_FOR_MESSAGE_FORMAT,
            UNSUPPORTED_COMPRESSION_TYPE, INVALID_TIMESTAMP.
        HeavyBatch: a client's, that takes long.
    """
    header = _read_single_header(records, topic_partition)
    size = header.batch_length + LOG_OVERHEAD
    if size > config.max_message_bytes:
        raise _too_large(size, config, topic_partition)
    if not crc_is_valid(records, 0, header):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{topic_partition}: the CRC of the batch is wrong")
    is_bounded = False
    if origin is _CLIENT:
        if (
            header.base_offset
            or header.attributes & CONTROL_MASK
            or (header.base_sequence < 0 <= header.producer_id)
        ):
            raise _not_a_clients(header, topic_partition)
        is_bounded = not anywhere

    codec = header.attributes & COMPRESSION_MASK
    if not codec and header.record_count * RECORD_BYTES_MIN > size - HEADER_SIZE:
        raise InvalidRecords(f"{topic_partition}: {header.record_count} records in a batch of {size} bytes")
    if is_bounded and header.record_count > CHECKED_HERE_RECORDS_MAX:
        raise _heavy(records, config, origin, now_ms, topic_partition)
    try:
        summary = _check_records(
            records,
            header,
            config,
            now_ms,
            topic_partition,
            CHECKED_HERE_BYTES_MAX if is_bounded else RECORDS_BYTES_MAX,
        )
    except CorruptBatch as error:
        if is_bounded and error.code is ErrorCode.MESSAGE_TOO_LARGE:
            raise _heavy(records, config, origin, now_ms, topic_partition) from None
        raise
    if config.compression_type != _PRODUCERS_CODEC and (codec or not header.is_control):
        target = CompressionType.of_name(config.compression_type)
        if target != codec:
            if is_bounded and summary.uncompressed_size > CONVERTED_HERE_BYTES_MAX:
                raise _heavy(records, config, origin, now_ms, topic_partition)
            records, header = _converted(records, target, config, topic_partition)
    return CheckedBatch(records, header, summary.max_timestamp)


def _heavy(
    records: Buffer, config: TopicConfig, origin: AppendOrigin, now_ms: int, topic_partition: TopicPartition
) -> HeavyBatch:
    return HeavyBatch(partial(_check, records, config, origin, now_ms, topic_partition, anywhere=True))


def _check_records(
    records: Buffer,
    header: BatchHeader,
    config: TopicConfig,
    now_ms: int,
    topic_partition: TopicPartition,
    bytes_max: int,
) -> RecordsSummary:
    """Check what lies inside the batch; with LogAppendTime the records' own timestamps do not count."""
    if header.record_count > RECORDS_MAX:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{topic_partition}: a batch of {header.record_count} records; {RECORDS_MAX} are allowed",
        )
    timestamp_ms_min = timestamp_ms_max = None
    if config.message_timestamp_type != _LOG_APPEND_TIME:
        timestamp_ms_min = now_ms - config.message_timestamp_before_max_ms
        timestamp_ms_max = now_ms + config.message_timestamp_after_max_ms
    elif header.attributes & TIMESTAMP_TYPE_MASK:
        raise InvalidRecords(
            f"{topic_partition}: only the broker sets the type LogAppendTime", (), ErrorCode.INVALID_TIMESTAMP
        )
    return validate_records(
        records,
        header,
        bytes_max,
        config.compact,
        timestamp_ms_min,
        timestamp_ms_max,
    )


def _converted(
    records: Buffer, target: CompressionType, config: TopicConfig, topic_partition: TopicPartition
) -> tuple[Buffer, BatchHeader]:
    """The batch in the topic's own codec, because the producer chose another."""
    level = {
        CompressionType.GZIP: config.compression_gzip_level,
        CompressionType.LZ4: config.compression_lz4_level,
        CompressionType.ZSTD: config.compression_zstd_level,
    }.get(target)
    records = recompress(records, target, level=level, decompressed_bytes_max=RECORDS_BYTES_MAX)
    header = read_header(records)
    if header.size > config.max_message_bytes:
        raise _too_large(header.size, config, topic_partition)
    return records, header


def _read_single_header(records: Buffer, topic_partition: TopicPartition) -> BatchHeader:
    """The header of the one batch that ``records`` must be."""
    try:
        header = read_header(records)
    except CorruptBatch:
        length = len(records)
        if length > _MAGIC_AT and 0 <= records[_MAGIC_AT] < MAGIC:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"{topic_partition}: records of format {records[_MAGIC_AT]}, only {MAGIC} is supported",
            ) from None
        if length < HEADER_SIZE:
            raise InvalidRecords(f"{topic_partition}: {length} bytes are not a batch") from None
        raise
    if header.batch_length + LOG_OVERHEAD != len(records):
        raise InvalidRecords(
            f"{topic_partition}: a batch of {header.size} bytes in {len(records)}: one whole batch is wanted",
        )
    return header


def _not_a_clients(header: BatchHeader, topic_partition: TopicPartition) -> InvalidRecords:
    """What only a producer can get wrong (``LogValidator.validateBatch``)."""
    if header.base_offset != 0:
        reason = f"the base offset is {header.base_offset}, a producer's is 0"
    elif header.attributes & CONTROL_MASK:
        reason = "only the broker writes control batches"
    else:
        reason = f"producer {header.producer_id} sends sequence {header.base_sequence}"
    return InvalidRecords(f"{topic_partition}: {reason}")


def _too_large(size: int, config: TopicConfig, topic_partition: TopicPartition) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"{topic_partition}: a batch of {size} bytes, max.message.bytes is {config.max_message_bytes}",
    )


def plan_follower_append(
    records: Buffer,
    *,
    next_offset: int,
    topic_partition: TopicPartition,
    current_leader_epoch: int | None = None,
) -> AppendPlan | None:
    """Check what a leader sent: whole batches behind ``next_offset``. A cut-off last one does not count.

    Args:
        current_leader_epoch: batches of a later epoch, and all behind them, are left out (KAFKA-18723).

    Returns None when nothing is left to append.

    Raises:
        KafkaError: CORRUPT_MESSAGE; UnexpectedAppendOffset.
    """
    headers: list[BatchHeader] = []
    spans: list[BatchSpan] = []
    previous_last_offset = next_offset - 1
    max_timestamp = NO_TIMESTAMP
    end = 0
    for position, header in iterate_headers(records):
        epoch = header.partition_leader_epoch
        if current_leader_epoch is not None and epoch > current_leader_epoch:
            break
        if not crc_is_valid(records, position, header):
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{topic_partition}: wrong CRC at offset {header.base_offset}",
            )
        last_offset = header.last_offset
        if header.base_offset <= previous_last_offset or header.last_offset_delta < 0:
            raise UnexpectedAppendOffset(
                f"{topic_partition}: offsets {header.base_offset} to {last_offset} do not lie behind "
                f"{previous_last_offset}, the log end is {next_offset}",
                first_offset=header.base_offset,
                last_offset=last_offset,
            )
        previous_last_offset = last_offset
        headers.append(header)
        spans.append((last_offset, header.max_timestamp, header.size))
        max_timestamp = max(max_timestamp, header.max_timestamp)
        end = position + header.size
    if not headers:
        return None
    whole = memoryview(records)[:end]
    return AppendPlan(
        [whole],
        spans,
        headers,
        whole,
        Offset(headers[0].base_offset),
        Offset(previous_last_offset),
        max_timestamp,
        end,
        LeaderEpoch(headers[-1].partition_leader_epoch),
        NO_TIMESTAMP,
    )
