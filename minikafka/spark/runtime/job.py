"""What the jobs have in common: options, a session, counters, progress, and one line when something is wrong.

A subcommand is a parser and a function from a ``Job`` to an exit status::

    def main(argv: Sequence[str] | None = None) -> int:
        arguments = parser().parse_args(argv)
        return run_job("export", arguments, lambda job: export(job, arguments))

What a job is doing is on standard error: a bar on a terminal, a line every now and then elsewhere. A thread
asks Spark's status every half second: the tasks of the stages that run, and the rows and bytes that finished
tasks have read. Spark gets those from tasks that are done, so they come in steps.

Ctrl-C while Spark works: its jobs are cancelled, and the command ends as an interrupted one. PySpark's own
handler asks the JVM to cancel all jobs from within the signal, on the connection on which the main thread may
be waiting for an answer; py4j refuses the second use of it with a traceback. Here the handler leaves such an
exchange alone: another thread, which has a connection of its own, cancels the jobs, and the call that the
main thread waits for ends with an error.

Spark starts a task again when its executor is lost, and a second time where one is slow
(``spark.speculation``). The attempt that does not count is told to end, and Spark does not wait for it: a
Python process goes on until it reads or writes next, and one whose executor was killed until it notices. So
each attempt has files of its own, and who clears up (``remove_attempts``) expects new ones to appear
meanwhile.

**Counters** are for Prometheus; which series there are is ``minikafka.metrics.series``. A job ends before it
is scraped, so there are three ways out, by prometheus-client, and any number of them may be used:

- ``--metrics-file``: a file for node_exporter's textfile collector, replaced while the job runs and at its
  end. It is kept, so it also says when the job last ended well; the next run carries that on.
- ``--pushgateway``: the same, pushed. What this run does not know is left there as it was.
- ``--metrics-port``: a page ``/metrics`` as long as the job runs, on loopback unless an address is given.

That a series cannot be delivered does not fail the job: it is said in one line.
"""

from __future__ import annotations

import argparse
import errno
import http.client
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO

from prometheus_client import CollectorRegistry, pushadd_to_gateway, start_http_server, write_to_textfile
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from minikafka.errors import MinikafkaError
from minikafka.files import Files
from minikafka.metrics.series import (
    DURATION,
    FAILED,
    JOB,
    LAST_SUCCESS,
    RUNNING,
    SPARK_SERIES,
    TASKS,
    TASKS_DONE,
    Series,
)
from minikafka.spark.runtime.session import JobError, add_spark_options, explain, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FAILURE", "INTERRUPTED", "OK", "Job", "JobError", "add_job_options", "run_job"]

GATEWAY_JOB = "minikafka_spark"
GATEWAY_S = 5.0

TOPICS_MAX = 100
"""Topics with a label of their own; a job may read thousands, and Prometheus keeps each for ever."""

OTHER_TOPICS = "(others)"

REFRESH_S = 5.0
"""A third of Prometheus's usual interval."""

LOOPBACK, EVERY_ADDRESS = "127.0.0.1", "0.0.0.0"


CANCEL_INTERVAL_S = 0.1
"""Between two cancellations: the body may have begun another job."""

CANCEL_GRACE_S = 5.0
"""How long tasks that were cancelled may take to end. One that ends when the session has been stopped prints
a stack trace."""

POLL_S = 0.5
LINE_S = 10.0
"""Between two lines where there is no terminal."""

OK, FAILURE = 0, 1
INTERRUPTED = 130
"""What a shell makes of a command that SIGINT ended."""

REMOVALS_MAX = 10
"""An attempt makes a handful of files, so far fewer are enough."""


# ---- the counters' ways out


class _Counters(Collector):
    def __init__(self, counters: JobCounters) -> None:
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for series, labels, value in self._counters.samples():
            family = families.setdefault(series.name, Metric(series.name, series.help, series.type.value))
            family.add_sample(series.name, labels, value)
        yield from families.values()


def _registry(counters: JobCounters) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_Counters(counters))
    return registry


def write_file(counters: JobCounters, path: Path) -> str | None:
    """Replace ``path`` in one step. Returns what went wrong."""
    try:
        write_to_textfile(str(path), _registry(counters))
    except OSError as error:
        return f"{path}: {error.strerror}"
    return None


