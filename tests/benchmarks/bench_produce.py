"""Produce and consume beside librdkafka's own in-memory mock cluster, driven by the same client code.

Broker and mock take turns (A B A B …), every turn in a fresh client process; a ratio is the median of the
ratios of neighbouring turns, so that it holds while the machine's speed drifts. ``broker_cpu_share`` and
``client_cpu_share`` say how many cores each process used (the mock's work is in the client's share).

Asked: 1 KB records with linger 5 ms at least 1.4 times the mock's MB/s; consuming, warm, at least as many
MB/s as producing; one record a request at least 0.7 times the mock's requests a second.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks.broker import ROOT, cpu_seconds, running_broker
from tests.benchmarks.produce_client import MOCK
from tests.integration.support.process import BrokerProcess

ROUNDS = 5
LINGER_RECORDS, LINGER_SIZE = 1_000_000, 1024
ONE_RECORDS, ONE_SIZE = 200_000, 100


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of a summary, then of every turn."""
    rounds = 3 if quick else ROUNDS
    scale = 5 if quick else 1
    turns: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory, running_broker(Path(directory)) as broker:
        for number in range(rounds):
            for workload, records, size in (
                ("linger", LINGER_RECORDS // scale, LINGER_SIZE),
                ("one", ONE_RECORDS // scale, ONE_SIZE),
            ):
                topic = f"{workload}-{number}"
                turns.append(turn(workload, "minikafka", broker, topic, records, size))
                turns.append(turn(workload, MOCK, broker, topic, records, size))
                if workload == "linger":
                    turns.append(turn("consume", "minikafka", broker, topic, records, size))
    return [*summary(turns), *turns]


def turn(
    workload: str, peer: str, broker: BrokerProcess, topic: str, records: int, size: int
) -> dict[str, Any]:
    """One run of the client."""
    bootstrap = MOCK if peer == MOCK else broker.bootstrap
    command = [
        sys.executable, "-m", "tests.benchmarks.produce_client", workload, bootstrap, topic,
        "--records", str(records), "--size", str(size),
    ]  # fmt: skip
    before = cpu_seconds(broker.pid)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr}{done.stdout}")
    measured = json.loads(done.stdout.splitlines()[-1])
    seconds = measured["seconds"]
    return {
        "workload": workload,
        "peer": peer,
        "records_per_s": round(records / seconds),
        "mb_per_s": round(records * size / seconds / 1e6, 1),
        "broker_cpu_share": round((cpu_seconds(broker.pid) - before) / seconds, 2),
        "client_cpu_share": round(measured["client_cpu_seconds"] / seconds, 2),
    }


def summary(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def rates(workload: str, peer: str) -> list[float]:
        return [
            each["records_per_s"] for each in turns if each["workload"] == workload and each["peer"] == peer
        ]

    def row(name: str, ours: list[float], theirs: list[float], asked: float) -> dict[str, Any]:
        ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
        ratio = statistics.median(ratios)
        return {
            "name": name,
            "value": round(ratio, 2),
            "unit": "ratio",
            "min": round(min(ratios), 2),
            "max": round(max(ratios), 2),
            "asked": f">= {asked}",
            "ok": ratio >= asked,
        }

    return [
        row("produce 1 KB, linger 5 ms / mock", rates("linger", "minikafka"), rates("linger", MOCK), 1.4),
        row("one record a request / mock", rates("one", "minikafka"), rates("one", MOCK), 0.7),
        row("consume, warm / produce", rates("consume", "minikafka"), rates("linger", "minikafka"), 1.0),
    ]
