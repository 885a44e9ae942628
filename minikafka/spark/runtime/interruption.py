"""Ctrl-C while Spark works: its jobs are cancelled, and the command ends as an interrupted one.

PySpark's own handler asks the JVM to cancel all jobs from within the signal, on the connection on which the
main thread may be waiting for an answer; py4j refuses the second use of it with a traceback. Here the handler
leaves such an exchange alone: another thread, which has a connection of its own, cancels the jobs, and the
call that the main thread waits for ends with an error.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CANCEL_INTERVAL_S = 0.1
"""Between two cancellations: the body may have begun another job."""

LET_GO_S = 5.0
"""How long tasks that were cancelled may take to end. One that ends when the session has been stopped prints
a stack trace."""


@contextmanager
def interruptible(session: SparkSession) -> Iterator[None]:
    """SIGINT while the body runs raises KeyboardInterrupt, once Spark has let go of the main thread; a second
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
    deadline_s = time.monotonic() + LET_GO_S
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
