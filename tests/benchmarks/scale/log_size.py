"""A log of many gigabytes: starts, cold reads beside producers, retention and deletion.

All of it is written, nothing is sparse: recovery, reads and removals meet real bytes. How much, is what the
disk has room for (half of what is free, 20 GB at most); ``GB`` names other sizes ("20,200").
A record's value repeats itself, so that a file system that compresses has room for more than its disk (btrfs
with ``compress-force=zstd:1`` in a large sparse file, named by ``TMPDIR``). Before the cold read the page
cache lets go of the log, as far as the kernel does what it is told; what has to be written for that is
written before producers begin.

Producers ask at a fixed rate; the longest latency among theirs is what anything held them up. On a machine
with other work their quiet turn has long ones, too, so both are shown. In turns with the cold read by a
consumer of the broker, a process that is no broker reads the same files as cold and sends them (``other
reader``): what producers feel then is the machine's share. Of ``COLD_TURNS`` of each the one with the middle
p99 is told.
"""

from __future__ import annotations

import functools
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from minikafka.protocol.records.records import Record, build_batch
from tests.benchmarks.scale.brokers import (
    KAFKA,
    OURS,
    Row,
    Watch,
    descriptors,
    growth,
    limit_row,
    running_side,
    sides,
    until,
)
from tests.benchmarks.scale.crowd import crowd
from tests.benchmarks.scale.file_sender import PIECE_BYTES
from tests.benchmarks.scale.partitions import ADMIN_S, admin, start, stop
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess
from tests.integration.support.wire import FETCH, PRODUCE, RawClient, batch, fetch_body, produce_body, request

GB = 1_000_000_000
SIZES_GB, QUICK_SIZES_GB = (1.0, 5.0, 20.0), (0.3, 0.6)
DISK_SHARE = 2
"""A log takes at most one in so many bytes of the free disk."""
BIG, SMALL = "big", "small"
PARTITIONS = 4
BATCH_RECORDS, RECORD_BYTES = 60, 16_000
REPEATED_BYTES = 1_000
"""Random, again and again up to a record's."""
IN_FLIGHT = 4
CONNECTIONS, RATE = 20, 25.0
"""Producers of one record of 1 KB, and how often each asks in a second."""
SECONDS, QUICK_SECONDS = 15.0, 4.0
COLD_TURNS = 3
COLD_READ_SHARE = 0.9
"""Of a turn's seconds, so long a cold read may take."""
FETCH_BYTES = PIECE_BYTES
P99_MAX, STALL_MS_MAX = 2.0, 50.0
GROWTH_MAX = 1.25
FILE_SENDER = Path(__file__).with_name("file_sender.py")
PROPERTIES = {
    "log.segment.bytes": 256 << 20,  # so that twenty gigabytes are some eighty segments
    "log.retention.check.interval.ms": 1_000,
    "log.segment.delete.delay.ms": 0,
    "log.initial.task.delay.ms": 1_000,
}


def run(*, quick: bool) -> list[Row]:
    rows: list[Row] = []
    sizes = sizes_gb(quick=quick)
    for side in sides():
        curve = [measured(side, size, quick=quick) for size in sizes]
        rows += curve
        if side == OURS:
            rows += growth(curve, "GB", {"clean start, CPU s": 0.5}, most=GROWTH_MAX)
            last = curve[-1]
            ratio = last["cold read: p99 ms"] / last["quiet: p99 ms"]
            rows.append(limit_row("producers' p99 beside a cold read / quiet", ratio, "", P99_MAX))
            for what in ("retention", "deletion"):
                longest = last[f"{what}: max ms"]
                rows.append(limit_row(f"longest produce during {what}", longest, "ms", STALL_MS_MAX))
    return rows


def sizes_gb(*, quick: bool) -> list[float]:
    """Raises SystemExit: a size that was asked for has no room."""
    room_gb = shutil.disk_usage(tempfile.gettempdir()).free / GB / DISK_SHARE
    asked = [float(each) for each in os.environ.get("GB", "").split(",") if each]
    if asked and max(asked) > room_gb:
        raise SystemExit(f"GB={max(asked):g}: {tempfile.gettempdir()} has room for {room_gb:.0f}")
    return asked or [size for size in (QUICK_SIZES_GB if quick else SIZES_GB) if size <= room_gb]


