"""``minikafka console`` in a process of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

END_TIMEOUT_S = 30


@contextmanager
def running_console(bootstrap: str, *arguments: str) -> Iterator[str]:
    """The address that it tells, and where it listens. AssertionError: it does not end well."""
    command = [sys.executable, "-m", "minikafka.cli.main", "console", "-b", bootstrap, "--http-port=0"]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = process.stdout.readline()
            address = re.match(r"(https?://127\.0\.0\.1:\d+/) ", told)
            assert address is not None, told
            yield address[1]
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(END_TIMEOUT_S) == 0
