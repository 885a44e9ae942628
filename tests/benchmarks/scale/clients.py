"""Connections that stay, each with ten requests a second, and clients that come and go.

A request is a Produce of one record of 100 bytes, acks=1, to one of 100 partitions; a visitor asks
ApiVersions and Metadata of one topic, as a client does that has nothing to do. How many connections a broker
takes is bound by the descriptors that its process may have (``process.DescriptorBudget``): 12,000 of 20,000.
"""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

from tests.benchmarks.broker import resident_mb
from tests.benchmarks.scale.brokers import (
    OURS,
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
from tests.benchmarks.scale.crowd import crowd
from tests.integration.support import confluent
from tests.integration.support.process import BrokerProcess
from tests.integration.support.wire import (
    API_VERSIONS,
    METADATA,
    PRODUCE,
    batch,
    produce_body,
    request,
    string,
)

TOPIC, PARTITIONS = "crowd", 100
COUNTS, QUICK_COUNTS = (100, 1_000, 10_000), (100, 300)
ASKED_EACH = 10.0
"""Requests a second of a connection."""
RATE_MAX = 10_000.0
"""Requests a second of all, beyond which two cores are too few for both sides: above 1,000 connections each
has fewer."""
SECONDS, QUICK_SECONDS = 15.0, 3.0
COMINGS, COMINGS_S, QUICK_COMINGS_S = 50_000, 60.0, 6.0
LEFT_DESCRIPTORS_MAX = 50
GROWTH_MAX = 1.25
PROPERTIES = {"socket.listen.backlog.size": 1024}


def connections(*, quick: bool) -> list[Row]:
    """Rows of connections that stay."""
    rows: list[Row] = []
    for side in sides():
        curve = [stayed(side, count, quick=quick) for count in (QUICK_COUNTS if quick else COUNTS)]
        rows += curve
        if side == OURS:
            rows += growth(curve, "connections", {"more MB": 5.0}, most=GROWTH_MAX)
            rows += [
                limit_row(f"{row['connections']} connections: requests without an answer", row["lost"], "", 0)
                for row in curve
            ]
    return rows


def stayed(side: str, count: int, *, quick: bool) -> Row:
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
        running_side(side, Path(directory), PROPERTIES) as broker,
    ):
        confluent.make_topic(broker.bootstrap, TOPIC, partitions=PARTITIONS)
        records = batch([b"x" * 100])
        frames = [
            request(PRODUCE, 3, produce_body(TOPIC, index, records, acks=1)) for index in range(PARTITIONS)
        ]
        crowd("stay", broker.port, frames, connections=100, rate=10, seconds=2 if quick else 5)  # warms up
        before_mb, opening = settled_mb(broker.pid), Watch([broker.pid])
        ends_before = ends(broker)
        each = min(ASKED_EACH, RATE_MAX / count)
        seconds = QUICK_SECONDS if quick else SECONDS
        seen: Row = {}
        asking = opening

        def look() -> None:
            nonlocal asking
            seen["opening, CPU s"] = round(opening.spent().cpu_s, 2)
            seen["more MB"] = round(settled_mb(broker.pid) - before_mb, 1)
            seen["descriptors"] = descriptors(broker.pid)
            asking = Watch([broker.pid])

        said = crowd(
            "stay", broker.port, frames, connections=count, rate=each, seconds=seconds, when_open=look
        )
        cpu_s = asking.spent().cpu_s
        stored = ends(broker) - ends_before
        assert stored >= said["answered"], f"{said['answered']} answers, but {stored} records are stored"
        row: Row = {
            "part": "connections",
            "of": side,
            "connections": count,
            "refused": said["failed"],
            "opening, s": said["open_s"],
            **seen,
            "asked a s": round(count * each),
            "answered a s": round(said["answered"] / said["seconds"]),
            "us a request": round(cpu_s / max(said["answered"], 1) * 1e6, 1),
            "p50 ms": said["p50_ms"],
            "p99 ms": said["p99_ms"],
            "lost": said["lost"],
        }
        print(row, flush=True)
        return row


def ends(broker: BrokerProcess) -> int:
    """Records in all partitions."""
    client = confluent.make_consumer(broker.bootstrap)
    try:
        return sum(
            client.get_watermark_offsets(confluent.TopicPartition(TOPIC, index), timeout=30)[1]
            for index in range(PARTITIONS)
        )
    finally:
        client.close()


def comings(*, quick: bool) -> list[Row]:
    """Rows of clients that come and go."""
    rows: list[Row] = []
    for side in sides():
        row = came_and_went(side, QUICK_COMINGS_S if quick else COMINGS_S)
        rows.append(row)
        if side == OURS:
            rows.append(limit_row("visitors without an answer", row["lost"] + row["failed"], "", 0))
            name = "descriptors that are left when they have gone"
            rows.append(limit_row(name, row["descriptors after"] - row["before"], "", LEFT_DESCRIPTORS_MAX))
    return rows


def came_and_went(side: str, seconds: float) -> Row:
    rate = COMINGS / COMINGS_S
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
        running_side(side, Path(directory), PROPERTIES) as broker,
    ):
        confluent.make_topic(broker.bootstrap, TOPIC, partitions=PARTITIONS)
        body = struct.pack(">i", 1) + string(TOPIC)
        frames = [request(API_VERSIONS, 0, b""), request(METADATA, 1, body)]
        crowd("visit", broker.port, frames, connections=1_000, rate=rate, seconds=3)  # warms up
        before, before_mb = descriptors(broker.pid), settled_mb(broker.pid)
        watch = Watch([broker.pid])
        said = crowd("visit", broker.port, frames, connections=5_000, rate=rate, seconds=seconds)
        cpu_s = watch.spent().cpu_s
        until(
            lambda: descriptors(broker.pid) <= before + LEFT_DESCRIPTORS_MAX, "they are gone", deadline_s=30
        )
        row: Row = {
            "part": "comings and goings",
            "of": side,
            "clients": said["opened"],
            "a second": round(said["opened"] / said["seconds"]),
            "failed": said["failed"],
            "lost": said["lost"],
            "us a client": round(cpu_s / max(said["answered"], 1) * 1e6, 1),
            "p50 ms": said["p50_ms"],
            "p99 ms": said["p99_ms"],
            "before": before,
            "descriptors after": descriptors(broker.pid),
            "MB before": round(before_mb, 1),
            "MB after": round(resident_mb(broker.pid), 1),
        }
        print(row, flush=True)
        return row
