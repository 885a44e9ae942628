"""The hand-built Produce and Fetch responses are byte for byte what the codec writes, in every version."""

from __future__ import annotations

from itertools import groupby
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.protocol.records.records import RecordError
from minikafka.protocol.wire.api_versions import SUPPORTED, ApiKey
from minikafka.protocol.wire.codec import RequestHeader, decode_response
from minikafka.protocol.wire.fast_paths import (
    CurrentLeader,
    EpochEndOffset,
    FetchPartitionResponse,
    NodeEndpoint,
    ProducePartitionResponse,
    SnapshotId,
)
from tests.support.codec import encode_response, fetch_response, produce_response

i16, i32 = st.integers(-(2**15), 2**15 - 1), st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=20) | st.text(min_size=100, max_size=300)
topics = st.sampled_from([("a", UUID(int=1)), ("topic-b", UUID(int=2)), ("ü" * 100, UUID(int=3)), ("", None)])
leaders = st.none() | st.builds(CurrentLeader, st.sampled_from((-1, 4)), st.sampled_from((-1, 2**31 - 1)))
endpoints = st.lists(st.builds(NodeEndpoint, i32, texts, i32, texts | st.none()), max_size=3)


@st.composite
def produced(draw: st.DrawFn) -> ProducePartitionResponse:
    topic, topic_id = draw(topics)
    errors = st.lists(st.builds(RecordError, i32, texts | st.none()), max_size=3)
    plain = draw(st.booleans())
    return ProducePartitionResponse(
        topic,
        topic_id,
        draw(i32),
        0 if plain or draw(st.booleans()) else draw(i16),
        draw(i64),
        draw(i64),
        draw(i64),
        None if plain else draw(texts | st.none()),
        () if plain else draw(errors),
        None if plain else draw(leaders),
    )


@st.composite
def fetched(draw: st.DrawFn) -> FetchPartitionResponse:
    topic, topic_id = draw(topics)
    return FetchPartitionResponse(
        topic,
        topic_id,
        draw(i32),
        draw(i16),
        draw(i64),
        draw(i64),
        draw(i64),
        draw(st.none() | st.lists(st.tuples(i64, i64), max_size=3)),
        draw(i32),
        draw(st.none() | st.binary(max_size=300) | st.binary(max_size=300).map(bytearray)),
        draw(
            st.none() | st.builds(EpochEndOffset, st.sampled_from((-1, 4)), st.sampled_from((-1, 2**31 - 1)))
        ),
        draw(leaders),
        draw(st.none() | st.builds(SnapshotId, st.sampled_from((-1, 4)), st.sampled_from((-1, 2**31 - 1)))),
    )


def header(api_key: ApiKey, version: int, correlation_id: int) -> RequestHeader:
    return RequestHeader(api_key, version, correlation_id, "client", 0)


def named(value: Any) -> Any:
    return None if value is None else value._asdict()


def by_topic(partitions: list[Any], version: int) -> list[list[Any]]:
    key = (lambda p: p.topic_id) if version >= 13 else (lambda p: p.topic)
    return [list(group) for _, group in groupby(partitions, key)]


def produce_body(
    partitions: list[ProducePartitionResponse], version: int, throttle_ms: int, nodes: list[NodeEndpoint]
) -> dict[str, Any]:
    return {
        "responses": [
            {
                "name": group[0].topic,
                "topic_id": group[0].topic_id,
                "partition_responses": [
                    {
                        "index": p.index,
                        "error_code": p.error_code,
                        "base_offset": p.base_offset,
                        "log_append_time": p.log_append_time_ms,
                        "log_start_offset": p.log_start_offset,
                        "record_errors": [
                            {"batch_index": index, "batch_index_error_message": message}
                            for index, message in p.record_errors
                        ],
                        "error_message": p.error_message,
                        "current_leader": named(p.current_leader),
                    }
                    for p in group
                ],
            }
            for group in by_topic(partitions, version)
        ],
        "throttle_time": throttle_ms,
        "node_endpoints": [named(node) for node in nodes],
    }


