"""One workload: what is sent, read or opened, how fast and for how long. Every subcommand fills one of these.

| kind | clients | what is timed |
|---|---|---|
| PRODUCE | producers | due (or handed over, without a rate) → acknowledged |
| STREAM | producers and consumers | that, and due → consumed |
| CONSUME | consumers, of records that are produced before | nothing: records a second |
| CONNECTIONS | clients that ask for metadata | opening → first answer; due → answer |
| GROUPS | members of consumer groups that commit | subscribing → assignment; commits |

Consumers of STREAM and CONSUME are assigned their partitions, so that no rebalance is measured as a stall.

When records are due says a schedule: an open loop's timetable, which the target cannot slow down. It is a
list of stretches of constant rate, so a fixed rate is one stretch and a recording of real traffic is many.
Several producers share a schedule by taking every n-th record of it.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

import msgspec

from minikafka.errors import UNDECODABLE, ConfigError

PRODUCERS_MAX = 10_000
CLIENTS_MAX = 100_000
PARTITIONS_MAX = 100_000
DURATION_S = 10.0
"""Of a run that says neither how long nor how many."""
TOPIC_NAME_MAX = 200
"""Of a workload's name in that of its topics, for which Kafka has 249 characters."""

_NO_TOPIC_CHARACTER = re.compile(r"[^a-zA-Z0-9._-]")


class Kind(Enum):
    """See the module header."""

    PRODUCE = "produce"
    STREAM = "stream"
    CONSUME = "consume"
    CONNECTIONS = "connections"
    GROUPS = "groups"


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a run. ``rate`` 0: as fast as the target takes it."""

    name: str
    kind: Kind
    topic: str | None = None
    """Its name; with several topics the start of their names. None: made up for the run."""
    topics: int = 1
    partitions: int = 1
    replication_factor: int = 1
    topic_config: dict[str, str] = {}
    keeps_topics: bool = False

    producers: int = 1
    subscriptions: int = 1
    """How many times every record is consumed."""
    consumers: int = 1
    """Of each subscription; members of each group; connections."""
    groups: int = 1
    processes: int = 0
    """Of each kind of worker; 0: as many as there are cores, and not more than clients."""

    record_size: str = "1024"
    keys: str = "none"
    compressibility: str = "0"
    payload: bytes | None = None
    seed: int = 1

    rate: float = 0.0
    recording: list[Stretch] = []
    """A recorded rate, instead of ``rate`` and ``duration_s``."""
    duration_s: float = 0.0
    records: int = 0
    """How many; 0: as many as the duration takes."""
    warmup_s: float = 0.0
    """Sent and counted, but not measured; before ``duration_s``."""
    backlog_bytes: int = 0
    """Produced before the consumers start."""

    in_flight_max: int = 50_000
    """Records that a producer without a rate has under way: half of librdkafka's default queue."""
    producer_config: dict[str, str] = {}
    consumer_config: dict[str, str] = {}
    give_up_s: float = 5.0
    """How long no broker may be reachable before the run ends."""
    drain_s: float = 60.0
    """How long consumers may need for the rest, after the last record was produced."""

    def schedule(self) -> list[Stretch]:
        """When records (or requests) are due; empty when nothing is but the target's own speed."""
        if self.recording:
            return self.recording
        if not self.rate:
            return []
        if self.records:
            return [Stretch(self.records / self.rate, self.records)]
        return steady(self.rate, self.warmup_s + self.duration_s)

    def topic_names(self, run_id: str) -> list[str]:
        """``run_id`` tells this run's topics from those of others."""
        made_up = _NO_TOPIC_CHARACTER.sub("-", self.name)[:TOPIC_NAME_MAX]
        name = self.topic or f"bench-{made_up}-{run_id}"
        return [name] if self.topics == 1 else [f"{name}-{number}" for number in range(self.topics)]


