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
"""

from __future__ import annotations

import argparse
import errno
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO

from minikafka.errors import MinikafkaError
from minikafka.files import Files
from minikafka.metrics.series import TASKS, TASKS_DONE
from minikafka.spark.runtime.counters import JobCounters, add_counter_options, published
from minikafka.spark.runtime.session import JobError, add_spark_options, explain, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FAILURE", "INTERRUPTED", "OK", "Job", "JobError", "add_job_options", "run_job"]

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