@settings(max_examples=150, deadline=None)
@given(
    st.integers(*SUPPORTED[ApiKey.PRODUCE]),
    i32,
    st.lists(produced(), max_size=4),
    st.just(0) | i32,
    st.just([]) | endpoints,
)
def test_produce_responses_are_what_the_codec_writes(
    version: int,
    correlation_id: int,
    partitions: list[ProducePartitionResponse],
    throttle_ms: int,
    nodes: list[NodeEndpoint],
) -> None:
    frame = produce_response(
        header(ApiKey.PRODUCE, version, correlation_id),
        partitions,
        throttle_time_ms=throttle_ms,
        node_endpoints=nodes,
    )
    assert frame == encode_response(
        api_key=ApiKey.PRODUCE,
        api_version=version,
        correlation_id=correlation_id,
        body=produce_body(partitions, version, throttle_ms, nodes),
    )


def fetch_body(
    partitions: list[FetchPartitionResponse], version: int, top: dict[str, Any], nodes: list[NodeEndpoint]
) -> dict[str, Any]:
    return top | {
        "responses": [
            {
                "topic": group[0].topic,
                "topic_id": group[0].topic_id,
                "partitions": [
                    {
                        "partition_index": p.partition,
                        "error_code": p.error_code,
                        "high_watermark": p.high_watermark,
                        "last_stable_offset": p.last_stable_offset,
                        "log_start_offset": p.log_start_offset,
                        "aborted_transactions": p.aborted_transactions
                        if p.aborted_transactions is None
                        else [
                            {"producer_id": producer_id, "first_offset": first}
                            for producer_id, first in p.aborted_transactions
                        ],
                        "preferred_read_replica": p.preferred_read_replica,
                        "records": p.records,
                        "diverging_epoch": named(p.diverging_epoch),
                        "current_leader": named(p.current_leader),
                        "snapshot_id": named(p.snapshot_id),
                    }
                    for p in group
                ],
            }
            for group in by_topic(partitions, version)
        ],
        "node_endpoints": [named(node) for node in nodes],
    }


@settings(max_examples=150, deadline=None)
@given(
    st.integers(*SUPPORTED[ApiKey.FETCH]),
    i32,
    st.lists(fetched(), max_size=4),
    st.tuples(i32, i16, i32),
    endpoints,
)
def test_fetch_responses_are_what_the_codec_writes_and_do_not_copy_records(
    version: int,
    correlation_id: int,
    partitions: list[FetchPartitionResponse],
    top: tuple[int, int, int],
    nodes: list[NodeEndpoint],
) -> None:
    throttle_ms, error_code, session_id = top
    buffers = fetch_response(
        header(ApiKey.FETCH, version, correlation_id),
        partitions,
        throttle_time_ms=throttle_ms,
        error_code=error_code,
        session_id=session_id,
        node_endpoints=nodes,
    )
    body = fetch_body(
        partitions,
        version,
        {"throttle_time": throttle_ms, "error_code": error_code, "session_id": session_id},
        nodes,
    )
    assert b"".join(buffers) == encode_response(
        api_key=ApiKey.FETCH, api_version=version, correlation_id=correlation_id, body=body
    )
    assert all(buffers), "an empty buffer costs a system call"
    for partition in partitions:
        if partition.records:
            assert any(buffer is partition.records for buffer in buffers)


def test_large_records_are_counted_in_the_size_of_the_frame() -> None:
    records = bytes(3 * 1024 * 1024)
    partition = FetchPartitionResponse("big", UUID(int=9), 0, records=records)
    frame = b"".join(fetch_response(header(ApiKey.FETCH, 16, 5), [partition]))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, body = decode_response(api_key=1, api_version=16, frame=frame[4:])
    assert correlation_id == 5
    assert body.responses[0].partitions[0].records == records
