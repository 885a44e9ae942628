"""The controller of this project and Apache Kafka's say the same to their brokers, in the same order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.support.control_recording import (
    as_said_here,
    day,
    differences,
    recorded,
    recorded_cluster,
    without_extras,
)
from tests.support.zookeeper import skip_if_missing

pytestmark = pytest.mark.minikafka_only


def test_a_day_of_control_requests_is_that_of_kafka_but_for_what_has_a_reason(tmp_path: Path) -> None:
    """Topics made and deleted, partitions moved, a broker killed, started again and stopped (see there)."""
    skip_if_missing()
    with recorded_cluster(tmp_path, of_kafka=False) as cluster:
        ours = day(cluster)
    found = differences(without_extras(as_said_here(recorded())), without_extras(ours))
    assert found == [], "\n".join(found)
    assert differences(recorded(), ours), "what has a reason is there"
