"""More partitions and more connections than the broker has file descriptors for."""

from __future__ import annotations

import contextlib
import socket

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.hostile.attack import Attack
from tests.integration.support.process import BrokerProcess

TOPICS = 5
CONNECTIONS = 300
DEADLINE_S = 300


def many_partitions(broker: BrokerProcess, short: bool) -> str:
    """Kafka holds two descriptors a partition, so that it would have ended after some 400 of them."""
    partitions = 120 if short else 2_000
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for topic in range(TOPICS):
        futures = admin.create_topics(
            [NewTopic(f"attack-{topic}", partitions, 1)],
            operation_timeout=DEADLINE_S,
            request_timeout=DEADLINE_S,
        )
        futures[f"attack-{topic}"].result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    refused: list[object] = []
    for topic in range(TOPICS):
        for partition in range(0, partitions, 10):
            producer.produce(
                f"attack-{topic}",
                b"x",
                partition=partition,
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )
            producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0 and not refused, refused[:3]
    return f"{TOPICS * partitions} partitions made, a record in every tenth"


def many_connections(broker: BrokerProcess, short: bool) -> str:
    """All at once, and once more for as long as the attack lasts."""
    refused = 0
    for _ in range(1 if short else 20):
        with contextlib.ExitStack() as held:
            clients = [
                held.enter_context(socket.create_connection(("127.0.0.1", broker.port), timeout=30))
                for _ in range(CONNECTIONS)
            ]
            refused += sum(_is_closed(client) for client in clients)
    assert refused, "every connection was accepted"
    return f"{refused} connections refused"


def _is_closed(client: socket.socket) -> bool:
    """Whether the broker has closed it; one that it has accepted says nothing."""
    client.settimeout(0.01)
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


ATTACKS = [
    Attack("many partitions under a limit of 1,024 descriptors", many_partitions, descriptors_max=1_024),
    Attack("300 connections under a limit of 128 descriptors", many_connections, descriptors_max=128),
]
