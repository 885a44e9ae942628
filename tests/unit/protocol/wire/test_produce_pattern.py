"""A request that follows the pattern of the last one is cut and answered exactly as by the slow path."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.protocol.records.records import Record, build_batch
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.protocol.wire.codec import encode_request, read_request_header
from minikafka.protocol.wire.fast_paths import ProducePartitionResponse
from minikafka.protocol.wire.request_patterns import ProducePattern, produce_pattern
from tests.support.codec import decode_request, produce_response

TOPIC_ID = UUID(int=77)
VERSIONS = range(SUPPORTED[ApiKey.PRODUCE].min, SUPPORTED[ApiKey.PRODUCE].max + 1)
FIRST_FLEXIBLE = 9


def batch(size: int, *, transactional: bool = False) -> bytes:
    ids = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0} if transactional else {}
    return build_batch([Record(0, 1, None, b"x" * size, ())], transactional=transactional, **ids)


def request(
    version: int,
    records: bytes | None,
    *,
    correlation_id: int = 1,
    topic: str = "orders",
    index: int = 3,
    acks: int = 1,
    transactional_id: str | None = None,
    client_id: str | None = "client",
    partitions: int = 1,
) -> memoryview:
    data = [{"index": index + i, "records": records} for i in range(partitions)]
    body = {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": 1000,
        "topic_data": [{"name": topic, "topic_id": TOPIC_ID, "partition_data": data}],
    }
    frame = encode_request(
        api_key=0, api_version=version, correlation_id=correlation_id, client_id=client_id, body=body
    )
    return memoryview(frame)[4:]


def pattern_of(frame: memoryview) -> ProducePattern | None:
    header = read_request_header(frame)
    return produce_pattern(header, decode_request(header, frame), frame)


@given(
    version=st.sampled_from(VERSIONS),
    sizes=st.lists(st.sampled_from([0, 1, 50, 60, 70, 126, 127, 128, 1000, 20_000]), min_size=1, max_size=4),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.sampled_from([None, "", "client", "ü"]),
    index=st.sampled_from([0, 1, 2**31 - 1]),
)
def test_the_next_requests_records_are_those_that_the_slow_path_reads(
    version: int, sizes: list[int], correlation_id: int, client_id: str | None, index: int
) -> None:
    pattern = pattern_of(request(version, batch(5), client_id=client_id))
    assert pattern is not None
    for size in sizes:
        frame = request(version, batch(size), correlation_id=correlation_id, client_id=client_id, index=index)
        header = read_request_header(frame)
        expected = decode_request(header, frame).topic_data[0].partition_data[0].records
        assert pattern.cut(frame) == (index, expected)
        answer = pattern.answer(frame, index=index, base_offset=9, log_append_time_ms=-1, log_start_offset=2)
        by_id = version >= 13
        usual = ProducePartitionResponse(
            "" if by_id else "orders", TOPIC_ID if by_id else None, index, 0, 9, -1, 2
        )
        assert answer == produce_response(header, [usual])


@pytest.mark.parametrize("version", VERSIONS)
def test_what_differs_in_anything_else_does_not_follow_the_pattern(version: int) -> None:
    pattern = pattern_of(request(version, batch(5)))
    assert pattern is not None
    assert pattern.cut(request(version, batch(7))) is not None
    others = [
        request(version, batch(5), acks=-1),
        request(version, batch(5), client_id="other"),
        request(version, batch(5), transactional_id="t"),
        request(version, batch(5), partitions=2),
        request(version, batch(5, transactional=True)),
        request(version, None),
        request(version, b""),
        request(9 if version != 9 else 10, batch(5)),
    ]
    if version < 13:
        others.append(request(version, batch(5), topic="others"))
    for other in others:
        assert pattern.cut(other) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_cut_off_or_grown_anywhere_does_not_follow_the_pattern(version: int) -> None:
    whole = request(version, batch(90))
    pattern = pattern_of(whole)
    assert pattern is not None
    for length in range(len(whole)):
        assert pattern.cut(whole[:length]) is None
    assert pattern.cut(memoryview(bytes(whole) + b"\0")) is None
    if version >= FIRST_FLEXIBLE:
        assert pattern.cut(memoryview(bytes(whole[:-1]) + b"\1")) is None, "tagged fields"


@given(st.sampled_from([7, 11]), st.binary(max_size=300), st.integers(0, 60))
def test_hostile_bytes_behind_the_pattern_are_refused_or_are_records(
    version: int, tail: bytes, cut: int
) -> None:
    whole = request(version, batch(90))
    pattern = pattern_of(whole)
    assert pattern is not None
    found = pattern.cut(memoryview(bytes(whole[:cut]) + tail))
    assert found is None or len(found[1]) >= 61


def test_a_transactional_producer_repeats_itself_too_but_only_with_transactional_batches() -> None:
    transactional = batch(90, transactional=True)
    pattern = pattern_of(request(11, transactional, transactional_id="t"))
    assert pattern is not None and pattern.is_transactional
    following = batch(70, transactional=True)
    assert pattern.cut(request(11, following, transactional_id="t")) == (3, following)
    assert pattern.cut(request(11, batch(70), transactional_id="t")) is None
    assert pattern.cut(request(11, following, transactional_id="u")) is None
    assert pattern.cut(request(11, following)) is None
    plain = pattern_of(request(11, batch(90)))
    assert plain is not None and plain.cut(request(11, following)) is None


def test_requests_of_another_kind_have_no_pattern() -> None:
    assert pattern_of(request(11, batch(5), partitions=2)) is None
    assert pattern_of(request(11, None)) is None
