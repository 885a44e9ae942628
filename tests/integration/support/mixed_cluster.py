"""One cluster of Apache Kafka 3.9 and of this project's brokers, on ZooKeeper, and its operator."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.records.batch import iterate_headers
from minikafka.protocol.records.records import iterate_records
from minikafka.protocol.wire.api_versions import ApiKey
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess, KafkaOnZooKeeper
from tests.support.ports import free_port
from tests.support.zookeeper import ZooKeeperServer, skip_if_missing

DEADLINE_S: Final = 60.0
Kind = Literal["kafka", "ours"]
PROPERTIES: Final = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    "replica.lag.time.max.ms": "2000",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "unclean.leader.election.enable": "false",
    "zookeeper.session.timeout.ms": "30000",  # of the dead, too: ``kill`` says who they are
}


class PartitionState(NamedTuple):
    """As Metadata has it."""

    leader: int
    replicas: list[int]
    isr: list[int]


class MixedCluster:
    """Brokers by node id; what a test does to them."""

    def __init__(self, directory: Path, zookeeper: str, kinds: Mapping[int, Kind]) -> None:
        self.kinds = kinds
        self._zookeeper = zookeeper
        self.ports = {node_id: free_port() for node_id in kinds}
        self.brokers: dict[int, BrokerProcess] = {}
        for node_id, kind in kinds.items():
            make = KafkaOnZooKeeper if kind == "kafka" else BrokerProcess
            properties = PROPERTIES | {"zookeeper.connect": zookeeper, "broker.id": str(node_id)}
            if kind == "ours":
                properties["log.cleaner.backoff.ms"] = "300"  # Kafka's looks every 15 s
            self.brokers[node_id] = make(
                directory / f"broker-{node_id}", properties=properties, port=self.ports[node_id]
            )
            self.brokers[node_id].log_dirs = ",".join(map(str, self.log_dirs(node_id)))
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def log_dirs(self, node_id: int) -> tuple[Path, Path]:
        first = self.brokers[node_id].data_dir
        return first, first.with_name(first.name + "-more")

    def of_kind(self, kind: Kind) -> list[int]:
        return [node_id for node_id, each in self.kinds.items() if each == kind]

    # Asking

    def ask(self, key: ApiKey, body: Mapping[str, Any], *, of: int | None = None) -> Any:
        """Of the controller, when ``of`` is not given."""

        async def ask(node_id: int) -> Any:
            address = ("127.0.0.1", self.ports[node_id])
            client = await BrokerClient.connect(*address, client_id="operator", deadline_ms=30_000)
            try:
                return await client.request(key, body, deadline_ms=30_000)
            finally:
                await client.close()

        return asyncio.run(ask(self.controller() if of is None else of))

    def _metadata(self, node_id: int, topics: Sequence[str]) -> Any:
        body = {
            "topics": [{"topic_id": None, "name": name} for name in topics],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        return self.ask(ApiKey.METADATA, body, of=node_id)

    def controller(self) -> int:
        """As ZooKeeper has it."""
        with self._store() as store:
            data, _ = store.get("/controller")
        return _controller_of(data)

    def partitions(self, topic: str, node_id: int) -> dict[int, PartitionState]:
        """What that broker tells clients; empty when it does not know the topic."""
        (found,) = self._metadata(node_id, [topic]).topics
        return {
            each.partition_index: PartitionState(
                each.leader_id, list(each.replica_nodes), list(each.isr_nodes)
            )
            for each in found.partitions
        }

    @contextmanager
    def _store(self) -> Iterator[KazooClient]:
        client = KazooClient(self._zookeeper)
        client.start(10)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    # Topics

    def create(self, topic: str, replicas: Sequence[Sequence[int]], **configs: object) -> None:
        """One partition for each of ``replicas``; returns when all brokers know who leads."""
        body = {
            "name": topic,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [
                {"partition_index": index, "broker_ids": list(each)} for index, each in enumerate(replicas)
            ],
            "configs": [
                {"name": name.replace("_", "."), "value": str(value)} for name, value in configs.items()
            ],
        }
        asked = {"topics": [body], "timeout": 20_000, "validate_only": False}
        (result,) = self.ask(ApiKey.CREATE_TOPICS, asked).topics
        assert result.error_code == 0, result
        self.wait_until(topic, lambda states: len(states) == len(replicas) and is_whole(states))

    def delete(self, topic: str) -> None:
        body = {"topics": [{"topic_id": None, "name": topic}], "topic_names": [topic], "timeout": 1_000}
        self.ask(ApiKey.DELETE_TOPICS, body)

    def is_gone(self, topic: str) -> bool:
        """From ZooKeeper: it may be created again."""
        with self._store() as store:
            return store.exists(f"/brokers/topics/{topic}") is None

    def reassign(self, topic: str, replicas: Mapping[int, Sequence[int] | None]) -> None:
        """None cancels what is under way."""
        partitions = [
            {"partition_index": index, "replicas": None if each is None else list(each)}
            for index, each in replicas.items()
        ]
        asked = {"timeout": 20_000, "topics": [{"name": topic, "partitions": partitions}]}
        answer = self.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, asked)
        assert answer.error_code == 0, answer
        assert all(each.error_code == 0 for found in answer.responses for each in found.partitions), answer

    def throttle(self, topic: str, rate: int | None) -> None:
        """Replication of a topic on all brokers, bytes a second; None: no more."""
        set_, delete = 0, 1
        sides = ("leader", "follower")
        of_brokers = [
            {
                "resource_type": 4,
                "resource_name": str(node_id),
                "configs": [
                    {
                        "name": f"{side}.replication.throttled.rate",
                        "config_operation": delete if rate is None else set_,
                        "value": None if rate is None else str(rate),
                    }
                    for side in sides
                ],
            }
            for node_id in self.kinds
        ]
        of_topic = {
            "resource_type": 2,
            "resource_name": topic,
            "configs": [
                {
                    "name": f"{side}.replication.throttled.replicas",
                    "config_operation": delete if rate is None else set_,
                    "value": None if rate is None else "*",
                }
                for side in sides
            ],
        }
        for node_id in self.kinds:  # a broker's own configurations go to that broker, the topic's to any
            resources = [of_brokers[list(self.kinds).index(node_id)], of_topic]
            if self.brokers[node_id].is_running():
                answer = self.ask(
                    ApiKey.INCREMENTAL_ALTER_CONFIGS,
                    {"resources": resources, "validate_only": False},
                    of=node_id,
                )
                assert all(each.error_code == 0 for each in answer.responses), answer

    def elect(self, topic: str, partitions: Iterable[int], *, unclean: bool = False) -> None:
        body = {
            "election_type": int(unclean),
            "topic_partitions": [{"topic": topic, "partitions": list(partitions)}],
            "timeout": 20_000,
        }
        answer = self.ask(ApiKey.ELECT_LEADERS, body)
        assert answer.error_code == 0, answer

    # Brokers

    def pause(self, node_ids: Iterable[int]) -> None:
        """They hear and say nothing until ``go_on``."""
        for node_id in node_ids:
            self.brokers[node_id].process.send_signal(signal.SIGSTOP)  # type: ignore[union-attr]

    def go_on(self, node_ids: Iterable[int]) -> None:
        for node_id in node_ids:
            self.brokers[node_id].process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]

    def hand_over(self, node_ids: Collection[int], *, kill: bool = False) -> None:
        """One of these becomes controller. The one before finds out when it wakes up again, or with ``kill``
        when it is started again, which it is."""
        killed = [self.controller()] if kill else []
        others = [
            node_id
            for node_id, broker in self.brokers.items()
            if node_id not in node_ids and node_id not in killed and broker.is_running()
        ]
        self.pause(others)
        try:
            if killed:
                self.kill(*killed)
            with self._store() as store:
                if not killed:
                    store.delete("/controller")
                confluent.wait_until(lambda: store.exists("/controller") is not None, "there is a controller")
        finally:
            self.go_on(others)
        self.start(*killed)
        controller = self.controller()
        assert controller in node_ids, controller

    def start(self, *node_ids: int) -> None:
        """Side by side."""
        threads = [threading.Thread(target=self.brokers[node_id].start) for node_id in node_ids]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert all(self.brokers[node_id].is_running() for node_id in node_ids)

    def kill(self, *node_ids: int) -> None:
        """Their sessions end at once, not when nothing has come from them for long: on a busy machine that
        may also be true of the living."""
        for node_id in node_ids:
            self.brokers[node_id].kill()
        if not node_ids:
            return
        with self._store() as store:
            for node_id in node_ids:
                with suppress(NoNodeError):
                    store.delete(f"/brokers/ids/{node_id}")
            with suppress(NoNodeError):
                data, stat = store.get("/controller")
                if _controller_of(data) in node_ids:
                    store.delete("/controller", stat.version)

    def repair(self) -> None:
        """All run again, whatever a test that failed has done to them."""
        self.go_on(node_id for node_id, broker in self.brokers.items() if broker.is_running())
        self.start(*(node_id for node_id, broker in self.brokers.items() if not broker.is_running()))

    def lose_directory(self, node_id: int, topic: str, partition: int) -> Path:
        """The log directory that has this replica becomes a file, as of a disk that is gone."""
        directory = next(each for each in self.log_dirs(node_id) if (each / f"{topic}-{partition}").exists())
        directory.rename(directory.with_name(f"{directory.name}-lost"))  # at once: the broker goes on writing
        directory.write_text("")
        return directory

    # Waiting

    def wait_until(self, topic: str, condition: Callable[[dict[int, PartitionState]], bool]) -> None:
        """Until every broker that runs tells it so."""
        for node_id, broker in self.brokers.items():
            if broker.is_running():

                def holds(node_id: int = node_id) -> bool:
                    try:
                        return condition(self.partitions(topic, node_id))
                    except OSError:
                        return False

                confluent.wait_until(holds, f"broker {node_id} knows {topic}", deadline_s=DEADLINE_S)

    def wait_until_whole(self, topic: str) -> None:
        self.wait_until(topic, lambda states: bool(states) and is_whole(states))

    # Records

    def produce(self, topic: str, values: Sequence[bytes], *, partition: int, **config: Any) -> None:
        """Acknowledged as ``acks`` says, by all unless told otherwise."""
        settings = {
            "bootstrap.servers": self.bootstrap,
            "acks": "all",
            "message.timeout.ms": 30_000,
            "log_level": 0,
        }
        given = {name.replace("_", "."): value for name, value in config.items()}
        producer = Producer(settings | given)
        refused: list[KafkaError] = []
        for number, value in enumerate(values):
            producer.produce(
                topic,
                value,
                key=b"%d" % (number % 10),
                partition=partition,
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )
        assert producer.flush(DEADLINE_S) == 0
        assert refused == []

    def transact(self, topic: str, transactional_id: str, values: Sequence[bytes]) -> None:
        """One transaction of a producer that is new, with a record for each partition in turn."""
        alive = next(node_id for node_id, each in self.brokers.items() if each.is_running())
        count = len(self.partitions(topic, alive))
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": transactional_id, "log_level": 0}
        )
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=number % count)
        producer.commit_transaction(DEADLINE_S)

    def consume(self, topic: str, group: str, count: int) -> list[bytes]:
        """So many committed records that the group has not read yet; its offsets are committed then."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        consumer.subscribe([topic])
        found: list[bytes] = []
        until = time.monotonic() + DEADLINE_S
        while len(found) < count and time.monotonic() < until:
            message = consumer.poll(1)
            if message is not None and not message.error():
                found.append(message.value() or b"")
        consumer.commit(asynchronous=False)
        consumer.close()
        return found

    def log(self, node_id: int, topic: str, partition: int) -> bytes:
        """All bytes of a replica; read again when a file goes away meanwhile (compaction, a deletion)."""
        until_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                for directory in self.log_dirs(node_id):
                    files = sorted((directory / f"{topic}-{partition}").glob("*.log"))
                    if files:
                        return b"".join(path.read_bytes() for path in files)
            except FileNotFoundError:
                if time.monotonic() > until_s:
                    raise
            else:
                return b""

    def newest_values(self, node_id: int, topic: str, partition: int) -> dict[bytes | None, bytes | None]:
        """What a replica has of each key."""
        found: dict[bytes | None, bytes | None] = {}
        data = self.log(node_id, topic, partition)
        for position, header in iterate_headers(data):
            for record in iterate_records(memoryview(data)[position : position + header.size]):
                found[record.key] = record.value
        return found

    def wait_until_equal(self, topic: str, partition: int, node_ids: Collection[int]) -> None:
        """The replicas' bytes."""

        def are_equal() -> bool:
            one, *others = (self.log(node_id, topic, partition) for node_id in node_ids)
            return bool(one) and all(each == one for each in others)

        confluent.wait_until(
            are_equal, f"the replicas of {topic}-{partition} are the same", deadline_s=DEADLINE_S
        )


