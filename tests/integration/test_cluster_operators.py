"""What an operator does with the command line to a cluster under load: plans with a throttle, elections, a
look at what is wrong and why. And what the controller does by itself to keep leaders where they should be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import NewTopic

from tests.integration.conftest import StartCluster
from tests.integration.support import confluent
from tests.integration.support.clients import Client
from tests.integration.support.cluster import ProcessCluster, waited_for
from tests.integration.support.load import Load

pytestmark = pytest.mark.minikafka_only

TOPIC = "operated"


def make_topic(cluster: ProcessCluster, *replicas: int, **config: str) -> None:
    client = confluent.admin(cluster.bootstrap)
    wanted = NewTopic(TOPIC, 1, replica_assignment=[list(replicas)], config=config)
    client.create_topics([wanted])[TOPIC].result(confluent.DEADLINE_S)
    cluster.wait_until_moved(TOPIC, *replicas)


def minikafka(cluster: ProcessCluster, *arguments: str, status: int = 0) -> str:
    """What the command prints; it must end with ``status``."""
    command = [sys.executable, "-m", "minikafka.cli.main", *arguments]
    done = subprocess.run(
        [*command, "--bootstrap-server", cluster.bootstrap], capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_plan_is_executed_under_load_with_a_throttle_that_is_gone_afterwards(
    start_cluster: StartCluster, tmp_path: Path, clients: dict[str, Client]
) -> None:
    cluster = start_cluster()
    make_topic(cluster, 1, 2)
    plan = tmp_path / "plan.json"

    def write_plan(*replicas: int, topic: str = TOPIC) -> None:
        partitions = [{"topic": topic, "partition": 0, "replicas": list(replicas)}]
        plan.write_text(json.dumps({"version": 1, "partitions": partitions}))

    named = ("--reassignment-json-file", str(plan))
    with Load(cluster.bootstrap, [TOPIC]) as load:
        write_plan(3, 9, topic="unknown")
        said = minikafka(cluster, "reassign", "execute", *named, status=1)
        assert "unknown" in said and "9" in said
        write_plan(3, 1)
        said = minikafka(cluster, "reassign", "execute", *named, "--throttle", "50MB")
        assert "Removed the throttle" in said, said
        cluster.wait_until_moved(TOPIC, 3, 1)
        minikafka(cluster, "reassign", "verify", *named)
        write_plan(2, 3)
        assert TOPIC in minikafka(cluster, "reassign", "execute", *named, "--no-wait")
        minikafka(cluster, "reassign", "verify", *named, "--wait")
        cluster.wait_until_moved(TOPIC, 2, 3)
        minikafka(cluster, "reassign", "generate", "--topics", TOPIC, "--broker-list", "1,2,3")
    load.check(cluster.bootstrap, clients["aiokafka"])


@pytest.mark.parametrize("engine", ["zookeeper"], indirect=True)  # which `describe` does not see
def test_describe_says_who_is_out_of_sync_and_since_when(start_cluster: StartCluster) -> None:
    # The session must outlast the looks at the cluster, each a process of its own: a leader that is told of a
    # dead follower begins again with what it knows of it.
    cluster = start_cluster(
        properties={"replica.lag.time.max.ms": 1500, "zookeeper.session.timeout.ms": 60_000}
    )
    make_topic(cluster, 1, 2, 3)
    late = next(each for each in (2, 3) if each != cluster.controller)

    def described() -> dict[str, list[dict[str, object]]]:
        found: dict[str, list[dict[str, object]]] = json.loads(
            minikafka(cluster, "cluster", "describe", "--json")
        )
        return found

    calm = described()
    assert calm["controller"] == cluster.controller and calm["under_replicated"] == []
    with Load(cluster.bootstrap, [TOPIC]):
        cluster.freeze(late)
        confluent.wait_until(lambda: late not in cluster.isr(TOPIC), "it is out of the ISR")
        (partition,) = waited_for(
            lambda: described()["under_replicated"] or None, "the clients have heard of it"
        )
        cluster.thaw(late)
        cluster.wait_until_whole(TOPIC)
    (replica,) = partition["out_of_sync"]  # type: ignore[misc]
    assert replica["broker"] == late
    assert replica["records_behind"] > 0 and replica["not_caught_up_for_ms"] >= 1500
    assert "records behind" in replica["why"]


def test_any_live_replica_leads_when_that_is_asked_for(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    make_topic(cluster, 1, 2, **{"min.insync.replicas": "1"})
    with Load(cluster.bootstrap, [TOPIC]):
        cluster.brokers[2].kill()
        confluent.wait_until(lambda: cluster.isr(TOPIC) == (1,), "1 is alone in the ISR")
    cluster.brokers[1].kill()
    cluster.brokers[2].start()
    bootstrap, at = cluster.brokers[2].bootstrap, At(TOPIC, 0)

    def has_no_leader() -> bool:
        state = cluster.store.state(TOPIC)
        return state is not None and state.leader == -1

    confluent.wait_until(has_no_leader, "no leader")
    client = confluent.admin(bootstrap)
    refused = client.elect_leaders(ElectionType.PREFERRED, [at]).result(confluent.DEADLINE_S)
    assert "PREFERRED_LEADER_NOT_AVAILABLE" in str(refused[at])
    elected = client.elect_leaders(ElectionType.UNCLEAN, [at]).result(confluent.DEADLINE_S)
    assert elected == {at: None}
    assert cluster.leader(TOPIC) == 2
    again = client.elect_leaders(ElectionType.UNCLEAN, [at]).result(confluent.DEADLINE_S)
    assert "ELECTION_NOT_NEEDED" in str(again[at])


def test_the_controller_gives_leadership_back_without_being_asked(
    start_cluster: StartCluster, clients: dict[str, Client]
) -> None:
    cluster = start_cluster(properties={"leader.imbalance.check.interval.seconds": 1})
    make_topic(cluster, 2, 1, 3)
    with Load(cluster.bootstrap, [TOPIC]) as load:
        cluster.brokers[2].kill()
        confluent.wait_until(lambda: cluster.leader(TOPIC) != 2, "another broker leads")
        cluster.brokers[2].start()
        confluent.wait_until(lambda: cluster.leader(TOPIC) == 2, "the preferred broker leads again")
    load.check(cluster.bootstrap, clients["kafka-python"])
