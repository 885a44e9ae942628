"""A record that is followed over three brokers: at the terminal, and as spans at a collector."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from minikafka.cli.configs import main as configs
from minikafka.cli.topics import main as topics
from minikafka.cli.trace import main as trace
from minikafka.testing import ThreadedCluster

TOPIC = "orders"
BROKERS = (1, 2, 3)
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
PATIENCE_S = 30


class Collector:
    """Takes OTLP over HTTP, as Jaeger, Tempo and OpenTelemetry's collector do."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []
        """Each with the broker that it comes from."""
        self.tokens: set[str | None] = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                outer.tokens.add(self.headers["x-token"])
                request = ExportTraceServiceRequest()
                request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
                for resource in request.resource_spans:
                    told = {each.key: each.value.string_value for each in resource.resource.attributes}
                    assert told["service.name"] == "minikafka" and told["host.name"]
                    broker = told["service.instance.id"].rpartition("/")[2]
                    for scope in resource.scope_spans:
                        outer.spans += [(broker, span) for span in scope.spans]
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def of_trace(self, trace_id: str) -> dict[str, list[tuple[str, Any]]]:
        """By name."""
        found: dict[str, list[tuple[str, Any]]] = {}
        for broker, span in list(self.spans):
            if span.trace_id.hex() == trace_id:
                found.setdefault(span.name, []).append((broker, span))
        return found

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    started = Collector()
    yield started
    started.close()


@pytest.fixture(scope="module")
def bootstrap(collector: Collector) -> Iterator[str]:
    config = {
        "trace.otlp.endpoint": collector.url,
        "trace.otlp.headers": "x-token=a%20secret",
        "min.insync.replicas": 2,
    }
    with ThreadedCluster(len(BROKERS), config=config) as cluster:
        for name in (TOPIC, "small"):
            limit = ["--config", "max.message.bytes=90"] if name == "small" else []
            arguments = ["create", name, "--partitions", "1", "--replication-factor", "3", *limit]
            assert topics([*arguments, "-b", cluster.bootstrap_servers]) == 0
            cluster.wait_until(lambda name=name: len(cluster.isr_of(name, 0)) == len(BROKERS))
        yield cluster.bootstrap_servers