def _controller_of(data: bytes) -> int:
    """``data``: of the node ``/controller``."""
    return int(json.loads(data)["brokerid"])


def is_whole(states: Mapping[int, PartitionState]) -> bool:
    """Each partition has a leader, and all its replicas in the ISR."""
    return all(
        each.leader in each.isr and sorted(each.isr) == sorted(each.replicas) for each in states.values()
    )


@contextmanager
def mixed_cluster(directory: Path, kinds: Mapping[int, Kind], *, first: int) -> Iterator[MixedCluster]:
    """Broker ``first`` is up first, and the controller."""
    skip_if_missing()
    zookeeper = ZooKeeperServer(directory).start()
    cluster = MixedCluster(directory, zookeeper.address, kinds)
    try:
        cluster.start(first)
        cluster.start(*(node_id for node_id in kinds if node_id != first))
        yield cluster
    finally:
        for broker in cluster.brokers.values():
            broker.close()
        zookeeper.kill()


def until(condition: Callable[[], bool], what: str, *, seen: Callable[[], object] | None = None) -> None:
    """``seen``: what to say of a wait in vain."""
    try:
        confluent.wait_until(condition, what, deadline_s=DEADLINE_S)
    except AssertionError as error:
        if seen is None:
            raise
        raise AssertionError(f"{error}; seen: {seen()}") from None
