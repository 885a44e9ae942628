"""A rolling restart: each broker is stopped with SIGTERM and started again, and no producer notices."""

from __future__ import annotations

import time

import pytest

from tests.integration.conftest import StartCluster
from tests.integration.support.clients import Client
from tests.integration.support.load import Load

pytestmark = pytest.mark.minikafka_only

TOPICS = ("one", "two", "three")
GAP_S = 10.0


def test_a_rolling_restart_under_load_fails_nothing(
    start_cluster: StartCluster, clients: dict[str, Client]
) -> None:
    cluster = start_cluster()
    for topic in TOPICS:
        cluster.make_topic(topic)
    stops = []
    with Load(cluster.bootstrap, TOPICS) as load:
        for broker in cluster.brokers.values():
            began = time.monotonic()
            assert broker.stop() == 0
            stops.append(round(time.monotonic() - began, 2))
            assert (broker.data_dir / ".kafka_cleanshutdown").exists()
            broker.start()
            cluster.wait_until_whole(*TOPICS)
    gap_s = load.longest_gap_s()
    print(f"\nrolling restart, {cluster.engine.name}: stops {stops} s, longest gap {gap_s:.2f} s")
    load.check(cluster.bootstrap, clients["kafka-python"])
    assert gap_s < GAP_S
