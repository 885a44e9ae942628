"""What the jobs have in common: options, a session, counters, progress, and one line when something is wrong.

A subcommand is a parser and a function from a ``Job`` to an exit status::

    def main(argv: Sequence[str] | None = None) -> int:
        arguments = parser().parse_args(argv)
        return run_job("export", arguments, lambda job: export(job, arguments))
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minikafka.errors import MinikafkaError
from minikafka.spark.runtime.counters import JobCounters, add_counter_options, published
from minikafka.spark.runtime.failures import JobError, explain
from minikafka.spark.runtime.interruption import interruptible
from minikafka.spark.runtime.progress import JobProgress
from minikafka.spark.runtime.session import add_spark_options, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OK, FAILURE = 0, 1
INTERRUPTED = 130
"""What a shell makes of a command that SIGINT ended."""

__all__ = ["FAILURE", "INTERRUPTED", "OK", "Job", "JobError", "add_job_options", "run_job"]


@dataclass(frozen=True, slots=True)
class Job:
    """What a job works with."""

    spark: SparkSession
    counters: JobCounters
    progress: JobProgress


def add_job_options(options: argparse.ArgumentParser) -> None:
    """The options of every job: Spark's and Prometheus's."""
    add_spark_options(options)
    add_counter_options(options)


def run_job(name: str, arguments: argparse.Namespace, work: Callable[[Job], int]) -> int:
    """Run ``minikafka <name>`` to its end. Returns the exit status; why it is not 0 is on standard error."""
    counters = JobCounters(name)
    try:
        with published(counters, arguments):
            return _run(name, arguments, counters, work)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone
        sys.stderr.close()
    except (MinikafkaError, _JobFailed) as error:
        print(f"minikafka {name}: {error}", file=sys.stderr)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"minikafka {name}: {where}{error.strerror or error}", file=sys.stderr)
    return FAILURE


class _JobFailed(Exception):
    """Carries Spark's failure, in one line, out of the session."""


def _run(name: str, arguments: argparse.Namespace, counters: JobCounters, work: Callable[[Job], int]) -> int:
    with open_session(f"minikafka {name}", master=arguments.master, conf=arguments.conf) as spark:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            with interruptible(spark):
                return work(Job(spark, counters, JobProgress(spark, counters)))
        except (PySparkException, Py4JError) as error:
            raise _JobFailed(explain(error)) from error
