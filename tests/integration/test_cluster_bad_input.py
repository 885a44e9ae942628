"""What a cluster makes of wrong ids, a store that is away or damaged, and forged followers."""

from __future__ import annotations

import struct
import subprocess
import time

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from minikafka.coordination import paths
from tests.integration.conftest import StartCluster
from tests.integration.support import confluent, wire
from tests.integration.support.clients import Client
from tests.integration.support.cluster import SESSION_TIMEOUT_MS, ProcessCluster
from tests.integration.support.load import Load
from tests.integration.support.process import BrokerProcess
from tests.integration.support.records import numbered

pytestmark = pytest.mark.minikafka_only

FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 74, 75
FETCH_VERSION = 9
"""The first with the leader epoch that the asker knows."""


def refused(broker: BrokerProcess) -> str:
    """Try to start; returns the one line that it ends with."""
    done = subprocess.run(broker.arguments(), capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("minikafka-broker:"))
    return line


def test_brokers_that_do_not_belong_are_refused_and_do_no_harm(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    cluster.make_topic("unharmed")
    with Load(cluster.bootstrap, ["unharmed"]) as load:
        line = refused(cluster.make_broker(1, "same-id"))
        assert "broker id 1 is taken" in line and str(cluster.brokers[1].port) in line
        line = refused(cluster.make_broker(9, "configured", **{"cluster.id": "AnotherClusterEntirely"}))
        assert "AnotherClusterEntirely" in line
        elsewhere = BrokerProcess(cluster.directory / "elsewhere", properties={"node.id": 9}).start()
        assert elsewhere.stop() == 0
        line = refused(cluster.make_broker(9, "elsewhere"))
        assert "cluster" in line.lower() and "elsewhere" in line
    assert not load.failures
    assert load.longest_gap_s() < SESSION_TIMEOUT_MS / 1000


@pytest.mark.parametrize("seconds", [1.5, SESSION_TIMEOUT_MS / 1000 + 3], ids=["short", "long"])
def test_a_store_that_is_away_for_a_while(
    start_cluster: StartCluster, clients: dict[str, Client], seconds: float
) -> None:
    """For less than the sessions' timeout, and for longer: what is led goes on being led, and afterwards the
    cluster is whole."""
    cluster = start_cluster()
    cluster.make_topic("away")
    with Load(cluster.bootstrap, ["away"]) as load:
        cluster.engine.pause()
        paused = time.monotonic()
        load.wait_for_more("away", paused, deadline_s=seconds)
        time.sleep(max(0.0, paused + seconds - time.monotonic()))  # this long, whatever happens
        cluster.engine.resume()
        load.wait_for_more("away", time.monotonic(), deadline_s=30)
        cluster.wait_until_whole("away")
        confluent.wait_until(lambda: topic_is_made(cluster, "after"), "topics can be made again")
        load.wait_for_more("away", time.monotonic(), deadline_s=30)
    print(f"\nstore away for {seconds} s, {cluster.engine.name}: longest gap {load.longest_gap_s():.2f} s")
    load.check(cluster.bootstrap, clients["confluent-kafka"])


def topic_is_made(cluster: ProcessCluster, topic: str) -> bool:
    """Try to make it. Brokers that have not found the store again say so, or are not registered."""
    try:
        cluster.make_topic(topic)
    except KafkaException as error:
        not_yet = (KafkaError.REQUEST_TIMED_OUT, KafkaError.INVALID_REPLICATION_FACTOR)
        assert error.args[0].code() in not_yet, error
        return False
    return True


def test_a_damaged_topic_is_named_and_spoils_no_other(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    cluster.make_topic("good")
    cluster.make_topic("bad")
    confluent.write(cluster.bootstrap, "bad", [numbered(0)], acks="all")
    path = paths.topic_path("bad")
    healthy = cluster.store.get(path)
    assert healthy is not None
    cluster.store.put(path, b'{"version": 3, "partitions": ')
    controller = cluster.controller
    cluster.brokers[controller].kill()
    confluent.wait_until(lambda: cluster.store.controller not in (controller, None), "another controller")
    survivors = [broker for node_id, broker in cluster.brokers.items() if node_id != controller]
    confluent.wait_until(
        lambda: any(path in broker.log_text() for broker in survivors), "the damaged node is named"
    )
    confluent.write(cluster.bootstrap, "good", [numbered(0)], acks="all")
    cluster.brokers[controller].start()
    assert cluster.brokers[controller].partition_dir("bad").is_dir(), "its replica is kept for better times"
    cluster.wait_until_whole("good")
    cluster.store.put(path, healthy)
    confluent.write(cluster.bootstrap, "bad", [numbered(1)], acks="all", message_timeout_ms=60_000)
    assert [record.value for record in confluent.read(cluster.bootstrap, "bad", 2)] == [
        numbered(0).value,
        numbered(1).value,
    ]
    cluster.wait_until_whole("bad")


def fetch_as(
    broker: BrokerProcess, topic: str, *, replica_id: int, leader_epoch: int, fetch_offset: int
) -> int:
    """The error code that a follower's fetch is answered with."""
    body = struct.pack(">iiiibii", replica_id, 0, 1, 1 << 20, 0, 0, -1)
    body += struct.pack(">i", 1) + wire.string(topic)
    body += struct.pack(">iiiqqi", 1, 0, leader_epoch, fetch_offset, 0, 1 << 20) + struct.pack(">i", 0)
    with wire.RawClient(broker.port) as client:
        answer = client.call(wire.FETCH, FETCH_VERSION, body)
    throttle_ms, error, session_id, topics = struct.unpack_from(">ihii", answer)
    assert (throttle_ms, error, session_id, topics) == (0, 0, 0, 1)
    (partition_error,) = struct.unpack_from(">h", answer, 14 + 2 + len(topic) + 4 + 4)
    return int(partition_error)


def test_forged_followers_move_nothing(start_cluster: StartCluster) -> None:
    """A follower that is none, or of another epoch, is told so; the high watermark waits for real ones."""
    # The sessions must outlast the questions, however long those take: without the real ones the ISR shrinks.
    cluster = start_cluster(properties={"zookeeper.session.timeout.ms": 60_000})
    cluster.make_topic("forged")
    confluent.write(cluster.bootstrap, "forged", [numbered(0)], acks="all")
    leader = cluster.leader("forged")
    state = cluster.store.state("forged")
    assert state is not None
    epoch = state.leader_epoch
    followers = [each for each in cluster.brokers if each != leader]
    broker = cluster.brokers[leader]
    try:
        for each in followers:
            cluster.freeze(each)
        confluent.write(broker.bootstrap, "forged", [numbered(1)], acks="1")

        def error(**asked: int) -> int:
            return fetch_as(broker, "forged", fetch_offset=2, **asked)

        assert error(replica_id=99, leader_epoch=epoch) == UNKNOWN_LEADER_EPOCH, "Kafka's, for no replica"
        assert error(replica_id=followers[0], leader_epoch=epoch + 1) == UNKNOWN_LEADER_EPOCH
        if epoch:
            assert error(replica_id=followers[0], leader_epoch=epoch - 1) == FENCED_LEADER_EPOCH
        with wire.RawClient(broker.port) as client:
            assert client.list_offset("forged", 0, -1)[2] == 1, "the high watermark, as consumers see it"
    finally:
        for each in followers:
            cluster.thaw(each)
    confluent.wait_until(lambda: confluent.latest(cluster.bootstrap, "forged") == 2, "the real ones follow")


def test_assignments_to_brokers_that_are_not_there(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    client = confluent.admin(cluster.bootstrap)

    def error(topic: NewTopic) -> KafkaError:
        with pytest.raises(KafkaException) as failure:
            client.create_topics([topic])[topic.topic].result(30)
        found: KafkaError = failure.value.args[0]
        return found

    unknown = error(NewTopic("unknown", 1, replica_assignment=[[1, 99]]))
    assert unknown.code() == KafkaError.INVALID_REPLICA_ASSIGNMENT and "99" in unknown.str()
    twice = error(NewTopic("twice", 1, replica_assignment=[[1, 1]]))
    assert twice.code() == KafkaError.INVALID_REPLICA_ASSIGNMENT
    many = error(NewTopic("many", 1, 4))
    assert many.code() == KafkaError.INVALID_REPLICATION_FACTOR and "3" in many.str()
    assert cluster.store.get(paths.topic_path("unknown")) is None
