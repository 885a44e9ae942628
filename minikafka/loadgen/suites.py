"""The workloads that ``minikafka bench compare`` knows by name, and what is compared of each.

``SUITES`` is the list of the table in ``docs/how-to/load.md``. Each turn gets fresh topics; a target lives
for all rounds of a workload, and its first turn does not count (a JVM compiles in it), but where ``is_fresh``
says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from minikafka.loadgen.report import Result
from minikafka.loadgen.workload import Kind, Workload

START = "seconds to start"
"""The fact of a result that says how long the target took to start, s."""

Value = Callable[[Result], float | None]


class Measure(msgspec.Struct, frozen=True):
    """One number of a result; ``value`` gives None where the result does not have it."""

    name: str
    unit: str
    value: Value


class Entry(msgspec.Struct, frozen=True):
    """``workload`` None: only the start is timed, again in every turn."""

    purpose: str
    measures: list[Measure]
    workload: Workload | None = None
    brokers: int = 1
    is_for_mock: bool = True
    """False: the mock has nothing like it."""
    is_fresh: bool = False
    """A new broker for every turn."""


def _rate(flow: str, unit: str = "records/s") -> Measure:
    return Measure("rate", unit, lambda result: result.flow(flow).records_per_s)


def _latency(flow: str, percentile: float) -> Measure:
    def value(result: Result) -> float | None:
        latency = result.flow(flow).latency
        return latency.at(percentile) if latency is not None else None

    return Measure(f"p{percentile:g}", "ms", value)


def _cpu(result: Result) -> float | None:
    return result.usage.cpu_share if result.usage is not None else None


def _idle(result: Result) -> float | None:
    return result.usage.resident_before_bytes / 1e6 if result.usage is not None else None


def _loaded(result: Result) -> float | None:
    return result.usage.resident_peak_bytes / 1e6 if result.usage is not None else None


LINGER = {"acks": "1", "linger.ms": "5"}
ONE = {"acks": "1", "linger.ms": "0", "batch.num.messages": "1"}
AT_ONCE = {"acks": "1", "linger.ms": "0"}
MOCK_KEEPS_RECORDS = 4_000
"""Of 1 KB in a partition, out of the mock's 5 MiB; it gives a topic four partitions."""
TOPICS = 40
"""640 MB to read before it begins again."""


def _producing(
    name: str, purpose: str, producer_config: dict[str, str], *, brokers: int = 1, **settings: Any
) -> Entry:
    """As fast as the target takes it. ``settings`` are the workload's."""
    workload = Workload(name=name, kind=Kind.PRODUCE, warmup_s=1, producer_config=producer_config, **settings)
    return Entry(purpose, [_rate("produce")], workload, brokers=brokers, is_for_mock=brokers == 1)


SUITES: dict[str, Entry] = {
    "produce-1k": _producing("produce-1k", "produce 1 KB, acks=1, linger 5 ms", LINGER),
    "produce-100": _producing("produce-100", "produce 100 B, acks=1, linger 5 ms", LINGER, record_size="100"),
    "consume-1k": Entry(
        "consume 1 KB, warm",
        [_rate("consume")],
        Workload(
            name="consume-1k",
            kind=Kind.CONSUME,
            topics=TOPICS,
            partitions=4,
            records=TOPICS * 4 * MOCK_KEEPS_RECORDS,
            producer_config=LINGER,
        ),
    ),
    "requests-1": _producing(
        "requests-1", "one record a request, 1 connection", ONE, record_size="100", in_flight_max=1000
    ),
    "requests-50": _producing(
        "requests-50",
        "one record a request, 50 connections",
        ONE,
        record_size="100",
        producers=50,
        in_flight_max=100,
    ),
    "acks-all": _producing(
        "acks-all",
        "3 brokers, acks=all, 1 KB",
        {"acks": "all", "linger.ms": "5"},
        brokers=3,
        partitions=3,
        replication_factor=3,
    ),
    "latency": Entry(
        "end to end at 2,000 records/s",
        [_latency("end-to-end", each) for each in (50, 99, 99.9)],
        Workload(name="latency", kind=Kind.STREAM, producer_config=AT_ONCE, rate=2000, warmup_s=2),
    ),
    "waiting": Entry(
        "100 consumers waiting on 100 partitions, one record each a second",
        [Measure("CPU", "cores", _cpu)],
        Workload(
            name="waiting",
            kind=Kind.STREAM,
            producer_config=AT_ONCE,
            partitions=100,
            consumers=100,
            rate=100,
            warmup_s=2,
        ),
        is_for_mock=False,
    ),
    "start": Entry(
        "start to first answered request",
        [Measure("time", "s", lambda result: result.facts[START])],
        is_fresh=True,
    ),
    "memory": Entry(
        "resident memory, fresh broker",
        [Measure("idle", "MB", _idle), Measure("under load", "MB", _loaded)],
        Workload(name="memory", kind=Kind.PRODUCE, producer_config=LINGER),
        is_fresh=True,
    ),
}