def checked(workload: Workload) -> Workload:
    """The workload with its duration filled in. Raises ConfigError: names the option that cannot be."""
    for name, value, low, high in (
        ("--topics", workload.topics, 1, PARTITIONS_MAX),
        ("--partitions", workload.partitions, 1, PARTITIONS_MAX),
        ("--replication-factor", workload.replication_factor, 1, 1000),
        ("--producers", workload.producers, 1, PRODUCERS_MAX),
        ("--subscriptions", workload.subscriptions, 1, CLIENTS_MAX),
        ("--consumers", workload.consumers, 1, CLIENTS_MAX),
        ("--groups", workload.groups, 1, CLIENTS_MAX),
        ("--processes", workload.processes, 0, 1000),
        ("--rate", workload.rate, 0, 100_000_000),
        ("--duration", workload.duration_s, 0, 10**8),
        ("--records", workload.records, 0, 10**12),
        ("--warm-up", workload.warmup_s, 0, 10**6),
        ("--in-flight", workload.in_flight_max, 1, 10_000_000),
        ("--give-up-after", workload.give_up_s, 0.1, 10**6),
    ):
        if not low <= value <= high:
            raise ConfigError(f"{name} {value:g}: must be from {low:g} to {high:g}")
    if workload.kind is Kind.CONSUME and not workload.records and workload.topic is None:
        raise ConfigError("--records 0: say how many records to produce before, or --topic that has some")
    if workload.duration_s or workload.recording or workload.records:
        return workload
    return msgspec.structs.replace(workload, duration_s=DURATION_S)


class Stretch(msgspec.Struct, frozen=True):
    """``records`` evenly over ``seconds``; of ``record_bytes`` each, where that is known."""

    seconds: float
    records: int
    record_bytes: int | None = None


Schedule = Sequence[Stretch]


def steady(rate: float, seconds: float) -> list[Stretch]:
    """``rate`` records a second."""
    return [Stretch(seconds, round(rate * seconds))]


def record_count(schedule: Schedule) -> int:
    return sum(stretch.records for stretch in schedule)


def duration_s(schedule: Schedule) -> float:
    return sum(stretch.seconds for stretch in schedule)


def due_times(schedule: Schedule, *, first: int, step: int) -> Iterator[tuple[int, int | None]]:
    """Records ``first``, ``first + step``, …: nanoseconds since the start, and the size where it is known."""
    number, before, start_s = first, 0, 0.0
    for stretch in schedule:
        while number < before + stretch.records:
            share = (number - before) / stretch.records
            yield round((start_s + share * stretch.seconds) * 1e9), stretch.record_bytes
            number += step
        before += stretch.records
        start_s += stretch.seconds


def parse_recording(text: str, *, name: str, speed: float = 1.0) -> list[Stretch]:
    """A recorded rate: rows of seconds, records and maybe bytes, as CSV (with or without a heading) or JSON.

    ``seconds`` is how long the row's stretch lasted; JSON is a list of such rows or of objects with these
    keys. ``speed`` 2 replays it in half the time.

    Raises:
        ConfigError: names ``name`` and the row.
    """
    rows = _json_rows(text, name) if text.lstrip().startswith(("[", "{")) else _csv_rows(text)
    stretches = []
    for place, row in rows:
        try:
            seconds, records, *more = (float(cell) for cell in row)
        except (TypeError, ValueError, OverflowError):
            raise ConfigError(f"{name}, {place}: must be seconds,records or seconds,records,bytes") from None
        numbers = (seconds, records, *more)
        if len(numbers) > 3 or not all(map(math.isfinite, numbers)) or seconds <= 0 or min(numbers) < 0:
            raise ConfigError(f"{name}, {place}: seconds must be above 0, records and bytes from 0")
        size = round(more[0] / records) if more and records else None
        stretches.append(Stretch(seconds / speed, round(records), size))
    if not record_count(stretches):
        raise ConfigError(f"{name}: has no records to replay")
    return stretches


def _csv_rows(text: str) -> Iterator[tuple[str, Sequence[Any]]]:
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        is_heading = number == 1 and row and row[0].strip().lower() == "seconds"
        if row and not is_heading and not row[0].startswith("#"):
            yield f"line {number}", row


def _json_rows(text: str, name: str) -> Iterator[tuple[str, Sequence[Any]]]:
    try:
        rows = msgspec.json.decode(text)
    except UNDECODABLE as error:
        raise ConfigError(f"{name}: is no JSON: {error}") from None
    if not isinstance(rows, list):
        raise ConfigError(f"{name}: must be a list of rows")
    for number, row in enumerate(rows, start=1):
        if isinstance(row, dict):
            row = [row.get("seconds"), row.get("records"), *([row["bytes"]] if "bytes" in row else [])]
        yield f"row {number}", row if isinstance(row, list) else []
