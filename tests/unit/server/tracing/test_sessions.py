"""What a trace session chooses, and what its options may be."""

from __future__ import annotations

import pytest

from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.tracing.tracer import SessionOptions, TraceSession, is_chosen, read_options
from minikafka.types import TopicPartition
from tests.unit.server.tracing.batches import ORDERS, TRACE_ID


def test_options_are_json() -> None:
    assert read_options('{"topic": "orders", "one_in": 5, "seconds": 9}') == SessionOptions(
        topic="orders", one_in=5, seconds=9
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (None, "one_in"),
        ("orders", "JSON"),
        ("{}", "either one_in or trace_id"),
        (f'{{"one_in": 1, "topic": "t", "trace_id": "{TRACE_ID}"}}', "either one_in or trace_id"),
        (f'{{"trace_id": "{TRACE_ID}"}}', "needs a topic"),
        ('{"trace_id": "red", "topic": "t"}', "trace_id"),
        ('{"one_in": 0}', "one_in"),
        ('{"one_in": 1, "seconds": 3601}', "seconds"),
        ('{"one_in": 1, "secs": 9}', "secs"),
    ],
)
def test_bad_options_are_refused_with_what_is_wrong(text: str | None, named: str) -> None:
    with pytest.raises(KafkaError) as refused:
        read_options(text)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert refused.value.message is not None and named in refused.value.message


def test_one_in_n_is_chosen_on_average_and_by_the_place_alone() -> None:
    chosen = [each for each in range(10_000) if is_chosen(ORDERS, each, one_in=100)]
    assert 60 <= len(chosen) <= 140
    assert chosen != [each for each in range(10_000) if is_chosen(TopicPartition("t", 1), each, one_in=100)]
    assert all(is_chosen(ORDERS, each, one_in=1) for each in range(100))


def test_a_session_of_one_topic_leaves_the_others_alone() -> None:
    session = TraceSession("s", SessionOptions(topic="orders", one_in=1), ends_ns=None)
    assert session.may_choose(ORDERS, 0)
    assert not session.may_choose(TopicPartition("payments", 0), 0)
