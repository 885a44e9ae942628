"""What a worker counts of one flow of records or requests, and hands on as intervals."""

from __future__ import annotations

from minikafka.loadgen.histogram import Latencies
from minikafka.loadgen.messages import Interval


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
