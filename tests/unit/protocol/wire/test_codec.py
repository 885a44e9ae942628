"""What the codec makes of bytes that are wrong, newer than it, or merely unusual."""

from __future__ import annotations

import resource
import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minikafka.errors import ErrorCode, InvariantError, PeerProtocolError
from minikafka.protocol.wire import reading
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.protocol.wire.codec import (
    decode_response,
    encode_request,
    encode_response_buffers,
    field,
    read_request_header,
)
from minikafka.protocol.wire.reading import compile_reader
from minikafka.protocol.wire.schema import REQUIRED, EntitySchema, FieldSchema, message_schema
from minikafka.protocol.wire.writing import LARGE_BYTES, ArrayToKeep, EncodedArray
from minikafka.steps import finish
from tests.support.codec import decode_request, encode_response

ALL_TOPICS = {
    "topics": [],
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}
ALL = [
    (key, version) for key, versions in SUPPORTED.items() for version in range(versions[0], versions[1] + 1)
]
FETCH = {"max_wait": 1, "min_bytes": 1, "topics": [], "forgotten_topics_data": [], "rack_id": "r"}
SOME: dict[str, Any] = {"string": "x", "bool": True, "records": b"r", "bytes": b"b", "uuid": None}


def some_body(schema: EntitySchema, depth: int = 1) -> dict[str, Any]:
    return {item.name: some_value(item, depth) for item in schema.fields if item.default is REQUIRED or depth}


def some_value(item: FieldSchema, depth: int) -> Any:
    inner = some_body(item.entity, depth) if item.entity else SOME.get(item.kafka_type or "", 1)
    return [inner] * depth if item.is_array else inner


def request(api_key: int, version: int, body: dict[str, Any]) -> bytes:
    return encode_request(api_key=api_key, api_version=version, correlation_id=3, client_id="c", body=body)[
        4:
    ]


def decode(frame: bytes) -> Any:
    return decode_request(read_request_header(frame), frame)


@pytest.mark.parametrize(("api_key", "version"), ALL)
def test_the_least_body_is_the_required_fields(api_key: ApiKey, version: int) -> None:
    schema = message_schema(api_key, version, "response")
    frame = encode_response(
        api_key=api_key, api_version=version, correlation_id=1, body=some_body(schema.body, depth=0)
    )
    assert decode_response(api_key=api_key, api_version=version, frame=frame[4:])[0] == 1
    required = [item.name for item in schema.body.fields if item.default is REQUIRED]
    for name in required:
        short = some_body(schema.body, depth=0)
        del short[name]
        with pytest.raises(InvariantError, match=f"{name} is missing"):
            encode_response(api_key=api_key, api_version=version, correlation_id=1, body=short)


def test_of_neighbours_that_are_written_together_the_one_that_does_not_fit_is_named() -> None:
    body = {"throttle_time": 0, "error_code": 0, "session_id": 1 << 31, "responses": []}
    with pytest.raises(InvariantError, match=r"FetchResponse\.session_id cannot be 2147483648"):
        encode_response(api_key=ApiKey.FETCH, api_version=12, correlation_id=1, body=body)


def test_a_name_of_another_version_is_left_out_and_a_name_of_none_is_our_bug() -> None:
    body = {"throttle_time": 0, "responses": [], "session_id": 7, "error_code": 0}
    old = encode_response(api_key=ApiKey.FETCH, api_version=4, correlation_id=1, body=body)
    assert old == struct.pack(">iiii", 12, 1, 0, 0)
    with pytest.raises(InvariantError, match=r"Fetch response v4: .*session_idd"):
        encode_response(api_key=ApiKey.FETCH, api_version=4, correlation_id=1, body=body | {"session_idd": 7})
    topic = {"topic": "t", "topic_id": None, "partitions": [], "nmae": 1}
    for version in (4, 13):
        with pytest.raises(InvariantError, match="nmae"):
            encode_response(
                api_key=ApiKey.FETCH,
                api_version=version,
                correlation_id=1,
                body=body | {"responses": [topic]},
            )


