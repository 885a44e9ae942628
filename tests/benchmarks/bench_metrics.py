"""What metrics cost: the accounting on the path of a request, and a scrape of many partitions.

Two brokers take turns, this one and one whose source has no accounting (``uncounted_broker``), under the same
load (``paired_produce``), both in the environment of the tests. Two processes of the very same code differ by
up to 3 % for as long as they live, so each round has new ones. A round's ratio is the median of those of
neighbouring turns; ``value`` is the median of the rounds, ``low`` and ``high`` are its 95 % interval.
``undisturbed`` compares each one's best tenth instead, for a machine that does other things meanwhile, which
only ever cost. CPU is what the broker's process used for a request: it tells more than the rate where
something else is the slower one. ``same`` is that of a third broker, which is the first one's twin: how far
from 1 the measurement itself may lie.

``path`` is the loop's part alone, without sockets (``request_path``): the accounting's own cost shows best
there, and is the largest share of what it is compared with.

Asked: produce throughput at least 0.98 of that without; a scrape of 1,000 partitions never holds up the loop
for more than 20 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from tests.benchmarks.broker import resident_mb
from tests.benchmarks.paired_produce import (
    WORKLOADS,
    Load,
    Turn,
    Workload,
    in_turns,
    median_interval,
    undisturbed,
)
from tests.benchmarks.request_path import measure
from tests.integration.support.process import BrokerProcess
from tests.support.ports import free_port

ROUNDS, TURNS, TURN_SECONDS = 12, 9, 0.3
PARTITIONS = 1_000
SCRAPES = 10

_KEEP_LITTLE = {
    "log.retention.check.interval.ms": 1000,
    "log.retention.bytes": 256 << 20,
    "log.segment.bytes": 64 << 20,
    "log.segment.delete.delay.ms": 0,
}
"""Batches come with hundreds of MB a second."""

_COUNTED = "minikafka.cli.broker"


class Peer(NamedTuple):
    """One of the brokers that take turns."""

    module: str
    properties: Mapping[str, object]


_PEERS = {
    "with": Peer(_COUNTED, {}),
    "without": Peer("tests.benchmarks.uncounted_broker", {}),
    "same": Peer(_COUNTED, {}),
}


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows of a summary, then of the path, then of the scrapes."""
    return [*paired(_PEERS, quick), *paths(quick), *scrapes()]


def paired(peers: Mapping[str, Peer], quick: bool) -> list[dict[str, Any]]:
    """What the peer ``with`` has of the rate of the one ``without``; ``same`` is a twin of the first."""
    rounds: dict[Workload, list[Round]] = {workload: [] for workload in WORKLOADS}
    for _ in range(ROUNDS // 4 if quick else ROUNDS):
        with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
            brokers = {
                name: stack.enter_context(
                    running(Path(directory) / name, peer.module, **_KEEP_LITTLE, **peer.properties)
                )
                for name, peer in peers.items()
            }
            for number, workload in enumerate(WORKLOADS):
                rounds[workload].append(one_round(brokers, workload, f"paired-{number}"))
    return [row for workload, its_rounds in rounds.items() for row in compared(workload, its_rounds)]


@contextlib.contextmanager
def running(directory: Path, module: str, **properties: object) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(
        directory, command=[sys.executable, "-m", module], properties={"http.port": free_port(), **properties}
    )
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


Round = list[dict[str, Turn]]
"""The turns of all brokers, time after time."""


def one_round(brokers: dict[str, BrokerProcess], workload: Workload, topic: str) -> Round:
    with contextlib.ExitStack() as stack:
        loads = {}
        for peer, broker in brokers.items():
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
            loads[peer] = Load(broker.port, broker.pid, workload, topic)
            stack.callback(loads[peer].close)
        for load in loads.values():
            load.turn(1.0)  # the interpreter gets to know the code
        return list(in_turns(loads, times=TURNS, seconds=TURN_SECONDS))


def compared(workload: Workload, rounds: list[Round]) -> list[dict[str, Any]]:
    def row(name: str, field: str, asked: str, limit: float | None, *, most: bool) -> dict[str, Any]:
        def of(turn: Turn) -> float:
            return float(getattr(turn, field))

        def ratios(peer: str) -> list[float]:
            return [
                statistics.median(of(turns["with"]) / of(turns[peer]) for turns in each) for each in rounds
            ]

        ratio, low, high = median_interval(ratios("without"))
        best = {
            peer: undisturbed([of(turns[peer]) for each in rounds for turns in each], most=most)
            for peer in rounds[0][0]
        }
        return {
            "name": f"{workload.name}: {name}, with / without",
            "value": round(ratio, 4),
            "unit": "ratio",
            "low": round(low, 4),
            "high": round(high, 4),
            "same": round(median_interval(ratios("same"))[0], 4),
            "undisturbed": round(best["with"] / best["without"], 4),
            "with": round(best["with"], 2),
            "without": round(best["without"], 2),
            "asked": asked,
            "ok": limit is None or ratio >= limit,
        }

    return [
        row("requests a second", "requests_per_s", ">= 0.98", 0.98, most=True),
        row("broker's CPU", "cpu_us", "", None, most=False),
    ]


def paths(quick: bool) -> list[dict[str, Any]]:
    """Microseconds of the loop for one small Produce."""
    rows = []
    for frames in (1, 5):
        pairs, instructions = asyncio.run(measure(frames, pairs=250 if quick else 1000))
        ratio, low, high = median_interval([each.counted / each.uncounted for each in pairs])
        rows.append(
            {
                "path": f"{frames} requests a chunk",
                "counted_us": round(min(each.counted for each in pairs), 2),
                "uncounted_us": round(min(each.uncounted for each in pairs), 2),
                "ratio": round(ratio, 4),
                "low": round(low, 4),
                "high": round(high, 4),
                "counted_instructions": round(instructions.counted, 1),
                "uncounted_instructions": round(instructions.uncounted, 1),
            }
        )
    return rows


def scrapes() -> list[dict[str, Any]]:
    """How long they take, and how long they hold up the loop."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(running(directory / "data", _COUNTED))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("wide", PARTITIONS, 1)])["wide"].result(60)
        before_mb = resident_mb(broker.pid)
        url = f"http://127.0.0.1:{broker.properties['http.port']}/metrics"
        seconds, slices, size = [], [], 0
        for _ in range(SCRAPES + 1):
            started = time.perf_counter()
            text = urllib.request.urlopen(url, timeout=60).read().decode()
            seconds.append(time.perf_counter() - started)
            slices.append(_value(text, "minikafka_scrape_slice_seconds_max"))
            size = len(text)
        longest_ms = 1000 * statistics.median(slices[2:])  # each scrape tells of the one before
        return [
            {
                "scrape": f"{PARTITIONS} partitions",
                "first_ms": round(1000 * seconds[0], 1),
                "median_ms": round(1000 * statistics.median(seconds[1:]), 1),
                "longest_slice_ms": round(longest_ms, 2),
                "bytes": size,
                "rss_mb_before": round(before_mb, 1),
                "rss_mb_after": round(resident_mb(broker.pid), 1),
                "asked": "longest_slice_ms <= 20",
                "ok": longest_ms <= 20,
            }
        ]


def _value(text: str, name: str) -> float:
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))
