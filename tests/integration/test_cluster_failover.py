"""Three brokers under load, each killed with SIGKILL in turn: nothing that was acknowledged is lost."""

from __future__ import annotations

import time

import pytest

from tests.integration.conftest import StartCluster
from tests.integration.support import confluent
from tests.integration.support.clients import Client
from tests.integration.support.cluster import SESSION_TIMEOUT_MS, ProcessCluster
from tests.integration.support.load import Load

pytestmark = pytest.mark.minikafka_only

ROUNDS = 2
"""Of three kills; what many of them find is the work of ``tests/chaos``."""
TOPICS = ("one", "two", "three")
GENEROUS_S = SESSION_TIMEOUT_MS / 1000 + 10


def victim(cluster: ProcessCluster, role: str) -> int:
    leader, controller = cluster.leader(TOPICS[0]), cluster.controller
    if role == "leader":
        return leader
    if role == "controller":
        return controller
    return next(each for each in cluster.brokers if each not in (leader, controller))


def test_sigkill_of_leader_follower_and_controller(
    start_cluster: StartCluster, clients: dict[str, Client]
) -> None:
    cluster = start_cluster()
    for topic in TOPICS:
        cluster.make_topic(topic, **{"segment.bytes": 1 << 20})
    again: dict[str, list[float]] = {}
    with Load(cluster.bootstrap, TOPICS) as load:
        for _ in range(ROUNDS):
            for role in ("leader", "follower", "controller"):
                node_id = victim(cluster, role)
                killed = time.monotonic()
                cluster.brokers[node_id].kill()
                took_s = max(
                    load.wait_for_more(topic, killed, deadline_s=GENEROUS_S + 20) for topic in TOPICS
                )
                again.setdefault(role, []).append(round(took_s, 2))
                cluster.brokers[node_id].start()
                cluster.wait_until_whole(*TOPICS)
    print(f"\nproducing again after SIGKILL, {cluster.engine.name}, seconds: {again}")
    assert max(map(max, again.values())) < GENEROUS_S
    reader = "aiokafka" if cluster.engine.name == "sqlite" else "kafka-python"
    load.check(cluster.bootstrap, clients[reader])
    for topic in TOPICS:
        end = confluent.latest(cluster.bootstrap, topic)
        assert end > ROUNDS * 3
        one, two, three = (cluster.log_below(node_id, topic, end) for node_id in cluster.brokers)
        assert one == two == three, f"the replicas of {topic} differ below {end}"
