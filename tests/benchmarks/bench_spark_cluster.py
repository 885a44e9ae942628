"""``minikafka analyze``, ``export`` and ``compact`` on a Spark standalone cluster: a master, and two workers
of one core each, as processes of this machine. Is it linear, and what has a Python worker in memory?

Logs of 2 and of 8 GB: a million keys of 200 bytes a record, 16 KB a batch, four partitions, uncompressed.
Each job is a command, with the start of its executors. What is compared between the sizes is CPU seconds for
each GB, of everything that belongs to the cluster, which other work on the machine does not change; memory is
the most that any Python process of Spark's has (Linux). ``MINIKAFKA_BENCH_GB`` names other sizes
("2,8,32"), ``MINIKAFKA_BENCH_JOBS`` picks of the jobs. On disk are the log and the export, which is as large.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.bench_spark_analyze import KEYS_SHARE, RECORDS, TOPIC, cpu_of_all, write_logs
from tests.benchmarks.broker import resident_mb
from tests.benchmarks.cluster import row
from tests.spark.cluster import EXECUTOR, SparkCluster
from tests.support.processes import adopt_orphans, arguments_of, descendants

GIGABYTES, QUICK_GIGABYTES = "2,8", "0.25,1"
GIGABYTE_RECORDS = RECORDS // 2
KEYS = RECORDS // KEYS_SHARE
JOBS = "analyze,export,compact"
WORKER_MB_MAX = 512
GROWTH_MAX = 1.25
"""CPU for a GB of the largest log against that for one of the smallest."""
DEADLINE_S = 4 * 60 * 60

LARGE_JOBS = {"spark.driver.memory": "1g", "spark.executor.memory": "1g"}


class Cost(NamedTuple):
    seconds: float
    cpu_s: float
    python_mb: float
    jvm_mb: float


class Peak:
    """The most that any Python process of Spark's, and any executor's JVM, has in memory."""

    def __init__(self) -> None:
        self.python_mb = self.jvm_mb = 0.0
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
                words = arguments_of(pid)
                try:
                    if "pyspark.daemon" in words:
                        self.python_mb = max(self.python_mb, resident_mb(pid))
                    elif EXECUTOR in words:
                        self.jvm_mb = max(self.jvm_mb, resident_mb(pid))
                except (OSError, RuntimeError):
                    continue  # it has just ended


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of name, value, unit, asked, ok."""
    sizes_gb = [
        float(each)
        for each in os.environ.get("MINIKAFKA_BENCH_GB", QUICK_GIGABYTES if quick else GIGABYTES).split(",")
    ]
    jobs = os.environ.get("MINIKAFKA_BENCH_JOBS", JOBS).split(",")
    costs: dict[str, dict[float, Cost]] = {job: {} for job in jobs}
    rows: list[dict[str, Any]] = []
    adopt_orphans()  # an executor may end before its Python processes, whose CPU would be lost with them
    with tempfile.TemporaryDirectory() as directory:
        cluster = SparkCluster(Path(directory) / "cluster", memory="2g")
        try:
            for size_gb in sizes_gb:
                place = Path(directory) / f"{size_gb:g}"
                (place / "logs").mkdir(parents=True)
                records = round(size_gb * GIGABYTE_RECORDS)
                size = write_logs(
                    place / "logs", records, key_records=max(1, records // KEYS), is_rolled=True
                )
                for job in jobs:
                    cost = _run(cluster, job, place)
                    costs[job][size_gb] = cost
                    rows += _rows(f"{job} {size_gb:g} GB", size, cost)
                shutil.rmtree(place)
        finally:
            cluster.close()
    for job, by_size in costs.items():
        first, last = min(sizes_gb), max(sizes_gb)
        growth = (by_size[last].cpu_s / last) / (by_size[first].cpu_s / first)
        name = f"{job}: CPU for a GB, of {last:g} GB against {first:g} GB"
        rows.append(row(name, growth, "", f"<= {GROWTH_MAX}", growth <= GROWTH_MAX))
    return rows


def _run(cluster: SparkCluster, job: str, place: Path) -> Cost:
    logs = str(place / "logs")
    arguments = {
        "analyze": ("analyze", logs, "--output", str(place / "report")),
        "export": ("export", logs, "-o", str(place / "lake")),
        "compact": ("compact", logs, "--topic", TOPIC),
    }[job]
    memory, began, cpu_began = Peak(), time.perf_counter(), cpu_of_all()
    with memory.watching():
        command = cluster.minikafka(*arguments, conf=cluster.conf(LARGE_JOBS))
        said = command.finish(deadline_s=DEADLINE_S)
    cost = Cost(time.perf_counter() - began, cpu_of_all() - cpu_began, memory.python_mb, memory.jvm_mb)
    print(f"  {job} {place.name} GB: {cost}\n{said}", flush=True)
    shutil.rmtree(place / "lake", ignore_errors=True)
    return cost


def _rows(name: str, size: int, cost: Cost) -> list[dict[str, Any]]:
    is_small = 0 < cost.python_mb <= WORKER_MB_MAX
    return [
        row(name, cost.seconds, "s"),
        row(f"{name}: rate", size / 1e6 / cost.seconds, "MB/s"),
        row(f"{name}: CPU", cost.cpu_s, "s"),
        row(f"{name}: a Python worker's memory", cost.python_mb, "MB", f"<= {WORKER_MB_MAX}", is_small),
        row(f"{name}: an executor's JVM", cost.jvm_mb, "MB"),
    ]
