"""A broker with its cluster's state in ZooKeeper: what others see there, what it does without it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic
from kazoo.client import KazooClient

from tests.integration.conftest import StartBroker
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess, StartFailed
from tests.integration.support.records import numbered
from tests.support.ports import free_port
from tests.support.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.minikafka_only

ENTRY = "/brokers/ids/7"


@pytest.fixture
def connect(zookeeper_server: ZooKeeperServer, topic: str) -> str:
    return f"{zookeeper_server.address}/{topic}"


@pytest.fixture
def tree(connect: str) -> Iterator[KazooClient]:
    """The tree as a client sees it that has nothing of minikafka's."""
    with contextlib.closing(KazooClient(connect)) as client:
        assert client.start_async().wait(30)
        client.ensure_path("/")
        yield client
        client.stop()


def registered_by(tree: KazooClient, *, other_than: int = 0) -> int:
    """The session of the broker's entry, which is there a moment after the broker answers."""
    owners: list[int] = []

    def is_there() -> bool:
        stat = tree.exists(ENTRY)
        owners.append(stat.ephemeralOwner if stat else other_than)
        return owners[-1] != other_than

    confluent.wait_until(is_there, "the broker is registered")
    return owners[-1]


def properties(connect: str, **others: object) -> dict[str, object]:
    named = {name.replace("_", "."): value for name, value in others.items()}
    return {"zookeeper.connect": connect, "node.id": 7} | named


def test_it_comes_back_to_its_topics_and_records(
    start_broker: StartBroker, connect: str, tree: KazooClient, topic: str
) -> None:
    broker = start_broker(properties=properties(connect))
    confluent.make_topic(broker.bootstrap, topic, partitions=2)
    records = [numbered(i) for i in range(100)]
    confluent.write(broker.bootstrap, topic, records, partition=1, enable_idempotence=True)
    registered_by(tree)
    entry = json.loads(tree.get(ENTRY)[0])
    assert entry["endpoints"] == [f"PLAINTEXT://localhost:{broker.port}"]
    assert json.loads(tree.get(f"/brokers/topics/{topic}")[0])["partitions"] == {"0": [7], "1": [7]}
    assert json.loads(tree.get("/latest_producer_id_block")[0])["broker"] == 7
    assert broker.stop() == 0
    assert tree.exists(ENTRY) is None, "its session ends with it"
    broker.start()
    assert json.loads(tree.get(f"/brokers/topics/{topic}/partitions/1/state")[0])["leader_epoch"] > 0
    stored = confluent.read(broker.bootstrap, topic, 100, partition=1)
    assert [record.content for record in stored] == [record[:3] for record in records]


def test_one_that_was_killed_is_missed_and_may_come_back_earlier(
    start_broker: StartBroker, connect: str, tree: KazooClient
) -> None:
    broker = start_broker(properties=properties(connect, zookeeper_session_timeout_ms=2000))
    first = registered_by(tree)
    broker.kill()
    assert tree.exists(ENTRY) is not None, "it may only be slow"
    broker.start()
    assert registered_by(tree, other_than=first)
    broker.kill()
    confluent.wait_until(lambda: tree.exists(ENTRY) is None, "the entry of a dead broker goes")


def test_without_zookeeper_it_goes_on_with_what_it_has(
    start_broker: StartBroker, own_zookeeper: ZooKeeperServer, topic: str
) -> None:
    broker = start_broker(properties=properties(own_zookeeper.address, zookeeper_session_timeout_ms=2000))
    confluent.make_topic(broker.bootstrap, topic)
    own_zookeeper.pause()
    confluent.wait_until(lambda: "DISCONNECTED" in broker.log_text(), "the broker notices")
    client = confluent.admin(broker.bootstrap)  # its futures need it alive
    with pytest.raises(KafkaException) as refused:
        client.create_topics([NewTopic("another", 1, 1)])["another"].result(confluent.DEADLINE_S)
    assert refused.value.args[0].code() == KafkaError.REQUEST_TIMED_OUT
    records = [numbered(i) for i in range(100)]
    confluent.write(broker.bootstrap, topic, records)
    stored = confluent.read(broker.bootstrap, topic, 100)
    assert [record.content for record in stored] == [record[:3] for record in records]
    own_zookeeper.resume()
    # Its session may have expired or not; either way it has one soon, and is registered.
    confluent.wait_until(
        lambda: "CONNECTED" in broker.log_text().rpartition("DISCONNECTED")[2], "it is connected again"
    )
    with contextlib.closing(KazooClient(own_zookeeper.address)) as client:
        client.start(timeout=30)
        confluent.wait_until(lambda: client.exists(ENTRY) is not None, "it is registered")
        confluent.make_topic(broker.bootstrap, "later")
        assert client.exists("/brokers/topics/later") is not None
        client.stop()


def test_zookeeper_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    connect = f"127.0.0.1:{free_port()}/kafka"
    settings = properties(connect, zookeeper_connection_timeout_ms=500)
    broker = BrokerProcess(tmp_path / "data", properties=settings)
    with pytest.raises(StartFailed, match="ended with code 1"):
        broker.start()
    (line,) = [line for line in broker.log_text().splitlines() if " INFO " not in line]
    assert f"the coordination store zookeeper {connect}: ZooKeeper does not answer within 500 ms" in line
