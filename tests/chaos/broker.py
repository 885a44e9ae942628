"""``minikafka-broker`` under libfaketime, whose ``clock_nanosleep`` takes no monotonic moment to wait for.

That is what Python's ``time.sleep`` asks it for, and EINVAL is what it gets (libfaketime 0.9.10).
"""

from __future__ import annotations

import sys
import threading
import time

from minikafka.cli.broker import main


def sleep(seconds: float) -> None:
    """By a semaphore, as ``threading`` waits."""
    threading.Event().wait(seconds)


if __name__ == "__main__":
    time.sleep = sleep
    sys.exit(main())
