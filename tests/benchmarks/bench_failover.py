"""How long a partition takes no records: its leader killed with SIGKILL under load, and stopped cleanly.

The load is 500 records a second at acks=all, from a client that looks for new leaders every second and tries
again every 50 to 200 ms. Killed: from the signal until the store says that another leads, and to the
acknowledgement of a record that was sent after the signal; the session timeout (2.5 s) is part of both. What
lies between them is the client's: it looks for the leader once a second, and librdkafka (seen with 2.16)
needs a second look where one answer both names the new leader and leaves out the old one. Stopped: the
longest time without an acknowledgement, and how many records failed.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.cluster import row, running_cluster
from tests.integration.support import confluent
from tests.integration.support.cluster import SESSION_TIMEOUT_MS
from tests.integration.support.load import Load

ROUNDS = 10
TOPIC = "bench"
GAP_S_MAX = 0.5
DEADLINE_S = 60.0
ASKED_S = SESSION_TIMEOUT_MS / 1000 + 1


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of name, value, unit, asked, ok."""
    rounds = 3 if quick else ROUNDS
    led: list[float] = []
    killed: list[float] = []
    gaps: list[float] = []
    failed = 0
    with tempfile.TemporaryDirectory() as directory, running_cluster(Path(directory)) as cluster:
        cluster.make_topic(TOPIC)
        for _ in range(rounds):
            with Load(cluster.bootstrap, [TOPIC]) as load:
                old = cluster.leader(TOPIC)
                broker = cluster.brokers[old]
                at = time.monotonic()
                broker.kill()
                confluent.wait_until(lambda old=old: cluster.leader(TOPIC) != old, "another leads")
                led.append(time.monotonic() - at)
                killed.append(load.wait_for_more(TOPIC, at, deadline_s=DEADLINE_S))
            broker.start()
            cluster.wait_until_whole(TOPIC)
            with Load(cluster.bootstrap, [TOPIC]) as load:
                broker = cluster.brokers[cluster.leader(TOPIC)]
                broker.stop()
                load.wait_for_more(TOPIC, time.monotonic(), deadline_s=DEADLINE_S)
            gaps.append(load.longest_gap_s())
            failed += len(load.failures)
            broker.start()
            cluster.wait_until_whole(TOPIC)
    asked = f"<= {ASKED_S}"
    usual_s = statistics.median(killed)
    return [
        row("killed: another leads, median", statistics.median(led), "s"),
        row("killed: another leads, worst", max(led), "s"),
        row("killed: producing again, median", usual_s, "s", asked, usual_s <= ASKED_S),
        row("killed: producing again, worst", max(killed), "s"),
        row("stopped: longest gap, median", statistics.median(gaps), "s"),
        row("stopped: longest gap, worst", max(gaps), "s", f"< {GAP_S_MAX}", max(gaps) < GAP_S_MAX),
        row("stopped: failed records", failed, "records", "0", failed == 0),
    ]
