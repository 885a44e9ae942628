"""The brokers whose costs are looked at: ours and, beside it, Apache Kafka as its release starts it.

CPU seconds and memory are those of the broker's process. They hold on a busy machine, where times do not.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from minikafka.loadgen import targets
from tests.benchmarks.broker import COMMAND, cpu_seconds, resident_mb
from tests.integration.support.process import BrokerProcess
from tests.support.ports import free_port

OURS, KAFKA = "minikafka", "Apache Kafka"
KAFKA_VERSION = "4.4.0"
START_S = 600.0
STOP_S = 900.0

Row = dict[str, Any]


class ApacheKafka(BrokerProcess):
    """One KRaft node with the heap and the options of a release's scripts."""

    is_reference = True

    def arguments(self) -> list[str]:
        settings = targets.node_settings(1, self.port, [free_port()], data=self.data_dir)
        config = self.data_dir.with_suffix(".properties")
        config.write_text(
            "".join(f"{name}={value}\n" for name, value in (settings | self.properties).items())
        )
        java = ["java", *targets.JVM, "-cp", targets.class_path_of_maven(KAFKA_VERSION)]
        if not (self.data_dir / "meta.properties").exists():
            tool = ["kafka.tools.StorageTool", "format", "-t", targets.CLUSTER_ID, "-c", str(config)]
            done = targets.ended([*java, *tool], targets.FORMAT_DEADLINE_S)
            assert done.returncode == 0, done.stderr or done.stdout
        return [*java, "kafka.Kafka", str(config)]

    def _is_up(self) -> bool:
        return self._answers()


def sides() -> Sequence[str]:
    """Whose costs can be looked at here. ``ALONE=1`` leaves Apache Kafka out; so does a machine without Java
    or Maven, and it says so."""
    if os.environ.get("ALONE"):
        return (OURS,)
    if missing := [program for program in ("java", "mvn") if shutil.which(program) is None]:
        print(f"scale: without {missing[0]} there is no Apache Kafka to compare with")
        return (OURS,)
    return (OURS, KAFKA)


def make_broker(side: str, directory: Path, properties: Mapping[str, object] | None = None) -> BrokerProcess:
    """Not started. Its files are below ``directory``."""
    if side == KAFKA:
        return ApacheKafka(directory / "data", properties=properties)
    own = {"http.port": free_port()} | dict(properties or {})
    return BrokerProcess(directory / "data", properties=own, command=COMMAND)


@contextlib.contextmanager
def running_side(
    side: str, directory: Path, properties: Mapping[str, object] | None = None
) -> Iterator[BrokerProcess]:
    """One of ``sides``; killed at the end."""
    broker = make_broker(side, directory, properties)
    broker.start(deadline_s=START_S)
    try:
        yield broker
    finally:
        broker.kill()


class Spent(NamedTuple):
    """What something took: of time, and of the broker's CPU."""

    seconds: float
    cpu_s: float


class Watch:
    """Counts from when it was made."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._began, self._before = time.perf_counter(), sum(map(cpu_seconds, pids))

    def spent(self) -> Spent:
        seconds = time.perf_counter() - self._began
        return Spent(seconds, sum(map(cpu_seconds, self._pids)) - self._before)


def descriptors(pid: int) -> int:
    """How many a process has open (Linux)."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def settled_mb(pid: int) -> float:
    """Resident memory, MB, once it has been the same for a second; a collection of garbage may be due."""
    seen = resident_mb(pid)
    for _ in range(10):
        time.sleep(1)
        now = resident_mb(pid)
        if abs(now - seen) < 1:
            return now
        seen = now
    return seen


def until(
    condition: Callable[[], object], what: str, *, deadline_s: float = 900.0, pause_s: float = 0.05
) -> None:
    """Ask again and again. Raises AssertionError at the deadline."""
    ends = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < ends, f"not within {deadline_s:.0f} s: {what}"
        time.sleep(pause_s)


def growth(rows: Sequence[Row], by: str, columns: Mapping[str, float], *, most: float) -> list[Row]:
    """How each of ``columns`` grows from the second largest to the largest ``by``: the exponent, where 1 is
    linear and 2 is quadratic. What is small at the smaller one (less than what ``columns`` says) tells
    nothing and gets no row.

    Args:
        rows: of one kind and one side, in the order of ``by``.
        most: what is asked; over 1, because what is measured varies.
    """
    if len(rows) < 2:
        return []
    before, last = rows[-2:]
    found = []
    for name, least in columns.items():
        if name in last and before[name] >= least and last[name] > 0:
            exponent = math.log(last[name] / before[name]) / math.log(last[by] / before[by])
            found.append(
                {
                    "growth of": f"{last['part']}: {name}",
                    "from": before[by],
                    "to": last[by],
                    "exponent": round(exponent, 2),
                    "asked": f"<= {most}",
                    "ok": exponent <= most,
                }
            )
    return found


def limit_row(name: str, value: float, unit: str, most: float) -> Row:
    """What the broker should keep."""
    return {
        "name": name, "value": round(value, 3), "unit": unit, "asked": f"<= {most}", "ok": value <= most
    }  # fmt: skip
