"""A leader that stands still until another leads, and then goes on as if nothing had happened."""

from __future__ import annotations

import pytest

from tests.integration.conftest import StartCluster
from tests.integration.support import confluent, wire
from tests.integration.support.clients import Client
from tests.integration.support.load import Load

pytestmark = pytest.mark.minikafka_only

ROUNDS = 2
TOPIC = "zombie"


def test_a_leader_stopped_past_its_session(start_cluster: StartCluster, clients: dict[str, Client]) -> None:
    """What it acknowledges at acks=all after it was deposed is in its successor's log, or it does not
    acknowledge it."""
    cluster = start_cluster()
    cluster.make_topic(TOPIC)
    told: dict[int, bytes] = {}
    answers: list[int] = []
    with Load(cluster.bootstrap, [TOPIC]) as load:
        for round_number in range(ROUNDS):
            old = cluster.leader(TOPIC)
            value = b"sent to the zombie %d" % round_number
            with wire.RawClient(cluster.brokers[old].port, timeout_s=60) as client:
                client.api_versions()
                cluster.freeze(old)
                client.send(wire.request(wire.PRODUCE, 3, wire.produce_body(TOPIC, 0, wire.batch([value]))))
                confluent.wait_until(lambda old=old: cluster.leader(TOPIC) != old, "a successor leads")
                cluster.thaw(old)
                try:
                    answer = wire.parse_produce(client.receive()[1])
                except ConnectionError:
                    answers.append(-1)
                else:
                    answers.append(answer.error)
                    if answer.error == 0:
                        told[answer.base_offset] = value
            cluster.wait_until_whole(TOPIC)
    print(f"\nwhat the zombie answered, {cluster.engine.name}: {answers}; gap {load.longest_gap_s():.1f} s")
    assert not load.failures, load.failures[:5]
    end = confluent.latest(cluster.bootstrap, TOPIC)
    for offset, value in told.items():
        stored = confluent.read(cluster.bootstrap, TOPIC, 1, start=offset)
        assert stored[0].offset == offset and stored[0].value == value
    load.check(cluster.bootstrap, clients["aiokafka"])
    one, two, three = (cluster.log_below(node_id, TOPIC, end) for node_id in cluster.brokers)
    assert one == two == three
