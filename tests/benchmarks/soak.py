"""``bin/bench soak --hours 2``: whether a broker stays as it is, under half of the load that it can take.

A fresh broker, ``minikafka bench soak`` (librdkafka's producers and a consumer group) and, beside it, what
comes and goes: transactions, some of them aborted, each by a producer of its own, and members that join a
group, read and leave. Half of the maximal rate is half of what the same load reached in a short run without a
limit.

Every ten seconds a sample: memory, descriptors, files, latencies of that time. A series is flat when a
straight line through its second half rises by no more than its bound. Kept as JSON and as a picture (SVG).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.benchmarks.broker import ROOT, cpu_seconds, resident_mb, running_broker
from tests.integration.support.process import BrokerProcess

RESULTS = ROOT / "bench-results"
SAMPLE_EVERY_S = 10.0
MAXIMUM_S = 15
"""How long the maximal rate is looked for."""
WARM_UP_S = 10
TOPIC, PARTITIONS, RECORD_SIZE = "soak", 4, 1000
TRANSACTIONS_TOPIC, RECORDS_A_TRANSACTION = "soak-transactions", 20
VISIT_EVERY_S = 5.0
DEADLINE_S = 30
PROPERTIES = {
    "log.segment.bytes": 64 << 20,
    "log.retention.bytes": 256 << 20,
    "log.retention.check.interval.ms": 1000,
    "log.segment.delete.delay.ms": 1000,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "producer.id.expiration.ms": 60_000,
    "transactional.id.expiration.ms": 60_000,
    "offsets.retention.minutes": 1,
}
"""So little is kept, and for so short a time, that everything is deleted and forgotten many times. The
partitions of the coordinators are few, because their files are opened by the first client that needs them."""
KEPT_AT_MAXIMUM = 8 << 30
"""Of a partition while the maximal rate is looked for: nothing is deleted before it is read, however late its
consumers begin."""


class Series(NamedTuple):
    """What is looked at, and by how much its second half may rise."""

    name: str
    unit: str
    share: float
    """Of its mean."""
    or_so_much: float
    """Where the share is less than this."""


SERIES = (
    Series("resident", "MB", 0.05, 4),
    Series("descriptors", "", 0.05, 4),
    Series("files", "", 0.05, 8),
    Series("p50", "ms", 0.25, 1),
    Series("p99", "ms", 0.5, 10),
)


class Verdict(NamedTuple):
    series: Series
    mean: float
    """Of the second half."""
    rise: float
    """Of a straight line through it, from its beginning to its end."""

    @property
    def bound(self) -> float:
        return max(self.series.share * self.mean, self.series.or_so_much)

    @property
    def is_flat(self) -> bool:
        """A fall is flat, too; a series without values is not."""
        return self.rise <= self.bound

    def __str__(self) -> str:
        verdict = "flat" if self.is_flat else "NOT FLAT"
        numbers = f"mean {self.mean:.1f}, rises by {self.rise:+.1f}, bound {self.bound:.1f}"
        return f"{self.series.name:<12} {numbers} {self.series.unit}: {verdict}".replace(" : ", ": ")


def judged(series: Series, samples: Sequence[Mapping[str, float]]) -> Verdict:
    """By the second half of what there is. Samples have ``at_s`` and most of the series' names."""
    points = [
        (each["at_s"], each[series.name]) for each in samples[len(samples) // 2 :] if series.name in each
    ]
    if len(points) < 2:
        return Verdict(series, math.nan, math.inf)
    at, values = zip(*points, strict=True)
    slope = statistics.linear_regression(at, values).slope
    return Verdict(series, statistics.fmean(values), slope * (at[-1] - at[0]))


def main(argv: Sequence[str], machine: Mapping[str, Any]) -> int:
    """Run it; ``machine`` is what the numbers depend on. Returns the exit status: 1 when it is not flat."""
    options = argparse.ArgumentParser(prog="bin/bench soak", description=(__doc__ or "").partition("\n\n")[2])
    options.add_argument("--hours", type=float, default=2.0, help="how long (default: %(default)s)")
    options.add_argument("--rate", type=float, help="records a second (default: half of the maximum)")
    options.add_argument("--out", type=Path, default=RESULTS / "soak", help="writes OUT.json and OUT.svg")
    arguments = options.parse_args(argv)
    rate = arguments.rate or round(maximal_rate() / 2)
    print(f"{arguments.hours:g} h at {rate:,.0f} records of {RECORD_SIZE} B a second", flush=True)
    samples, visits = soaked(arguments.hours * 3600, rate)
    verdicts = [judged(series, samples) for series in SERIES]
    report = {
        "machine": machine,
        "hours": arguments.hours,
        "rate": rate,
        "visits": visits,
        "verdicts": [
            {
                "name": each.series.name,
                "mean": each.mean,
                "rise": each.rise,
                "bound": each.bound,
                "flat": each.is_flat,
            }
            for each in verdicts
        ],
        "samples": samples,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.with_suffix(".json").write_text(json.dumps(report) + "\n")
    arguments.out.with_suffix(".svg").write_text(picture(samples, verdicts))
    print(*verdicts, f"{visits} visits; kept in {arguments.out}.json and .svg", sep="\n")
    return 0 if all(each.is_flat for each in verdicts) else 1


def load(broker: BrokerProcess, *, rate: float, seconds: float, report: Path) -> subprocess.Popen[bytes]:
    """``minikafka bench soak``, which has begun."""
    options = {
        "target": broker.bootstrap,
        "topic": TOPIC,
        "rate": rate,
        "duration": seconds,
        "warm-up": WARM_UP_S,
        "record-size": RECORD_SIZE,
        "linger-ms": 5,
        "pid": broker.pid,
        "json": report,
    }
    with report.with_suffix(".txt").open("wb") as said:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "minikafka.cli.main", "bench", "soak", "--keep-topics"),
                *(f"--{name}={value}" for name, value in options.items()),
            ],
            cwd=ROOT,
            stdout=said,
        )


