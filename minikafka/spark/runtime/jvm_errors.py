"""What a JVM writes to standard error, passed on line by line without what is only noise.

The JVM gets the writing end of a pipe; a thread reads the other one until the JVM has gone. Until it is known
whether the JVM starts, its lines are kept: when it does not, they say why.
"""

from __future__ import annotations

import os
import sys
import threading

NOISE = ("WARNING: Using incubator modules",)
"""Printed at every start, whatever the settings are."""

END_S = 5.0


class JvmErrors:
    """``writing_end`` is for the JVM; then comes ``started`` or ``failed``."""

    def __init__(self) -> None:
        reading_end, self.writing_end = os.pipe()
        self._stream = os.fdopen(reading_end, encoding="utf-8", errors="replace")
        self._kept: list[str] = []
        self._is_kept = True
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._read, name="jvm-errors", daemon=True)
        self._thread.start()

    def started(self) -> None:
        """The JVM runs: what it has said and what it is going to say goes to our standard error."""
        os.close(self.writing_end)
        with self._lock:
            self._is_kept = False
            sys.stderr.writelines(self._kept)
            self._kept.clear()

    def failed(self) -> str:
        """The JVM has ended: all that it said, in one line, without the stack."""
        os.close(self.writing_end)
        self._thread.join(END_S)
        with self._lock:
            said = " ".join(line.strip() for line in self._kept if not line.startswith("\tat "))
        return said.strip().removeprefix('Exception in thread "main" ')

    def _read(self) -> None:
        with self._stream as lines:
            for line in lines:
                if line.startswith(NOISE):
                    continue
                with self._lock:
                    if self._is_kept:
                        self._kept.append(line)
                    else:
                        sys.stderr.write(line)
