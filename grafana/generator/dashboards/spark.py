"""Spark jobs on log directories: what their latest runs read and wrote, and when one last ended well.

Their series come from node_exporter's textfile collector, a pushgateway or the job itself, so the job of
Prometheus that is chosen above is that of whichever scrapes them, not a cluster's.
"""

from __future__ import annotations

from grafana.generator.board import Dashboard, Section, choice
from grafana.generator.panels import above, graph, number, rows
from grafana.generator.query import Query, highest, series, top, total

JOB = 'spark_job=~"$spark_job"'
DAY_S = 24 * 60 * 60
BY_TOPIC = "{{spark_job}} {{topic}}"
TOPICS_SHOWN = 10


def _of_topics(name: str) -> Query:
    found = total(series(f"minikafka_spark_{name}", JOB), "spark_job", "topic")
    return Query(top(TOPICS_SHOWN, found), BY_TOPIC)


def _of_jobs(name: str, legend: str = "{{spark_job}}") -> Query:
    return Query(highest(series(f"minikafka_spark_{name}", JOB), "spark_job"), legend)


_SUCCESS = series("minikafka_spark_last_success_timestamp_seconds", JOB)

RUNS = Section(
    "Latest runs",
    [
        number(
            "Running",
            "Jobs that run now, as far as their series are delivered while they do.",
            Query(total(series("minikafka_spark_running", JOB)), "running"),
            width=6,
        ),
        number(
            "Failed",
            "Jobs whose latest run failed. What was wrong is the one line that the job ended with.",
            Query(total(series("minikafka_spark_failed", JOB)), "failed"),
            thresholds=above(critical=1),
            width=6,
        ),
        number(
            "Oldest success",
            "How long ago the job ended well that did so least lately. As long as the time between two runs "
            "is normal; a day is orange, two are red.",
            Query(f"time() - min({_SUCCESS})", "age"),
            unit="s",
            thresholds=above(warning=DAY_S, critical=2 * DAY_S),
            width=6,
        ),
        number(
            "Longest run",
            "How long the longest of the latest runs took, or has been running.",
            Query(highest(series("minikafka_spark_duration_seconds", JOB)), "duration"),
            unit="s",
            width=6,
        ),
        rows(
            "Jobs",
            "The latest run of each job: how long it took, whether it failed (1), and when one ended well.",
            _of_jobs("duration_seconds", "Duration"),
            _of_jobs("failed", "Failed"),
            Query(f"1000 * {highest(_SUCCESS, 'spark_job')}", "Last success"),
            labels=["spark_job"],
            units=["s", "short", "dateTimeFromNow"],
        ),
        graph(
            "Duration",
            "Of the latest run. It grows with what a run has to read.",
            _of_jobs("duration_seconds"),
            unit="s",
        ),
        graph(
            "Tasks",
            "Of the stages that run, and how many of them are done; 0 between runs.",
            _of_jobs("tasks", "{{spark_job}}"),
            _of_jobs("tasks_done", "{{spark_job}} done"),
        ),
    ],
)

READ = Section(
    "What the latest run read",
    [
        graph("Records", "Records that were read, the ten largest topics.", _of_topics("records"), width=8),
        graph("Bytes", "The same in bytes.", _of_topics("bytes"), unit="bytes", width=8),
        graph(
            "Record batches",
            "The same in batches, of jobs that look at them.",
            _of_topics("batches"),
            width=8,
        ),
        graph("Partitions", "Partitions in which there was something to read.", _of_topics("partitions")),
        graph(
            "Lost offsets",
            "Offsets that retention had removed before the job came to them: 0, or runs are too far apart.",
            _of_topics("lost_offsets"),
            thresholds=above(critical=1),
        ),
    ],
)

RESULTS = Section(
    "What came of it",
    [
        graph(
            "Lag of tables",
            "Offsets between what an export has committed to a table and the ends of the logs. With "
            "`--continuous` it falls at each run; where it only grows, runs are slower than producers.",
            _of_topics("lag"),
            width=12,
        ),
        graph("Written", "Bytes that were written.", _of_topics("output_bytes"), unit="bytes", width=12),
        graph(
            "Removed records", "Records that a compaction removed.", _of_topics("removed_records"), width=8
        ),
        graph(
            "Damaged batches",
            "Batches that could not be read. Normally 0; `minikafka dump-log --verify` says what is wrong.",
            _of_topics("damaged_batches"),
            thresholds=above(critical=1),
            width=8,
        ),
        graph(
            "Undecoded records",
            "Records whose key or value was not of the format that the export was told.",
            _of_topics("undecoded_records"),
            thresholds=above(warning=1),
            width=8,
        ),
    ],
)

SPARK_DASHBOARD = Dashboard(
    name="spark",
    title="Spark jobs",
    description="analyze, compact and export: their latest runs.",
    variables=[
        choice("spark_job", "Job", "The subcommand", metric="minikafka_spark_running", label="spark_job")
    ],
    sections=[RUNS, READ, RESULTS],
    source="minikafka_spark_running",
)
