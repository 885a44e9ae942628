"""The report of a run: as data, of which JSON, text and plot are made, and as one HTML file (``page``), which
needs nothing else, because plotly's script is inside. CPU and memory of the target's processes are from
``/proc`` (Linux).

Every run ends with checks whether generator and target agree; one that fails makes the run fail. The target's
side is what ListOffsets says before and after, so records that another client wrote to the same topic show as
a difference too. In a compacted topic offsets are no count of records, and no request asks for one: there it
can only be said that the consumers have come to the end and read no more records than offsets.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from minikafka.deferred import deferred
from minikafka.errors import ConfigError
from minikafka.loadgen.messages import Interval, Percentiles, TopicOffsets, merged, percentiles

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from hdrh.histogram import HdrHistogram
    from plotly import subplots
else:
    go = deferred("plotly.graph_objects")
    subplots = deferred("plotly.subplots")

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

NINES_MAX = 5
"""The percentile axis ends at 99.999 %."""
TICKS = (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999)


# The target's processes


class Usage(msgspec.Struct, frozen=True):
    """Over a run, of all processes of the target together."""

    cpu_seconds: float
    cpu_share: float
    """Cores that were busy with it."""
    resident_before_bytes: int
    resident_peak_bytes: int
    """The most that was seen during the run."""

    def text(self) -> str:
        return (
            f"target: {self.cpu_seconds:.2f} s CPU ({self.cpu_share:.2f} cores), "
            f"resident {self.resident_before_bytes / 1e6:.1f} MB before, "
            f"{self.resident_peak_bytes / 1e6:.1f} MB at most."
        )


class UsageMeter:
    """Looks at the processes at the start, whenever told to, and at the end.

    A process that ends meanwhile counts with what was seen of it last.
    """

    def __init__(self, pids: Sequence[int]) -> None:
        """Raises ConfigError: there is no such process."""
        self._cpu: dict[int, float] = {}
        self._resident: dict[int, int] = {}
        for pid in pids:
            if not self._look_at(pid):
                raise ConfigError(f"--pid {pid}: there is no such process")
        self.begin()

    def begin(self) -> None:
        """The usage is from here on."""
        self._began_ns = time.monotonic_ns()
        self._resident_peak = 0
        self.look()
        self._cpu_before = sum(self._cpu.values())
        self._resident_before = self._resident_peak

    def look(self) -> None:
        """Take the peak of resident memory; often enough for it to be one."""
        for pid in self._cpu:
            self._look_at(pid)
        self._resident_peak = max(self._resident_peak, sum(self._resident.values()))

    def usage(self) -> Usage | None:
        """Since the start; None without processes."""
        if not self._cpu:
            return None
        self.look()
        seconds = (time.monotonic_ns() - self._began_ns) / 1e9
        cpu_seconds = sum(self._cpu.values()) - self._cpu_before
        return Usage(
            cpu_seconds=cpu_seconds,
            cpu_share=cpu_seconds / seconds if seconds else 0.0,
            resident_before_bytes=self._resident_before,
            resident_peak_bytes=self._resident_peak,
        )

    def _look_at(self, pid: int) -> bool:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
            status = Path(f"/proc/{pid}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        fields = stat.rpartition(")")[2].split()
        self._cpu[pid] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
        for line in status.splitlines():
            if line.startswith("VmRSS:"):
                self._resident[pid] = int(line.split()[1]) * 1024
        return True


# Checks


class Check(msgspec.Struct, frozen=True):
    """One comparison: what must be, and what was seen."""

    name: str
    expected: int
    seen: int
    bound_only: str = ""
    """Why ``expected`` is only the most that can be; empty: it is exact."""

    @property
    def holds(self) -> bool:
        return self.seen <= self.expected if self.bound_only else self.seen == self.expected

    def text(self) -> str:
        if self.bound_only and self.holds:
            return f"{self.name}: {self.seen}, not reconciled with {self.expected}: {self.bound_only}"
        relation = "=" if self.holds else "DIFFERS from"
        return f"{self.name}: {self.seen} {relation} {self.expected}"


def advance(before: TopicOffsets, after: TopicOffsets) -> int:
    """By how much the offsets of all partitions grew."""
    return sum(
        end - start
        for topic, starts in before.items()
        for start, end in zip(starts, after[topic], strict=True)
    )


def produced(phase: str, *, acked: int, unknown: int, before: TopicOffsets, after: TopicOffsets) -> Check:
    """Records acknowledged = offsets advanced, in a phase of the run.

    ``unknown`` records were sent and never answered (the target died, or the run was interrupted): the target
    may have them or not, so any advance up to their number more is in order.
    """
    advanced = advance(before, after)
    expected = min(max(advanced, acked), acked + unknown)
    return Check(f"{phase}: offsets advanced = records acked", expected, advanced)


def consumed(*, expected: int, seen: int, compacted: Sequence[str] = ()) -> Check:
    """Records consumed, of all subscriptions and passes = offsets that there are to be consumed.

    ``compacted``: topics of them where compaction may have left offsets without records.
    """
    if not compacted:
        return Check("records consumed = records expected", expected, seen)
    why = f"offsets of {compacted[0]}, which is compacted, are no count of its records"
    return Check("records consumed, at most one an offset", expected, seen, why)


# The report as data


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
    histogram = merged(interval.histogram for interval in intervals)
    # Nothing but what a point has: a mean takes as long as all the rest, and two hours are 14,400 points.
    found = histogram.get_percentile_to_value_dict((50, 99)) if histogram.get_total_count() else None
    return Point(
        at_s=at_s,
        records=sum(interval.records for interval in intervals),
        bytes=sum(interval.bytes for interval in intervals),
        p50_ms=found[50] / 1000 if found else None,
        p99_ms=found[99] / 1000 if found else None,
        max_ms=histogram.get_max_value() / 1000 if found else None,
    )


# The report as a page


def page(results: Sequence[Result]) -> str:
    """Throughput and latency over time, and the distribution of latencies, of every flow of every result."""
    figure = subplots.make_subplots(
        rows=3,
        cols=1,
        subplot_titles=("records a second", "latency over time, ms", "latency by percentile, ms"),
        vertical_spacing=0.08,
    )
    for result in results:
        for flow in result.flows:
            name = flow.name if len(results) == 1 else f"{result.target}, {result.workload}: {flow.name}"
            _add_flow(figure, flow, name)
    figure.update_yaxes(type="log", row=2, col=1)
    figure.update_yaxes(type="log", row=3, col=1)
    figure.update_xaxes(title="seconds", row=2, col=1)
    ticks = {"tickvals": [_nines(tick) for tick in TICKS], "ticktext": [f"{tick:g} %" for tick in TICKS]}
    figure.update_xaxes(ticks, row=3, col=1)
    figure.update_layout(height=1200, template="plotly_white", hovermode="x unified")
    plot = figure.to_html(full_html=False, include_plotlyjs=True)
    title = escape(" · ".join(dict.fromkeys(f"{result.workload}, {result.target}" for result in results)))
    text = "\n".join(escape(line) for result in results for line in [f"# {result.target}", *result.lines()])
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>\n'
        f'<body style="font-family: sans-serif">\n<h1>{title}</h1>\n'
        f'<pre style="white-space: pre-wrap">{text}</pre>\n{plot}\n</body></html>\n'
    )


def _add_flow(figure: go.Figure, flow: Flow, name: str) -> None:
    seconds = [point.at_s for point in flow.points]
    rate = go.Scatter(x=seconds, y=[point.records for point in flow.points], name=name, legendgroup=name)
    figure.add_trace(rate, row=1, col=1)
    if flow.latency is None:
        return
    for label, dash in (("p50", "dot"), ("p99", "solid"), ("max", "dash")):
        values = [getattr(point, f"{label}_ms") for point in flow.points]
        line = go.Scatter(x=seconds, y=values, name=f"{name} {label}", legendgroup=name, line={"dash": dash})
        figure.add_trace(line, row=2, col=1)
    places, latencies = distribution(merged([flow.histogram]))
    curve = go.Scatter(x=places, y=latencies, name=f"{name} by percentile", legendgroup=name)
    figure.add_trace(curve, row=3, col=1)


def distribution(histogram: HdrHistogram) -> tuple[list[float], list[float]]:
    """Places on an axis of nines (90 %, 99 %, 99.9 % are equally far apart), and the latency at each, ms."""
    places = [step / 20 for step in range(NINES_MAX * 20 + 1)]
    percentiles = [100 - 100 / 10**place for place in places]
    return places, [histogram.get_value_at_percentile(each) / 1000 for each in percentiles]


def _nines(percentile: float) -> float:
    return next(
        step / 1000
        for step in range(NINES_MAX * 1000 + 1)
        if 100 - 100 / 10 ** (step / 1000) >= percentile - 1e-6
    )
