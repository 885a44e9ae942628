"""``minikafka compact`` at local[2]: 2 GB of 1 million keys, and what a Python worker of Spark has in memory.

Ten million records of 200 bytes, uncompressed, in batches of 16 KB and segments of 256 MiB, their keys
drawn at random. Compacted offline, with and without the comparison of every key's newest value. Then the
same bytes with ten million keys, each once: nothing can go, and nothing may be kept in memory. Times are
of the job, after Spark's start; memory is the most that any Python process of Spark has (Linux).

``MINIKAFKA_BENCH_SCALE`` divides the number of records and keys.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from minikafka.clock import ManualClock
from minikafka.config.topic import TopicConfig
from minikafka.files import OsFiles
from minikafka.log.checkpoint import REPLICATION_OFFSET_CHECKPOINT, encode_offsets
from minikafka.log.unified_log import UnifiedLog
from minikafka.protocol.records.records import Record, build_batch
from minikafka.spark.compact.job import Compacted, Request, compact
from minikafka.spark.runtime.session import open_session
from minikafka.types import LeaderEpoch, TopicPartition
from tests.benchmarks.broker import resident_mb
from tests.benchmarks.cluster import row
from tests.support.processes import descendants

TOPIC = "compacted"
RECORDS, KEYS, SIZE, BATCH_RECORDS = 10_000_000, 1_000_000, 200, 80
CONFIG = TopicConfig(cleanup_policy=("compact",), segment_bytes=256 << 20)
NOW_MS = 1_700_000_000_000
SECONDS_MAX, WORKER_MB_MAX = 120, 512


class PeakMemory:
    """The most that any Python process below this one has in memory, and what that was."""

    def __init__(self) -> None:
        self.mb = 0.0
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
            for pid in descendants(os.getpid()):
                try:
                    if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                        self.mb = max(self.mb, resident_mb(pid))
                except (OSError, RuntimeError):
                    continue  # it has just ended


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of name, value, unit, asked, ok."""
    scale = int(os.environ.get("MINIKAFKA_BENCH_SCALE", "20" if quick else "1"))
    records, keys = RECORDS // scale, KEYS // scale
    rows: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory() as directory,
        open_session("bench", master="local[2]", conf=[("spark.driver.memory", "2g")]) as spark,
    ):
        for name, verify, key_count in (
            ("compact", False, keys),
            ("compact and verify", True, keys),
            ("compact, every key once", False, records),
        ):
            path = Path(directory) / name.replace(" ", "-")
            size_mb = _write(path, records, key_count)
            memory = PeakMemory()
            with memory.watching():
                seconds, done = _compact(spark, path, verify=verify)
            saved = 100 * (1 - done.bytes_after / done.bytes_before)
            asked = f"<= {SECONDS_MAX}" if key_count == KEYS else ""
            rows += [
                row(
                    f"{name}: {size_mb:.0f} MB, {key_count:,} keys",
                    seconds,
                    "s",
                    asked,
                    not asked or seconds <= SECONDS_MAX,
                ),
                row(f"{name}: rate", size_mb / seconds, "MB/s"),
                row(f"{name}: saved", saved, "%"),
                row(
                    f"{name}: a Python worker's memory",
                    memory.mb,
                    "MB",
                    f"<= {WORKER_MB_MAX}",
                    0 < memory.mb <= WORKER_MB_MAX,
                ),
            ]
            shutil.rmtree(path)
    return rows


def _write(path: Path, records: int, keys: int) -> float:
    """Write the log as a broker does; returns its megabytes."""
    directory = path / f"{TOPIC}-0"
    directory.mkdir(parents=True)
    log = UnifiedLog.load(
        str(directory),
        TopicPartition(TOPIC, 0),
        config=CONFIG,
        files=OsFiles(),
        clock=ManualClock(NOW_MS),
        clean_shutdown=False,
    )
    rng, value, once = random.Random(7), bytes(SIZE - 20), keys == records
    for first in range(0, records, BATCH_RECORDS):
        count = min(BATCH_RECORDS, records - first)
        numbers = range(first, first + count) if once else [rng.randrange(keys) for _ in range(count)]
        batch = build_batch([Record(i, NOW_MS, b"key-%012d" % key, value) for i, key in enumerate(numbers)])
        log.append_as_leader(batch, leader_epoch=LeaderEpoch(0))
    log.roll()
    size_mb = log.size_bytes / 1e6
    offsets = {TopicPartition(TOPIC, 0): int(log.log_end_offset)}
    log.close()
    OsFiles().write_atomically(str(path / REPLICATION_OFFSET_CHECKPOINT), encode_offsets(offsets))
    return size_mb


def _compact(spark: SparkSession, path: Path, *, verify: bool) -> tuple[float, Compacted]:
    request = Request(
        log_directory=str(path), wanted=((TOPIC, None),), config=lambda topic: CONFIG, verify=verify
    )
    began = time.perf_counter()
    (done,) = compact(spark, request, files=OsFiles(), now_ms=NOW_MS, phase=_phase)
    return time.perf_counter() - began, done


@contextmanager
def _phase(name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    print(f"  {name}: {time.perf_counter() - began:.1f} s", flush=True)