@contextlib.contextmanager
def fresh_broker(**changes: int) -> Iterator[tuple[BrokerProcess, Path]]:
    """With the topics, and a directory beside its own."""
    with (
        tempfile.TemporaryDirectory(prefix="minikafka-soak-") as directory,
        running_broker(Path(directory), properties=PROPERTIES | changes) as broker,
    ):
        topics = [NewTopic(TOPIC, PARTITIONS, 1), NewTopic(TRANSACTIONS_TOPIC, 1, 1)]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics(topics).values():
            created.result(DEADLINE_S)
        yield broker, Path(directory)


def maximal_rate() -> float:
    """What the same load reaches without a limit, records a second. Raises CalledProcessError."""
    with fresh_broker(**{"log.retention.bytes": KEPT_AT_MAXIMUM}) as (broker, directory):
        report = directory / "maximum.json"
        running = load(broker, rate=0, seconds=MAXIMUM_S, report=report)
        finish(running, report)
        flow = flow_of(json.loads(report.read_text()), "end-to-end")
    return statistics.median(each["records"] for each in flow["points"] if each["at_s"] >= WARM_UP_S)


def finish(running: subprocess.Popen[bytes], report: Path) -> None:
    """Raises CalledProcessError, after what the load has said."""
    if code := running.wait():
        print(report.with_suffix(".txt").read_text(), file=sys.stderr)
        raise subprocess.CalledProcessError(code, running.args)


def soaked(seconds: float, rate: float) -> tuple[list[dict[str, float]], int]:
    """The samples, and how many visitors there were. Raises CalledProcessError: the load failed."""
    with fresh_broker() as (broker, directory):
        report = directory / "report.json"
        running = load(broker, rate=rate, seconds=seconds, report=report)
        visitors = Visitors(broker.bootstrap)
        try:
            began = time.monotonic()
            samples = []
            while running.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    running.wait(began + (len(samples) + 1) * SAMPLE_EVERY_S - time.monotonic())
                    break
                samples.append(sampled(broker, time.monotonic() - began))
            finish(running, report)
            samples = [
                each for each in samples if each["at_s"] <= WARM_UP_S + seconds
            ]  # it counts afterwards
        finally:
            visitors.stop()
            running.kill()
            running.wait()
        points = flow_of(json.loads(report.read_text()), "produce")["points"]
    for sample in samples:
        sample |= latencies(points, sample["at_s"])
    return samples, visitors.count


