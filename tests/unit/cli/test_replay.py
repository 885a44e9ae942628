"""What is a difference between two answers, and what only has another name."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from minikafka.cli.record import body_from, plain
from minikafka.cli.replay import Comparison, Difference, Names, may_come_true, was_put_off
from minikafka.protocol.records.batch import read_header
from minikafka.protocol.records.records import Record, build_batch
from minikafka.protocol.wire.api_versions import ApiKey

THEN, NOW = UUID(int=7), UUID(int=9)


def batch(count: int, *, first: int = 0, value: bytes = b"v") -> bytes:
    return build_batch(
        [Record(first + number, 5, b"k", value) for number in range(count)],
        base_offset=first,
        producer_id=41,
        producer_epoch=0,
        base_sequence=0,
    )


def metadata(topic_id: UUID, *, leader: int = 1, names: tuple[str, ...] = ("t",), **fields: Any) -> Any:
    topics = [
        {
            "error_code": 0,
            "name": name,
            "topic_id": topic_id,
            "partitions": [
                {"partition_index": 0, "error_code": 0, "leader_id": leader, "isr_nodes": [leader]}
            ],
        }
        for name in names
    ]
    return {"brokers": [{"node_id": leader, "host": "a", "port": 1}], "topics": topics, **fields}


def fetched(records: bytes | None, **fields: Any) -> Any:
    partition = {"partition_index": 0, "error_code": 0, "high_watermark": 9, "records": records, **fields}
    return {"responses": [{"topic_id": THEN, "partitions": [partition]}]}


def test_an_id_that_the_cluster_gave_by_itself_stands_for_the_recorded_one_from_then_on() -> None:
    names = Names({1: 4})
    comparison = Comparison(names)
    assert comparison.differences(ApiKey.METADATA, 0, metadata(THEN), metadata(NOW, leader=4)) == []
    asked = {"topics": [{"topic_id": THEN, "partitions": [0]}], "member_id": "m"}
    assert names.in_request(asked, 0)["topics"][0]["topic_id"] == NOW
    again = comparison.differences(ApiKey.METADATA, 0, metadata(THEN), metadata(UUID(int=10), leader=4))
    assert [(each.path, each.answered) for each in again] == [("topics[t].topic_id", UUID(int=10))]


def test_an_id_where_there_was_none_is_a_difference_and_no_name() -> None:
    names = Names({})
    recorded, answered = {"producer_id": -1}, {"producer_id": 4}
    found = Comparison(names).differences(ApiKey.INIT_PRODUCER_ID, 0, recorded, answered)
    assert found == [Difference("producer_id", -1, 4)]
    assert names.producer_ids() == {}


def test_producers_and_brokers_may_have_the_id_0() -> None:
    names = Names({0: 1})
    recorded, answered = {"producer_id": 0, "leader_id": 0}, {"producer_id": 4, "leader_id": 1}
    assert Comparison(names).differences(ApiKey.INIT_PRODUCER_ID, 0, recorded, answered) == []
    assert names.producer_ids() == {0: 4}
    (found,) = Comparison(names).differences(ApiKey.FETCH, 0, {"session_id": 0}, {"session_id": 7})
    assert found == Difference("session_id", 0, 7)


def test_batches_that_are_sent_again_have_the_producer_id_of_now_and_a_crc_that_fits() -> None:
    names = Names({})
    assert (
        Comparison(names).differences(ApiKey.INIT_PRODUCER_ID, 0, {"producer_id": 41}, {"producer_id": 8})
        == []
    )
    asked = {"topic_data": [{"partition_data": [{"index": 0, "records": batch(3)}]}]}
    sent = names.in_request(asked, 0)["topic_data"][0]["partition_data"][0]["records"]
    assert read_header(sent).producer_id == 8
    from minikafka.protocol.records.batch import crc_is_valid

    assert crc_is_valid(sent, 0, read_header(sent))


def test_sessions_are_those_of_a_connection() -> None:
    names = Names({})
    comparison = Comparison(names)
    for connection, session in ((0, 50), (1, 60)):
        assert (
            comparison.differences(ApiKey.FETCH, connection, {"session_id": 5}, {"session_id": session}) == []
        )
    assert [names.of("session", each, 5) for each in (0, 1)] == [50, 60]


def test_topics_are_compared_by_name_in_whatever_order_they_are() -> None:
    recorded, answered = metadata(THEN, names=("a", "b")), metadata(THEN, names=("b", "a"))
    assert Comparison(Names({})).differences(ApiKey.METADATA, 0, recorded, answered) == []
    answered["topics"].pop()
    (found,) = Comparison(Names({})).differences(ApiKey.METADATA, 0, recorded, answered)
    assert found.path == "topics[a]" and repr(found.answered) == "nothing"


def test_errors_are_said_by_name_and_their_wording_counts_only_when_asked() -> None:
    recorded = {"error_code": 0, "error_message": None}
    answered = {"error_code": 36, "error_message": "it is there"}
    found = Comparison(Names({})).differences(ApiKey.CREATE_TOPICS, 0, recorded, answered)
    assert found == [Difference("error_code", "NONE", "TOPIC_ALREADY_EXISTS")]
    found = Comparison(Names({}), texts=True).differences(ApiKey.CREATE_TOPICS, 0, recorded, answered)
    assert len(found) == 2
    assert (
        Comparison(Names({}), ignored=["error_code"]).differences(ApiKey.FETCH, 0, recorded, answered) == []
    )


def test_a_fetch_that_came_sooner_is_counted_and_one_with_another_record_differs() -> None:
    comparison = Comparison(Names({}))
    sooner = fetched(batch(2), high_watermark=2)
    assert comparison.differences(ApiKey.FETCH, 0, fetched(batch(5)), sooner) == []
    assert comparison.differences(ApiKey.FETCH, 0, fetched(batch(5)), fetched(None, high_watermark=0)) == []
    assert comparison.later_or_sooner == 2
    (found,) = comparison.differences(ApiKey.FETCH, 0, fetched(batch(2)), fetched(batch(2, value=b"w")))
    assert found.path.endswith("records")
    (found,) = comparison.differences(ApiKey.FETCH, 0, fetched(batch(2)), fetched(batch(2), high_watermark=7))
    assert found.path.endswith("high_watermark")


def test_batches_may_be_cut_elsewhere() -> None:
    split = batch(2) + batch(3, first=2)
    assert Comparison(Names({})).differences(ApiKey.FETCH, 0, fetched(batch(5)), fetched(split)) == []


def test_a_body_is_the_same_after_json() -> None:
    body = {"id": THEN, "records": b"\x00\xff", "many": [{"n": None}, {"n": 1.5}], "name": "t"}
    assert body_from(plain(body)) == body


def test_a_client_was_put_off_when_nothing_else_was_done() -> None:
    not_coordinator, none = {"error_code": 16}, {"error_code": 0}
    assert was_put_off({"error_code": 15, "node_id": -1})
    assert was_put_off({"error_code": 0, "topics": [{"partitions": [not_coordinator, not_coordinator]}]})
    assert not was_put_off({"topics": [{"partitions": [not_coordinator, none]}]}), "one was done"
    assert not was_put_off({"error_code": 0})
    assert not was_put_off({"api_keys": []})


def test_only_an_error_that_was_not_recorded_and_may_go_away_is_asked_again() -> None:
    assert may_come_true({"error_code": 0}, {"error_code": 14})
    assert not may_come_true({"error_code": 14}, {"error_code": 14})
    assert not may_come_true({"error_code": 0}, {"error_code": 36})
    assert not may_come_true({"error_code": 0}, {"error_code": 0})
