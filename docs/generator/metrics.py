"""The page of all series that a broker and a Spark job show to Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from docs.generator.markdown import code, page, table, text
from minikafka.metrics.names import ALL_SERIES
from minikafka.metrics.series import SPARK_SERIES, Series

HEADER = ("series", "type", "labels", "meaning", "Kafka's MBean")


def metrics() -> str:
    """The page's text."""
    return page(
        "Metrics",
        "A broker shows them at `/metrics` of its HTTP port. The names are those that Strimzi's rules for "
        "the JMX exporter give to Kafka's MBeans, and those of kafka_exporter; what neither has begins with "
        "`minikafka_`. A summary has `_count` too.",
        "## Broker",
        table(HEADER, _rows(ALL_SERIES)),
        "## Spark jobs",
        table(HEADER[:-1], [row[:-1] for row in _rows(SPARK_SERIES)]),
    )


def _rows(series: Iterable[Series]) -> Iterable[tuple[str, ...]]:
    for one in sorted(series, key=lambda one: one.sample):
        yield (
            code(one.sample),
            one.type.value,
            ", ".join(map(code, one.labels)),
            text(one.help),
            code(one.mbean),
        )
