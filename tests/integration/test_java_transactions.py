"""Transactions of Kafka's Java producer in a row, on three brokers.

Each begins as soon as the last commit has returned, which is before its markers are written: the leaders of
the partitions ask the coordinator, are told CONCURRENT_TRANSACTIONS, and ask again.
"""

from __future__ import annotations

import pytest

from tests.integration.conftest import StartCluster
from tests.integration.support import confluent, java

TRANSACTIONS = 60


@pytest.mark.java
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("version", java.CLIENT_VERSIONS)
def test_none_of_many_transactions_in_a_row_fails(start_cluster: StartCluster, version: str) -> None:
    class_path = java.class_path(version)
    cluster = start_cluster()
    for partitions, group in ((1, ""), (12, ""), (3, "readers")):
        topic = f"orders-{partitions}"
        confluent.make_topic(cluster.bootstrap, topic, partitions=partitions, replicas=3)
        cluster.wait_until_led(topic, partitions=partitions)
        failed = java.failed_transactions(
            class_path, cluster.bootstrap, topic, partitions=partitions, count=TRANSACTIONS, group=group
        )
        assert failed == [], f"{len(failed)} of {TRANSACTIONS}, {partitions} partitions"
