"""What the broker itself costs beside Apache Kafka 4.4.0: core-seconds a GB, µs a record and a request.

The client is ``cost_client.c``, librdkafka without Python, built here (gcc and librdkafka-dev must be there).
Both sides are up and take turns; the CPU is that of all broker processes of a side, from before a turn until
it has been answered; the first turns, in which the JVM compiles, do not count. Ratios are medians of
neighbouring turns with the interval that has the true one with 95 %. Asked of each row: at most half of
Kafka's CPU, and at the same rate of records (40 % of what the slower side took) no higher 99th percentile.

``ONLY="1 KB,TLS"`` picks rows.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from minikafka.loadgen import targets
from tests.benchmarks import secured_brokers
from tests.benchmarks.bench_security import Row, ratio_row
from tests.benchmarks.broker import COMMAND, ROOT, user_and_system_seconds

KAFKA = f"kafka:maven:{secured_brokers.KAFKA_VERSION}"
OURS = f"minikafka:{COMMAND[0]}"
ROUNDS, QUICK_ROUNDS = 5, 2
WARM_UP = 3
"""Turns that do not count, for the compiler of the JVM."""
QUICK_SHARE = 4
"""The quick mode has this much fewer records."""
PACED_SHARE, PACED_SECONDS = 0.4, 3
CPU_MAX, P99_MAX = "<= 0.5", "<= 1.0"
ADMIN_S = 120.0
DELETE_DELAY_MS, DELETED_S = 1_000, 4.0
SOURCE = ROOT / "tests" / "benchmarks" / "cost_client.c"


Settings = Mapping[str, str | int | float]


class Workload(NamedTuple):
    """What the client is asked to do, and of how many brokers and which listener."""

    name: str
    records: int
    size: int
    """Of a record's value, bytes."""
    settings: Settings
    """librdkafka's properties."""
    consumers: int = 0
    """0: it produces."""
    per_transaction: int = 0
    partitions: int = 1
    brokers: int = 1
    has_tls: bool = False


LINGER: dict[str, str | int | float] = {"linger.ms": 5, "acks": 1}
ONE_RECORD: Settings = {"linger.ms": 0, "acks": 1, "batch.num.messages": 1, "max.in.flight": 5}
ALL: Settings = {"linger.ms": 5, "acks": -1}
WORKLOADS = (
    Workload("1 KB", 300_000, 1024, LINGER),
    Workload("100 B", 1_500_000, 100, LINGER),
    Workload("1 KB by lz4", 600_000, 1024, LINGER | {"compression.codec": "lz4"}),
    Workload("1 KB by zstd", 900_000, 1024, LINGER | {"compression.codec": "zstd"}),
    Workload("one record a request", 40_000, 100, ONE_RECORD),
    Workload("consume 1 KB", 600_000, 1024, {}, consumers=1),
    Workload("10 consumers of the same", 60_000, 1024, {}, consumers=10),
    Workload("acks=all on three", 150_000, 1024, ALL, brokers=3),
    Workload("idempotent", 300_000, 1024, {"linger.ms": 5, "enable.idempotence": "true"}),
    Workload(
        "transactional", 200_000, 1024, {"linger.ms": 5, "transactional.id": "cost"}, per_transaction=1_000
    ),
    Workload("TLS", 200_000, 1024, LINGER, has_tls=True),
    Workload("1000 partitions", 300_000, 1024, LINGER, partitions=1_000),
)


class Side(NamedTuple):
    bootstrap: str
    pids: Sequence[int]
    settings: Settings
    """That a client needs to connect."""

    def user_and_system_seconds(self) -> tuple[float, float]:
        each = [user_and_system_seconds(pid) for pid in self.pids]
        return sum(user for user, _ in each), sum(system for _, system in each)


class Turn(NamedTuple):
    core_s: float
    system_s: float
    """Of these, in the kernel, which copies between sockets and the page cache."""
    seconds: float
    requests: int
    p99_ms: float
    """0 of a consumer."""


def run(quick: bool) -> list[Row]:
    """Ratios of the cost of each workload, and of its latency where it produces; and what each side took."""
    known = {workload.name: workload for workload in WORKLOADS}
    wanted = [name for name in os.environ.get("ONLY", "").split(",") if name] or list(known)
    if unknown := [name for name in wanted if name not in known]:
        raise SystemExit(f"ONLY={unknown[0]}: there are {', '.join(known)}")
    chosen = [known[name] for name in wanted]
    subprocess.run([*COMMAND, "--version"], check=True, capture_output=True)  # makes its environment
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        client = build(Path(directory))
        for brokers, has_tls in sorted({(each.brokers, each.has_tls) for each in chosen}):
            with both(Path(directory) / f"{brokers}-{has_tls}", brokers, has_tls=has_tls) as sides:
                for side in sides:
                    delete_soon(side)
                for workload in chosen:
                    if (workload.brokers, workload.has_tls) == (brokers, has_tls):
                        rows += compare(client, workload, sides, quick=quick)
    return rows


def build(directory: Path) -> Path:
    """The client, compiled. Raises SystemExit: says what is missing."""
    if shutil.which("gcc") is None or not Path("/usr/include/librdkafka/rdkafka.h").exists():
        raise SystemExit("cost: needs gcc and librdkafka's header (Debian: gcc libc6-dev librdkafka-dev)")
    client = directory / "cost_client"
    command = [
        "gcc",
        "-O2",
        "-o",
        str(client),
        str(SOURCE),
        "-lrdkafka",
        "-lpthread",
    ]
    subprocess.run(command, check=True)
    return client


