"""The report of a run as data: what JSON, text and plot are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from minikafka.loadgen.histogram import Percentiles, merged, percentiles
from minikafka.loadgen.messages import Interval
from minikafka.loadgen.reconcile import Check
from minikafka.loadgen.usage import Usage


class Point(msgspec.Struct, frozen=True):
    """One second of a flow, ``at_s`` seconds after the start."""

    at_s: float
    records: int
    bytes: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


class Flow(msgspec.Struct, frozen=True):
    """One kind of event: records acknowledged, records consumed, connections opened, …

    ``records``, ``bytes`` and ``failed`` are all there were; rates and latency leave the warm-up out.
    """

    name: str
    records: int
    bytes: int
    failed: int
    seconds: float
    """From the first measured one's beginning to the last one's end."""
    records_per_s: float
    mb_per_s: float
    """Of 10⁶ bytes of keys' and values' payload."""
    latency: Percentiles | None
    histogram: str
    """All latencies, µs, in HdrHistogram's compressed form."""
    points: list[Point]

    def text(self) -> str:
        """A line in the manner of kafka-producer-perf-test."""
        parts = [f"{self.name}: {self.records} records"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        parts.append(f"{self.records_per_s:.1f} records/sec ({self.mb_per_s:.2f} MB/sec)")
        if self.latency is not None:
            parts.append(f"{self.latency.mean_ms:.2f} ms avg latency")
            parts.append(f"{self.latency.max_ms:.2f} ms max latency")
            for percentile in ("50", "95", "99", "99.9", "99.99"):
                parts.append(f"{self.latency.at_ms[percentile]:.2f} ms {percentile}th")
        return ", ".join(parts) + "."


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """All that a run says."""

    workload: str
    target: str
    started_at: str
    seconds: float
    settings: dict[str, Any]
    flows: list[Flow]
    checks: list[Check]
    problems: list[str]
    """Why the run failed, or was cut short: one line each."""
    usage: Usage | None
    """CPU and memory of the target's processes."""
    facts: dict[str, float]
    """What else was measured: seconds to create topics, …"""

    @property
    def is_ok(self) -> bool:
        return not self.problems and all(check.holds for check in self.checks)

    def flow(self, name: str) -> Flow:
        """Raises KeyError: the workload has no such flow."""
        for flow in self.flows:
            if flow.name == name:
                return flow
        raise KeyError(name)

    def lines(self) -> list[str]:
        """For people: flows, facts, the target's usage, checks, problems."""
        lines = [flow.text() for flow in self.flows]
        lines += [f"{name}: {value:.3g}" for name, value in self.facts.items()]
        if self.usage is not None:
            lines.append(self.usage.text())
        lines += [check.text() for check in self.checks]
        return lines + [f"problem: {problem}" for problem in self.problems]


class FlowBuilder:
    """Makes a flow of the intervals that all workers sent."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._intervals: list[Interval] = []
        self.records = self.bytes = self.failed = 0

    def add(self, interval: Interval) -> None:
        self._intervals.append(interval)
        self.records += interval.records
        self.bytes += interval.bytes
        self.failed += interval.failed

    def build(self, start_ns: int) -> Flow:
        """Of what there is so far; its points count from ``start_ns``."""
        records = sum(interval.measured_records for interval in self._intervals)
        size = sum(interval.measured_bytes for interval in self._intervals)
        begins = [interval.first_ns for interval in self._intervals if interval.first_ns]
        ends = [interval.last_ns for interval in self._intervals if interval.last_ns]
        seconds = (max(ends) - min(begins)) / 1e9 if begins and ends else 0.0
        histogram = merged(interval.histogram for interval in self._intervals)
        latency = percentiles(histogram)
        return Flow(
            name=self.name,
            records=self.records,
            bytes=self.bytes,
            failed=self.failed,
            seconds=seconds,
            records_per_s=records / seconds if seconds else 0.0,
            mb_per_s=size / seconds / 1e6 if seconds else 0.0,
            latency=latency,
            histogram=histogram.encode().decode() if latency is not None else "",
            points=list(self._points(start_ns)),
        )

    def _points(self, start_ns: int) -> Iterable[Point]:
        seconds: dict[int, list[Interval]] = {}
        for interval in self._intervals:
            seconds.setdefault(max(interval.at_ns - start_ns, 0) // 10**9, []).append(interval)
        for second, members in sorted(seconds.items()):
            yield point(second + 1, members)


def point(at_s: float, intervals: Sequence[Interval]) -> Point:
    """What the intervals of all workers say of one stretch of time."""
    latency = percentiles(merged(interval.histogram for interval in intervals))
    return Point(
        at_s=at_s,
        records=sum(interval.records for interval in intervals),
        bytes=sum(interval.bytes for interval in intervals),
        p50_ms=latency.at(50) if latency else None,
        p99_ms=latency.at(99) if latency else None,
        max_ms=latency.max_ms if latency else None,
    )
