"""What the parent and its worker processes say to each other: one JSON line a message.

A worker reads its job, prepares, answers ``Ready``, reads ``Go``, and sends ``Interval`` for each of its
flows about twice a second until ``Done``. The end of its input means that the parent is gone: it ends too.
What a worker has reported counts if it is killed, so that the counts of a failed run are those up to then.
A ``Recorder`` counts one flow of records or requests, and hands it on as intervals.

Latencies are counted where they arise and merged over processes: HDR histograms of three digits.
``Latencies`` is what a worker fills: a dict from latency to count, which costs a fraction of a recording into
the histogram; latencies that the histogram would not tell apart are counted as one already here. ``encoded``
is how it travels, ``merged`` what becomes of many.

Invariant: ``merged`` of any split of the latencies has the percentiles of all of them together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from minikafka.deferred import deferred
from minikafka.loadgen.workload import Stretch, Workload

if TYPE_CHECKING:
    from hdrh import histogram as hdr
else:
    hdr = deferred("hdrh.histogram")  # so that the command line of `bench` is there without the extra


REPORT_INTERVAL_S = 0.5

PRODUCED, CONSUMED, END_TO_END = "produce", "consume", "end-to-end"
CONNECTED, REQUESTED = "connect", "request"
JOINED, COMMITTED = "join", "commit"
"""Names of flows. Records are CONSUMED without stamps, and END_TO_END with them."""

TopicOffsets = dict[str, list[int]]
"""Topic → an offset for each partition."""

LOWEST_US = 1
HIGHEST_US = 3_600_000_000
"""An hour; what takes longer counts as that."""
DIGITS = 3

_KEPT_BITS = 11
"""The histogram's own resolution: 2048 steps between powers of two."""

PERCENTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99)


# Messages


class ProduceJob(msgspec.Struct, tag="produce"):
    """``numbers``: which producers of all ``producers`` this process runs."""

    bootstrap: str
    workload: Workload
    topics: list[str]
    numbers: list[int]
    is_stamped: bool
    is_timed: bool = True
    """False: the stamps say ``UNTIMED``."""
    schedule: list[Stretch] = []
    records: int = 0
    """For this process; 0: until the time is over."""
    security: dict[str, str] = {}
    """librdkafka's properties of TLS and SASL, in every job. Passwords among them: no report has them."""


class ConsumeJob(msgspec.Struct, tag="consume"):
    """``assignments``: for each consumer, topic, partition and where to start."""

    bootstrap: str
    workload: Workload
    assignments: list[list[tuple[str, int, int]]]
    is_stamped: bool
    security: dict[str, str] = {}


class ConnectJob(msgspec.Struct, tag="connect"):
    """Open ``numbers`` of all connections; ask on them, as one of ``processes``, by the schedule."""

    bootstrap: str
    workload: Workload
    numbers: list[int]
    processes: int
    schedule: list[Stretch] = []
    security: dict[str, str] = {}


class GroupJob(msgspec.Struct, tag="group"):
    """``members``: the group of each member to run."""

    bootstrap: str
    workload: Workload
    topics: list[str]
    members: list[str]
    security: dict[str, str] = {}


Job = ProduceJob | ConsumeJob | ConnectJob | GroupJob


class Go(msgspec.Struct, tag="go"):
    """Time zero, CLOCK_MONOTONIC."""

    start_ns: int


class ReadTo(msgspec.Struct, tag="read-to"):
    """To consumers: nothing more comes; you are done at these offsets, or at the deadline."""

    ends: TopicOffsets
    deadline_ns: int


class Stop(msgspec.Struct, tag="stop"):
    """Come to an end now, and report."""


Command = Go | ReadTo | Stop


class Ready(msgspec.Struct, tag="ready"):
    """The job is understood and its clients exist."""


class Interval(msgspec.Struct, tag="interval"):
    """What happened since the last one of the flow. ``measured_*`` leave the warm-up out."""

    flow: str
    at_ns: int
    records: int = 0
    bytes: int = 0
    failed: int = 0
    measured_records: int = 0
    measured_bytes: int = 0
    first_ns: int = 0
    """When the first measured one of all began; 0 before there is one."""
    last_ns: int = 0
    histogram: str = ""
    """Latencies of the measured ones (``histogram.Latencies.encoded``)."""


