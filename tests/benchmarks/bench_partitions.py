"""A thousand partitions on three brokers: creating them, what they cost when nothing happens, and how long a
new controller needs to take them over.

Created: from the request until all brokers name a leader for each. Idle: cores of each broker over 30 s.
Failover: the controller is killed; from there to the election of another, and to its word at the brokers
that those partitions which it led have new leaders; the session timeout (2.5 s) is part of that.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.cluster import cpu_by_broker, row, running_cluster
from tests.integration.support import confluent
from tests.integration.support.cluster import ProcessCluster

PARTITIONS = 1000
IDLE_S = 30.0
SETTLE_S = 5.0
TOPIC = "bench"
IDLE_MAX = 0.10
FAILOVER_S_MAX = 3.0
DEADLINE_S = 120.0


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of name, value, unit, asked, ok."""
    partitions = PARTITIONS // (10 if quick else 1)
    idle_s = IDLE_S / (6 if quick else 1)
    with tempfile.TemporaryDirectory() as directory, running_cluster(Path(directory)) as cluster:
        everybody = set(cluster.brokers)
        started = time.perf_counter()
        confluent.make_topic(cluster.bootstrap, TOPIC, partitions=partitions, replicas=3)
        answered_s = time.perf_counter() - started
        until(lambda: all(led(cluster, each, partitions, by=everybody) for each in everybody), "all are led")
        created_s = time.perf_counter() - started
        time.sleep(SETTLE_S)
        before = cpu_by_broker(cluster)
        time.sleep(idle_s)
        idle = {each: (spent - before[each]) / idle_s for each, spent in cpu_by_broker(cluster).items()}
        old = cluster.controller
        started = time.perf_counter()
        cluster.brokers[old].kill()
        until(lambda: cluster.store.controller not in (old, None), "another controller")
        elected_s = time.perf_counter() - started
        rest = everybody - {old}
        until(lambda: all(led(cluster, each, partitions, by=rest) for each in rest), "all are led again")
        over_s = time.perf_counter() - started
    return [
        row(f"creating {partitions} partitions, answered", answered_s, "s"),
        row(f"creating {partitions} partitions, known everywhere", created_s, "s"),
        *(
            row(f"idle, broker {each}", share, "cores", f"<= {IDLE_MAX}", share <= IDLE_MAX)
            for each, share in idle.items()
        ),
        row("controller killed: another is elected", elected_s, "s"),
        row("controller killed: all partitions are led again", over_s, "s"),
        row(
            "controller killed: from election to all led",
            over_s - elected_s,
            "s",
            f"<= {FAILOVER_S_MAX}",
            over_s - elected_s <= FAILOVER_S_MAX,
        ),
    ]


def led(cluster: ProcessCluster, asked: int, partitions: int, *, by: set[int]) -> bool:
    """Whether a broker knows a leader for every partition, and all leaders are among ``by``."""
    client = confluent.admin(cluster.brokers[asked].bootstrap)
    found = client.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions.values()
    return len(found) == partitions and all(each.leader in by for each in found)


def until(condition: Any, what: str) -> None:
    confluent.wait_until(condition, what, deadline_s=DEADLINE_S)
