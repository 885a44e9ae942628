"""Where a compaction is worked off: in a process of its own, or step by step on the disk thread.

A process is for what the operating system's files hold. Compacting takes seconds of computing a gigabyte; a
thread of the broker takes turns with the loop for that (the interpreter's lock). Measured with 1 GB and two
processors: a producer's p99 was 6.2 times that of a quiet broker beside the thread, 1.7 to 2.8 times beside
the process, and the process was no slower (260 to 330 MB/s). It is started when there is work, kept while
there is more, and costs an idle broker nothing.

Step by step is for files that only this process has: those of a simulation, or of a test that takes them
away.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol

import msgspec

import minikafka
from minikafka.clock import Clock
from minikafka.deferred import deferred
from minikafka.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.files import Files
from minikafka.server.runtime.log_io import LogIo
from minikafka.server.runtime.pace import Pace

if TYPE_CHECKING:
    from minikafka.log.compaction import cleaner
    from minikafka.log.compaction.job import CompactionJob, CompactionResult
else:
    cleaner = deferred("minikafka.log.compaction.cleaner")

_MODULE = "minikafka.server.storage.compaction_process"


class CompactionProcessDied(MinikafkaError):
    """The process has ended without an answer: somebody killed it, or memory ran out."""


class CompactionFailed(MinikafkaError):
    """A bug came up while the log was compacted. The message has its traceback."""


class CompactionRunner(Protocol):
    """Works off one job at a time."""

    async def run(self, job: CompactionJob, *, bytes_per_second: float) -> CompactionResult:
        """Work off a job.

        Raises:
            KafkaError: the log holds something that cannot be compacted.
            OSError: the disk's.
            CompactionProcessDied: what the job has come to is not known.
            CompactionFailed: and would again.
        """
        ...

    async def rest(self) -> None:
        """There is no work for a while: let go of what costs memory. ``run`` may follow."""
        ...

    def close(self) -> None:
        """End, also in the middle of a job whose caller was cancelled."""
        ...


class InProcess:
    """On the disk thread, one step at a time: other work of the disk gets in between."""

    def __init__(self, log_io: LogIo, files: Files, clock: Clock) -> None:
        self._log_io = log_io
        self._files = files
        self._clock = clock

    async def run(self, job: CompactionJob, *, bytes_per_second: float) -> CompactionResult:
        try:
            return await self._work_off(job, bytes_per_second)
        except (KafkaError, OSError):
            raise
        except Exception as error:  # our bug, as a value that says so: see ``LogCleaner``
            raise CompactionFailed("".join(traceback.format_exception(error))) from error

    async def _work_off(self, job: CompactionJob, bytes_per_second: float) -> CompactionResult:
        pace = Pace(bytes_per_second, self._clock)
        compaction = await self._log_io.run(lambda: cleaner.Compaction(job, self._files))
        steps = compaction.steps()
        while (size_bytes := await self._log_io.run(lambda: _next(steps))) is not None:
            pause_ms = pace.pause_ms(size_bytes)
            if pause_ms:
                await asyncio.sleep(pause_ms / 1000)
        assert compaction.result is not None
        return compaction.result

    async def rest(self) -> None:
        return None

    def close(self) -> None:
        return None


def _next(steps: Iterator[int]) -> int | None:
    return next(steps, None)


class OwnProcess:
    """In a ``compaction_process``."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="minikafka-cleaner")
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._lock = Lock()
        """Held while the process begins or ends: who closes in the moment in which the thread starts one must
        not miss it, or it would wait on the loop for a whole job."""

    def __repr__(self) -> str:
        return f"OwnProcess({'none' if self._process is None else self._process.pid})"

    async def run(self, job: CompactionJob, *, bytes_per_second: float) -> CompactionResult:
        # Imported with the first job: what the process itself needs is no part of an idle broker.
        from minikafka.server.storage.compaction_process import Answer, Request

        request = msgspec.json.encode(Request(job, bytes_per_second))
        line = await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, request)
        answer = msgspec.json.decode(line, type=Answer)
        if answer.failure:
            raise CompactionFailed(answer.failure)
        if answer.error_code is not None:
            raise KafkaError(ErrorCode(answer.error_code), answer.message)
        if answer.result is None:
            raise OSError(answer.errno, answer.message)
        return answer.result

    async def rest(self) -> None:
        self._end()

    def close(self) -> None:
        self._is_closed = True
        self._end()
        self._thread.shutdown(wait=True)

    def _end(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):  # what it was still to be told
                if pipe is not None:
                    pipe.close()

    def _ask(self, request: bytes) -> bytes:
        """Send one line and wait for one; on the thread."""
        with self._lock:
            if self._is_closed:
                raise CompactionProcessDied("the broker stops")
            process = self._process = self._process or _start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(request + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError as error:
            raise CompactionProcessDied(f"the compaction process is gone: {error}") from error
        if not line.endswith(b"\n"):
            raise CompactionProcessDied("the compaction process has ended without an answer")
        return line


def _start() -> subprocess.Popen[bytes]:
    """Where this package was found, the other process finds it too."""
    root = str(Path(minikafka.__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-m", _MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the broker, which then lets this one go
        env=os.environ | {"PYTHONPATH": path},
    )