def follow(capsys: pytest.CaptureFixture[str], bootstrap: str, *arguments: str) -> Any:
    capsys.readouterr()
    assert trace(["produce", TOPIC, "-b", bootstrap, "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def place(found: Any, step: str, broker: int | None = None, **detail: object) -> int:
    """Where a step is in the time line."""
    (index,) = [
        index
        for index, each in enumerate(found["steps"])
        if each["step"] == step
        and (broker is None or each["broker"] == broker)
        and detail.items() <= each["detail"].items()
    ]
    return index


def test_an_acks_all_produce_shows_its_way_over_leader_and_followers(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = follow(capsys, bootstrap, "--value", "apples")
    leader = found["steps"][place(found, "received")]["broker"]
    followers = [each for each in BROKERS if each != leader]
    in_order = ["client_sent", "received", "validated", "appended", "parked", "woken", "answered", "sent"]
    assert [place(found, each) for each in in_order] == sorted(place(found, each) for each in in_order)
    moved = place(found, "high_watermark_moved", leader)
    for each in followers:
        sent = place(found, "sent_to_follower", leader, replica=each)
        has = place(found, "follower_has", leader, replica=each)
        assert place(found, "appended") < sent < place(found, "follower_appended", each) < has < moved
        assert place(found, "high_watermark_moved", each) > moved
    assert moved < place(found, "woken") < place(found, "consumed", leader)
    assert found["steps"][place(found, "parked")]["detail"]["keys"] == [f"{TOPIC}-0"]
    assert found["steps"][place(found, "client_answered")]["text"].endswith(f"offset {found['first_offset']}")
    assert found["notes"] == []
    times = [each["at_ns"] for each in found["steps"]]
    assert times == sorted(times) and times[-1] - times[0] < PATIENCE_S * 10**9


def test_with_acks_1_nobody_waits_and_the_followers_come_after(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = follow(capsys, bootstrap, "--acks", "1", "--no-consumer")
    steps = [each["step"] for each in found["steps"]]
    assert "parked" not in steps and "consumed" not in steps
    assert steps.count("follower_appended") == 2


def test_a_person_sees_a_refusal_and_the_status_says_so(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert trace(["produce", "small", "-b", bootstrap]) == 1
    printed = capsys.readouterr()
    assert "read from the socket" in printed.out
    assert "refused: MESSAGE_TOO_LARGE" in printed.out
    assert "small-0 was not written" in printed.err
    assert trace(["produce", "small", "-b", bootstrap, "--partition", "7"]) == 1
    assert "there is no partition small-7: small has 1" in capsys.readouterr().err


def test_live_shows_what_a_stock_client_writes(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "shop", "acks": "all", "linger.ms": 0})
    arguments = ["--live", "--one-in", "3", "--count", "2", "--seconds", "30", "--json"]
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(trace, ["produce", TOPIC, "-b", bootstrap, *arguments])
        while not ended.done():
            producer.produce(TOPIC, b"pears", partition=0)
            assert producer.flush(PATIENCE_S) == 0
        assert ended.result() == 0
    printed = capsys.readouterr()
    assert "following one batch in 3 of orders" in printed.err
    lines = [json.loads(line) for line in printed.out.splitlines()]
    assert len(lines) == 2
    for found in lines:
        assert found["steps"][place(found, "received")]["detail"]["client"] == "shop"
        assert [each["step"] for each in found["steps"]].count("follower_appended") == 2
        place(found, "sent")


def whole_produce(collector: Collector) -> tuple[Any, list[Any]] | None:
    """The span of a produce that all brokers and a consumer had to do with, and those below it."""
    found = collector.of_trace(TRACE_ID)
    for leader, produce in found.get(f"produce {TOPIC}", ()):
        below = [
            (broker, span)
            for spans in found.values()
            for broker, span in spans
            if span.parent_span_id == produce.span_id
        ]
        names = {span.name for _, span in below}
        followers = [each for each in BROKERS if str(each) != leader]
        wanted = {f"replicate {TOPIC}-0 to broker {each}" for each in followers}
        wanted |= {"wait in purgatory", f"fetch {TOPIC}"}
        appended_by = {broker for broker, span in below if span.name == f"append {TOPIC}-0"}
        if wanted <= names and appended_by == {str(each) for each in BROKERS}:
            return produce, [span for _, span in below]
    return None


def test_the_trace_of_an_application_goes_on_through_the_brokers(
    bootstrap: str, collector: Collector
) -> None:
    """A stock client sends ``traceparent`` with a record, while one batch in one is followed."""
    everywhere = ["alter", "--entity-type", "brokers", "--entity-default", "-b", bootstrap]
    assert configs([*everywhere, "--add-config", "trace.one.in=1"]) == 0
    try:
        producer = Producer({"bootstrap.servers": bootstrap, "client.id": "shop", "acks": "all"})
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "packing", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([TOPIC])
        deadline = time.monotonic() + PATIENCE_S
        whole = None
        while whole is None:  # the brokers hear of the property one after the other
            traceparent = f"00-{TRACE_ID}-{PARENT}-01".encode()
            producer.produce(TOPIC, b"plums", partition=0, headers={"traceparent": traceparent})
            assert producer.flush(PATIENCE_S) == 0
            consumer.poll(0.5)
            whole = whole_produce(collector)
            assert whole or time.monotonic() < deadline, collector.of_trace(TRACE_ID).keys()
        consumer.close()
    finally:
        assert configs([*everywhere, "--delete-config", "trace.one.in"]) == 0
    produce, below = whole
    assert produce.parent_span_id.hex() == PARENT
    attributes = {each.key: each.value for each in produce.attributes}
    assert attributes["messaging.destination.name"].string_value == TOPIC
    assert attributes["messaging.client.id"].string_value == "shop"
    assert [each.name for each in produce.events][:3] == ["received", "validated", "appended"]
    assert all(each.start_time_unix_nano < each.end_time_unix_nano for each in (produce, *below))
    offset = attributes["messaging.kafka.offset"].int_value
    assert all(
        each.value.int_value == offset
        for span in below
        for each in span.attributes
        if each.key == "messaging.kafka.offset"
    )
    assert collector.tokens == {"a secret"}