def push(counters: JobCounters, gateway: str) -> str | None:
    """Push; series that are not there now are left in the gateway as they were. Returns what went wrong."""
    key = {JOB: counters.job}
    try:
        pushadd_to_gateway(gateway, GATEWAY_JOB, _registry(counters), grouping_key=key, timeout=GATEWAY_S)
    except (OSError, ValueError, http.client.HTTPException) as error:  # urllib's errors are OSErrors
        return f"the pushgateway {gateway}: {error}"
    return None


def read_value(path: Path, name: str, job: str) -> float | None:
    """A job's value in a file that an earlier run left; None when it is not there or no such file."""
    try:
        families = list(text_string_to_metric_families(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):  # the next write replaces it
        return None
    for family in families:
        for sample in family.samples:
            if sample.name == name and sample.labels.get(JOB) == job:
                return float(sample.value)
    return None


class MetricsPage:
    """``/metrics``. Raises OSError: the port is taken, the address is none of this machine's."""

    def __init__(self, counters: JobCounters, address: str, port: int) -> None:
        self._server, self._thread = start_http_server(port, address, registry=_registry(counters))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


# ---- counters


class ListenAddress(NamedTuple):
    """Where a page is served."""

    address: str
    port: int


class UnusableMetrics(MinikafkaError):
    """An option of these cannot be used: a port that is taken, a directory that is not there."""


def add_counter_options(options: argparse.ArgumentParser) -> None:
    """``--metrics-file``, ``--pushgateway`` and ``--metrics-port``."""
    group = options.add_argument_group("Prometheus")
    group.add_argument(
        "--metrics-file",
        type=Path,
        metavar="FILE.prom",
        help="write the job's series here, for node_exporter's textfile collector",
    )
    group.add_argument("--pushgateway", metavar="HOST:PORT", help="push them to this pushgateway")
    group.add_argument(
        "--metrics-port",
        type=listen_address,
        metavar="[ADDRESS:]PORT",
        help=f"serve them while the job runs (on {LOOPBACK} unless it is said; :PORT for all addresses)",
    )


def listen_address(text: str) -> ListenAddress:
    """``PORT``, ``ADDRESS:PORT``, ``[IPV6]:PORT``, ``:PORT`` as in Prometheus. Raises ArgumentTypeError."""
    address, colon, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, or ADDRESS:PORT such as 0.0.0.0:9500")
    if not colon:
        return ListenAddress(LOOPBACK, int(port))
    return ListenAddress(address.strip("[]") or EVERY_ADDRESS, int(port))


class JobCounters:
    """The numbers of one run. Any thread may read them."""

    def __init__(self, job: str, now_s: Callable[[], float] = time.time) -> None:
        self.job = job
        self._now_s = now_s
        self._began_s = now_s()
        self._lock = threading.Lock()
        self._topics: set[str] = set()
        # What is not counted is 0 and not absent, so that a graph says "none" and not "no data".
        self._values: dict[tuple[Series, str], float] = {
            (series, ""): 0 for series in SPARK_SERIES if series not in (DURATION, LAST_SUCCESS)
        }
        self._values[RUNNING, ""] = 1

    def __repr__(self) -> str:
        return f"<JobCounters {self.job} {len(self._values)} values>"

    def add(self, series: Series, value: float, *, topic: str = "") -> None:
        """Count ``value`` more."""
        with self._lock:
            key = series, self._label(topic)
            self._values[key] = self._values.get(key, 0) + value

    def set(self, series: Series, value: float, *, topic: str = "") -> None:
        """What is true now: of the job, or of a topic."""
        with self._lock:
            self._values[series, self._label(topic)] = value

    def value(self, series: Series, *, topic: str = "") -> float | None:
        """None: it has not been counted."""
        with self._lock:
            return self._values.get((series, topic))

    def of_topics(self, series: Series) -> list[tuple[str, float]]:
        """What has been counted of each topic, by topic."""
        with self._lock:
            return sorted((topic, value) for (found, topic), value in self._values.items() if found is series)

    def samples(self) -> Iterator[tuple[Series, dict[str, str], float]]:
        """Every number with its labels, those of one series one after the other."""
        with self._lock:
            values = dict(self._values)
        if values[RUNNING, ""]:
            values[DURATION, ""] = self._now_s() - self._began_s
        for series in SPARK_SERIES:
            for (found, topic), value in sorted(values.items(), key=lambda item: item[0][1]):
                if found is series:
                    yield series, dict(zip(series.labels, (self.job, topic), strict=False)), value

    def finish(self, *, is_success: bool) -> None:
        """The run has ended."""
        now_s = self._now_s()
        with self._lock:
            ended = {RUNNING: 0, TASKS: 0, TASKS_DONE: 0, FAILED: not is_success}
            self._values |= {(series, ""): float(value) for series, value in ended.items()}
            self._values[DURATION, ""] = now_s - self._began_s
            if is_success:
                self._values[LAST_SUCCESS, ""] = now_s

    def _label(self, topic: str) -> str:
        if topic and topic not in self._topics:
            if len(self._topics) >= TOPICS_MAX:
                return OTHER_TOPICS
            self._topics.add(topic)
        return topic


@contextmanager
def published(counters: JobCounters, arguments: argparse.Namespace) -> Iterator[None]:
    """While the body runs its counters are where the options say; at its end they are there once more.

    Raises:
        UnusableMetrics: before the body, when one of them cannot be used at all.
    """
    file: Path | None = arguments.metrics_file
    gateway: str | None = arguments.pushgateway
    page = None
    if file is not None:
        if file.is_dir() or not file.parent.is_dir():
            raise UnusableMetrics(f"--metrics-file {file}: must be a file in a directory that is there")
        last_success = read_value(file, LAST_SUCCESS.name, counters.job)
        if last_success is not None:
            counters.set(LAST_SUCCESS, last_success)
    if arguments.metrics_port is not None:
        try:
            page = MetricsPage(counters, *arguments.metrics_port)
        except OSError as error:
            raise UnusableMetrics(
                f"--metrics-port {':'.join(map(str, arguments.metrics_port))}: {error}"
            ) from error

    def deliver() -> None:
        if file is not None:
            _tell(write_file(counters, file))
        if gateway is not None:
            _tell(push(counters, gateway))

    stopped = threading.Event()

    def refresh() -> None:
        while not stopped.wait(REFRESH_S):
            deliver()

    thread = threading.Thread(target=refresh, name="job-counters", daemon=True)
    is_success = False
    try:
        if file is not None or gateway is not None:
            deliver()
            thread.start()
        yield
        is_success = True
    finally:
        stopped.set()
        if thread.is_alive():
            thread.join()
        counters.finish(is_success=is_success)
        deliver()
        if page is not None:
            page.close()


def _tell(problem: str | None) -> None:
    if problem is not None:
        print(f"minikafka: the job's metrics: {problem}", file=sys.stderr)


# ---- Ctrl-C


@contextmanager
def interruptible(session: SparkSession) -> Iterator[None]:
    """SIGINT while the body runs raises KeyboardInterrupt, once Spark has released the main thread; a second
    one ends the process at once. Outside of the main thread nothing changes, since no signal arrives there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ended = threading.Event()
    cancelling: list[threading.Thread] = []

    def cancel() -> None:
        while not ended.wait(CANCEL_INTERVAL_S):
            session.sparkContext.cancelAllJobs()

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if not _is_asking_the_jvm(frame):
            raise KeyboardInterrupt
        thread = threading.Thread(target=cancel, name="cancel Spark jobs", daemon=True)
        cancelling.append(thread)
        thread.start()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except Exception as error:
        if cancelling:
            raise KeyboardInterrupt from error
        raise
    finally:
        ended.set()
        for thread in cancelling:
            thread.join()
            _wait_for_tasks(session)
        signal.signal(signal.SIGINT, before)
    if cancelling:  # no job was left to be cancelled
        raise KeyboardInterrupt


def _wait_for_tasks(session: SparkSession) -> None:
    from py4j.protocol import Py4JError

    tracker = session.sparkContext._jsc.sc().statusTracker()
    deadline_s = time.monotonic() + CANCEL_GRACE_S
    try:
        while time.monotonic() < deadline_s:
            if not any(executor.numRunningTasks() for executor in tracker.getExecutorInfos()):
                return
            time.sleep(CANCEL_INTERVAL_S)
    except (Py4JError, OSError):  # the JVM has gone, and its tasks with it
        return


def _is_asking_the_jvm(frame: FrameType | None) -> bool:
    """Whether the interrupted code is in the middle of an exchange over py4j."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == "py4j":
            return True
        frame = frame.f_back
    return False


# ---- progress


class Status(NamedTuple):
    """The stages that run now, summed up."""

    tasks: int = 0
    done: int = 0
    failed: int = 0
    records: int = 0
    size: int = 0
    """Bytes read, from the source or from a shuffle."""

    def __str__(self) -> str:
        parts = [f"{self.done}/{self.tasks} tasks"]
        if self.records:
            parts.append(f"{self.records:,} records")
        if self.size:
            parts.append(f"{self.size / 1e6:,.1f} MB")
        if self.failed:
            parts.append(f"{self.failed} failed")
        return ", ".join(parts)


class View(Protocol):
    """Draws the progress."""

    def begin(self, phase: str) -> None: ...

    def show(self, phase: str, status: Status) -> None: ...

    def end(self, phase: str, seconds: float) -> None: ...


class PlainView:
    """Lines: one at the end of each phase, and some while it lasts."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown_s = 0.0

    def begin(self, phase: str) -> None:
        self._shown_s = time.monotonic()

    def show(self, phase: str, status: Status) -> None:
        if status.tasks and time.monotonic() - self._shown_s >= LINE_S:
            self._shown_s = time.monotonic()
            print(f"{phase}: {status}", file=self._stream, flush=True)

    def end(self, phase: str, seconds: float) -> None:
        print(f"{phase}: {seconds:.1f} s", file=self._stream, flush=True)


class TerminalView:
    """A bar for the phase that runs, and what is done above it."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[status]}"),
            TimeElapsedColumn(),
            console=Console(file=stream),
        )
        self._task: Any = None

    def begin(self, phase: str) -> None:
        self._task = self._progress.add_task(phase, total=None, status="")
        self._progress.start()

    def show(self, phase: str, status: Status) -> None:
        self._progress.update(
            self._task, total=status.tasks or None, completed=status.done, status=str(status)
        )

    def end(self, phase: str, seconds: float) -> None:
        self._progress.update(self._task, total=1, completed=1)
        self._progress.stop()
        self._progress.remove_task(self._task)


