"""One cluster of Apache Kafka 3.9 and of this project's brokers, on ZooKeeper: whichever controls it, and
whichever is killed, nothing that was acknowledged is lost, and groups and transactions go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from minikafka.testing.history import Partition
from tests.chaos.epoch_raises import explained
from tests.chaos.evidence import evidence
from tests.chaos.refusals import BrokersOfRun
from tests.integration.support import confluent
from tests.integration.support.clients import Client
from tests.integration.support.load import Load
from tests.integration.support.process import BrokerProcess, KafkaOnZooKeeper
from tests.support.ports import free_port
from tests.support.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.java, pytest.mark.minikafka_only]

TOPIC = "t"
STEADY = "steady"
PARTITIONS = 6
OURS = 2
DEADLINE_S = 60.0
MEMBERS_MAX = 3
NEVER_FETCHES = "Offset fetch error for 0 partition(s)"
"""What librdkafka says of an answer that is an error of the whole group, and forgets."""
SOON_MS = 4_000
"""After so long ZooKeeper tells the others that a broker was killed."""
PATIENT_MS = 18_000
"""Kafka's default. A Kafka broker whose session ends while it starts, on a machine with much else to do, ends
with code 1."""
COORDINATOR_MOVES = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
"""Librdkafka does not call these retriable, of a commit of offsets."""
PROPERTIES = {
    "replica.lag.time.max.ms": "4000",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "1",
}

Broker = BrokerProcess | KafkaOnZooKeeper


class MixedCluster:
    """At first brokers 1 and 3 are Apache Kafka's, 2 is ours."""

    def __init__(self, directory: Path, zookeeper: str, *, session_timeout_ms: int) -> None:
        self.ports = {node_id: free_port() for node_id in (1, OURS, 3)}
        self._directory = directory
        session = {"zookeeper.connect": zookeeper, "zookeeper.session.timeout.ms": str(session_timeout_ms)}
        self._common = PROPERTIES | session
        self.brokers: dict[int, Broker] = {
            node_id: self.ours(node_id) if node_id == OURS else self.kafka(node_id) for node_id in self.ports
        }
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        self.written = 0

    def kafka(self, node_id: int) -> KafkaOnZooKeeper:
        """To start on that broker's data, address and id."""
        properties = self._common | {"broker.id": str(node_id)}
        return KafkaOnZooKeeper(
            self._directory / f"broker-{node_id}", properties=properties, port=self.ports[node_id]
        )

    def ours(self, node_id: int) -> BrokerProcess:
        properties = self._common | {"node.id": str(node_id)}
        return BrokerProcess(
            self._directory / f"broker-{node_id}", properties=properties, port=self.ports[node_id]
        )

    def _metadata(self, node_id: int) -> Any:
        """What that broker says, of a client that has not heard of the others: it could ask them."""
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.ports[node_id]}", "log_level": 0})
        return admin.list_topics(timeout=10)

    def isrs(self, node_id: int) -> Mapping[int, tuple[int, list[int]]]:
        """What that broker knows: partition → leader and ISR."""
        topic = self._metadata(node_id).topics[TOPIC]
        return {each.id: (each.leader, each.isrs) for each in topic.partitions.values()}

    def controller(self, node_id: int) -> int:
        return int(self._metadata(node_id).controller_id)

    def is_in_sync(self, node_id: int) -> bool:
        """Whether that broker knows each partition of every topic, the brokers' own too, with all its
        replicas in the ISR."""
        topics = self._metadata(node_id).topics
        return TOPIC in topics and all(
            sorted(each.isrs) == [1, 2, 3] for topic in topics.values() for each in topic.partitions.values()
        )

    def is_without(self, victim: int, node_id: int) -> bool:
        return all(victim not in (leader, *isr) for leader, isr in self.isrs(node_id).values())

    def is_led_by(self, controller: int, node_id: int) -> bool:
        return self.controller(node_id) == controller

    def has_forgotten(self, node_id: int) -> bool:
        return TOPIC not in self._metadata(node_id).topics

    def create_topic(self, name: str = TOPIC) -> None:
        confluent.make_topic(self.bootstrap, name, partitions=PARTITIONS, replicas=3)

    def delete_topic(self) -> bool:
        """Of a client that has not heard of an earlier controller."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.delete_topics([TOPIC], operation_timeout=20)[TOPIC].result(DEADLINE_S)
        return True

    def produce(self, count: int, *, transactional_id: str | None = None) -> None:
        """Each is acknowledged by all, in a transaction where it has an id."""
        config: dict[str, str | int | bool] = {
            "bootstrap.servers": self.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "message.timeout.ms": 30_000,
            "log_level": 0,
        }
        producer = Producer(config | ({"transactional.id": transactional_id} if transactional_id else {}))
        refused: list[KafkaError] = []
        if transactional_id:
            producer.init_transactions(DEADLINE_S)
            producer.begin_transaction()
        for number in range(self.written, self.written + count):
            producer.produce(
                TOPIC,
                str(number).encode(),
                partition=number % PARTITIONS,
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )
        assert producer.flush(DEADLINE_S) == 0
        if transactional_id:
            producer.commit_transaction(DEADLINE_S)
        assert refused == []
        self.written += count

    def consume(self, group: str, count: int) -> list[int]:
        """So many of the records that the group has not committed yet; fewer when there are no more."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "log_level": 0,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([TOPIC])
        found: list[int] = []
        until = time.monotonic() + DEADLINE_S
        while len(found) < count and time.monotonic() < until:
            message = consumer.poll(1)
            value = None if message is None or message.error() else message.value()
            if value is not None:
                found.append(int(value))
        consumer.commit(asynchronous=False)
        consumer.close()
        return found


