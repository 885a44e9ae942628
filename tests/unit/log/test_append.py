"""What a producer's batch must be, what becomes of it, and what a follower takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.config.topic import TopicConfig
from minikafka.errors import ErrorCode, KafkaError
from minikafka.log.append import (
    CHECKED_HERE_BYTES_MAX,
    CHECKED_HERE_RECORDS_MAX,
    CONVERTED_HERE_BYTES_MAX,
    RECORDS_MAX,
    AppendPlan,
    HeavyBatch,
    UnexpectedAppendOffset,
    plan_follower_append,
    plan_leader_append,
)
from minikafka.log.producers.append import AppendOrigin, CheckedBatch
from minikafka.protocol.records.batch import (
    HEADER,
    BatchHeader,
    CompressionType,
    TimestampType,
    crc_is_valid,
    pack_header,
    read_header,
)
from minikafka.protocol.records.records import (
    ControlRecordType,
    InvalidRecords,
    Record,
    build_batch,
    iterate_records,
)
from minikafka.types import Buffer
from tests.unit.log.log_helpers import NOW_MS, TP, append, batch, idempotent, marker, open_log, read_all

HOUR_MS = 3_600_000


def plan(
    records: Buffer,
    *,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    next_offset: int = 40,
    checked: CheckedBatch | None = None,
    **config: Any,
) -> AppendPlan:
    return plan_leader_append(
        records,
        config=TopicConfig(**config),
        origin=origin,
        now_ms=NOW_MS,
        next_offset=next_offset,
        leader_epoch=3,
        topic_partition=TP,
        checked=checked,
    )


def error_of(records: Buffer, **options: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        plan(records, **options)
    assert "t-0" in str(caught.value) or isinstance(caught.value, KafkaError)
    return caught.value.code


def written(plan: AppendPlan) -> bytes:
    return b"".join(bytes(buffer) for buffer in plan.buffers)


def with_header(records: bytes, **changes: Any) -> bytes:
    """``records`` with another header and the CRC that goes with it."""
    header = read_header(records)._replace(**changes)
    return pack_header(header, records[61:]) + records[61:]


def test_a_batch_is_stamped_and_otherwise_not_touched() -> None:
    records = batch([b"a", b"b", b"c"])
    result = plan(records)
    stored = written(result)
    header = read_header(stored)
    assert (header.base_offset, header.partition_leader_epoch) == (40, 3)
    assert stored[16:] == records[16:]
    assert crc_is_valid(stored, 0, header)
    assert (result.first_offset, result.last_offset, result.log_append_time) == (40, 42, -1)
    assert result.buffers[1].obj is records  # type: ignore[union-attr]  # not copied


def test_each_kind_of_bad_batch_has_its_error() -> None:
    good = batch([b"a", b"b"])
    flipped = bytearray(good)
    flipped[-1] ^= 1
    assert error_of(bytes(flipped)) is ErrorCode.CORRUPT_MESSAGE
    assert error_of(b"") is ErrorCode.INVALID_RECORD
    assert error_of(good[:30]) is ErrorCode.INVALID_RECORD
    assert error_of(good[:-1]) is ErrorCode.INVALID_RECORD
    assert error_of(good + b"\0") is ErrorCode.INVALID_RECORD
    assert error_of(good + good) is ErrorCode.INVALID_RECORD
    assert error_of(good[:16] + b"\1" + good[17:]) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert error_of(good[:16] + b"\3" + good[17:]) is ErrorCode.INVALID_RECORD
    assert error_of(with_header(good, base_offset=5)) is ErrorCode.INVALID_RECORD
    assert error_of(with_header(good, record_count=3)) is ErrorCode.INVALID_RECORD
    many = with_header(good, record_count=2**31 - 1, last_offset_delta=2**31 - 2)
    assert error_of(many) is ErrorCode.INVALID_RECORD
    assert error_of(with_header(good, record_count=0, last_offset_delta=-1)) is ErrorCode.INVALID_RECORD
    assert error_of(with_header(good, last_offset_delta=2**31 - 1)) is ErrorCode.INVALID_RECORD
    assert error_of(with_header(good, record_count=1, last_offset_delta=0)) is ErrorCode.INVALID_RECORD
    assert error_of(with_header(good, attributes=5)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert error_of(with_header(good, producer_id=1, producer_epoch=0)) is ErrorCode.INVALID_RECORD
    assert error_of(marker(ControlRecordType.COMMIT)) is ErrorCode.INVALID_RECORD
    assert error_of(good, max_message_bytes=len(good) - 1) is ErrorCode.MESSAGE_TOO_LARGE
    assert plan(good, max_message_bytes=len(good)).size == len(good)


def test_a_coordinator_may_write_control_batches() -> None:
    assert plan(marker(ControlRecordType.ABORT), origin=AppendOrigin.COORDINATOR).last_offset == 40


def bomb(*, size: int, count: int = 1, compression: CompressionType = CompressionType.ZSTD) -> bytes:
    """A batch of ``count`` records and of ``size`` bytes of nothing, which is small."""
    values = [bytes(size), *[b""] * (count - 1)]
    return build_batch(
        [Record(number, NOW_MS, None, value) for number, value in enumerate(values)], compression=compression
    )


CODECS = [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD]


@pytest.mark.parametrize("compression", CODECS)
def test_what_takes_long_to_check_is_checked_elsewhere(compression: CompressionType) -> None:
    records = bomb(size=CHECKED_HERE_BYTES_MAX, compression=compression)
    with pytest.raises(HeavyBatch) as heavy:
        plan(records)
    checked = heavy.value.check()
    assert written(plan(records, checked=checked))[16:] == records[16:]
    assert plan(records, origin=AppendOrigin.COORDINATOR).last_offset == 40, "whose batches are no surprise"
    assert plan(bomb(size=CHECKED_HERE_BYTES_MAX // 2, compression=compression)).last_offset == 40


def test_many_records_are_checked_elsewhere_and_too_many_refused() -> None:
    records = batch([b"v"] * (CHECKED_HERE_RECORDS_MAX + 1))
    with pytest.raises(HeavyBatch) as heavy:
        plan(records)
    assert heavy.value.check().max_timestamp == NOW_MS
    few = bomb(size=100)
    too_many = with_header(few, record_count=RECORDS_MAX + 1, last_offset_delta=RECORDS_MAX)
    with pytest.raises(HeavyBatch) as heavy:
        plan(too_many)
    with pytest.raises(KafkaError, match="1000000 are allowed") as refused:
        heavy.value.check()
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_what_takes_long_to_compress_again_is_converted_elsewhere() -> None:
    records = bomb(size=CONVERTED_HERE_BYTES_MAX)
    with pytest.raises(HeavyBatch) as heavy:
        plan(records, compression_type="gzip")
    checked = heavy.value.check()
    assert checked.header.compression == CompressionType.GZIP
    assert read_header(written(plan(records, checked=checked))).compression == CompressionType.GZIP


def test_what_is_wrong_with_a_heavy_batch_is_found_elsewhere() -> None:
    records = bomb(size=CHECKED_HERE_BYTES_MAX)
    wrong = with_header(records, record_count=2, last_offset_delta=1)
    with pytest.raises(HeavyBatch) as heavy:
        plan(wrong)
    with pytest.raises(InvalidRecords):
        heavy.value.check()


def test_inner_offsets_must_be_consecutive() -> None:
    records = build_batch([Record(0, NOW_MS, None, b"a"), Record(2, NOW_MS, None, b"b")])
    assert error_of(with_header(records, last_offset_delta=1)) is ErrorCode.INVALID_RECORD


def test_timestamps_out_of_range_name_their_records() -> None:
    records = batch([b"a", b"b", b"c"], timestamps=[NOW_MS, NOW_MS + HOUR_MS + 1, NOW_MS + HOUR_MS])
    with pytest.raises(InvalidRecords) as caught:
        plan(records)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in caught.value.record_errors] == [1]
    early = batch([b"a"], timestamps=[NOW_MS - 1001])
    assert error_of(early, message_timestamp_before_max_ms=1000) is ErrorCode.INVALID_TIMESTAMP
    assert plan(early, message_timestamp_before_max_ms=1001).max_timestamp == NOW_MS - 1001


def test_a_compacted_topic_wants_keys() -> None:
    records = batch([b"a", b"b"], keys=[b"k", None])
    with pytest.raises(InvalidRecords) as caught:
        plan(records, cleanup_policy=("compact",))
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in caught.value.record_errors] == [1]


def test_log_append_time_is_the_brokers() -> None:
    records = batch([b"a", b"b"], timestamps=[5, 6])
    result = plan(records, message_timestamp_type="LogAppendTime")
    stored = written(result)
    header = read_header(stored)
    assert (header.timestamp_type, header.max_timestamp) == (TimestampType.LOG_APPEND_TIME, NOW_MS)
    assert crc_is_valid(stored, 0, header)
    assert [record.timestamp for record in iterate_records(stored)] == [NOW_MS, NOW_MS]
    assert (result.log_append_time, result.max_timestamp) == (NOW_MS, NOW_MS)
    pretended = build_batch([Record(0, 5, None, b"a")], timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert error_of(pretended, message_timestamp_type="LogAppendTime") is ErrorCode.INVALID_TIMESTAMP


def test_a_wrong_largest_timestamp_is_put_right() -> None:
    records = with_header(batch([b"a", b"b"], timestamps=[NOW_MS - 9, NOW_MS - 5]), max_timestamp=NOW_MS - 1)
    stored = written(plan(records))
    header = read_header(stored)
    assert header.max_timestamp == NOW_MS - 5
    assert crc_is_valid(stored, 0, header)


@pytest.mark.parametrize("source", list(CompressionType))
@pytest.mark.parametrize("target", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_the_topics_codec_wins(source: CompressionType, target: str) -> None:
    values = [b"x" * 100, b"y" * 100]
    stored = written(plan(batch(values, compression=source), compression_type=target))
    header = read_header(stored)
    assert header.compression == (source if target == "producer" else CompressionType.of_name(target))
    assert crc_is_valid(stored, 0, header)
    assert [(r.offset, r.value) for r in iterate_records(stored)] == [(40, values[0]), (41, values[1])]


def test_a_batch_that_grows_by_conversion_is_measured_again() -> None:
    records = batch([b"x" * 10_000], compression=CompressionType.ZSTD)
    assert (
        error_of(records, compression_type="uncompressed", max_message_bytes=5000)
        is ErrorCode.MESSAGE_TOO_LARGE
    )


def test_a_follower_takes_whole_batches_as_they_come() -> None:
    first = batch([b"a", b"b"], base_offset=40, leader_epoch=1)
    second = batch([b"c"], base_offset=45, leader_epoch=2)  # the gap was compacted away
    result = plan_follower_append(first + second + first[:50], next_offset=40, topic_partition=TP)
    assert result is not None
    assert written(result) == first + second
    assert (result.first_offset, result.last_offset) == (40, 45)
    assert plan_follower_append(first[:-1], next_offset=40, topic_partition=TP) is None
    older = plan_follower_append(first + second, next_offset=40, topic_partition=TP, current_leader_epoch=1)
    assert older is not None and older.last_offset == 41  # KAFKA-18723


def test_a_follower_refuses_what_does_not_fit() -> None:
    first = batch([b"a", b"b"], base_offset=40)
    with pytest.raises(UnexpectedAppendOffset):
        plan_follower_append(first, next_offset=41, topic_partition=TP)
    with pytest.raises(UnexpectedAppendOffset):
        plan_follower_append(first + first, next_offset=40, topic_partition=TP)
    with pytest.raises(KafkaError) as caught:
        plan_follower_append(first[:-1] + b"!", next_offset=40, topic_partition=TP)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@given(st.data())
def test_no_bytes_whatever_get_in_or_break_anything(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    log = open_log(tmp_path_factory.mktemp("log"))
    append(log, batch([b"before"]))
    records = bytearray(idempotent(0, count=3))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(records) - 1))
        records[at] = data.draw(st.integers(0, 255))
    header = BatchHeader._make(HEADER.unpack_from(records))
    if data.draw(st.booleans()) and header.magic == 2:
        records[:61] = pack_header(header, records[61:])  # the client that lies computes its CRC, too
    cut = data.draw(st.integers(0, len(records)))
    records = records[:cut] if data.draw(st.booleans()) else records
    before = (log.log_end_offset, dict(log.producers.active_producers()))
    try:
        info = append(log, bytes(records))
    except KafkaError:
        assert (log.log_end_offset, dict(log.producers.active_producers())) == before
        assert read_all(log) == [(0, b"before")]
    else:
        assert info.last_offset == log.log_end_offset - 1
        assert len(read_all(log)) == log.log_end_offset
    log.validate()
    log.close()


def test_one_log_takes_every_codec(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for codec in CompressionType:
        append(log, batch([codec.name.encode()] * 3, compression=codec))
    names = [codec.name.encode() for codec in CompressionType for _ in range(3)]
    assert read_all(log) == list(enumerate(names))
    log.close()
