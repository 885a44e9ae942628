"""Kafka brokers for tests: real ones, in the test's own process, gone without a trace afterwards.

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
for each test), ``minikafka_secure_broker`` (one with TLS, users and ACLs), ``minikafka_session_broker`` (one
for all tests) and ``minikafka_cluster`` (three); see ``minikafka.testing.pytest_plugin``.

Several brokers, a controller and failover are a ``Cluster`` (``ThreadedCluster`` without a loop)::

    async with Cluster(brokers=3) as cluster:
        await cluster.kill(cluster.leader_of("orders", 0))

What a test of an application asks about its groups (consumer, share and streams groups), all of them have::

    group = broker.wait_for_group("workers", members=2)   # joined, and each has its partitions or tasks
    group = broker.wait_until_consumed("workers", "orders")  # committed or acknowledged, all that is there
    assert broker.group("workers").in_flight == 0           # records that members of a share group have now

With ``secure=True`` they speak TLS, know users and authorise what they do; ``client_config(user)`` is what a
client needs to get in, ``add_user`` and ``add_acl`` let others do so::

    async with Broker(secure=True) as broker:
        await broker.add_user("alice")
        await broker.add_acl("alice", "write", topic="orders")
        producer = confluent_kafka.Producer(broker.client_config("alice"))

All take ``config`` with Kafka's property names, and ``data_dir`` to keep the records in a directory of yours
(a temporary one, removed at the end, is the default); single brokers also take ``host``.

For tests of what happens when machines fail, ``minikafka.testing.simulation`` runs brokers in a simulated
world: virtual time, kills, power cuts and broken networks, the same in each run of a seed.

``minikafka.testing.history`` judges what clients sent and got, of these brokers or of any others: lost,
duplicated and reordered records, aborted reads, and what else a log must not do.
"""

from __future__ import annotations

from minikafka.testing.broker import Broker
from minikafka.testing.cluster import Cluster
from minikafka.testing.groups import Group, GroupOffset, Member
from minikafka.testing.thread import ThreadedBroker, ThreadedCluster

__all__ = ["Broker", "Cluster", "Group", "GroupOffset", "Member", "ThreadedBroker", "ThreadedCluster"]
