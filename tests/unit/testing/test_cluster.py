"""The cluster of `minikafka.testing`: what a test may do to its brokers, and what they make of it."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from minikafka.errors import ConfigError
from minikafka.network.broker_client import BrokerClient
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.testing import Cluster
from minikafka.testing.broker import Property
from minikafka.testing.cluster import CLIENTS, LOOPBACK, Network
from minikafka.types import TopicPartition as PartitionOf
from tests.support.zookeeper import ZooKeeperServer
from tests.unit.testing.test_brokers_for_tests import open_files
from tests.unit.testing.test_pytest_plugin import run_pytest

TOPIC = "letters"
AT_LEAST_TWO: dict[str, Property] = {"min.insync.replicas": 2, "zookeeper.session.timeout.ms": 1500}


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(config=AT_LEAST_TWO) as cluster:
        yield cluster


async def send(cluster: Cluster, value: bytes, *, patience_ms: int = 60_000) -> int:
    """Until it is acknowledged by all; a client of its own each time. Returns the offset. Where a broker
    stands still, little patience finds another one; elsewhere it could leave a record in the log twice."""
    async with asyncio.timeout(90):
        while True:
            producer = AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers, acks="all", request_timeout_ms=patience_ms
            )
            try:
                await producer.start()
                record = await producer.send_and_wait(TOPIC, value, partition=0)
                return int(record.offset)
            except KafkaError:
                await asyncio.sleep(0.02)
            finally:
                await producer.stop()


async def read(bootstrap_servers: str, count: int) -> list[bytes | None]:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        await consumer.seek_to_beginning()
        async with asyncio.timeout(60):
            return [(await consumer.getone()).value for _ in range(count)]


def read_log(data_dir: str) -> bytes:
    return Path(data_dir, f"{TOPIC}-0", f"{0:020}.log").read_bytes()


def leader(cluster: Cluster) -> int:
    found = cluster.leader_of(TOPIC, 0)
    assert found is not None
    return found


def followers(cluster: Cluster) -> list[int]:
    return [each for each in cluster.brokers if each != leader(cluster)]


async def whole(cluster: Cluster) -> None:
    await cluster.wait_until(lambda: len(cluster.isr_of(TOPIC, 0)) == 3)


async def test_three_brokers_one_controller_and_every_record_three_times(cluster: Cluster) -> None:
    assert list(cluster.brokers) == [1, 2, 3]
    assert cluster.controller in (1, 2, 3)
    assert cluster.leader_of(TOPIC, 0) is None
    assert await send(cluster, b"one") == 0
    assert sorted(cluster.isr_of(TOPIC, 0)) == [1, 2, 3]
    assert await read(cluster.bootstrap_servers, 1) == [b"one"]
    one, two, three = (read_log(broker.data_dir) for broker in cluster.brokers.values())
    assert one and one == two == three


async def test_a_stopped_broker_hands_its_leadership_over_and_comes_back(cluster: Cluster) -> None:
    await send(cluster, b"one")
    old, port = leader(cluster), cluster.brokers[leader(cluster)].port
    await cluster.stop(old)
    await cluster.wait_until(lambda: leader(cluster) != old)
    assert ".kafka_cleanshutdown" in os.listdir(cluster.brokers[old].data_dir)
    await send(cluster, b"two")
    await cluster.start(old)
    assert cluster.brokers[old].port == port
    await whole(cluster)
    assert await read(cluster.bootstrap_servers, 2) == [b"one", b"two"]


async def test_a_killed_broker_writes_nothing_more_and_its_session_runs_out(cluster: Cluster) -> None:
    await send(cluster, b"one")
    old = leader(cluster)
    directory = Path(cluster.brokers[old].data_dir)

    def written() -> dict[Path, int]:
        files = [path for path in directory.rglob("*") if path.is_file() and path.suffix != ".timeindex"]
        return {path: path.stat().st_mtime_ns for path in files}

    before = written()
    began = time.monotonic()
    await cluster.kill(old)
    assert written() == before
    assert leader(cluster) == old, "no broker has been told"
    await cluster.wait_until(lambda: cluster.leader_of(TOPIC, 0) not in (old, None))
    assert time.monotonic() - began > 1, "a session that was ended would be noticed at once"
    assert await send(cluster, b"two") == 1
    await cluster.start(old)
    await whole(cluster)
    assert await read(cluster.bootstrap_servers, 2) == [b"one", b"two"]


async def test_a_cluster_without_its_majority_of_replicas_continues_when_one_returns(
    cluster: Cluster,
) -> None:
    await send(cluster, b"one")
    one, other = followers(cluster)
    await cluster.kill(one)
    await cluster.kill(other)
    sending = asyncio.ensure_future(send(cluster, b"two", patience_ms=1_000))
    await cluster.wait_until(lambda: cluster.isr_of(TOPIC, 0) == (leader(cluster),))
    assert not sending.done(), "min.insync.replicas is 2"
    await cluster.start(one)
    await sending


async def test_clients_see_who_may_lead_outside_of_the_isr(cluster: Cluster) -> None:
    """KIP-966: with too few in sync, those who left hold all that was committed."""
    await send(cluster, b"one")
    one, other = followers(cluster)
    await cluster.stop(one)
    await cluster.stop(other)
    broker = cluster.brokers[leader(cluster)]
    await cluster.wait_until(lambda: cluster.isr_of(TOPIC, 0) == (broker.node_id,))

    def told() -> tuple[int, ...]:
        partition = broker.server.services.metadata.partition(PartitionOf(TOPIC, 0))
        return () if partition is None else partition.eligible

    await cluster.wait_until(told)
    client = await BrokerClient.connect("127.0.0.1", broker.port, client_id="test", deadline_ms=60_000)
    try:
        asked = {"topics": [{"name": TOPIC}], "response_partition_limit": 10, "cursor": None}
        answer = await client.request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, asked, deadline_ms=60_000)
    finally:
        await client.close()
    (partition,) = answer.topics[0].partitions
    assert (partition.isr_nodes, partition.eligible_leader_replicas) == ((broker.node_id,), (other,))


@pytest.mark.parametrize("how", ["isolate", "pause"])
async def test_a_leader_that_is_away_is_followed_by_another_and_comes_back(
    cluster: Cluster, how: str
) -> None:
    await send(cluster, b"one")
    old = leader(cluster)
    getattr(cluster, how)(old)
    await cluster.wait_until(lambda: cluster.leader_of(TOPIC, 0) not in (old, None))
    assert cluster.controller not in (old, None)
    await send(cluster, b"two", patience_ms=1_000)
    assert cluster.brokers[old].server.services.metadata.topic(TOPIC).partitions[0].leader == old, (
        "it believes still that it leads"
    )
    cluster.resume(old) if how == "pause" else cluster.heal(old)
    await whole(cluster)
    assert await read(cluster.bootstrap_servers, 2) == [b"one", b"two"]


async def test_a_paused_broker_answers_when_it_is_resumed(cluster: Cluster) -> None:
    await send(cluster, b"one")
    cluster.pause(leader(cluster))
    reading = asyncio.ensure_future(read(cluster.brokers[leader(cluster)].bootstrap_servers, 1))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(reading), 0.3)
    cluster.resume(leader(cluster))
    assert await reading == [b"one"]


async def test_clients_reach_an_isolated_broker(cluster: Cluster) -> None:
    await send(cluster, b"one")
    old = leader(cluster)
    cluster.isolate(old)
    assert await read(cluster.brokers[old].bootstrap_servers, 1) == [b"one"]


async def test_a_slow_link_makes_an_acknowledgement_by_all_slow(cluster: Cluster) -> None:
    await send(cluster, b"one")
    delay_followers(cluster)
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        await producer.partitions_for(TOPIC)
        began = time.monotonic()
        await producer.send_and_wait(TOPIC, b"two")
        assert time.monotonic() - began > 0.3, "there with the records, and back with the next fetch"


@pytest.mark.timing
async def test_a_slow_link_that_is_healed_is_quick_again(cluster: Cluster) -> None:
    await send(cluster, b"one")
    delay_followers(cluster)
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        await producer.send_and_wait(TOPIC, b"two")
        cluster.heal()
        await producer.send_and_wait(TOPIC, b"three")
        began = time.monotonic()
        await producer.send_and_wait(TOPIC, b"four")
        assert time.monotonic() - began < 0.3


def delay_followers(cluster: Cluster) -> None:
    for follower in followers(cluster):
        cluster.delay(leader(cluster), follower, 150)
        cluster.delay(follower, leader(cluster), 150)


async def test_what_is_dropped_in_one_direction_arrives_after_healing(cluster: Cluster) -> None:
    await send(cluster, b"one")
    for follower in followers(cluster):
        cluster.drop(leader(cluster), follower)
    sending = asyncio.ensure_future(send(cluster, b"two", patience_ms=1_000))
    done, _ = await asyncio.wait([sending], timeout=0.5)
    assert not done, "the followers do not hear of it"
    cluster.heal()
    await sending


async def test_a_leader_is_moved_by_hand(cluster: Cluster) -> None:
    await send(cluster, b"one")
    for target in followers(cluster):
        await cluster.move_leader(TOPIC, 0, to=target)
        assert cluster.leader_of(TOPIC, 0) == target
        await send(cluster, b"more")
    await whole(cluster)
    with pytest.raises(ValueError, match="ISR"):
        await cluster.move_leader(TOPIC, 0, to=7)


async def test_what_cannot_be_is_said(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="there is no broker 4, there are 1, 2, 3"):
        cluster.pause(4)
    with pytest.raises(RuntimeError, match="already running"):
        await cluster.start(1)
    with pytest.raises(RuntimeError, match="already running"):
        await cluster.start()
    await cluster.stop(1)
    await cluster.stop(1)
    with pytest.raises(RuntimeError, match="not running"):
        await cluster.kill(1)


async def test_a_directory_of_ones_own_outlives_the_cluster(tmp_path: Path) -> None:
    async with Cluster(data_dir=tmp_path) as cluster:
        await send(cluster, b"one")
        await cluster.kill(1)
    async with Cluster(data_dir=tmp_path) as cluster:
        await cluster.wait_until(lambda: cluster.leader_of(TOPIC, 0))
        assert await read(cluster.bootstrap_servers, 1) == [b"one"]
        await whole(cluster)


async def test_a_cluster_that_cannot_start_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(BaseExceptionGroup) as failure:
        await Cluster(config={"num.partitions": 0}).start()
    assert failure.group_contains(ConfigError, match=r"num\.partitions")
    assert os.listdir(tmp_path) == []


async def test_nothing_is_left_behind_whatever_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def story() -> None:
        async with Cluster() as cluster:
            await send(cluster, b"one")
            await cluster.kill(1)
            cluster.pause(2)

    await story()  # what the first brokers of a process load for good is not counted
    gc.collect()
    files, threads, tasks = open_files(), set(threading.enumerate()), asyncio.all_tasks()
    await story()
    await asyncio.sleep(0.05)  # uvloop closes in a later turn
    assert asyncio.all_tasks() == tasks
    assert {thread for thread in threading.enumerate() if thread.is_alive()} <= threads
    assert {name.partition(" ")[2] for name in open_files()} <= {name.partition(" ")[2] for name in files}
    assert os.listdir(tmp_path) == []


async def test_brokers_find_each_other_through_zookeeper(
    zookeeper_server: ZooKeeperServer, request: pytest.FixtureRequest
) -> None:
    connect = f"{zookeeper_server.address}/{request.node.name}"
    async with Cluster(config=AT_LEAST_TWO | {"zookeeper.connect": connect}) as cluster:
        await send(cluster, b"one")
        old = leader(cluster)
        await cluster.kill(old)
        await cluster.wait_until(lambda: cluster.leader_of(TOPIC, 0) not in (old, None))
        await send(cluster, b"two")
        await cluster.start(old)
        await whole(cluster)
        paused = leader(cluster)
        cluster.pause(paused)
        await cluster.wait_until(lambda: cluster.leader_of(TOPIC, 0) not in (paused, None))
        cluster.resume(paused)
        await whole(cluster)
        assert await read(cluster.bootstrap_servers, 2) == [b"one", b"two"]


def test_a_cluster_as_a_fixture(tmp_path: Path) -> None:
    test = """
