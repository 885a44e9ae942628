"""Partitions move between brokers while they are written to, and leaders are elected on demand: asked for by
stock admin clients and by Kafka's own tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import NewTopic
from kafka.admin import KafkaAdminClient
from kafka.errors import NoReassignmentInProgressError, UnknownTopicOrPartitionError
from kafka.structs import TopicPartition

from minikafka.coordination import paths
from minikafka.types import BrokerId
from minikafka.types import TopicPartition as OurTopicPartition
from tests.integration.conftest import StartCluster
from tests.integration.support import confluent, java
from tests.integration.support.clients import Client
from tests.integration.support.cluster import ProcessCluster
from tests.integration.support.load import Load

pytestmark = pytest.mark.minikafka_only

BY_HAND = {"auto.leader.rebalance.enable": "false"}
TOPIC = "moving"
AT, UNKNOWN = TopicPartition(TOPIC, 0), TopicPartition("unknown", 0)


def make_topic(cluster: ProcessCluster, *replicas: int, topic: str = TOPIC) -> None:
    client = confluent.admin(cluster.bootstrap)
    wanted = NewTopic(topic, 1, replica_assignment=[list(replicas)])
    client.create_topics([wanted])[topic].result(confluent.DEADLINE_S)
    cluster.wait_until_moved(topic, *replicas)


@contextmanager
def kafka_python(cluster: ProcessCluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        yield client
    finally:
        client.close()


def has_log(cluster: ProcessCluster, node_id: int, topic: str = TOPIC) -> bool:
    return any(cluster.brokers[node_id].files(topic, ".log"))


def check_logs(cluster: ProcessCluster, holders: set[int]) -> None:
    """Each of ``holders`` has the same records, and no other broker has any."""
    end = confluent.latest(cluster.bootstrap, TOPIC)
    logs = {cluster.log_below(node_id, TOPIC, end) for node_id in holders}
    assert len(logs) == 1 and logs.pop()
    for node_id in set(cluster.brokers) - holders:
        confluent.wait_until(
            lambda node_id=node_id: not has_log(cluster, node_id), f"broker {node_id} has let go"
        )


def test_a_partition_moves_around_a_cluster_under_load(
    start_cluster: StartCluster, clients: dict[str, Client]
) -> None:
    cluster = start_cluster()
    make_topic(cluster, 1, 2)
    with kafka_python(cluster) as admin, Load(cluster.bootstrap, [TOPIC]) as load:
        for target in ([3, 1], [2, 3], [1, 2, 3], [3, 2], [1, 2]):
            assert admin.alter_partition_reassignments({AT: target}) == {AT: None}
            cluster.wait_until_moved(TOPIC, *target)
    load.check(cluster.bootstrap, clients["aiokafka"])
    check_logs(cluster, {1, 2})


def test_a_move_to_a_broker_that_does_not_answer_is_cancelled(
    start_cluster: StartCluster, clients: dict[str, Client]
) -> None:
    # The session must outlast what is asked while it stands still: no dead broker is moved to.
    cluster = start_cluster(properties={"zookeeper.session.timeout.ms": 60_000})
    third = next(each for each in cluster.brokers if each != cluster.controller)  # clients ask the controller
    one, two = (each for each in cluster.brokers if each != third)
    make_topic(cluster, one, two)
    with kafka_python(cluster) as admin, Load(cluster.bootstrap, [TOPIC]) as load:
        assert admin.list_partition_reassignments() == {}  # and so the client has its way to the controller
        cluster.freeze(third)
        assert admin.alter_partition_reassignments({AT: [third, one], UNKNOWN: [one]}) == {
            AT: None,
            UNKNOWN: UnknownTopicOrPartitionError,
        }
        assert list(admin.list_partition_reassignments()) == [AT]
        confluent.wait_until(lambda: third in cluster.store.assignment(TOPIC).adding, "it is under way")
        assert admin.alter_partition_reassignments({AT: None}) == {AT: None}
        cluster.wait_until_moved(TOPIC, one, two)
        assert admin.list_partition_reassignments() == {}
        assert admin.alter_partition_reassignments({AT: None}) == {AT: NoReassignmentInProgressError}
        cluster.brokers[third].kill()
        cluster.brokers[third].start()
    load.check(cluster.bootstrap, clients["kafka-python"])
    check_logs(cluster, {one, two})


def test_what_the_admin_node_asks_for_is_done_and_leaves_it(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    make_topic(cluster, 1, 2)
    moved, unknown = OurTopicPartition(TOPIC, 0), OurTopicPartition("unknown", 0)
    wishes = {moved: (BrokerId(3), BrokerId(1)), unknown: (BrokerId(1),)}
    cluster.store.put(paths.REASSIGN_PARTITIONS, paths.encode_reassignment(wishes))
    cluster.wait_until_moved(TOPIC, 3, 1)
    confluent.wait_until(lambda: cluster.store.get(paths.REASSIGN_PARTITIONS) is None, "the node is gone")
    assert cluster.leader(TOPIC) in (1, 3)
    cluster.store.put(paths.PREFERRED_REPLICA_ELECTION, paths.encode_partitions([moved]))
    confluent.wait_until(lambda: cluster.leader(TOPIC) == 3, "the preferred replica leads")


def test_the_preferred_leader_is_elected_when_it_is_asked_for(start_cluster: StartCluster) -> None:
    cluster = start_cluster(properties=BY_HAND)
    make_topic(cluster, 2, 1, 3)
    cluster.brokers[2].kill()
    confluent.wait_until(lambda: cluster.leader(TOPIC) != 2, "another broker leads")
    cluster.brokers[2].start()
    cluster.wait_until_whole(TOPIC)
    client = confluent.admin(cluster.bootstrap)
    at = At(TOPIC, 0)
    done = client.elect_leaders(ElectionType.PREFERRED, [at]).result(confluent.DEADLINE_S)
    assert done == {at: None}
    assert cluster.leader(TOPIC) == 2
    again = client.elect_leaders(ElectionType.PREFERRED, [at]).result(confluent.DEADLINE_S)
    assert again[at] is not None and "ELECTION_NOT_NEEDED" in str(again[at])
    assert client.elect_leaders(ElectionType.PREFERRED).result(confluent.DEADLINE_S) == {}


@pytest.mark.java
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)  # which the tools do not see
def test_kafkas_own_tools_move_partitions_and_elect_leaders(
    start_cluster: StartCluster, java_class_path: str, tmp_path: Path, clients: dict[str, Client]
) -> None:
    cluster = start_cluster(properties=BY_HAND)
    make_topic(cluster, 1, 2)
    plan = tmp_path / "plan.json"

    def reassign(*options: str) -> str:
        tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        return java.tool(java_class_path, tool, "--bootstrap-server", cluster.bootstrap, *options)

    with Load(cluster.bootstrap, [TOPIC]) as load:
        for target in ([3, 1], [2, 3]):
            partitions = [{"topic": TOPIC, "partition": 0, "replicas": target}]
            plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
            said = reassign("--reassignment-json-file", str(plan), "--execute")
            assert f"Successfully started partition reassignment for {TOPIC}-0" in said
            cluster.wait_until_moved(TOPIC, *target)
            said = reassign("--reassignment-json-file", str(plan), "--verify")
            assert f"Reassignment of partition {TOPIC}-0 is completed." in said
    assert "No partition reassignments found." in reassign("--list")
    load.check(cluster.bootstrap, clients["confluent-kafka"])

    cluster.brokers[2].kill()
    confluent.wait_until(lambda: cluster.leader(TOPIC) == 3, "the other one leads")
    cluster.brokers[2].start()
    for topic in (TOPIC, "__consumer_offsets"):  # which the reader's group has made
        cluster.wait_until_all_in_sync(topic)
    said = java.tool(
        java_class_path,
        "org.apache.kafka.tools.LeaderElectionCommand",
        *("--bootstrap-server", cluster.bootstrap),
        *("--election-type", "preferred", "--all-topic-partitions"),
    )
    assert f"{TOPIC}-0" in said and cluster.leader(TOPIC) == 2
    said = java.tool(
        java_class_path,
        "org.apache.kafka.tools.MetadataQuorumCommand",
        *("--bootstrap-server", cluster.bootstrap, "describe", "--status"),
    )
    assert f"LeaderId:               {cluster.controller}\n" in said, said