def sampled(broker: BrokerProcess, at_s: float) -> dict[str, float]:
    """What the broker has now."""
    sizes = list(sizes_below(broker.data_dir))
    return {
        "at_s": at_s,
        "resident": resident_mb(broker.pid),
        "descriptors": len(os.listdir(f"/proc/{broker.pid}/fd")),
        "files": len(sizes),
        "bytes": sum(sizes),
        "cpu_s": cpu_seconds(broker.pid),
    }


def sizes_below(directory: Path) -> Iterator[int]:
    """Of all files; those that are deleted meanwhile are left out."""
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                yield path.stat().st_size


def flow_of(report: Any, name: str) -> Any:
    """One of those in a report of ``minikafka bench``."""
    (result,) = report if isinstance(report, list) else [report]
    return next(each for each in result["flows"] if each["name"] == name)


def latencies(points: Sequence[Mapping[str, Any]], until_s: float) -> dict[str, float]:
    """Medians of the seconds' percentiles, of the time before ``until_s`` that a sample stands for."""
    found = [each for each in points if until_s - SAMPLE_EVERY_S <= each["at_s"] < until_s]
    columns = {
        name: [each[f"{name}_ms"] for each in found if each[f"{name}_ms"] is not None]
        for name in ("p50", "p99")
    }
    return {name: statistics.median(values) for name, values in columns.items() if values}


class Visitors:
    """Clients that come, do something and leave, in a thread."""

    def __init__(self, bootstrap: str) -> None:
        self._settings = {"bootstrap.servers": bootstrap}
        self._stop = threading.Event()
        self.count = 0
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="visitors", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Raises what went wrong."""
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stop.wait(VISIT_EVERY_S):
                self._transaction()
                self._member()
                self.count += 1
        except BaseException as error:  # noqa: BLE001 raised by stop
            self._failure = error

    def _transaction(self) -> None:
        producer = Producer(self._settings | {"transactional.id": f"visitor-{self.count}"})
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        for number in range(RECORDS_A_TRANSACTION):
            producer.produce(TRANSACTIONS_TOPIC, b"%d" % number)
        if self.count % 5 == 4:
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)

    def _member(self) -> None:
        """Reads what is committed, in a group that is forgotten afterwards."""
        consumer = Consumer(
            self._settings
            | {
                "group.id": f"visitors-{self.count}",
                "group.protocol": ("classic", "consumer")[self.count % 2],
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([TRANSACTIONS_TOPIC])
        read = consumer.consume(RECORDS_A_TRANSACTION, DEADLINE_S)
        if not read or any(each.error() for each in read):
            raise KafkaException(f"visitor {self.count} has read {len(read)} records")
        consumer.close()


WIDTH, HEIGHT, GAP = 800, 110, 40


def picture(samples: Sequence[Mapping[str, float]], verdicts: Sequence[Verdict]) -> str:
    """An SVG: a panel for each series, from zero to a little over its greatest."""
    last_s = max((each["at_s"] for each in samples), default=1.0)
    rows = len(verdicts) * (HEIGHT + GAP) + GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 20} {rows}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH + 20}" height="{rows}" fill="white"/>',
    ]
    for row, verdict in enumerate(verdicts):
        name, top = verdict.series.name, row * (HEIGHT + GAP) + GAP
        points = [(each["at_s"], each[name]) for each in samples if name in each]
        most = max((value for _, value in points), default=1.0) * 1.1 or 1.0
        place = " ".join(
            f"{10 + at / last_s * WIDTH:.1f},{top + HEIGHT - value / most * HEIGHT:.1f}"
            for at, value in points
        )
        middle = 10 + WIDTH / 2
        lines += [
            f'<text x="10" y="{top - 8}">{verdict}</text>',
            f'<rect x="10" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#bbb"/>',
            f'<line x1="{middle}" y1="{top}" x2="{middle}" y2="{top + HEIGHT}" stroke="#ddd"/>',
            f'<polyline points="{place}" fill="none" stroke="#1f77b4"/>',
        ]
    lines.append(
        f'<text x="10" y="{rows - 8}">0 to {last_s / 60:.0f} min; judged: the right half</text></svg>'
    )
    return "\n".join(lines) + "\n"
