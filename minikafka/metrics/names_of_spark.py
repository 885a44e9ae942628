"""The series of Spark jobs. A job has runs, not an uptime, so all of them are gauges of its latest run: they
grow while it runs and are kept until the next. ``spark_job`` is the subcommand: analyze, compact, export."""

from __future__ import annotations

from typing import Final

from minikafka.metrics.series import Series, gauge

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
OUTPUT_BYTES = _of_topics("output_bytes", "Bytes that were written.")
DURATION = _of_job("duration_seconds", "How long the latest run took, or has been running.")
RUNNING = _of_job("running", "1 while it runs.")
FAILED = _of_job("failed", "1: the latest run failed.")
TASKS = _of_job("tasks", "Tasks of the stages that run now.")
TASKS_DONE = _of_job("tasks_done", "How many of these are done.")
LAST_SUCCESS = _of_job("last_success_timestamp_seconds", "When a run last ended well: seconds since 1970.")

SPARK_SERIES: Final = (
    RECORDS, BYTES, BATCHES, PARTITIONS, DAMAGED_BATCHES, UNDECODED_RECORDS, LOST_RECORDS, REMOVED_RECORDS,
    OUTPUT_BYTES, DURATION, RUNNING, FAILED, TASKS, TASKS_DONE, LAST_SUCCESS,
)  # fmt: skip
