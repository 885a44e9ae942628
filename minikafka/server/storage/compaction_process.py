"""The process that compacts logs for a broker: ``python -m minikafka.server.storage.compaction_process``.

It gets one job a line on its standard input, as JSON, and answers each with one line. It knows files and
ranges, nothing else: it writes ``.cleaned`` files, which the broker puts into its logs or forgets. It runs
at the lowest priority and is gone at once when the broker is: its input ends then, whatever it is doing, so
that it never writes into a directory which the next broker has opened.

Work that can pause between its steps has a limit on bytes a second. Kafka: ``Throttler``
(``log.cleaner.io.max.bytes.per.second``).
"""

from __future__ import annotations

import os
import sys
import traceback
from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING

import msgspec

from minikafka.clock import Clock
from minikafka.deferred import deferred
from minikafka.errors import KafkaError
from minikafka.files import Files, OsFiles
from minikafka.log.staged_compaction import CompactionJob, CompactionResult
from minikafka.system_clock import SystemClock

if TYPE_CHECKING:
    from minikafka.log import cleaner
else:
    cleaner = deferred("minikafka.log.cleaner")

NICENESS = 19
"""The least priority there is: a broker that wants the core gets it."""


class Pace:
    """How long to pause. What was not used while the work rested is lost, so there are no bursts."""

    def __init__(self, bytes_per_second: float, clock: Clock) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._due_ms = 0.0

    def pause_ms(self, size_bytes: int) -> int:
        """``size_bytes`` were moved just now: milliseconds until the next may be."""
        now_ms = self._clock.monotonic_ms()
        if self._bytes_per_second <= 0:
            return 0
        self._due_ms = max(self._due_ms, now_ms) + size_bytes * 1000 / self._bytes_per_second
        return int(self._due_ms - now_ms)


class Request(msgspec.Struct, frozen=True):
    """What the process is asked."""

    job: CompactionJob
    bytes_per_second: float


class Answer(msgspec.Struct, frozen=True):
    """A result, or why there is none: the code of a ``KafkaError``, the errno of an ``OSError``, or the
    traceback of anything else."""

    result: CompactionResult | None = None
    error_code: int | None = None
    errno: int | None = None
    message: str = ""
    failure: str = ""


def carry_out(request: Request, files: Files) -> Answer:
    """Work off one job, at its pace. Blocks."""
    pace = Pace(request.bytes_per_second, SystemClock())
    never = Event()
    try:
        compaction = cleaner.Compaction(request.job, files)
        for size_bytes in compaction.steps():
            pause_ms = pace.pause_ms(size_bytes)
            if pause_ms:
                never.wait(pause_ms / 1000)
    except KafkaError as error:
        return Answer(error_code=int(error.code), message=error.message or "")
    except OSError as error:
        return Answer(errno=error.errno or 0, message=str(error))
    except Exception:  # noqa: BLE001 our bug: the broker logs it, and compacts other logs
        return Answer(failure=traceback.format_exc())
    return Answer(compaction.result)


def main() -> None:
    """Answer until the input ends."""
    os.nice(NICENESS)
    lines: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_read, args=(lines,), daemon=True).start()
    files = OsFiles()
    while True:
        request = msgspec.json.decode(lines.get(), type=Request)
        answer = msgspec.json.encode(carry_out(request, files))
        try:
            sys.stdout.buffer.write(answer + b"\n")
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # the broker was killed
            os._exit(0)


def _read(lines: SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)  # the broker is gone, or wants nothing more: also in the middle of a job


if __name__ == "__main__":
    main()
