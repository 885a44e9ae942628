"""Secure brokers of `minikafka.testing`: who gets in, what they may do there, and what is left behind."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, TopicAuthorizationFailedError
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from minikafka.errors import ConfigError
from minikafka.testing import Broker, Cluster, ThreadedBroker
from tests.support.transports import connections_closed
from tests.unit.testing.test_brokers_for_tests import open_files
from tests.unit.testing.test_pytest_plugin import run_pytest


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(secure=True) as running:
        yield running
    await connections_closed()


async def send(secure: Broker | Cluster, user: str, topic: str, password: str | None = None) -> int:
    """Returns the record's offset."""
    settings = secure.client_config(user, password, client="aiokafka")
    async with AIOKafkaProducer(**settings, acks="all") as producer:
        return int((await producer.send_and_wait(topic, b"x")).offset)


async def test_an_administrator_may_do_anything(broker: Broker) -> None:
    assert await send(broker, "admin", "letters") == 0


async def test_others_may_do_what_an_acl_allows(broker: Broker) -> None:
    await send(broker, "admin", "letters")
    await broker.add_user("alice")
    with pytest.raises(TopicAuthorizationFailedError):
        await send(broker, "alice", "letters")
    await broker.add_acl("alice", "write", topic="letters")
    assert await send(broker, "alice", "letters") == 1
    await broker.add_acl("alice", "write", topic="let", prefixed=True, deny=True)
    with pytest.raises(TopicAuthorizationFailedError):
        await send(broker, "alice", "letters")


async def test_a_password_is_changed(broker: Broker) -> None:
    old = await broker.add_user("alice")
    await broker.add_acl("alice", "all", topic="letters")
    await send(broker, "admin", "letters")
    assert await broker.add_user("alice", "a new one") == "a new one"
    assert await send(broker, "alice", "letters") == 1
    with pytest.raises(KafkaConnectionError):
        await send(broker, "alice", "letters", old)


async def test_a_client_that_says_nothing_gets_no_answer(broker: Broker) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=2000)
    with pytest.raises(KafkaConnectionError):
        await producer.start()
    await producer.stop()


async def test_settings_by_the_names_of_each_client(broker: Broker) -> None:
    assert broker.client_config()["sasl.mechanisms"] == "SCRAM-SHA-512"
    assert broker.client_config("bob", "b", client="java")["sasl.jaas.config"].endswith(
        'username="bob" password="b";'
    )
    assert broker.client_config(client="kafka-python")["bootstrap_servers"] == [broker.bootstrap_servers]
    with pytest.raises(ValueError, match="there is no client 'sarama', there are confluent-kafka"):
        broker.client_config(client="sarama")
    with pytest.raises(ValueError, match="there is no user 'bob': add_user makes one"):
        broker.client_config("bob")


async def test_acls_that_are_none(broker: Broker) -> None:
    with pytest.raises(ValueError, match="of one of topic, group"):
        await broker.add_acl("alice", "read")
    with pytest.raises(ValueError, match="there is no operation 'peek'"):
        await broker.add_acl("alice", "peek", topic="t")


async def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with Broker(secure=True):
        assert len(os.listdir(tmp_path)) == 2
    assert os.listdir(tmp_path) == []
    with pytest.raises(ConfigError, match="contradicts --secure"):
        await Broker(secure=True, config={"allow.everyone.if.no.acl.found": True}).start()
    assert os.listdir(tmp_path) == []


async def test_a_later_broker_continues(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    async with Broker(secure=True, data_dir=data_dir) as first:
        await send(first, "admin", "letters")
        await first.add_user("alice", "alice's")
        await first.add_acl("alice", "write", topic="letters")
        authority = first.client_config(client="java")["ssl.truststore.certificates"]
    async with Broker(secure=True, data_dir=data_dir) as second:
        assert await send(second, "alice", "letters", "alice's") == 1
        assert second.client_config(client="java")["ssl.truststore.certificates"] == authority


async def test_an_open_broker_has_no_users() -> None:
    async with Broker() as broker:
        with pytest.raises(RuntimeError, match=r"Broker\(secure=True\)"):
            broker.client_config()


async def test_a_cluster_speaks_tls_among_itself_and_survives_a_broker() -> None:
    async with Cluster(secure=True, config={"min.insync.replicas": 2}) as cluster:
        await send(cluster, "admin", "letters")
        await cluster.add_user("alice")
        await cluster.add_acl("alice", "write", topic="letters")
        assert await send(cluster, "alice", "letters") == 1
        leader = cluster.leader_of("letters", 0)
        assert leader is not None
        for broker in cluster.brokers.values():
            assert {str(each).partition(":")[0] for each in broker.server.bound} == {"SASL_SSL"}
        await cluster.kill(leader)
        await cluster.wait_until(lambda: cluster.leader_of("letters", 0) not in (None, leader))
        assert await send(cluster, "alice", "letters") == 2
        await cluster.start(leader)
        await cluster.wait_until(lambda: leader in cluster.isr_of("letters", 0))
    await connections_closed()


def test_in_a_thread() -> None:
    with ThreadedBroker(secure=True) as broker:
        broker.add_user("alice")
        broker.add_acl("alice", "describe", topic="letters")
        alice = AdminClient(broker.client_config("alice"))
        assert list(alice.list_topics(timeout=60).topics) == []
        wrong = AdminClient(broker.client_config("alice", "wrong"))
        with pytest.raises(KafkaException):
            wrong.list_topics(timeout=2)


PROJECT = """
from confluent_kafka.admin import AdminClient

def test_it(minikafka_secure_broker):
    settings = minikafka_secure_broker.client_config()
    assert settings["security.protocol"] == "SASL_SSL"
    assert AdminClient(settings).list_topics(timeout=60).topics == {}
"""


def test_the_fixture(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, test=PROJECT)
    assert done.returncode == 0, done.stdout


def test_open_files_are_closed() -> None:
    with ThreadedBroker(secure=True):
        pass
    before = open_files()
    with ThreadedBroker(secure=True):
        pass
    assert open_files() == before
