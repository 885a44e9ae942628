"""Topics are deleted while a cluster works: with everybody alive, with a dead broker, with a controller that
dies in the middle, and made again under the same name. A topic next to them takes records all the time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic

from minikafka.coordination import paths
from minikafka.errors import ErrorCode
from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.wire.api_versions import ApiKey
from tests.integration.conftest import StartCluster
from tests.integration.support import confluent
from tests.integration.support.clients import Client
from tests.integration.support.cluster import SESSION_TIMEOUT_MS, ProcessCluster
from tests.integration.support.load import Load
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import Record

pytestmark = pytest.mark.minikafka_only

NEIGHBOUR, TOPIC = "neighbour", "doomed"
PARTITIONS = 3
RECORDS = 50
OLD, LATE, NEW = b"old", b"late", b"new"
WAIT_S = 50.0
PROPERTIES = {
    "auto.create.topics.enable": "false",  # a producer that asks for a topic would make it again
    "log.segment.delete.delay.ms": 500,
}


def make_doomed(cluster: ProcessCluster) -> UUID:
    """A topic with records in all partitions. Returns its id."""
    confluent.make_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, replicas=3)
    for partition in range(PARTITIONS):
        confluent.write(
            cluster.bootstrap, TOPIC, [Record(None, OLD)] * RECORDS, partition=partition, acks="all"
        )
    return topic_id(cluster)


def topic_id(cluster: ProcessCluster) -> UUID:
    """As the store has it."""
    data = cluster.store.get(paths.topic_path(TOPIC))
    assert data is not None
    return paths.decode_topic(TOPIC, data).topic_id


def is_shown_by(broker: BrokerProcess) -> bool:
    return TOPIC in confluent.admin(broker.bootstrap).list_topics(timeout=WAIT_S).topics


def replicas_on(broker: BrokerProcess, *, renamed: bool = False) -> list[Path]:
    found = broker.data_dir.glob(f"{TOPIC}-*")
    return [each for each in found if renamed or not each.name.endswith("-delete")]


def is_in_store(cluster: ProcessCluster) -> bool:
    """Anything of the topic, or the wish to delete it."""
    nodes = (paths.topic_path(TOPIC), paths.topic_config_path(TOPIC), paths.delete_topic_path(TOPIC))
    return any(cluster.store.get(path) is not None for path in nodes)


def wait_until_gone(cluster: ProcessCluster) -> None:
    """From the store, from what brokers tell, and from the disks."""
    confluent.wait_until(lambda: not is_in_store(cluster), "the store has let go of the topic")
    for node_id, broker in cluster.brokers.items():
        confluent.wait_until(lambda broker=broker: not is_shown_by(broker), f"broker {node_id} has, too")
        assert replicas_on(broker) == []
        confluent.wait_until(
            lambda broker=broker: not replicas_on(broker, renamed=True), f"its files are gone from {node_id}"
        )


def error_of(future: Any) -> int:
    with pytest.raises(KafkaException) as caught:
        future.result(WAIT_S)
    code: int = caught.value.args[0].code()
    return code


def fetch_by_id(broker: BrokerProcess, wanted: UUID) -> ErrorCode:
    """What an old client is told that knows a topic by its id."""
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    body = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic_id": wanted, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }

    async def ask() -> ErrorCode:
        client = await BrokerClient.connect("127.0.0.1", broker.port, client_id="old", deadline_ms=60_000)
        try:
            answer = await client.request(ApiKey.FETCH, body, deadline_ms=60_000, version=13)
        finally:
            await client.close()
        return ErrorCode(answer.responses[0].partitions[0].error_code)

    return asyncio.run(ask())


@contextlib.contextmanager
def frozen(cluster: ProcessCluster, node_id: int) -> Iterator[None]:
    cluster.freeze(node_id)
    try:
        yield
    finally:
        cluster.thaw(node_id)


def ask_to_delete(cluster: ProcessCluster, *, timeout_s: float) -> Any:
    """The future of the answer, which comes when the topic is gone, or after ``timeout_s``."""
    client = confluent.admin(cluster.bootstrap)
    future = client.delete_topics([TOPIC], operation_timeout=timeout_s)[TOPIC]
    future.client = client  # it must live as long
    return future


def read_until(consumer: Consumer, condition: Callable[[list[bytes | None]], bool]) -> list[bytes | None]:
    """The next values, until they are enough. A topic that goes away is no failure: it may come back."""
    found: list[bytes | None] = []

    def is_enough() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message.value())
        return condition(found)

    confluent.wait_until(is_enough, "enough records")
    return found


def test_deleted_under_load_and_made_again_at_once(
    start_cluster: StartCluster, clients: dict[str, Client]
) -> None:
    """What is there afterwards is another topic: it has none of the old records, and a request for the old
    one is told that it is not there. A producer and a consumer of the old one go on with the new one.

    No session ends meanwhile: where the old topic's leader had moved, librdkafka takes the new topic's leader
    epoch 0 for stale metadata, and its consumer fetches nothing any more, from Apache Kafka too.
    """
    cluster = start_cluster(properties={**PROPERTIES, "zookeeper.session.timeout.ms": 60_000})
    cluster.make_topic(NEIGHBOUR)
    old_id = make_doomed(cluster)
    errors: list[int] = []
    consumer = confluent.make_consumer(
        cluster.bootstrap, topic_metadata_refresh_interval_ms=500, auto_offset_reset="earliest"
    )
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    read_until(consumer, lambda values: values == [OLD] * RECORDS)
    producer = confluent.make_producer(cluster.bootstrap, acks="all", message_timeout_ms=2_000)
    with Load(cluster.bootstrap, [NEIGHBOUR]) as load:
        deletion = ask_to_delete(cluster, timeout_s=WAIT_S)
        while not deletion.done():
            producer.produce(TOPIC, LATE, on_delivery=lambda error, _: error and errors.append(error.code()))
            producer.poll(0.01)
        deletion.result(0)
        assert not is_in_store(cluster)
        confluent.make_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, replicas=3)
        assert topic_id(cluster) != old_id
        for broker in cluster.brokers.values():
            confluent.wait_until(lambda broker=broker: is_shown_by(broker), "all brokers know the new one")
            assert fetch_by_id(broker, old_id) is ErrorCode.UNKNOWN_TOPIC_ID
        assert producer.flush(WAIT_S) == 0
        # More than there were, so that the consumer's old position is in the new topic, too.
        confluent.write(cluster.bootstrap, TOPIC, [Record(None, NEW)] * 2 * RECORDS, acks="all")
        assert OLD not in read_until(consumer, lambda values: NEW in values)
    consumer.close()
    known = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._MSG_TIMED_OUT)
    assert all(error in known for error in errors), errors
    load.check(cluster.bootstrap, clients["kafka-python"])
    for partition in range(PARTITIONS):
        end = confluent.latest(cluster.bootstrap, TOPIC, partition=partition)
        found = confluent.read(cluster.bootstrap, TOPIC, end, partition=partition)
        assert OLD not in [record.value for record in found]
    for broker in cluster.brokers.values():
        assert len(replicas_on(broker)) == PARTITIONS
        confluent.wait_until(
            lambda broker=broker: len(replicas_on(broker, renamed=True)) == PARTITIONS,
            "the files of the old one are removed",
        )


def test_with_a_dead_broker_it_waits_and_is_finished_when_that_returns(
    start_cluster: StartCluster, clients: dict[str, Client]
) -> None:
    cluster = start_cluster(properties=PROPERTIES)
    cluster.make_topic(NEIGHBOUR)
    make_doomed(cluster)
    dead = next(
        each for each in cluster.brokers if each not in (cluster.controller, cluster.leader(NEIGHBOUR))
    )
    alive = [broker for node_id, broker in cluster.brokers.items() if node_id != dead]
    with Load(cluster.bootstrap, [NEIGHBOUR]) as load:
        cluster.brokers[dead].kill()
        deletion = ask_to_delete(cluster, timeout_s=SESSION_TIMEOUT_MS / 1000 + 1.5)
        for broker in alive:
            confluent.wait_until(lambda broker=broker: not is_shown_by(broker), "clients see it gone")
            confluent.wait_until(lambda broker=broker: not replicas_on(broker), "the living let go of it")
        assert error_of(deletion) == KafkaError.REQUEST_TIMED_OUT
        assert cluster.store.get(paths.delete_topic_path(TOPIC)) is not None, "it is still to be done"
        client = confluent.admin(cluster.bootstrap)
        again = client.create_topics([NewTopic(TOPIC, 1, 2)])[TOPIC]
        assert error_of(again) == KafkaError.TOPIC_ALREADY_EXISTS
        assert replicas_on(cluster.brokers[dead])
        cluster.brokers[dead].start()
        wait_until_gone(cluster)
        cluster.wait_until_whole(NEIGHBOUR)
    load.check(cluster.bootstrap, clients["confluent-kafka"])


def test_a_controller_that_dies_in_the_middle_leaves_it_to_the_next(
    start_cluster: StartCluster, clients: dict[str, Client]
) -> None:
    """One broker stands still, so that the deletion cannot be done when the controller is killed."""
    cluster = start_cluster(properties=PROPERTIES)
    cluster.make_topic(NEIGHBOUR)
    make_doomed(cluster)
    controller = cluster.controller
    slow, quick = (each for each in cluster.brokers if each != controller)
    with Load(cluster.bootstrap, [NEIGHBOUR]) as load:
        with frozen(cluster, slow):
            client = confluent.admin(cluster.brokers[quick].bootstrap)
            client.delete_topics([TOPIC], operation_timeout=1)
            confluent.wait_until(
                lambda: not any(replicas_on(cluster.brokers[each]) for each in (controller, quick)),
                "two have let go of it",
            )
            cluster.brokers[controller].kill()
        assert is_in_store(cluster) and replicas_on(cluster.brokers[slow])
        confluent.wait_until(lambda: cluster.store.controller not in (controller, None), "another controller")
        for each in (slow, quick):
            broker = cluster.brokers[each]
            confluent.wait_until(lambda broker=broker: not is_shown_by(broker), "clients see it gone")
        assert is_in_store(cluster), "the killed broker has not answered"
        cluster.brokers[controller].start()
        wait_until_gone(cluster)
        cluster.wait_until_whole(NEIGHBOUR)
    load.check(cluster.bootstrap, clients["aiokafka"])
