"""The way of a batch through a broker, its steps told to the tracer as the broker tells them."""

from __future__ import annotations

import pytest

from minikafka.errors import ErrorCode, KafkaError
from minikafka.server.tracing import tracer as tracing
from minikafka.server.tracing.spans import Span
from minikafka.server.tracing.tracer import SESSION_TRACES_MAX, Reader, SessionOptions, Trace
from minikafka.types import TopicPartition
from tests.unit.server.tracing.batches import (
    EPOCH_NS,
    ORDERS,
    PARENT,
    TOPIC_ID,
    TRACE_ID,
    TRACEPARENT,
    Following,
    batch,
)

ALL = SessionOptions(one_in=1, seconds=60)
FOLLOWER = Reader(2, "", "10.0.0.2:5")
CONSUMER = Reader(-1, "shop", "10.0.0.9:7")


@pytest.fixture
def at() -> Following:
    return Following()


class Sink(list[Span]):
    """Takes spans."""

    def add(self, spans: object) -> None:
        self.extend(spans)  # type: ignore[call-overload]

    def names(self) -> list[str]:
        return [each.name for each in self]


def arrive(at: Following, first_offset: int = 0, records: bytes | None = None) -> Trace | None:
    return at.tracer.begin(
        ORDERS,
        TOPIC_ID,
        batch(None) if records is None else records,
        first_offset=first_offset,
        received_ns=at.clock.monotonic_ns(),
        client="shop",
        acks=-1,
    )


def steps(trace: Trace | None) -> list[str]:
    assert trace is not None
    return [step.name for step in trace.steps]


def test_without_a_session_nothing_is_followed(at: Following) -> None:
    assert not at.tracer.is_on
    assert arrive(at) is None


def test_a_produce_to_the_leader_is_followed_from_its_arrival_to_a_consumer(at: Following) -> None:
    tracer, sink = at.tracer, Sink()
    tracer.exporter = sink
    tracer.start("s", ALL)
    trace = arrive(at, 17, batch(TRACEPARENT))
    assert trace is not None
    tracer.note(trace, "validated", records=1)
    at.clock.advance(2)
    tracer.appended(ORDERS, 17, last_offset=17)
    sent = batch(TRACEPARENT, base_offset=17)
    tracer.sent(ORDERS, sent, fetch_offset=17, reader=FOLLOWER)
    tracer.note(trace, "parked", keys=["orders-0"])
    at.clock.advance(3)
    tracer.follower_fetched(ORDERS, 2, fetch_offset=18)
    tracer.high_watermark_moved(ORDERS, 18, "broker 2 fetched at 18")
    tracer.note(trace, "woken", by="the high watermark", error=None)
    tracer.note(trace, "sent")
    tracer.finished(trace)
    tracer.sent(ORDERS, sent, fetch_offset=10, reader=CONSUMER)

    assert steps(trace) == [
        "received", "validated", "appended", "sent_to_follower", "parked", "follower_has",
        "high_watermark_moved", "woken", "sent", "consumed",
    ]  # fmt: skip
    assert trace.steps[0].at_ns == EPOCH_NS
    assert trace.steps[-1].at_ns == EPOCH_NS + 5_000_000
    session = tracer.session("s")
    assert session is not None and list(session.traces) == [trace]
    assert sink.names() == [
        "replicate orders-0 to broker 2",
        "produce orders",
        "append orders-0",
        "wait in purgatory",
        "fetch orders",
    ]
    replicate, produce, append, wait, fetch = sink
    assert {each.trace_id for each in sink} == {TRACE_ID}
    assert (produce.parent_span_id, produce.is_server) == (PARENT, True)
    assert {each.parent_span_id for each in (replicate, append, wait, fetch)} == {produce.span_id}
    assert len({each.span_id for each in sink}) == 5
    assert (append.end_ns - append.start_ns, wait.end_ns - wait.start_ns) == (2_000_000, 3_000_000)
    assert [name for name, *_ in produce.events] == steps(trace)[:-1]
    assert [each.attributes["messaging.operation.name"] for each in sink] == [
        "replicate", "produce", "append", "wait", "fetch",
    ]  # fmt: skip
    assert produce.attributes["minikafka.acks"] == -1 and "error.type" not in produce.attributes
    assert fetch.attributes["messaging.client.id"] == CONSUMER.client_id
    assert fetch.attributes["messaging.operation.type"] == "receive"
    assert all(each.start_ns < each.end_ns for each in sink), "Jaeger warns of a span without a duration"


