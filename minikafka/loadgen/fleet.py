"""The worker processes, seen from their parent: started, heard, told, ended.

Each has a thread here that reads what it says into one queue. A worker that ends without ``Done`` counts with
what it said before; the last line of its standard error says why.
"""

from __future__ import annotations

import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import IO

import msgspec

from minikafka.errors import MinikafkaError
from minikafka.loadgen import interpreter
from minikafka.loadgen.messages import Command, Done, Interval, Job, Ready, Report, encoded, report_decoder

READY_DEADLINE_S = 60.0
STOP_DEADLINE_S = 10.0


class WorkerError(MinikafkaError):
    """A worker cannot do its job; the message is for the person who asked for it."""


class Heard(msgspec.Struct, frozen=True):
    """A report, or None for the end of the worker's process."""

    worker: Worker
    report: Report | None


class Worker:
    """One process with one job."""

    def __init__(self, job: Job, heard: queue.SimpleQueue[Heard]) -> None:
        self.done: Done | None = None
        self.is_ready = self.has_ended = False
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 closed by close()
        self._process = subprocess.Popen(
            interpreter.command("minikafka.loadgen.worker"),
            env=interpreter.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C is for the parent, which tells its workers
        )
        self._heard = heard
        self._send(encoded(job))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def tell(self, command: Command) -> None:
        """A worker that has ended hears nothing."""
        self._send(encoded(command))

    def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):  # ended, or closed
            pass

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):  # else it was killed while it spoke
                self._heard.put(Heard(self, report_decoder.decode(line)))
        self._heard.put(Heard(self, None))

    def reason(self) -> str:
        """Why it ended without ``Done``."""
        status = self._process.wait(STOP_DEADLINE_S)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"a worker process ended with {status}" + (f": {lines[-1]}" if lines else "")

    def close(self) -> None:
        """End it in whatever way works, and free what it holds here."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join()
        self._process.stdout.close()
        self._errors.close()


class Fleet:
    """All workers of a run. A context manager: at its end every process has ended."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self._heard: queue.SimpleQueue[Heard] = queue.SimpleQueue()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.close()

    def launch(self, jobs: Sequence[Job]) -> list[Worker]:
        """Start a process for each job, and wait until all are ready. Raises WorkerError: one cannot."""
        launched = []
        for job in jobs:
            launched.append(Worker(job, self._heard))
            self.workers.append(launched[-1])  # one by one: whatever comes, ``__exit__`` ends them
        deadline = time.monotonic() + READY_DEADLINE_S
        while not all(worker.is_ready for worker in launched):
            heard = self.hear(max(deadline - time.monotonic(), 0))
            if heard is None:
                raise WorkerError(f"the worker processes were not ready after {READY_DEADLINE_S:g} s")
            if heard.worker.is_ready:
                continue
            failure = heard.worker.done.failure if heard.worker.done is not None else None
            raise WorkerError(failure or heard.worker.reason())
        return launched

    def hear(self, timeout_s: float) -> Heard | None:
        """The next thing that a worker says; what it says of its own state is noted. None: nothing came."""
        try:
            heard = self._heard.get(timeout=timeout_s)
        except queue.Empty:
            return None
        match heard.report:
            case Ready():
                heard.worker.is_ready = True
            case Done():
                heard.worker.done = heard.report
                heard.worker.has_ended = True
            case None:
                heard.worker.has_ended = True
            case Interval():
                pass
        return heard