@pytest.mark.parametrize("version", [4, 12, 17])
@pytest.mark.parametrize(
    "sizes", [[0], [LARGE_BYTES - 1], [LARGE_BYTES], [10, LARGE_BYTES, 0, 3 * LARGE_BYTES]]
)
def test_large_records_are_sent_from_where_they_are(version: int, sizes: list[int]) -> None:
    values = [bytearray([65 + number]) * size for number, size in enumerate(sizes)]
    partitions = [
        {
            "partition_index": number,
            "error_code": 0,
            "high_watermark": 9,
            "aborted_transactions": None,
            "records": value,
        }
        for number, value in enumerate(values)
    ]
    topic = {"topic": "t", "topic_id": UUID(int=7), "partitions": partitions}
    body = {"throttle_time": 0, "error_code": 0, "session_id": 7, "responses": [topic]}
    wanted = {"api_key": ApiKey.FETCH, "api_version": version, "correlation_id": 5, "body": body}
    buffers = finish(encode_response_buffers(**wanted))
    large = [value for value in values if len(value) >= LARGE_BYTES]
    assert [each for each in buffers if any(each is value for value in large)] == large, "none was copied"
    frame = b"".join(buffers)
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    _, found = decode_response(api_key=ApiKey.FETCH, api_version=version, frame=frame[4:])
    assert [each.records or b"" for each in found.responses[0].partitions] == values


@pytest.mark.parametrize("wrong", [2**31, -(2**31) - 1, "1", None, 1.5])
def test_a_value_that_does_not_fit_is_our_bug(wrong: Any) -> None:
    with pytest.raises(InvariantError, match=r"throttle_time"):
        encode_response(
            api_key=ApiKey.FETCH,
            api_version=4,
            correlation_id=1,
            body={"throttle_time": wrong, "responses": []},
        )


def test_a_header_of_an_unknown_api_still_says_what_it_is() -> None:
    frame = struct.pack(">hhi", 999, 5, -77) + b"whatever"
    assert read_request_header(frame)[:4] == (999, 5, -77, None)
    api_versions_9 = struct.pack(">hhih", 18, 9, 4, -1)
    assert read_request_header(api_versions_9)[:3] == (18, 9, 4)
    produce_2 = struct.pack(">hhih", 0, 2, 4, 50)
    assert read_request_header(produce_2)[:3] == (0, 2, 4)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\0\0",
        struct.pack(">hhi", 18, 0, 1),
        struct.pack(">hhih", 18, 0, 1, 5) + b"four",
        struct.pack(">hhih", 18, 0, 1, -2),
        struct.pack(">hhih", 18, 0, 1, 2) + b"\xc3\x28",
        struct.pack(">hhih", 18, 3, 1, -1),
        struct.pack(">hhih", 18, 3, 1, -1) + b"\x01\x00\x7f",
        struct.pack(">hhih", 18, 3, 1, -1) + b"\xff\xff\xff\xff\xff\x01",
    ],
)
def test_a_malformed_header_closes_the_connection(frame: bytes) -> None:
    with pytest.raises(PeerProtocolError):
        read_request_header(frame)


def test_unknown_tagged_fields_are_skipped_wherever_they_are() -> None:
    # KIP-482: a newer client may send tags that this broker has never heard of.
    header = struct.pack(">hhih", 18, 3, 1, 1) + b"c" + b"\x01\x63\x02ab"
    frame = header + b"\x02n\x02v" + b"\x02\x05\x00\x07\x03xyz"
    assert decode(frame) == ("n", "v")
    fetch = request(ApiKey.FETCH, 12, FETCH)
    assert fetch[-1] == 0, "no tagged fields"
    entity = decode(fetch[:-1] + b"\x02" + b"\x00\x03\x03id" + b"\x09\x01z")
    assert entity == decode(fetch)._replace(cluster_id="id")


def test_a_known_tag_must_fill_its_size() -> None:
    fetch = request(ApiKey.FETCH, 12, FETCH)
    assert decode(fetch[:-1] + b"\x01\x00\x03\x03id").cluster_id == "id"
    for section in (b"\x01\x00\x04\x03idX", b"\x01\x00\x02\x03id", b"\x01\x00\x7f\x03id"):
        with pytest.raises(PeerProtocolError):
            decode(fetch[:-1] + section)


def test_bytes_behind_the_body_are_ignored_as_in_kafka() -> None:
    for version in (0, 1, 4, 9, 12):
        frame = request(ApiKey.METADATA, version, ALL_TOPICS)
        assert decode(frame + b"trailing") == decode(frame)