def test_a_produce_that_was_refused_has_the_type_of_its_error(at: Following) -> None:
    at.tracer.exporter = sink = Sink()
    at.tracer.start("s", ALL)
    trace = arrive(at)
    assert trace is not None
    at.tracer.refused(trace, KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large"))
    at.tracer.finished(trace)
    (produce,) = sink
    assert (produce.error, produce.attributes["error.type"]) == ("MESSAGE_TOO_LARGE", "MESSAGE_TOO_LARGE")
    assert produce.end_ns > produce.start_ns


def test_leader_and_follower_make_spans_of_one_trace_without_a_word_between_them() -> None:
    leader, follower = Following(1), Following(2)
    spans = []
    for each in (leader, follower):
        each.tracer.exporter = Sink()
        each.tracer.start("s", ALL)
        spans.append(each.tracer.exporter)
    trace = arrive(leader, 5)
    assert trace is not None
    leader.tracer.finished(trace)
    replicated = batch(None, base_offset=4) + batch(None, base_offset=5)
    follower.tracer.follower_appended(ORDERS, TOPIC_ID, replicated, leader_id=1)
    (produce,) = spans[0]
    _, appended = spans[1]
    assert (appended.trace_id, appended.parent_span_id) == (produce.trace_id, produce.span_id)
    assert appended.end_ns - appended.start_ns == 1
    session = follower.tracer.session("s")
    assert session is not None and [each.first_offset for each in session.traces] == [4, 5]


def test_internal_topics_are_not_followed(at: Following) -> None:
    assert not at.tracer.covers("orders")
    at.tracer.start("s", ALL)
    assert at.tracer.covers("orders") and not at.tracer.covers("__consumer_offsets")
    at.tracer.end("s")
    at.tracer.start("s", SessionOptions(one_in=1, topic="payments"))
    assert at.tracer.covers("payments") and not at.tracer.covers("orders")


def test_a_session_for_a_trace_id_follows_the_one_record_that_carries_it(at: Following) -> None:
    at.tracer.start("s", SessionOptions(topic="orders", trace_id=TRACE_ID))
    other = f"00-{'1' * 32}-{PARENT}-01"
    assert at.tracer.may_choose(ORDERS, 3)
    assert not at.tracer.may_choose(TopicPartition("payments", 0), 3)
    assert arrive(at, 3, batch(None)) is None
    assert arrive(at, 4, batch(other)) is None
    assert arrive(at, 5, batch(TRACEPARENT, None)) is None  # it would come alone
    assert arrive(at, 6, batch(TRACEPARENT)) is not None


def test_what_the_application_does_not_sample_is_shown_and_not_exported(at: Following) -> None:
    at.tracer.exporter = sink = Sink()
    at.tracer.start("s", ALL)
    trace = arrive(at, 0, batch(f"00-{TRACE_ID}-{PARENT}-00"))
    assert trace is not None
    at.tracer.finished(trace)
    assert steps(trace) == ["received"] and not sink


def test_a_refused_batch_is_an_error_and_is_not_taken_for_the_next_one(at: Following) -> None:
    at.tracer.exporter = sink = Sink()
    at.tracer.start("s", ALL)
    refused = arrive(at, 3)
    assert refused is not None
    at.tracer.refused(refused, KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few"))
    at.tracer.finished(refused)
    assert sink[0].error == "NOT_ENOUGH_REPLICAS"
    following = arrive(at, 3)
    at.tracer.high_watermark_moved(ORDERS, 4, "the append")
    assert steps(refused) == ["received", "refused"]
    assert steps(following) == ["received", "high_watermark_moved"]


def test_a_follower_that_asks_again_is_noted_once(at: Following) -> None:
    at.tracer.start("s", ALL)
    trace = arrive(at, 3)
    for _ in range(3):
        at.tracer.sent(ORDERS, batch(None, base_offset=3), fetch_offset=3, reader=FOLLOWER)
        at.tracer.follower_fetched(ORDERS, 2, fetch_offset=4)
        at.tracer.high_watermark_moved(ORDERS, 4, "broker 2")
    assert steps(trace) == ["received", "sent_to_follower", "follower_has", "high_watermark_moved"]


def test_damaged_records_are_passed_over(at: Following) -> None:
    at.tracer.start("s", ALL)
    assert arrive(at, 0, b"no batch") is None
    assert arrive(at, 0, b"\0" * 100) is None
    at.tracer.follower_appended(ORDERS, TOPIC_ID, b"\0" * 100, leader_id=1)


# Bounds


def test_a_session_ends_by_its_time_and_can_be_read_for_a_minute_more(at: Following) -> None:
    at.tracer.start("s", SessionOptions(one_in=1, seconds=10))
    arrive(at)
    at.clock.advance(10_000)
    assert arrive(at, 1) is None
    assert not at.tracer.is_on
    session = at.tracer.session("s")
    assert session is not None and len(session.traces) == 1
    at.clock.advance(60_000)
    assert at.tracer.session("s") is None


def test_an_ended_session_is_off_at_once(at: Following) -> None:
    at.tracer.start("s", ALL)
    at.tracer.end("s")
    at.tracer.end("s")
    assert not at.tracer.is_on and at.tracer.session("s") is None


def test_clients_have_so_many_sessions_and_the_configuration_one_of_its_own(at: Following) -> None:
    at.tracer.follow_one_in(1)
    for each in range(tracing.SESSIONS_MAX):
        at.tracer.start(f"s{each}", ALL)
    at.tracer.start("s0", ALL)  # again
    with pytest.raises(KafkaError) as refused:
        at.tracer.start("one-more", ALL)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    for name in ("", "x" * 65, "trace.one.in"):
        with pytest.raises(KafkaError) as refused:
            at.tracer.start(name, ALL)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(KafkaError):
        at.tracer.end_of_client("trace.one.in")
    for each in range(tracing.SESSIONS_MAX):
        at.tracer.end(f"s{each}")
    assert at.tracer.is_on
    at.tracer.follow_one_in(0)
    assert not at.tracer.is_on


def test_a_session_keeps_its_newest_traces(at: Following) -> None:
    at.tracer.start("s", ALL)
    for offset in range(SESSION_TRACES_MAX + 5):
        arrive(at, offset)
    session = at.tracer.session("s")
    assert session is not None and session.begun == SESSION_TRACES_MAX + 5
    assert [each.first_offset for each in session.traces] == list(range(5, SESSION_TRACES_MAX + 5))


def test_the_oldest_are_followed_no_more(at: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "FOLLOWED_MAX", 2)
    at.tracer.start("s", ALL)
    first, second, third = (arrive(at, offset) for offset in range(3))
    at.tracer.high_watermark_moved(ORDERS, 9, "it may")
    assert [len(steps(each)) for each in (first, second, third)] == [1, 2, 2]


def test_a_trace_has_so_many_steps(at: Following) -> None:
    at.tracer.start("s", ALL)
    trace = arrive(at)
    for _ in range(tracing.STEPS_MAX):
        at.tracer.sent(ORDERS, batch(None), fetch_offset=0, reader=CONSUMER)
    assert trace is not None and len(trace.steps) == tracing.STEPS_MAX
    assert trace.dropped_steps == 1


def test_the_clock_of_the_steps_does_not_go_back_when_the_wall_clock_does(at: Following) -> None:
    at.tracer.start("s", ALL)
    before_ns = at.tracer.now_ns()
    at.wall_ns = lambda: 0  # type: ignore[method-assign]
    at.clock.advance(1)
    at.tracer.start("another", ALL)
    assert at.tracer.now_ns() == before_ns + 1_000_000
