"""Brokers that are stopped with SIGTERM and started again, and no producer notices: a rolling restart; and a
leader that has no replica to hand over to, for a while or for good."""

from __future__ import annotations

import signal
import time

import pytest
from confluent_kafka.admin import NewTopic

from tests.integration.conftest import StartCluster
from tests.integration.support import confluent
from tests.integration.support.clients import Client
from tests.integration.support.cluster import ProcessCluster
from tests.integration.support.load import Load

pytestmark = pytest.mark.minikafka_only

TOPICS = ("one", "two", "three")
GAP_S = 2.5
"""Usually 0.1 s; a client that must look for the leader again waits a second, or two."""

NO_OTHER_REPLICA = "1 partitions have no other replica: alone-0"


def test_a_rolling_restart_under_load_fails_nothing(
    start_cluster: StartCluster, clients: dict[str, Client]
) -> None:
    cluster = start_cluster()
    for topic in TOPICS:
        cluster.make_topic(topic)
    stops = []
    with Load(cluster.bootstrap, TOPICS) as load:
        for node_id, broker in cluster.brokers.items():
            began = time.monotonic()
            assert broker.stop() == 0
            stops.append(round(time.monotonic() - began, 2))
            states = [cluster.store.state(topic) for topic in TOPICS]
            assert all(state and node_id not in (state.leader, *state.isr) for state in states), (
                "it has left before it ended"
            )
            assert (broker.data_dir / ".kafka_cleanshutdown").exists()
            broker.start()
            cluster.wait_until_whole(*TOPICS)
    gap_s = load.longest_gap_s()
    print(f"\nrolling restart, {cluster.engine.name}: stops {stops} s, longest gap {gap_s:.2f} s")
    load.check(cluster.bootstrap, clients["kafka-python"])
    assert gap_s < GAP_S


def alone(cluster: ProcessCluster) -> tuple[int, int]:
    """A topic of two replicas, of which the follower is killed and out of the ISR. Returns both brokers."""
    leader, follower = sorted(each for each in cluster.brokers if each != cluster.controller)
    client = confluent.admin(cluster.bootstrap)
    topic = NewTopic("alone", 1, replica_assignment=[[leader, follower]], config={"min.insync.replicas": "1"})
    client.create_topics([topic])["alone"].result(confluent.DEADLINE_S)
    cluster.brokers[follower].kill()
    confluent.wait_until(lambda: cluster.isr("alone") == (leader,), "the follower is out of the ISR")
    return leader, follower


def test_without_a_replica_to_hand_over_to_it_tries_again_until_there_is_one(
    start_cluster: StartCluster, clients: dict[str, Client]
) -> None:
    cluster = start_cluster(properties={"controlled.shutdown.max.retries": 50})
    leader, follower = alone(cluster)
    stopping = cluster.brokers[leader]
    with Load(cluster.bootstrap, ["alone"]) as load:
        assert stopping.process is not None
        stopping.process.send_signal(signal.SIGTERM)
        confluent.wait_until(lambda: NO_OTHER_REPLICA in stopping.log_text(), "it cannot hand over")
        load.wait_for_more("alone", time.monotonic(), deadline_s=10)
        cluster.brokers[follower].start()
        assert stopping.process.wait(timeout=20) == 0
        assert (cluster.leader("alone"), cluster.isr("alone")) == (follower, (follower,))
        load.wait_for_more("alone", time.monotonic(), deadline_s=10)
        stopping.start()
        confluent.wait_until(lambda: len(cluster.isr("alone")) == 2, "the ISR is whole")
    assert load.longest_gap_s() < GAP_S
    load.check(cluster.bootstrap, clients["confluent-kafka"])


def test_without_a_replica_to_hand_over_to_it_stops_in_the_end(
    start_cluster: StartCluster, clients: dict[str, Client]
) -> None:
    """Cleanly, and its records are there when it returns; meanwhile there is no leader."""
    cluster = start_cluster()
    leader, follower = alone(cluster)
    broker = cluster.brokers[leader]
    with Load(cluster.bootstrap, ["alone"]) as load:
        load.wait_for_more("alone", time.monotonic(), deadline_s=10)
        assert broker.stop() == 0
        assert broker.log_text().count(NO_OTHER_REPLICA) == 3, "controlled.shutdown.max.retries"
        assert (broker.data_dir / ".kafka_cleanshutdown").exists()
        cluster.brokers[follower].start()
        state = cluster.store.state("alone")
        assert state is not None and follower not in (state.leader, *state.isr), "it has not all records"
        broker.start()
        load.wait_for_more("alone", time.monotonic(), deadline_s=20)
        confluent.wait_until(lambda: len(cluster.isr("alone")) == 2, "the ISR is whole")
    load.check(cluster.bootstrap, clients["aiokafka"])