def wait_for(condition: Callable[[], bool], what: str) -> None:
    def holds() -> bool:
        try:
            return condition()
        except Exception:  # noqa: BLE001 a broker that is on its way up or down
            return False

    confluent.wait_until(holds, what, deadline_s=DEADLINE_S)


@contextmanager
def mixed_cluster(
    directory: Path, *, first: int, session_timeout_ms: int = SOON_MS
) -> Iterator[MixedCluster]:
    """Broker ``first`` is up first and the controller."""
    zookeeper = ZooKeeperServer(directory).start()
    cluster = MixedCluster(directory, zookeeper.address, session_timeout_ms=session_timeout_ms)
    try:
        for node_id in sorted(cluster.brokers, key=lambda each: each != first):
            cluster.brokers[node_id].start()
        for node_id in cluster.brokers:
            wait_for(partial(cluster.is_led_by, first, node_id), f"{node_id} knows controller {first}")
        yield cluster
        # What is left is verified: a killed broker of Apache Kafka leaves entries of truncated records
        # in its indexes, which it makes again when it starts.
        for broker in cluster.brokers.values():
            if isinstance(broker, KafkaOnZooKeeper):
                broker.stop()
    finally:
        for broker in cluster.brokers.values():
            broker.close()
        zookeeper.kill()


def wait_for_all_in_sync(cluster: MixedCluster) -> None:
    for node_id in cluster.brokers:
        wait_for(partial(cluster.is_in_sync, node_id), f"broker {node_id} knows all replicas in sync")


@pytest.mark.parametrize(
    ("first", "killed"), [(1, (OURS, 1)), (OURS, (OURS, 3))], ids=["Kafka leads", "ours leads"]
)
def test_either_controls_leads_and_follows_the_other(
    tmp_path: Path, first: int, killed: tuple[int, ...]
) -> None:
    with mixed_cluster(tmp_path, first=first) as cluster:
        cluster.create_topic()
        wait_for_all_in_sync(cluster)
        assert {leader for leader, _ in cluster.isrs(OURS).values()} == {1, 2, 3}
        cluster.produce(200)
        cluster.produce(30, transactional_id="tx")
        assert len(cluster.consume("g", 230)) == 230
        for victim in killed:
            cluster.brokers[victim].kill()
            other = next(each for each in cluster.brokers if each != victim)
            wait_for(partial(cluster.is_without, victim, other), f"{victim} leaves the ISRs")
            cluster.produce(200)
            cluster.produce(30, transactional_id="tx")
            new = range(cluster.written - 230, cluster.written)
            assert sorted(cluster.consume("g", 230)) == list(new), "the group goes on where it was"
            cluster.brokers[victim].start()
            wait_for_all_in_sync(cluster)
        assert sorted(cluster.consume("all of it", cluster.written)) == list(range(cluster.written))
        wait_for(cluster.delete_topic, "the topic is deleted")
        for node_id in cluster.brokers:
            wait_for(partial(cluster.has_forgotten, node_id), f"{node_id} has forgotten the topic")


def retried(work: Callable[[], object]) -> None:
    """``work``, again where that may help: coordinators move with their leaders."""
    until = time.monotonic() + DEADLINE_S
    while True:
        try:
            work()
            return
        except KafkaException as failed:
            error = failed.args[0]
            if not (error.retriable() or error.code() in COORDINATOR_MOVES) or time.monotonic() > until:
                raise