def measured(side: str, gigabytes: float, *, quick: bool) -> Row:
    properties = {name: value for name, value in PROPERTIES.items() if side != KAFKA or "task" not in name}
    seconds = QUICK_SECONDS if quick else SECONDS
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
        running_side(side, Path(directory), properties) as broker,
    ):
        confluent.make_topic(broker.bootstrap, BIG, partitions=PARTITIONS)
        confluent.make_topic(broker.bootstrap, SMALL)
        row: Row = {"part": "log size", "of": side, "GB": gigabytes}
        row |= filled(broker, gigabytes)
        stop(broker, Watch([broker.pid]))
        row["clean start, s"], row["clean start, CPU s"] = map(rounded, start(broker))
        row["descriptors"] = descriptors(broker.pid)
        fill(broker, gigabytes / 20)  # which is not flushed
        broker.kill()
        row["unclean start, s"], row["unclean start, CPU s"] = map(rounded, start(broker))
        produced(broker, seconds=2)  # warms up
        row |= named("quiet", produced(broker, seconds=seconds))
        row |= cold_reads(broker, seconds=seconds)
        row |= named("retention", beside(broker, shortened, seconds=seconds))
        row |= named("deletion", beside(broker, deleted, seconds=seconds))
        print(row, flush=True)
        return row


def rounded(value: float) -> float:
    return round(value, 2)


def filled(broker: BrokerProcess, gigabytes: float) -> Row:
    watch = Watch([broker.pid])
    fill(broker, gigabytes)
    spent = watch.spent()
    return {"filling, s": rounded(spent.seconds), "filling, CPU s a GB": rounded(spent.cpu_s / gigabytes)}


