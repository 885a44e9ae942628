"""Metric families as data, samples of them, and the families of Spark jobs.

What is said about a metric family: see ``names``. A Spark job has runs, not an uptime, so all its series are
gauges of its latest run: they grow while it runs and are kept until the next. ``spark_job`` is the
subcommand: analyze, compact, export, import.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final

from minikafka.metrics.request_metrics import Histogram, KafkaTimer
from minikafka.named_tuple import NamedTuple

QUANTILES: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""Those of Kafka's histograms: ``50thPercentile`` … ``999thPercentile``."""


class SeriesType(Enum):
    """As Prometheus spells it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"


class Series(NamedTuple):
    """One metric family."""

    name: str
    type: SeriesType
    labels: tuple[str, ...]
    help: str
    mbean: str = ""
    """Kafka's, or empty when it has none."""

    @property
    def sample(self) -> str:
        """The name in a query."""
        return f"{self.name}_total" if self.type is SeriesType.COUNTER else self.name


def counter(name: str, help: str, *labels: str, mbean: str = "") -> Series:
    """A number that only grows while the broker runs."""
    return Series(name, SeriesType.COUNTER, labels, help, mbean)


def gauge(name: str, help: str, *labels: str, mbean: str = "") -> Series:
    """What is true now."""
    return Series(name, SeriesType.GAUGE, labels, help, mbean)


def summary(name: str, help: str, *labels: str, mbean: str = "") -> Series:
    """Quantiles of the latest values, and how many there were."""
    return Series(name, SeriesType.SUMMARY, (*labels, "quantile"), help, mbean)


def mbean_counter(type: str, name: str, help: str, *labels: str) -> Series:
    """Kafka's meter ``…PerSec``; see ``mbean_gauge``."""
    return counter(_name(type, name), help, *labels, mbean=_mbean(type, f"{name}PerSec", labels))


def mbean_gauge(type: str, name: str, help: str, *labels: str) -> Series:
    """A gauge of Kafka's under the name that Strimzi's rules give it. ``type``: domain and type of the MBean,
    ``kafka.server:ReplicaManager``."""
    return gauge(_name(type, name), help, *labels, mbean=_mbean(type, name, labels))


def mbean_summary(type: str, name: str, help: str, *labels: str) -> Series:
    """Kafka's histogram or timer; see ``mbean_gauge``."""
    return summary(_name(type, name), help, *labels, mbean=_mbean(type, name, labels))


def _name(type: str, name: str) -> str:
    return re.sub(r"[.:-]", "_", f"{type}_{name}").lower()


def _mbean(type: str, name: str, labels: tuple[str, ...]) -> str:
    domain, _, kind = type.partition(":")
    return f"{domain}:type={kind},name={name}" + "".join(f",{label}=…" for label in labels)


class Sample(NamedTuple):
    """One number of a family. A source yields those of one family one after the other."""

    series: Series
    value: float
    labels: tuple[str, ...] = ()
    """Values in the order of ``series.labels``; those at the end may be left out, and are no labels then."""
    suffix: str = ""
    """``_count`` or ``_sum`` of a summary."""


Source = Callable[[], Iterator[Sample | None]]
"""Reads some families from what they are about, when it is asked. None: it has worked for a while and goes
on, others may have their turn."""


SHARES: Final = tuple(float(text) for text in QUANTILES)


def summary_samples(
    series: Series, values: list[float], *, count: int, labels: tuple[str, ...] = ()
) -> Iterator[Sample]:
    """``values`` for ``SHARES``. Without a sum: where only some values are taken, there is none (nor does the
    JMX exporter give one)."""
    for quantile, value in zip(QUANTILES, values, strict=True):
        yield Sample(series, value, (*labels, quantile))
    yield Sample(series, count, labels, "_count")


def timer_samples(series: Series, timer: KafkaTimer) -> Iterator[Sample]:
    """Of a timer's durations."""
    return summary_samples(series, timer.quantiles_ms(SHARES), count=timer.count)


def histogram_samples(series: Series, histogram: Histogram, labels: tuple[str, ...] = ()) -> Iterator[Sample]:
    """Of a histogram's values."""
    return summary_samples(series, histogram.quantiles(SHARES), count=histogram.count, labels=labels)


JOB: Final = "spark_job"
TOPIC: Final = "topic"


def _of_topics(name: str, help: str) -> Series:
    return gauge(f"minikafka_spark_{name}", f"{help} Of the latest run.", JOB, TOPIC)


def _of_job(name: str, help: str) -> Series:
    return gauge(f"minikafka_spark_{name}", help, JOB)


RECORDS = _of_topics("records", "Records that were read.")
BYTES = _of_topics("bytes", "Bytes that were read: of keys and values, or of batches where only those count.")
BATCHES = _of_topics("batches", "Record batches that were read.")
PARTITIONS = _of_topics("partitions", "Partitions with something to read.")
DAMAGED_BATCHES = _of_topics("damaged_batches", "Batches that could not be read.")
UNDECODED_RECORDS = _of_topics("undecoded_records", "Records whose key or value did not decode.")
LOST_RECORDS = _of_topics("lost_offsets", "Offsets that the log no longer had when the job came to them.")
REMOVED_RECORDS = _of_topics("removed_records", "Records that a compaction removed.")
LAG = _of_topics("lag", "Offsets between what the export has committed to a table and the ends of the logs.")
OUTPUT_BYTES = _of_topics("output_bytes", "Bytes that were written.")
DURATION = _of_job("duration_seconds", "How long the latest run took, or has been running.")
RUNNING = _of_job("running", "1 while it runs.")
FAILED = _of_job("failed", "1: the latest run failed.")
TASKS = _of_job("tasks", "Tasks of the stages that run now.")
TASKS_DONE = _of_job("tasks_done", "How many of these are done.")
LAST_SUCCESS = _of_job("last_success_timestamp_seconds", "When a run last ended well: seconds since 1970.")

SPARK_SERIES: Final = (
    RECORDS, BYTES, BATCHES, PARTITIONS, DAMAGED_BATCHES, UNDECODED_RECORDS, LOST_RECORDS, REMOVED_RECORDS,
    LAG, OUTPUT_BYTES, DURATION, RUNNING, FAILED, TASKS, TASKS_DONE, LAST_SUCCESS,
)  # fmt: skip
