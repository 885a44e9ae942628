"""A job of the command line that gets SIGKILL in the middle of its work."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence

from tests.integration.support.confluent import wait_until
from tests.spark.conftest import CONF

DEADLINE_S = 600.0
"""Until the job is where it is to die. A JVM starts for it, where many others start at that time."""


def sigkill_when(is_there: Callable[[], object], arguments: Sequence[str], what: str) -> None:
    """Run ``minikafka`` with ``arguments`` and one core of Spark, and kill it when ``is_there`` is true. An
    AssertionError says ``what`` did not come. The process is gone at the end, in every case."""
    command = [sys.executable, "-m", "minikafka.cli.main", *arguments, "--master", "local[1]"]
    command += [f"--conf={name}={value}" for name, value in CONF.items()]
    process = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)

    def has_ended_or_is_there() -> bool:
        return process.poll() is not None or bool(is_there())

    try:
        wait_until(has_ended_or_is_there, what, deadline_s=DEADLINE_S)
        assert process.returncode is None, f"ended with status {process.returncode} before: {what}"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
