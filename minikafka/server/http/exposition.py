"""The broker's series as prometheus-client wants them, in chunks that are small enough for the event loop.

The page ``/metrics`` gives others their turn between two chunks; the text of a family that came in several
has one head. prometheus-client brings half of the standard library's ``http`` and ``urllib``: a tenth of a
broker's start and 3 MB, so it is imported for the first scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from minikafka.deferred import deferred
from minikafka.metrics.names import SCRAPE_SECONDS, SCRAPE_SLICE_SECONDS
from minikafka.metrics.series import Sample, SeriesType, Source

if TYPE_CHECKING:
    import prometheus_client
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
else:
    prometheus_client = deferred("prometheus_client")
    Collector = object

CHUNK_SAMPLES = 250
"""About 2 ms."""
CHUNK_BYTES = 64 * 1024
"""Of labels: names of topics are short, those of groups may have 32 KB each."""


class BrokerCollector:
    """Reads all sources when it is asked. A large family comes as several in a row with the same name."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric | None]:
        """None where a source has had its slice and has nothing to show yet."""
        for source in self._sources:
            chunk: Metric | None = None
            chunk_bytes = 0
            for sample in source():
                if sample is None:
                    yield None
                    continue
                series = sample.series
                is_full = chunk is not None and (
                    len(chunk.samples) == CHUNK_SAMPLES or chunk_bytes >= CHUNK_BYTES
                )
                if chunk is None or is_full or chunk.name != series.name:
                    if chunk is not None:
                        yield chunk
                    chunk, chunk_bytes = (
                        prometheus_client.Metric(series.name, series.help, series.type.value),
                        0,
                    )
                _add(chunk, sample)
                chunk_bytes += sum(map(len, sample.labels))
            if chunk is not None:
                yield chunk
        of_process = prometheus_client.PROCESS_COLLECTOR, prometheus_client.GC_COLLECTOR
        for collector in (*of_process, prometheus_client.PLATFORM_COLLECTOR):
            yield from collector.collect()


def _add(chunk: Metric, sample: Sample) -> None:
    series = sample.series
    suffix = "_total" if series.type is SeriesType.COUNTER else sample.suffix
    labels = dict(zip(series.labels, sample.labels, strict=False))
    chunk.add_sample(series.name + suffix, labels, float(sample.value))


class _Chunk(Collector):
    """A registry of one chunk."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


class Exposition:
    """The text of one scrape, chunk by chunk; remembers how long the last one took."""

    def __init__(self, sources: list[Source], now_ns: Callable[[], int]) -> None:
        """``sources`` may grow later. Imports prometheus-client."""
        sources.append(self.of_scrapes)
        self._collector = BrokerCollector(sources)
        self._text_of = prometheus_client.generate_latest
        self._now_ns = now_ns
        self._seconds = 0.0
        self._slice_seconds_max = 0.0

    def texts(self) -> Iterator[bytes]:
        """Each chunk in the text format, empty ones too. Between two of them others may have their turn."""
        began_ns = slice_ns = self._now_ns()
        longest_ns, name = 0, ""
        for chunk in self._collector.collect():
            text = b""
            if chunk is not None:
                text = self._text_of(_Chunk(chunk))
                if chunk.name == name:
                    text = text.split(b"\n", 2)[2]  # HELP and TYPE stand before the family's first chunk
                name = chunk.name
            longest_ns = max(longest_ns, self._now_ns() - slice_ns)
            yield text
            slice_ns = self._now_ns()
        self._seconds = (slice_ns - began_ns) / 1_000_000_000
        self._slice_seconds_max = longest_ns / 1_000_000_000

    def of_scrapes(self) -> Iterator[Sample]:
        """The source that says how long the scrape before took."""
        yield Sample(SCRAPE_SECONDS, self._seconds)
        yield Sample(SCRAPE_SLICE_SECONDS, self._slice_seconds_max)