def fill(broker: BrokerProcess, gigabytes: float) -> None:
    """The same batch again and again, to one partition after the other."""
    value = os.urandom(REPEATED_BYTES) * (RECORD_BYTES // REPEATED_BYTES)
    records = build_batch(
        Record(offset, int(time.time() * 1000), None, value) for offset in range(BATCH_RECORDS)
    )
    frames = [
        request(PRODUCE, 3, produce_body(BIG, index, bytes(records), acks=1)) for index in range(PARTITIONS)
    ]
    count = int(gigabytes * GB / len(records))
    with RawClient(broker.port) as client:
        for number in range(count):
            client.send(frames[number % PARTITIONS])
            if number >= IN_FLIGHT:
                client.receive()
        for _ in range(min(count, IN_FLIGHT)):
            client.receive()


def produced(broker: BrokerProcess, *, seconds: float) -> dict[str, Any]:
    """What producers of small records see."""
    frame = request(PRODUCE, 3, produce_body(SMALL, 0, batch([b"x" * 1000]), acks=1))
    return crowd("stay", broker.port, [frame], connections=CONNECTIONS, rate=RATE, seconds=seconds)


def beside(broker: BrokerProcess, work: Callable[[BrokerProcess], Row], *, seconds: float) -> dict[str, Any]:
    """The same while ``work`` is done. Raises what ``work`` raises."""

    def later() -> Row:
        time.sleep(0.5)
        return work(broker)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(later)
        said = produced(broker, seconds=seconds)
        return said | done.result()


def named(what: str, said: dict[str, Any]) -> Row:
    names = {
        "p50_ms": "p50 ms",
        "p99_ms": "p99 ms",
        "max_ms": "max ms",
        "lost": "lost",
        "took": "s",
        "MB/s": "MB/s",
    }
    return {f"{what}: {names[key]}": value for key, value in said.items() if key in names}


def cold_reads(broker: BrokerProcess, *, seconds: float) -> Row:
    """What producers see beside a cold read by a consumer, and beside one by another process."""
    seen: dict[str, list[dict[str, Any]]] = {"cold read": [], "other reader": []}
    works = {"cold read": cold_read, "other reader": read_by_another}
    for _ in range(COLD_TURNS):
        for name, work in works.items():
            drop_from_page_cache(broker)
            done = functools.partial(work, seconds=seconds * COLD_READ_SHARE)
            seen[name].append(beside(broker, done, seconds=seconds))
    row: Row = {}
    for name, turns in seen.items():
        turns.sort(key=lambda turn: turn["p99_ms"])
        row |= named(name, turns[COLD_TURNS // 2])
        row[f"{name}: p99 ms, least"], row[f"{name}: p99 ms, most"] = turns[0]["p99_ms"], turns[-1]["p99_ms"]
    return row


def cold_read(broker: BrokerProcess, *, seconds: float) -> Row:
    """All partitions from the start, as fast as it goes, by one consumer. They are not in the page cache."""
    began, size = time.perf_counter(), 0
    with socket.create_connection(("127.0.0.1", broker.port)) as peer:
        for partition in range(PARTITIONS):
            offset, end = 0, confluent_end(broker, partition)
            while offset < end:
                body = fetch_body(
                    BIG, partition, offset, max_bytes=FETCH_BYTES, partition_max_bytes=FETCH_BYTES
                )
                peer.sendall(request(FETCH, 4, body))
                answer = receive(peer)
                assert len(answer) > 1_000, f"nothing at {offset} of {end}"
                size += len(answer)
                offset += len(answer) // (BATCH_RECORDS * RECORD_BYTES) * BATCH_RECORDS or BATCH_RECORDS
                if time.perf_counter() - began > seconds:
                    break
    return speed(size, began)


def read_by_another(broker: BrokerProcess, *, seconds: float) -> Row:
    """The same files, in the same pieces, from a process that is no broker."""
    paths = [str(path) for path in sorted(broker.data_dir.glob(f"{BIG}-*/*.log"))]
    command = [sys.executable, str(FILE_SENDER), *paths]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sender:
        try:
            assert sender.stdout is not None
            port = int(sender.stdout.readline())
            began, size = time.perf_counter(), 0
            with socket.create_connection(("127.0.0.1", port)) as peer:
                for path in paths:
                    left = os.path.getsize(path)
                    while left and time.perf_counter() - began <= seconds:
                        piece = len(peer.recv(min(left, PIECE_BYTES), socket.MSG_WAITALL))
                        assert piece, f"{path} ended {left} bytes early"
                        peer.sendall(b"+")
                        size, left = size + piece, left - piece
            return speed(size, began)
        finally:
            sender.kill()


def speed(size: int, began: float) -> Row:
    took = time.perf_counter() - began
    return {"took": rounded(took), "MB/s": round(size / took / 1e6)}


def receive(peer: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", peer.recv(4, socket.MSG_WAITALL))
    return peer.recv(size, socket.MSG_WAITALL)


def confluent_end(broker: BrokerProcess, partition: int) -> int:
    client = confluent.make_consumer(broker.bootstrap)
    try:
        return int(client.get_watermark_offsets(confluent.TopicPartition(BIG, partition), timeout=30)[1])
    finally:
        client.close()


def drop_from_page_cache(broker: BrokerProcess) -> None:
    for path in broker.data_dir.glob(f"{BIG}-*/*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def stored(broker: BrokerProcess) -> int:
    """Bytes of the big topic on the disk."""
    sizes = 0
    for path in broker.data_dir.glob(f"{BIG}-*/*.log"):
        try:
            sizes += path.stat().st_size
        except FileNotFoundError:
            continue
    return sizes


def shortened(broker: BrokerProcess) -> Row:
    """Retention by size goes down to half of what is there; until the files are gone."""
    began, before = time.perf_counter(), stored(broker)
    most = before // 2 // PARTITIONS
    wanted = ConfigEntry("retention.bytes", str(most), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, BIG, incremental_configs=[wanted])
    client = admin(broker)  # its futures need it alive
    for done in client.incremental_alter_configs([resource]).values():
        done.result(ADMIN_S)
    kept = most * PARTITIONS + PARTITIONS * int(PROPERTIES["log.segment.bytes"])
    until(lambda: stored(broker) <= kept, "old segments are gone")
    return {"took": rounded(time.perf_counter() - began)}


def deleted(broker: BrokerProcess) -> Row:
    client, began = admin(broker), time.perf_counter()
    client.delete_topics([BIG], operation_timeout=ADMIN_S)[BIG].result(ADMIN_S)
    until(lambda: not any(broker.data_dir.glob(f"{BIG}-*")), "the directories are gone")
    return {"took": rounded(time.perf_counter() - began)}
