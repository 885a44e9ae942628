"""A Fetch request that follows the pattern of the last is cut and answered exactly as by the slow path."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.protocol.wire.codec import RequestHeader, encode_request, read_request_header
from minikafka.protocol.wire.fast_paths import FetchPartitionResponse
from minikafka.protocol.wire.request_patterns import PATTERN_BYTES_MAX, FetchAnswer, FetchPattern
from tests.support.codec import decode_request, fetch_response

VERSIONS = range(13, SUPPORTED[ApiKey.FETCH].max + 1)
FIELDS = (
    "partition", "current_leader_epoch", "fetch_offset", "last_fetched_epoch", "log_start_offset",
    "partition_max_bytes",
)  # fmt: skip
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
WANTED = st.tuples(INT32, INT32, INT64, INT32, INT64, INT32)
PARTITIONS = st.lists(WANTED, min_size=1, max_size=4, unique_by=lambda wanted: wanted[0])
TOPICS = st.lists(
    st.tuples(st.integers(1, 2**128 - 1), PARTITIONS), min_size=1, max_size=5, unique_by=lambda each: each[0]
)
ONE = [(7, [(0, 3, 100, -1, -1, 1 << 20)])]
MANY = [(number, [(index, 3, 0, -1, -1, 1) for index in range(200)]) for number in range(1, 200)]


def request(
    version: int,
    places: Any = ONE,
    *,
    correlation_id: int = 1,
    client_id: str | None = "client",
    **fields: Any,
) -> memoryview:
    body = {
        "replica_id": -1,
        "max_wait": 500,
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "isolation_level": 1,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {
                "topic": "orders",
                "topic_id": UUID(int=number),
                "partitions": [dict(zip(FIELDS, each, strict=True)) for each in wanted],
            }
            for number, wanted in places
        ],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    frame = encode_request(
        api_key=1,
        api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
        body=body | fields,
    )
    return memoryview(frame)[4:]


def pattern_of(frame: memoryview) -> FetchPattern | None:
    header = read_request_header(frame)
    return FetchPattern.of(header, decode_request(header, frame), frame)


def read(frame: memoryview) -> list[tuple[bytes, list[tuple[int, ...]]]]:
    """What the slow path reads."""
    body = decode_request(read_request_header(frame), frame)
    return [
        (
            topic.topic_id.bytes,
            [tuple(getattr(partition, name) for name in FIELDS) for partition in topic.partitions],
        )
        for topic in body.topics
    ]


@given(
    version=st.sampled_from(VERSIONS),
    topics=TOPICS,
    correlation_id=INT32,
    client_id=st.sampled_from([None, "", "client", "ü"]),
    rack=st.sampled_from(["", "r1", "ü" * 70]),
)
def test_the_next_requests_partitions_are_those_that_the_slow_path_reads(
    version: int, topics: Any, correlation_id: int, client_id: str | None, rack: str
) -> None:
    pattern = pattern_of(request(version, client_id=client_id, rack_id=rack))
    assert pattern is not None
    frame = request(version, topics, correlation_id=correlation_id, client_id=client_id, rack_id=rack)
    assert pattern.matches(frame)
    assert pattern.topics_in(frame) == read(frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_differs_around_the_topics_does_not_follow_the_pattern(version: int) -> None:
    pattern = pattern_of(request(version))
    assert pattern is not None
    assert pattern.topics_in(request(version, correlation_id=9)) is not None
    others = [
        request(version, client_id="other"),
        request(version, max_wait=501),
        request(version, min_bytes=2),
        request(version, max_bytes=1),
        request(version, isolation_level=0),
        request(version, session_id=5, session_epoch=1),
        request(version, rack_id="r1"),
        request(version, forgotten_topics_data=[{"topic_id": UUID(int=1), "partitions": [0]}]),
        request(version, cluster_id="c"),
        request(13 if version != 13 else 14),
        request(version, replica_id=2)
        if version < 15
        else request(version, replica_state={"replica_id": 2, "replica_epoch": 1}),
    ]
    for other in others:
        assert not pattern.matches(other) and pattern.topics_in(other) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_out_of_the_ordinary_are_left_to_the_slow_path(version: int) -> None:
    pattern = pattern_of(request(version))
    assert pattern is not None
    zero, one, two = ((index, 3, 0, -1, -1, 1) for index in range(3))
    assert pattern.topics_in(request(version, [(1, [zero]), (2, [zero]), (1, [one, two])])) is not None
    assert pattern.topics_in(request(version, [])) is None, "no topics"
    assert pattern.topics_in(request(version, [(1, [])])) is None, "no partitions"
    assert pattern.topics_in(request(version, [(1, [zero, one, zero])])) is None, "one named twice"
    assert pattern.topics_in(request(version, [(1, [zero]), (2, [zero]), (1, [zero])])) is None
    assert pattern.topics_in(request(version, [(1, [zero]), (1, [one])])) is None, "an answer joins these"
    large = request(version, MANY)
    assert len(large) > PATTERN_BYTES_MAX and pattern.topics_in(large) is None


def test_a_partition_with_a_tagged_field_is_left_to_the_slow_path() -> None:
    pattern = pattern_of(request(18))
    assert pattern is not None
    for fields in ({"replica_directory_id": UUID(int=4)}, {"high_watermark": 5}):
        partition = dict(zip(FIELDS, ONE[0][1][0], strict=True)) | fields
        topics = [{"topic_id": UUID(int=7), "partitions": [partition]}]
        assert pattern.topics_in(request(18, topics=topics)) is None


def test_every_place_of_tagged_fields_is_looked_at() -> None:
    two = [(index, 3, 0, -1, -1, 1) for index in range(2)]
    whole = bytes(request(16, [(1, two), (2, two)]))
    pattern = pattern_of(memoryview(whole))
    assert pattern is not None
    first_topic = whole.index(UUID(int=1).bytes)
    partitions = [first_topic + topic * 84 + 17 + index * 33 for topic in range(2) for index in range(2)]
    for place in [*(start + 32 for start in partitions), first_topic + 83, first_topic + 167]:
        assert whole[place] == 0
        assert pattern.topics_in(memoryview(whole[:place] + b"\x01" + whole[place + 1 :])) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_cut_off_or_grown_anywhere_does_not_follow_the_pattern(version: int) -> None:
    whole = request(version, [(1, ONE[0][1]), (2, ONE[0][1])], rack_id="rack")
    pattern = pattern_of(whole)
    assert pattern is not None
    for length in range(len(whole)):
        assert pattern.topics_in(whole[:length]) is None
    assert pattern.topics_in(memoryview(bytes(whole) + b"\0")) is None
    assert pattern.topics_in(memoryview(bytes(whole[:-1]) + b"\1")) is None


@given(
    st.one_of(st.binary(max_size=300), st.builds(lambda count: bytes([count]) * 90, st.integers(0, 255))),
    st.integers(0, 100),
)
def test_hostile_bytes_behind_the_pattern_are_refused_or_read_as_by_the_slow_path(
    middle: bytes, cut: int
) -> None:
    whole = request(16)
    pattern = pattern_of(whole)
    assert pattern is not None
    frame = memoryview(bytes(whole[:cut]) + middle + bytes(whole[-3:]))
    topics = pattern.topics_in(frame)
    assert topics is None or topics == read(frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_of_another_kind_have_no_pattern(version: int) -> None:
    assert pattern_of(request(version, session_epoch=0)) is None, "it would like a session"
    assert pattern_of(request(version, session_id=5, session_epoch=-1)) is None, "it closes one"
    assert pattern_of(request(version, forgotten_topics_data=[{"topic_id": UUID(int=1)}])) is None
    assert pattern_of(request(version, cluster_id="c")) is None
    assert pattern_of(request(version, [])) is None


@pytest.mark.parametrize("version", range(SUPPORTED[ApiKey.FETCH].min, VERSIONS.start))
def test_requests_by_topic_names_have_no_pattern(version: int) -> None:
    assert pattern_of(request(version)) is None


PARTITION = st.builds(
    lambda index, offsets, aborted, size: FetchPartitionResponse(
        "", None, index, 0, *offsets, aborted, -1, b"r" * size
    ),
    INT32,
    st.tuples(INT64, INT64, INT64),
    st.none() | st.lists(st.tuples(INT64, INT64), max_size=130),
    st.sampled_from([0, 0, 1, 126, 127, 20_000]),
)


@given(
    version=st.sampled_from(VERSIONS),
    correlation_id=INT32,
    topics=st.lists(
        st.tuples(st.integers(1, 2**128 - 1), st.lists(PARTITION, min_size=1, max_size=4)),
        min_size=1,
        max_size=4,
        unique_by=lambda each: each[0],
    ),
)
def test_an_answer_is_the_one_of_the_slow_path(
    version: int, correlation_id: int, topics: list[tuple[int, list[FetchPartitionResponse]]]
) -> None:
    answer = FetchAnswer(request(version, correlation_id=correlation_id), len(topics))
    usual = []
    for number, partitions in topics:
        answer.begin_topic(UUID(int=number).bytes, len(partitions))
        for each in partitions:
            usual.append(each._replace(topic_id=UUID(int=number)))
            standing = each.partition, each.high_watermark, each.last_stable_offset, each.log_start_offset
            if each.records or each.aborted_transactions:
                answer.add_records(*standing, each.aborted_transactions, each.records or b"")
            else:
                answer.add_standing(*standing, each.aborted_transactions is not None)
        answer.end_topic()
    header = RequestHeader(1, version, correlation_id, None, 0)
    buffers = answer.finish()
    assert b"".join(buffers) == b"".join(fetch_response(header, usual))
    records = [buffer for buffer in buffers if isinstance(buffer, bytes)]
    assert all(any(buffer is each.records for each in usual) for buffer in records), "sent as they are"
