"""Partitions on one broker: made, kept, asked about, stopped and started, killed and started, deleted.

Each has one record when its broker stops: an empty log tells little of a start.
"""

from __future__ import annotations

import asyncio
import struct
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from tests.benchmarks.broker import cpu_seconds, resident_mb
from tests.benchmarks.scale.brokers import (
    OURS,
    START_S,
    STOP_S,
    Row,
    Watch,
    descriptors,
    growth,
    limit_row,
    running_side,
    settled_mb,
    sides,
    until,
)
from tests.integration.support.process import BrokerProcess
from tests.integration.support.wire import METADATA, PRODUCE, RawClient, batch, request, string

COUNTS, QUICK_COUNTS = (100, 1_000, 6_000, 20_000), (100, 400)
KAFKA_MAX = 6_000
"""Apache Kafka keeps a file open for each: more of them need a higher limit of descriptors than most
machines allow (here 20,000)."""
A_TOPIC = 1_000
"""Partitions of a topic, at most."""
IDLE_S, QUICK_IDLE_S = 10.0, 2.0
ASKERS = 100
START_S_MAX = 10.0
GROWTH_MAX = 1.25
ADMIN_S = 900.0
SOCKET_TIMEOUT_MS = 300_000
"""The most that librdkafka takes."""
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""A file system in memory, where there is one."""
PROPERTIES = {
    "log.segment.delete.delay.ms": 0,  # what is measured is the work
    "offsets.topic.num.partitions": 1,
}
COLUMNS = {
    "creating, CPU s": 0.3,
    "more MB": 10.0,
    "idle core": 0.02,
    "metadata x 100, CPU s": 0.3,
    "/metrics, CPU s": 0.1,
    "clean stop, CPU s": 0.3,
    "clean start, CPU s": 0.3,
    "unclean start, CPU s": 0.3,
    "deleting, CPU s": 0.3,
}
"""Of which the growth is looked at, and from which value on."""


def run(*, quick: bool) -> list[Row]:
    rows: list[Row] = []
    for side in sides():
        counts = [each for each in (QUICK_COUNTS if quick else COUNTS) if side == OURS or each <= KAFKA_MAX]
        creations = created_in_one(side, counts)
        idle_s = QUICK_IDLE_S if quick else IDLE_S
        curve = [measured(side, count, creations[count], idle_s=idle_s) for count in counts]
        rows += curve
        if side == OURS:
            rows += growth(curve, "partitions", COLUMNS, most=GROWTH_MAX)
            last = curve[-1]
            name = f"clean start of {last['partitions']} partitions"
            rows.append(limit_row(name, last["clean start, s"], "s", START_S_MAX))
    return rows


def created_in_one(side: str, counts: Sequence[int]) -> dict[int, Row]:
    """What so many cost to create, from the first on, in one broker that gets more and more, in memory. A
    disk tells more of its file system: for minutes after thousands of files were deleted, ext4 without a
    journal looks for inodes that were not freed lately (``recently_deleted``), ten times as long as all else
    takes.
    """
    with (
        tempfile.TemporaryDirectory(dir=MEMORY, ignore_cleanup_errors=True) as directory,
        running_side(side, Path(directory), PROPERTIES) as broker,
    ):
        watch = Watch([broker.pid])
        rows, made = {}, 0
        for count in counts:
            create(broker, [(f"scale-{made}-{name}", size) for name, size in topics_of(count - made)], count)
            made = count
            spent = watch.spent()
            rows[count] = {"creating, s": round(spent.seconds, 2), "creating, CPU s": round(spent.cpu_s, 2)}
        return rows


def measured(side: str, count: int, creation: Row, *, idle_s: float) -> Row:
    """One point of the curve."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
        running_side(side, Path(directory), PROPERTIES) as broker,
    ):
        row: Row = {"part": "partitions", "of": side, "partitions": count}
        before_mb = settled_mb(broker.pid)
        watch = Watch([broker.pid])
        create(broker, topics_of(count), count)
        row |= creation | {"creating on the disk, s": round(watch.spent().seconds, 2)}
        row["more MB"] = round(settled_mb(broker.pid) - before_mb, 1)
        row["idle core"] = idle(broker, idle_s)
        row |= metadata(broker) | pages(broker)
        produce_to_each(broker, count)
        row |= stopped_and_started(broker) | killed_and_started(broker)
        row["descriptors"] = descriptors(broker.pid)
        row |= deleted(broker, count)
        print(row, flush=True)
        return row


def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "socket.timeout.ms": SOCKET_TIMEOUT_MS})


def topics_of(count: int) -> Iterator[tuple[str, int]]:
    """Names and partitions."""
    for number, first in enumerate(range(0, count, A_TOPIC)):
        yield f"scale-{number}", min(A_TOPIC, count - first)


def led(broker: BrokerProcess) -> int:
    """Partitions of the benchmark that have a leader, as the broker says."""
    topics = admin(broker).list_topics(timeout=SOCKET_TIMEOUT_MS / 1000).topics
    mine = (topic for name, topic in topics.items() if name.startswith("scale-"))
    return sum(partition.leader >= 0 for topic in mine for partition in topic.partitions.values())


def create(broker: BrokerProcess, topics: Iterable[tuple[str, int]], count: int) -> None:
    """Until all ``count``, with those from before, are led and have a log."""
    client = admin(broker)
    for name, partitions in topics:
        asked = [NewTopic(name, partitions, 1)]
        client.create_topics(asked, request_timeout=SOCKET_TIMEOUT_MS / 1000, operation_timeout=ADMIN_S)[
            name
        ].result(ADMIN_S)
    until(lambda: led(broker) == count, f"{count} partitions are led")
    until(lambda: logs(broker) == count, f"{count} logs are there", pause_s=0.2)