class JobProgress:
    """The phases of one job."""

    def __init__(self, spark: SparkSession, counters: JobCounters, stream: TextIO | None = None) -> None:
        """``stream``: standard error by default."""
        self._spark = spark
        self._counters = counters
        out = stream or sys.stderr
        self._view: View = TerminalView(out) if out.isatty() else PlainView(out)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """While the body runs its Spark jobs are shown under this name."""
        stopped = threading.Event()
        began_s = time.monotonic()

        def watch() -> None:
            from py4j.protocol import Py4JError

            while not stopped.wait(POLL_S):
                try:
                    status = self._look()
                except (Py4JError, OSError):  # the JVM has gone: the body gets the error too, and raises
                    return
                self._view.show(name, status)

        thread = threading.Thread(target=watch, name="job-progress", daemon=True)
        try:
            self._view.begin(name)
            thread.start()
            yield
        finally:
            stopped.set()
            if thread.ident is not None:  # else it was being started at the interrupt
                thread.join()
            self._view.end(name, time.monotonic() - began_s)

    def _look(self) -> Status:
        status = stages_now(self._spark)
        self._counters.set(TASKS, status.tasks)
        self._counters.set(TASKS_DONE, status.done)
        return status


def stages_now(spark: SparkSession) -> Status:
    """The stages that run at this moment; a stage may end while it is asked about."""
    from py4j.protocol import Py4JJavaError

    context = spark.sparkContext
    tracker = context.statusTracker()
    status = Status()
    for stage_id in tracker.getActiveStageIds():
        info = tracker.getStageInfo(stage_id)
        if info is None:
            continue
        records = size = 0
        try:
            data = context._jsc.sc().statusStore().lastStageAttempt(stage_id)
            records = data.inputRecords() + data.shuffleReadRecords()
            size = data.inputBytes() + data.shuffleReadBytes()
        except Py4JJavaError:  # NoSuchElementException: the store does not have it yet
            pass
        status = Status(
            status.tasks + info.numTasks,
            status.done + info.numCompletedTasks,
            status.failed + info.numFailedTasks,
            status.records + records,
            status.size + size,
        )
    return status


# ---- jobs


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


# ---- attempts


def remove_attempts(files: Files, directory: str) -> None:
    """Remove a directory in which an attempt may still be writing; one that is not there is fine.

    Raises OSError: the disk's, or files keep appearing.
    """
    for left in reversed(range(REMOVALS_MAX)):
        try:
            files.remove_tree(directory)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT) or not left:
                raise