HOSTILE_METADATA = [
    (1, b"\x7f\xff\xff\xff"),
    (1, b"\x80\x00\x00\x00"),
    (1, b"\xff\xff\xff\xfe"),
    (0, b"\xff\xff\xff\xff"),  # null is not allowed in version 0
    (12, b"\xff\xff\xff\xff\x07"),
    (12, b"\xff\xff\xff\xff\x0f"),
    (12, b"\xff\xff\xff\xff\x7f"),
    (12, b"\xff" * 20),
]


@pytest.mark.parametrize(("version", "count"), HOSTILE_METADATA)
def test_a_count_is_checked_before_memory_is_reserved(version: int, count: bytes) -> None:
    start = request(ApiKey.METADATA, version, ALL_TOPICS)
    body = read_request_header(start).body_start
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(PeerProtocolError):
        decode(start[:body] + count + bytes(1000))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


def test_a_count_of_more_elements_than_have_room_is_refused_at_once() -> None:
    start = request(ApiKey.METADATA, 1, {"topics": []})
    body = read_request_header(start).body_start
    with pytest.raises(PeerProtocolError, match="an array of 51 elements where 100 bytes remain"):
        decode(start[:body] + struct.pack(">i", 51) + bytes(100))
    assert len(decode(start[:body] + struct.pack(">i", 50) + bytes(100)).topics) == 50


@pytest.mark.parametrize(("count", "is_refused"), [(1_000, False), (1_001, True)])
def test_a_member_that_joins_has_a_limit_of_protocols(count: int, is_refused: bool) -> None:
    schema = message_schema(ApiKey.JOIN_GROUP, 5, "request")
    body = some_body(schema.body) | {"protocols": [{"name": "range", "metadata": b""}] * count}
    frame = request(ApiKey.JOIN_GROUP, 5, body)
    if is_refused:
        with pytest.raises(PeerProtocolError, match="array elements"):
            decode(frame)
    else:
        assert len(decode(frame).protocols) == count


def test_a_message_has_a_limit_of_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    entity = EntitySchema("Few", True, (FieldSchema("many", "string", None, True, False, None, REQUIRED),))
    read = compile_reader(entity)
    frame = memoryview(b"\x04\x01\x01\x01\x00")
    assert read(frame, 0, [3])[0].many == ("", "", "")
    with pytest.raises(PeerProtocolError, match="array elements"):
        read(frame, 0, [2])
    assert reading.ELEMENTS_MAX < 2_000_000