def logs(broker: BrokerProcess) -> int:
    """How many there are: a leader is known before its log is made."""
    return sum(1 for _ in broker.data_dir.glob("scale-*"))


def idle(broker: BrokerProcess, seconds: float) -> float:
    """The part of a core that it uses while nothing happens."""
    time.sleep(2)
    before = cpu_seconds(broker.pid)
    time.sleep(seconds)
    return round((cpu_seconds(broker.pid) - before) / seconds, 4)


def metadata(broker: BrokerProcess) -> Row:
    """A hundred clients ask at the same moment for all that there is."""
    frame = request(METADATA, 1, struct.pack(">i", -1))

    async def ask() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, limit=1 << 22)
        writer.write(frame)
        size = int.from_bytes(await reader.readexactly(4))
        await reader.readexactly(size)
        writer.close()
        return size

    async def all_of_them() -> list[int]:
        return await asyncio.gather(*(ask() for _ in range(ASKERS)))

    before_mb = resident_mb(broker.pid)
    watch = Watch([broker.pid])
    sizes = asyncio.run(all_of_them())
    spent = watch.spent()
    assert len(set(sizes)) == 1, f"answers of {sorted(set(sizes))} bytes"
    return {
        "metadata x 100, s": round(spent.seconds, 2),
        "metadata x 100, CPU s": round(spent.cpu_s, 2),
        "metadata, more MB": round(resident_mb(broker.pid) - before_mb, 1),
    }


def pages(broker: BrokerProcess) -> Row:
    """The second scrape (the first one imports), and the status page's document. Apache Kafka has neither."""
    if broker.is_reference:
        return {}
    found: Row = {}
    for name, path in (("/metrics", "metrics"), ("/status.json", "status.json")):
        url = f"http://127.0.0.1:{broker.properties['http.port']}/{path}"
        read(url)
        watch = Watch([broker.pid])
        size = len(read(url))
        spent = watch.spent()
        found |= {f"{name}, CPU s": round(spent.cpu_s, 2), f"{name}, KB": size // 1000}
    slices = next(
        line for line in read(url.replace("status.json", "metrics")).splitlines() if line.startswith(SLICE)
    )
    return found | {"/metrics, longest ms": round(float(slices.split()[1]) * 1000, 1)}


SLICE = b"minikafka_scrape_slice_seconds_max "


def read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=120) as answer:
        return bytes(answer.read())


def produce_to_each(broker: BrokerProcess, count: int) -> None:
    """One record for each partition, a request a topic."""
    records = batch([b"x" * 100])
    with RawClient(broker.port) as client:
        for name, partitions in topics_of(count):
            body = b"".join((string(None), struct.pack(">hii", -1, 30_000, 1), string(name)))
            body += struct.pack(">i", partitions) + b"".join(
                struct.pack(">ii", index, len(records)) + records for index in range(partitions)
            )
            at = 4 + 2 + len(name) + 4

            def is_stored(body: bytes = body, at: int = at, partitions: int = partitions) -> bool:
                answer = client.call(PRODUCE, 3, body)
                return all(
                    struct.unpack_from(">h", answer, at + index * 22 + 4)[0] == 0
                    for index in range(partitions)
                )

            until(is_stored, f"{name} is led, and takes records", pause_s=1.0)


def stopped_and_started(broker: BrokerProcess) -> Row:
    watch = Watch([broker.pid])
    stop_s, cpu_s = stop(broker, watch)
    seconds, start_cpu_s = start(broker)
    return {
        "clean stop, s": round(stop_s, 2), "clean stop, CPU s": round(cpu_s, 2),
        "clean start, s": round(seconds, 2), "clean start, CPU s": round(start_cpu_s, 2),
    }  # fmt: skip


def stop(broker: BrokerProcess, watch: Watch) -> tuple[float, float]:
    """Seconds, and CPU seconds as they were when it was last seen."""
    process = broker.process
    assert process is not None
    process.terminate()
    spent = watch.spent()
    ends = time.monotonic() + STOP_S
    while process.poll() is None:
        assert time.monotonic() < ends, f"not stopped within {STOP_S:.0f} s"
        try:
            spent = watch.spent()
        except OSError:
            break
        time.sleep(0.01)
    process.wait(STOP_S)
    return spent


def start(broker: BrokerProcess) -> tuple[float, float]:
    """Until it answers as a broker that knows its topics; seconds, and its CPU seconds by then."""
    began = time.perf_counter()
    broker.start(deadline_s=START_S)
    seconds = time.perf_counter() - began
    return seconds, cpu_seconds(broker.pid)


def killed_and_started(broker: BrokerProcess) -> Row:
    """With SIGKILL, after the checkpoints of a quiet broker were written."""
    broker.kill()
    seconds, cpu_s = start(broker)
    return {"unclean start, s": round(seconds, 2), "unclean start, CPU s": round(cpu_s, 2)}


def deleted(broker: BrokerProcess, count: int) -> Row:
    """Until their directories are gone."""
    client = admin(broker)
    names = [name for name, _ in topics_of(count)]
    watch = Watch([broker.pid])
    for done in client.delete_topics(
        names, request_timeout=SOCKET_TIMEOUT_MS / 1000, operation_timeout=ADMIN_S
    ).values():
        done.result(ADMIN_S)
    until(lambda: not any(broker.data_dir.glob("scale-*")), "the directories are gone", pause_s=0.2)
    spent = watch.spent()
    return {"deleting, s": round(spent.seconds, 2), "deleting, CPU s": round(spent.cpu_s, 2)}