@contextlib.contextmanager
def both(directory: Path, brokers: int, *, has_tls: bool) -> Iterator[Sequence[Side]]:
    """Ours, and Apache Kafka."""
    directory.mkdir()
    with contextlib.ExitStack() as stack:
        if has_tls:
            secured = [
                stack.enter_context(secured_brokers.running(directory / "ours")),
                stack.enter_context(
                    secured_brokers.running(directory / "kafka", secured_brokers.ApacheKafka)
                ),
            ]
            yield [Side(each.bootstrap("SSL"), [each.pid], each.client_settings()) for each in secured]
            return
        started = [
            stack.enter_context(targets.running(targets.parse_target(text), text, brokers=brokers))[0]
            for text in (OURS, KAFKA)
        ]
        yield [Side(each.bootstrap, each.pids, {}) for each in started]


def compare(client: Path, workload: Workload, sides: Sequence[Side], *, quick: bool) -> Iterator[Row]:
    records = workload.records // (QUICK_SHARE if quick else 1)
    rounds = QUICK_ROUNDS if quick else ROUNDS
    topic = "cost-" + "".join(each if each.isalnum() else "-" for each in workload.name)
    for side in sides:
        create_topic(side, topic, workload)
        if workload.consumers:
            produced = workload._replace(consumers=0, settings=LINGER)
            turn(client, produced, side, topic, records)
    turns = in_turns(client, workload, sides, topic, rounds=rounds, records=records)
    gigabytes = records * workload.size * max(workload.consumers, 1) / 1e9
    ours, theirs = ([each.core_s / gigabytes for each in side] for side in turns)
    yield ratio_row(f"{workload.name}: core-s a GB / Kafka", ours, theirs, CPU_MAX)
    count = records * max(workload.consumers, 1)
    for name, taken in zip(("minikafka", "Apache Kafka"), turns, strict=True):
        yield {
            "workload": workload.name,
            "of": name,
            "MB/s": median(gigabytes * 1e3 / each.seconds for each in taken),
            "us a record": median(each.core_s / count * 1e6 for each in taken),
            "us a request": median(each.core_s / each.requests * 1e6 for each in taken),
            "records a request": median(count / each.requests for each in taken),
            "in the kernel": median(each.system_s / each.core_s for each in taken),
        }
    if not workload.consumers:
        slowest = min(records / statistics.median(each.seconds for each in side) for side in turns)
        rate = max(int(slowest * PACED_SHARE), 1)
        paced = in_turns(
            client, workload, sides, topic, rounds=rounds, records=rate * PACED_SECONDS, rate=rate
        )
        ours, theirs = ([each.p99_ms for each in side] for side in paced)
        yield ratio_row(f"{workload.name}: p99 at {rate:,} records/s, ms / Kafka", ours, theirs, P99_MAX)
    for side in sides:
        admin = admin_of(side)
        admin.delete_topics([topic])[topic].result(ADMIN_S)
    time.sleep(DELETED_S)


def delete_soon(side: Side) -> None:
    """Topics that a workload leaves, and not a minute later, when the next one is measured: to remove 4 GB
    costs a process most of a second."""
    admin = admin_of(side)
    change = ConfigEntry(
        "log.segment.delete.delay.ms",
        str(DELETE_DELAY_MS),
        incremental_operation=AlterConfigOpType.SET,
    )
    for broker in admin.list_topics(timeout=ADMIN_S).brokers:  # librdkafka takes one a call
        resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[change])
        admin.incremental_alter_configs([resource])[resource].result(ADMIN_S)


def median(values: Iterator[float]) -> float:
    return round(statistics.median(values), 2)


def admin_of(side: Side) -> AdminClient:
    return AdminClient({"bootstrap.servers": side.bootstrap, **side.settings})


def create_topic(side: Side, topic: str, workload: Workload) -> None:
    admin = admin_of(side)
    asked = NewTopic(topic, workload.partitions, min(workload.brokers, 3))
    admin.create_topics([asked], operation_timeout=ADMIN_S)[topic].result(ADMIN_S)


def in_turns(
    client: Path,
    workload: Workload,
    sides: Sequence[Side],
    topic: str,
    *,
    rounds: int,
    records: int,
    rate: int = 0,
) -> Sequence[list[Turn]]:
    """Of each side, without those that warm up."""
    turns: tuple[list[Turn], list[Turn]] = ([], [])
    for number in range(-1 if rate else -WARM_UP, rounds):
        for index in (0, 1) if number % 2 else (1, 0):
            done = turn(client, workload, sides[index], topic, records, rate)
            if number >= 0:
                turns[index].append(done)
    return turns


def turn(client: Path, workload: Workload, side: Side, topic: str, records: int, rate: int = 0) -> Turn:
    """Raises RuntimeError: the client failed; says why."""
    what = "consume" if workload.consumers else "produce"
    numbers = (
        workload.partitions, workload.size, records, workload.consumers or rate, workload.per_transaction
    )  # fmt: skip
    settings = [f"{name}={value}" for name, value in {**side.settings, **workload.settings}.items()]
    user_before, system_before = side.user_and_system_seconds()
    done = subprocess.run(
        [str(client), what, side.bootstrap, topic, *map(str, numbers), *settings],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{workload.name} failed at {side.bootstrap}: {done.stderr}")
    said: dict[str, Any] = json.loads(done.stdout)
    user, system = side.user_and_system_seconds()
    return Turn(
        user + system - user_before - system_before,
        system - system_before,
        said["seconds"],
        max(said["requests"], 1),
        said.get("p99_ms", 0.0),
    )
