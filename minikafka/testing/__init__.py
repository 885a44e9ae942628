"""Kafka brokers for somebody's tests: real ones, in the test's own process, gone without a trace afterwards.

In an asynchronous test, on the test's own event loop (any loop)::

    from minikafka.testing import Broker

    async def test_orders():
        async with Broker() as broker:
            producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
            ...

In a synchronous test, where the broker gets a thread and a loop of its own::

    from minikafka.testing import ThreadedBroker

    def test_orders():
        with ThreadedBroker(config={"num.partitions": 3}) as broker:
            producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
            ...

With pytest no import is needed: installing minikafka brings the fixtures ``minikafka_broker`` (a fresh broker
for each test) and ``minikafka_session_broker`` (one for all tests); see ``minikafka.testing.pytest_plugin``.

Both brokers take the same arguments: ``config`` with Kafka's property names, ``data_dir`` to keep the records
in a directory of yours (a temporary one, removed at the end, is the default) and ``host``.
"""

from __future__ import annotations

from minikafka.testing.broker import Broker
from minikafka.testing.thread import ThreadedBroker

__all__ = ["Broker", "ThreadedBroker"]
