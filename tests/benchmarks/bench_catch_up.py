"""How fast a follower catches up: one of three brokers is stopped, 2 GB are written, it is started again.

From the start of its process to its place in the ISR, so loading and joining count. Beside it the plain copy
of the same files on this disk, for scale.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.cluster import cpu_by_broker, row, running_cluster
from tests.benchmarks.produce_client import LINGER, produce
from tests.integration.support import confluent

RECORDS, SIZE = 2_000_000, 1024
TOPIC = "bench"
MEGABYTES_A_SECOND_MIN = 150
DEADLINE_S = 600


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of name, value, unit, asked, ok."""
    records = RECORDS // (10 if quick else 1)
    megabytes = records * SIZE / 1e6
    with tempfile.TemporaryDirectory() as directory, running_cluster(Path(directory)) as cluster:
        cluster.make_topic(TOPIC)
        leader = cluster.leader(TOPIC)
        late = next(each for each in cluster.brokers if each != leader)
        cluster.brokers[late].stop()
        produce(cluster.bootstrap, TOPIC, records=records, size=SIZE, settings=LINGER)
        before, started = cpu_by_broker(cluster), time.perf_counter()
        cluster.brokers[late].start()
        confluent.wait_until(
            lambda: late in cluster.isr(TOPIC), "the follower is in sync", deadline_s=DEADLINE_S
        )
        seconds = time.perf_counter() - started
        used = cpu_by_broker(cluster)
        started = time.perf_counter()
        shutil.copytree(cluster.brokers[leader].partition_dir(TOPIC), Path(directory) / "copy")
        copy_seconds = time.perf_counter() - started
    return [
        row(
            f"catching up {megabytes:,.0f} MB",
            megabytes / seconds,
            "MB/s",
            f">= {MEGABYTES_A_SECOND_MIN}",
            megabytes / seconds >= MEGABYTES_A_SECOND_MIN,
        ),
        row("a plain copy of the files", megabytes / copy_seconds, "MB/s"),
        row("catching up / copying", copy_seconds / seconds, "ratio"),
        row("cpu of the leader", (used[leader] - before[leader]) / seconds, "cores"),
        row("cpu of the follower", used[late] / seconds, "cores"),
    ]
