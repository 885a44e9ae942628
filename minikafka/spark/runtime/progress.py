"""What a job is doing, on standard error: a bar on a terminal, a line every now and then elsewhere.

A thread asks Spark's status every half second: the tasks of the stages that run, and the rows and bytes that
finished tasks have read. Spark hears of those from tasks that are done, so they come in steps.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO

from minikafka.metrics.names_of_spark import TASKS, TASKS_DONE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from minikafka.spark.runtime.counters import JobCounters

POLL_S = 0.5
LINE_S = 10.0
"""Between two lines where there is no terminal."""


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
                except (Py4JError, OSError):  # the JVM has gone: the body hears of it too, and raises
                    return
                self._view.show(name, status)

        thread = threading.Thread(target=watch, name="job-progress", daemon=True)
        try:
            self._view.begin(name)
            thread.start()
            yield
        finally:
            stopped.set()
            if thread.ident is not None:  # else it was being started when somebody interrupted it
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
        except Py4JJavaError:  # NoSuchElementException: the store has not heard of it yet
            pass
        status = Status(
            status.tasks + info.numTasks,
            status.done + info.numCompletedTasks,
            status.failed + info.numFailedTasks,
            status.records + records,
            status.size + size,
        )
    return status
