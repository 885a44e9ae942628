"""A broker killed in the middle of a load loses nothing that it has acknowledged, and repeats nothing."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Message

from tests.integration.conftest import StartBroker
from tests.integration.support import confluent
from tests.integration.support.records import numbered

ROUNDS = 3
ACKED_A_ROUND = 5_000
DEADLINE_S = 120.0


@pytest.mark.parametrize(
    ("acks", "idempotent"), [("all", True), ("all", False), ("1", False)], ids=["idempotent", "all", "1"]
)
def test_sigkill_under_load(start_broker: StartBroker, topic: str, acks: str, idempotent: bool) -> None:
    broker = start_broker()
    # Small segments: a kill also finds the log between two of them.
    confluent.make_topic(broker.bootstrap, topic, config={"segment.bytes": 1 << 20})
    acked: dict[int, int] = {}
    failures: list[object] = []
    settings: dict[str, Any] = {
        "acks": acks,
        "enable_idempotence": idempotent,
        "batch_num_messages": 100,
        "linger_ms": 2,
        "retry_backoff_ms": 20,
        "reconnect_backoff_ms": 20,
        "reconnect_backoff_max_ms": 100,
        "message_timeout_ms": 120_000,
        "logger": _quiet(),
    }
    producer = confluent.make_producer(broker.bootstrap, **settings)

    def delivered(error: object, message: Message) -> None:
        if error is not None:
            failures.append(error)
        else:
            acked[int((message.value() or b"")[:12])] = message.offset() or 0

    sent = 0

    def send() -> None:
        nonlocal sent
        record = numbered(sent, size=300)
        producer.produce(topic, key=record.key, value=record.value, partition=0, on_delivery=delivered)
        sent += 1

    def send_until_requests_are_under_way() -> None:
        """On a busy machine the broker may be done with all of them before this thread gets on."""
        end = time.monotonic() + DEADLINE_S
        while True:
            for _ in range(2_000):
                send()
            producer.poll(0)
            if len(producer):
                return
            assert time.monotonic() < end, "the kill is to find requests under way"

    for _ in range(ROUNDS):
        enough = len(acked) + ACKED_A_ROUND
        end = time.monotonic() + DEADLINE_S
        while len(acked) < enough:
            assert time.monotonic() < end, f"{len(acked)} acked, {len(producer)} waiting"
            if len(producer) < 5_000:
                for _ in range(500):
                    send()
            producer.poll(0.001)
        send_until_requests_are_under_way()
        broker.kill()
        broker.start()
    assert producer.flush(DEADLINE_S) == 0
    assert not failures, failures[:5]
    assert len(acked) == sent

    stored = confluent.read(broker.bootstrap, topic, confluent.latest(broker.bootstrap, topic))
    assert [record.offset for record in stored] == list(range(len(stored)))
    for index, offset in acked.items():
        key, value, *_ = numbered(index, size=300)
        assert (stored[offset].key, stored[offset].value) == (key, value), (
            f"record {index} is not at {offset}"
        )
    if idempotent:
        indexes = [int((record.value or b"")[:12]) for record in stored]
        assert indexes == list(range(sent)), "a record is there twice, or out of order"
    assert len(broker.files(topic, ".log")) > 3


def _quiet() -> Any:
    """librdkafka reports each lost connection; here losing them is the plan."""
    import logging

    logger = logging.getLogger("tests.sigkill")
    logger.setLevel(logging.CRITICAL)
    return logger