import pytest
from confluent_kafka import Producer

@pytest.mark.minikafka_config({"min.insync.replicas": 2})
def test_orders(minikafka_cluster):
    producer = Producer({"bootstrap.servers": minikafka_cluster.bootstrap_servers, "acks": "all"})
    producer.produce("orders", b"one")
    assert producer.flush(60) == 0
    leader = minikafka_cluster.leader_of("orders", 0)
    minikafka_cluster.kill(leader)
    minikafka_cluster.wait_until(lambda: minikafka_cluster.leader_of("orders", 0) not in (leader, None))
    producer.produce("orders", b"two")
    assert producer.flush(60) == 0
    minikafka_cluster.start(leader)
    minikafka_cluster.wait_until(lambda: len(minikafka_cluster.isr_of("orders", 0)) == 3)
"""
    done = run_pytest(tmp_path, test=test)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("steps", range(8))
def test_a_connection_that_comes_as_a_relay_is_shut_is_closed(steps: int) -> None:
    """However far the loop has come with it: a transport that is left open is a warning, and so an error."""

    async def shut_after(steps: int) -> None:
        relay = Network().relay(CLIENTS, 1, lambda: None)
        await relay.open()
        with socket.create_connection((LOOPBACK, relay.port)):
            for _ in range(steps):
                await asyncio.sleep(0)
            await relay.shut()

    asyncio.run(shut_after(steps))
    gc.collect()
