"""A broker for benchmarks: the process that ``bin/minikafka-broker`` starts, without the tests' packages.

What the tests install beside it (hypothesis, coverage) may hook into what a user's broker never has: so the
broker runs in the environment that ``bin/minikafka-broker`` makes for itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.integration.support.process import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [str(ROOT / "bin" / "minikafka-broker")]
NO_HTTP = "--http-port=off"
"""For brokers beside each other: the usual port is only one's."""
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running_broker(
    directory: Path, *, properties: Mapping[str, object] | None = None
) -> Iterator[BrokerProcess]:
    """A broker on a free port with its data below ``directory``; stopped at the end."""
    broker = BrokerProcess(directory / "data", properties=properties, command=COMMAND)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used (Linux)."""
    return sum(user_and_system_seconds(pid))


def user_and_system_seconds(pid: int) -> tuple[float, float]:
    """Each by itself."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / _TICKS_PER_SECOND, int(fields[12]) / _TICKS_PER_SECOND


def resident_mb(pid: int) -> float:
    """Resident memory of a process, MB (Linux)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1000
    raise RuntimeError(f"/proc/{pid}/status says nothing of memory")