class Transactions:
    """One after another in a thread, for the length of a ``with`` block: five records each."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": "tx",
                "transaction.timeout.ms": 180_000,  # a slow machine is no reason to abort one
                "log_level": 0,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="transactions")
        self.committed = 0
        self.failures: list[str] = []

    def __enter__(self) -> Transactions:
        self._producer.init_transactions(DEADLINE_S)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.05):
                self._producer.begin_transaction()
                for number in range(5):
                    self._producer.produce(TOPIC, f"{self.committed}-{number}".encode(), partition=number)
                # One that takes longer than the client waits may be asked for again, and is the same.
                retried(lambda: self._producer.commit_transaction(DEADLINE_S))
                self.committed += 1
        except (BufferError, KafkaException) as error:
            self.failures.append(f"after {self.committed} transactions: {error}")

    def wait_for_more(self) -> None:
        before = self.committed
        confluent.wait_until(
            lambda: self.failures or self.committed > before,
            "another transaction is committed",
            deadline_s=DEADLINE_S,
        )
        assert self.failures == []

    def check(self, bootstrap: str) -> None:
        """All of each transaction is there, once and in order."""
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "check",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(5)])
        found: dict[int | None, list[str]] = defaultdict(list)
        ended = 0
        while ended < 5:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, f"nothing comes any more: {found}"
            if message.error():
                ended += 1
            else:
                found[message.partition()].append((message.value() or b"").decode())
        consumer.close()
        for number in range(5):
            assert found[number] == [f"{each}-{number}" for each in range(self.committed)]


class Said(logging.Handler):
    """What a client says, line by line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.logger = logging.Logger("tests.readers")
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def read_on(bootstrap: str, start: int, count: int = 100) -> int:
    """A new member of the group goes on at the offset ``start``, and commits; returns where the next does.

    librdkafka asks once for the committed offsets: a member whose coordinator moves just then never fetches
    (confluentinc/librdkafka#5586). When it says that this is so, another takes its place.
    """
    found: list[int | None] = []
    for _ in range(MEMBERS_MAX):
        said = Said()
        consumer = confluent.make_consumer(
            bootstrap, group_id="readers", auto_offset_reset="earliest", debug="cgrp", logger=said.logger
        )
        consumer.subscribe([STEADY])
        until = time.monotonic() + DEADLINE_S
        while len(found) < count and time.monotonic() < until:
            message = consumer.poll(1)
            if message is not None and not message.error():
                found.append(message.offset())
            elif not found and any(NEVER_FETCHES in line for line in said.lines):
                break
        if found:
            retried(partial(consumer.commit, asynchronous=False))
        consumer.close()
        if found or not any(NEVER_FETCHES in line for line in said.lines):
            break
    assert found == list(range(start, start + count)), f"the group goes on where it was: {said.lines[-20:]}"
    return start + count


class RaisedEpochs:
    """Records that librdkafka has written twice because a broker refused a batch behind a gap, or one that it
    did not know to be in its log (``tests.chaos.epoch_raises``). A broker is of Apache Kafka for a while, and
    ours for a while."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._brokers = BrokersOfRun(directory, of_kafka=())
        of_kafka = BrokersOfRun(directory, of_kafka=(1, 2, 3))
        self._refusals = [*self._brokers.refusals(), *of_kafka.refusals()]

    def is_known(self, topic: str, offsets: Sequence[int]) -> bool:
        partition = Partition(topic, 0)
        return all(
            explained(partition, "a record", pair, self._refusals, self._brokers)
            for pair in pairwise(offsets)
        )

    @contextmanager
    def noted(self) -> Iterator[None]:
        """An AssertionError has with it what the brokers' files say of the places that it names."""
        try:
            yield
        except AssertionError as error:
            refused = [f"  refused: {each}" for each in self._refusals[:30]]
            error.add_note("\n".join([*evidence([str(error)], (), self._directory), *refused]))
            raise


def test_each_broker_is_replaced_under_load_and_back(tmp_path: Path, clients: dict[str, Client]) -> None:
    """Three of Apache Kafka become three of ours, and Apache Kafka's again, on the same data."""
    with mixed_cluster(tmp_path, first=1, session_timeout_ms=PATIENT_MS) as cluster:
        cluster.brokers[OURS].stop()
        cluster.brokers[OURS] = cluster.kafka(OURS)
        cluster.brokers[OURS].start()
        wait_for(partial(cluster.is_led_by, 1, OURS), "the new broker knows the controller")
        cluster.create_topic()
        cluster.create_topic(STEADY)
        wait_for_all_in_sync(cluster)
        read = 0
        with Load(cluster.bootstrap, [STEADY]) as load, Transactions(cluster.bootstrap) as transactions:
            for make in (cluster.ours, cluster.kafka):
                for node_id in list(cluster.brokers):
                    cluster.brokers[node_id].stop()
                    cluster.brokers[node_id] = make(node_id)
                    cluster.brokers[node_id].start()
                    wait_for_all_in_sync(cluster)
                    transactions.wait_for_more()
                    read = read_on(cluster.bootstrap, read)
        assert load.failures == transactions.failures == []
        raised = RaisedEpochs(tmp_path)
        with raised.noted():
            load.check(cluster.bootstrap, clients["aiokafka"], is_known=raised.is_known)
        transactions.check(cluster.bootstrap)
