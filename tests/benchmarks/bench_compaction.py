"""What producers notice of a compaction: 1 GB of which 10 % are live keys, compacted while records come in.

One broker. A topic gets a million records of 1 KB, their keys drawn from 100,000, in segments of 128
MiB; then its policy becomes "compact", which begins the compaction, and the broker's checkpoint says when
it is over. The rates are of the bytes that were there before. The load on another topic is that of
``bench_reassign``, 1,000 records of 1 KB a second; latency is from ``produce`` to the acknowledgement,
before the compaction and during it.

The memory of the compacting process is its peak; the broker's is what it has after it.
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.benchmarks import bench_reassign
from tests.benchmarks.bench_reassign import LibrdkafkaLoad
from tests.benchmarks.bench_replication import at
from tests.benchmarks.broker import cpu_seconds, resident_mb, running_broker
from tests.benchmarks.cluster import row
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess

TOPIC = "compacted"
SIZE = 1000
RECORDS, KEYS = 1_000_000, 100_000
SEGMENT_BYTES = 128 << 20
QUIET_S = 10.0
DEADLINE_S = 300.0
P99_RATIO_MAX = 3
PROPERTIES = {"log.cleaner.backoff.ms": 200, "log.segment.bytes": SEGMENT_BYTES}


class PeakMemory:
    """The most that any child of a process has in memory, looked at now and then (Linux)."""

    def __init__(self, pid: int) -> None:
        self.mb = 0.0
        self.cpu_s = 0.0
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory")

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            for task in Path(f"/proc/{self._pid}/task").iterdir():
                try:
                    for child in (task / "children").read_text().split():
                        self.mb = max(self.mb, resident_mb(int(child)))
                        self.cpu_s = max(self.cpu_s, cpu_seconds(int(child)))
                except (OSError, RuntimeError):
                    continue  # it has just ended


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of name, value, unit, asked, ok."""
    scale = 10 if quick else 1
    with (
        tempfile.TemporaryDirectory() as directory,
        running_broker(Path(directory), properties=PROPERTIES) as broker,
    ):
        fill(broker, RECORDS // scale, KEYS // scale)
        before = closed_bytes(broker)
        confluent.make_topic(broker.bootstrap, bench_reassign.TOPIC, partitions=bench_reassign.PARTITIONS)
        os.sync()  # or the kernel writes it in the middle of what is measured
        memory = PeakMemory(broker.pid)
        with LibrdkafkaLoad(broker.bootstrap) as load:
            time.sleep(1)  # connections and first batches
            quiet_since = time.perf_counter()
            time.sleep(QUIET_S / (5 if quick else 1))
            started = time.perf_counter()
            cpu_started = cpu_seconds(broker.pid)
            with memory.watching():
                compact(broker, RECORDS // scale)
            ended = time.perf_counter()
            cpu_used = cpu_seconds(broker.pid) - cpu_started
        broker_mb, after = resident_mb(broker.pid), closed_bytes(broker)
    quiet = [each.took for each in load.outcomes if quiet_since <= each.sent < started]
    busy = [each.took for each in load.outcomes if started <= each.sent < ended]
    failed = sum(bool(each.error) for each in load.outcomes)
    ratio = at(busy, 0.99) / at(quiet, 0.99)
    return [
        row("produce p99, quiet", 1000 * at(quiet, 0.99), "ms"),
        row("produce p99, compacting", 1000 * at(busy, 0.99), "ms"),
        row("produce p99.9, compacting", 1000 * at(busy, 0.999), "ms"),
        row("p99, compacting / quiet", ratio, "ratio", f"<= {P99_RATIO_MAX}", ratio <= P99_RATIO_MAX),
        row(f"compacting {before / 1e6:,.0f} MB", before / 1e6 / (ended - started), "MB/s"),
        row("what stays", 100 * after / before, "%"),
        row("cpu of the broker meanwhile", cpu_used / (ended - started), "cores"),
        row("cpu of the compacting process", memory.cpu_s / (ended - started), "cores"),
        row("memory of the compacting process", memory.mb, "MB"),
        row("memory of the broker", broker_mb, "MB"),
        row("failed records", failed, "records", "0", not failed),
    ]


def fill(broker: BrokerProcess, records: int, keys: int) -> None:
    """Records of random keys, then enough to close the last segment with them."""
    confluent.make_topic(broker.bootstrap, TOPIC, config={"segment.bytes": SEGMENT_BYTES})
    producer = confluent.make_producer(
        broker.bootstrap, linger_ms=5, queue_buffering_max_messages=50_000, acks=1
    )
    value, draw = os.urandom(SIZE), random.Random(1).randrange
    for _ in range(records):
        while len(producer) > 40_000:
            producer.poll(0.01)
        producer.produce(TOPIC, value, key=b"key-%09d" % draw(keys), partition=0)
    if left := producer.flush(60):
        raise RuntimeError(f"{left} records were not delivered")
    roll(broker)


def roll(broker: BrokerProcess) -> None:
    alter(broker, "segment.ms", 1)
    time.sleep(0.1)
    producer = confluent.make_producer(broker.bootstrap)
    for _ in range(2):
        time.sleep(0.1)
        producer.produce(TOPIC, b"last", key=b"last", partition=0)
        producer.flush(10)
    alter(broker, "segment.ms", 1 << 40)


def alter(broker: BrokerProcess, name: str, value: object) -> None:
    entry = ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    client = confluent.admin(broker.bootstrap)
    client.incremental_alter_configs([resource])[resource].result(30)


def compact(broker: BrokerProcess, end_offset: int) -> None:
    """Let the topic be compacted, and wait until it is."""
    checkpoint = Path(broker.partition_dir(TOPIC)).parent / "cleaner-offset-checkpoint"
    alter(broker, "cleanup.policy", "compact")

    def is_over() -> bool:
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        ends = [int(line.split()[2]) for line in lines if line.startswith(f"{TOPIC} 0 ")]
        return bool(ends) and ends[0] >= end_offset

    confluent.wait_until(is_over, "the topic is compacted", deadline_s=DEADLINE_S)


def closed_bytes(broker: BrokerProcess) -> int:
    return sum(path.stat().st_size for path in broker.files(TOPIC, ".log")[:-1])