class Done(msgspec.Struct, tag="done"):
    """The worker's end. ``failure``: why it came early; ``counts``: what there is to reconcile."""

    failure: str | None = None
    counts: dict[str, int] = {}


Report = Ready | Interval | Done

job_decoder = msgspec.json.Decoder(Job)
command_decoder = msgspec.json.Decoder(Command)
report_decoder = msgspec.json.Decoder(Report)


# Latencies


def encoded(message: Job | Command | Report) -> bytes:
    """As one line."""
    return msgspec.json.encode(message) + b"\n"


class Latencies(dict[int, int]):
    """Latency in microseconds → how many."""

    def add(self, latency_us: int, count: int = 1) -> None:
        """Count one, or ``count`` alike."""
        shift = latency_us.bit_length() - _KEPT_BITS
        if shift > 0:
            latency_us = latency_us >> shift << shift
        self[latency_us] = self.get(latency_us, 0) + count

    def encoded(self) -> str:
        """HdrHistogram's own compressed form, base64; ``""`` for none at all."""
        if not self:
            return ""
        histogram = empty()
        for latency_us, count in self.items():
            histogram.record_value(min(max(latency_us, LOWEST_US), HIGHEST_US), count)
        text: bytes = histogram.encode()
        return text.decode()


class Percentiles(msgspec.Struct, frozen=True):
    """What is said of many latencies, in milliseconds."""

    count: int
    mean_ms: float
    max_ms: float
    at_ms: dict[str, float]
    """Percentile (``"50"``, ``"99.9"``) → latency."""

    def at(self, percentile: float) -> float:
        return self.at_ms[f"{percentile:g}"]


def empty() -> hdr.HdrHistogram:
    return hdr.HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS)


def merged(encoded: Iterable[str]) -> hdr.HdrHistogram:
    """All of them in one."""
    histogram = empty()
    for text in encoded:
        if text:
            histogram.decode_and_add(text.encode())
    return histogram


def percentiles(histogram: hdr.HdrHistogram) -> Percentiles | None:
    """None when nothing was counted."""
    if not histogram.get_total_count():
        return None
    values = histogram.get_percentile_to_value_dict(PERCENTILES)
    return Percentiles(
        count=histogram.get_total_count(),
        mean_ms=histogram.get_mean_value() / 1000,
        max_ms=histogram.get_max_value() / 1000,
        at_ms={f"{each:g}": values[each] / 1000 for each in PERCENTILES},
    )


# Counting


class Recorder:
    """Counts since the last ``take``. Not locked: one thread counts, or the caller holds a lock."""

    def __init__(self, flow: str, *, measured_from_ns: int, is_by_end: bool = False) -> None:
        """What begins before ``measured_from_ns`` is counted, but not measured.

        ``is_by_end``: what ends before. So a throughput is what came out in the time measured, although its
        first records were sent before that, behind a full queue.
        """
        self.flow = flow
        self._is_by_end = is_by_end
        self.measured_from_ns = measured_from_ns
        self.total = 0
        self._latencies = Latencies()
        self._current = Interval(flow, 0)

    def __repr__(self) -> str:
        return f"<Recorder {self.flow} {self.total}>"

    def count(
        self, *, began_ns: int, now_ns: int, size: int, records: int = 1, is_timed: bool = True
    ) -> None:
        """One that succeeded and began (was due) at ``began_ns``; or several, of ``size`` together."""
        self.total += records
        current = self._current
        current.records += records
        current.bytes += size
        if (now_ns if self._is_by_end else began_ns) >= self.measured_from_ns:
            current.measured_records += records
            current.measured_bytes += size
            first_ns = max(began_ns, self.measured_from_ns)
            if not current.first_ns or first_ns < current.first_ns:
                current.first_ns = first_ns
            current.last_ns = now_ns
            if is_timed:
                self._latencies.add(max(now_ns - began_ns, 0) // 1000, records)

    def fail(self) -> None:
        """One that failed."""
        self._current.failed += 1

    def take(self, now_ns: int) -> Interval:
        """What was counted since the last time."""
        taken, self._current = self._current, Interval(self.flow, 0)
        self._current.first_ns, self._current.last_ns = taken.first_ns, taken.last_ns
        latencies, self._latencies = self._latencies, Latencies()
        taken.at_ns = now_ns
        taken.histogram = latencies.encoded()
        return taken