def test_a_response_may_carry_an_error_code_that_has_no_name_yet() -> None:
    body = {"throttle_time": 0, "error_code": 12345, "responses": []}
    frame = encode_response(api_key=ApiKey.FETCH, api_version=7, correlation_id=1, body=body)[4:]
    assert decode_response(api_key=1, api_version=7, frame=frame)[1].error_code == 12345
    body["error_code"] = 3
    frame = encode_response(api_key=ApiKey.FETCH, api_version=7, correlation_id=1, body=body)[4:]
    assert decode_response(api_key=1, api_version=7, frame=frame)[1].error_code is (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


def test_a_field_of_some_versions_has_a_default_in_the_others() -> None:
    old = decode(request(ApiKey.METADATA, 1, {"topics": []}))
    assert field(old, "allow_auto_topic_creation", True) is True
    new = decode(request(ApiKey.METADATA, 4, {"topics": [], "allow_auto_topic_creation": False}))
    assert field(new, "allow_auto_topic_creation", True) is False


def test_produce_records_are_views_of_the_frame() -> None:
    for version in range(3, 14):
        body = {
            "acks": -1,
            "timeout": 10,
            "topic_data": [
                {
                    "name": "t",
                    "topic_id": UUID(int=7),
                    "partition_data": [{"index": 0, "records": b"R" * 500}],
                }
            ],
        }
        frame = request(ApiKey.PRODUCE, version, body)
        records = decode(frame).topic_data[0].partition_data[0].records
        assert records.obj is frame and records.readonly and records == b"R" * 500


def test_tagged_fields_of_a_produce_request_are_skipped_and_must_be_well_formed() -> None:
    data = {"index": 0, "records": b"R" * 5}
    body = {"acks": 1, "timeout": 10, "topic_data": [{"name": "t", "partition_data": [data]}]}
    frame = request(ApiKey.PRODUCE, 9, body)
    assert frame[-3:] == bytes(3)
    unknown = b"\x01\x05\x02xx"
    assert decode(frame[:-3] + 3 * unknown) == decode(frame)
    for section in (
        b"\x01\x05\x7fxx",
        b"\x01",
        b"\0\0\x01\x05",
        b"\0\x02\x05\0\0",
        b"\xff\xff\xff\xff\xff\xff",
    ):
        with pytest.raises(PeerProtocolError):
            decode(frame[:-3] + section)


@pytest.mark.parametrize(("api_key", "version"), ALL)
def test_any_damage_to_a_request_is_a_request_or_a_protocol_error(api_key: ApiKey, version: int) -> None:
    valid = request(api_key, version, some_body(message_schema(api_key, version, "request").body, depth=2))
    start = read_request_header(valid).body_start

    @settings(max_examples=15, suppress_health_check=list(HealthCheck), deadline=None, database=None)
    @given(
        st.binary(max_size=60)
        | st.integers(start, len(valid)).map(lambda end: valid[start:end])
        | st.tuples(st.integers(start, len(valid) - 1), st.binary(min_size=1, max_size=6)).map(
            lambda damage: valid[start : damage[0]] + damage[1] + valid[damage[0] + len(damage[1]) :]
        )
    )
    def survives(body: bytes) -> None:
        try:
            decode(valid[:start] + body)
        except PeerProtocolError:
            pass

    if start < len(valid):
        survives()


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(range(3, 14)), st.data())
def test_the_hand_read_produce_request_refuses_what_the_compiled_reader_refuses(
    version: int, data: st.DataObject
) -> None:
    schema = message_schema(ApiKey.PRODUCE, version, "request")
    topics = st.lists(
        st.fixed_dictionaries(
            {
                "name": st.text(max_size=5),
                "topic_id": st.none() | st.uuids(),
                "partition_data": st.lists(
                    st.fixed_dictionaries(
                        {"index": st.integers(0, 9), "records": st.none() | st.binary(max_size=300)}
                    ),
                    max_size=2,
                ),
            }
        ),
        max_size=2,
    )
    transactional_id = data.draw(st.none() | st.text(max_size=3))
    body = {"transactional_id": transactional_id, "acks": 1, "timeout": 5, "topic_data": data.draw(topics)}
    frame = request(ApiKey.PRODUCE, version, body)
    header = read_request_header(frame)
    at = data.draw(st.integers(header.body_start, len(frame) - 1))
    damaged = frame[:at] + data.draw(st.binary(max_size=3)) + frame[at + data.draw(st.integers(0, 3)) :]
    for candidate in (frame, damaged):
        try:
            expected = compile_reader(schema.body)(memoryview(candidate), header.body_start, [10**6])[0]
        except (PeerProtocolError, *reading.MALFORMED):
            with pytest.raises(PeerProtocolError):
                decode_request(header, candidate)
            continue
        ours = decode_request(header, candidate)
        assert (ours.transactional_id, ours.acks, ours.timeout) == (
            expected.transactional_id,
            expected.acks,
            expected.timeout,
        )
        assert [
            (field(topic, "name", "") if version < 13 else topic.topic_id, tuple(topic.partition_data))
            for topic in ours.topic_data
        ] == [
            (field(topic, "name", "") if version < 13 else topic.topic_id, tuple(topic.partition_data))
            for topic in expected.topic_data
        ]


@pytest.mark.parametrize("version", range(14))
def test_an_array_that_is_kept_is_written_as_any_other(version: int) -> None:
    partitions = [
        {
            "error_code": 0,
            "partition_index": index,
            "leader_id": 1,
            "leader_epoch": 5,
            "replica_nodes": [1, 2],
            "isr_nodes": [1],
            "offline_replicas": [],
        }
        for index in range(200)
    ]

    def encoded(partitions: Any) -> bytes:
        topic = {"error_code": 0, "name": "t", "topic_id": None, "partitions": partitions}
        topic |= {"is_internal": False}
        body = {"throttle_time": 0, "brokers": [], "cluster_id": None, "controller_id": 1, "error_code": 0}
        body |= {"topics": [topic, topic]}
        return encode_response(api_key=3, api_version=version, correlation_id=7, body=body)

    kept: dict[str, bytes] = {}
    assert encoded(ArrayToKeep(partitions, kept, "x")) == encoded(partitions)
    assert list(kept) == ["x"]
    assert encoded(EncodedArray(kept["x"])) == encoded(partitions)
    another = [partition | {"leader_id": 2} for partition in partitions]
    assert encoded(ArrayToKeep(another, kept, "x")) == encoded(partitions), "what is kept counts"
    assert encoded(ArrayToKeep(another, kept, "y")) == encoded(another) != encoded(partitions)
