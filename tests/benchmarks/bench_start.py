"""How soon a broker answers, and how much memory it takes.

From the start of the process (``bin/minikafka-broker``, environment made, empty directory) to the first
answered ApiVersions; resident memory of the idle broker, and after 2 GB were produced.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.broker import COMMAND, resident_mb, running_broker
from tests.benchmarks.produce_client import LINGER, produce
from tests.integration.support.process import BrokerProcess

STARTS = 10
PRODUCED_RECORDS, RECORD_SIZE = 2_000_000, 1024


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of name, value, unit, asked, ok."""
    seconds = []
    for _ in range(1 + (3 if quick else STARTS)):  # the first one keeps the byte code, and does not count
        with tempfile.TemporaryDirectory() as directory:
            broker = BrokerProcess(Path(directory) / "data", command=COMMAND)
            started = time.perf_counter()
            broker.start()
            seconds.append(time.perf_counter() - started)
            broker.kill()
    del seconds[0]
    records = PRODUCED_RECORDS // (10 if quick else 1)
    with tempfile.TemporaryDirectory() as directory, running_broker(Path(directory)) as broker:
        idle_mb = resident_mb(broker.pid)
        produce(broker.bootstrap, "memory", records=records, size=RECORD_SIZE, settings=LINGER)
        busy_mb = resident_mb(broker.pid)
    gigabytes = records * RECORD_SIZE / 1e9
    return [
        row("start to first ApiVersions, median", statistics.median(seconds), "s", 0.5),
        row("start to first ApiVersions, best", min(seconds), "s", 0.5),
        row("resident, idle", idle_mb, "MB", 60),
        row(f"resident, after {gigabytes:.1f} GB", busy_mb, "MB", 120),
    ]


def row(name: str, value: float, unit: str, asked: float) -> dict[str, Any]:
    return {
        "name": name,
        "value": round(value, 3),
        "unit": unit,
        "asked": f"<= {asked}",
        "ok": value <= asked,
    }
