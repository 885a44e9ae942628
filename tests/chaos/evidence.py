"""What the files of a run say about its anomalies, for a reader who no longer has them.

Of each place that an anomaly names: the batches around it in every replica, and what the brokers noted of the
partition. Of each record: all that its producer did about then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from minikafka.flight_recorder import UnreadableEventFile
from minikafka.protocol.records.batch import BatchHeader, iterate_headers
from minikafka.protocol.records.compression import CorruptBatch
from minikafka.testing.history import Kind, Operation, Partition
from tests.chaos.refusals import BrokersOfRun

PLACES_MAX = RECORDS_MAX = 4
AROUND = 4
"""Offsets before and behind a place."""
EARLIER_MS, LATER_MS = 3_000, 1_000
"""Around the sending of a record."""
LINES_MAX = 60
"""Of each place, and of each record."""

_PLACE = re.compile(r"at (?P<offset>\d+) of (?P<topic>[\w.-]+)-(?P<number>\d+)")
_RECORD = re.compile(r"\bproducer-\d+-[\w-]+-\d+\b")


def evidence(texts: Iterable[str], operations: Sequence[Operation], directory: Path) -> Iterator[str]:
    """Lines. ``texts``: of the anomalies."""
    whole = "\n".join(texts)
    places = dict.fromkeys(
        (Partition(found["topic"], int(found["number"])), int(found["offset"]))
        for found in _PLACE.finditer(whole)
    )
    for partition, offset in list(places)[:PLACES_MAX]:
        yield f"around {offset} of {partition}:"
        yield from list(_of_place(partition, offset, directory))[:LINES_MAX]
    values = list(dict.fromkeys(_RECORD.findall(whole)))[:RECORDS_MAX]
    for value in values:
        yield f"about {value}:"
        yield from [f"  {each}" for each in _of_record(value, operations)][:LINES_MAX]
    for producer in dict.fromkeys(value.rpartition("-")[0] for value in values):
        said = directory / f"{producer}.err"
        if said.exists():
            yield f"{producer} said:"
            yield from [f"  {line}" for line in said.read_text(errors="replace").splitlines()[:LINES_MAX]]


def _of_place(partition: Partition, offset: int, directory: Path) -> Iterator[str]:
    for at in sorted(directory.glob(f"broker-*/{partition}")):
        for path in sorted(at.glob("*.log")):
            try:
                headers = [header for _, header in iterate_headers(path.read_bytes())]
            except CorruptBatch as error:
                yield f"  {path.relative_to(directory)}: {error}"
                continue
            for header in headers:
                if offset - AROUND <= header.last_offset and header.base_offset <= offset + AROUND:
                    yield f"  {at.parent.name}: {_described(header)}"
    brokers = BrokersOfRun(directory, of_kafka=())
    for path in sorted(directory.glob("broker-*/")):
        if path.name.removeprefix("broker-").isdecimal():
            try:
                events = list(brokers.events(int(path.name.removeprefix("broker-"))))
            except UnreadableEventFile as error:
                yield f"  {path.name}: {error}"
                continue
            for event in events:
                if (getattr(event, "topic", None), getattr(event, "partition", None)) == partition:
                    yield f"  {path.name} noted: {event.text}"


def _described(header: BatchHeader) -> str:
    kind = "marker" if header.is_control else "transactional" if header.is_transactional else "records"
    return (
        f"{header.base_offset} to {header.last_offset}, {kind}, leader epoch {header.partition_leader_epoch}"
        f", producer {header.producer_id}, epoch {header.producer_epoch}, sequence {header.base_sequence}"
    )


def _of_record(value: str, operations: Sequence[Operation]) -> Iterator[Operation]:
    """What its producer did, in all of its lives, from a little before it was sent on."""
    sent = [
        each
        for each in operations
        if each.kind is Kind.SEND and any(str(record.value) == value for record in each.records)
    ]
    if sent:
        begin_ms = sent[0].invoked_ms - EARLIER_MS
        end_ms = max(each.completed_ms or each.invoked_ms for each in sent) + LATER_MS
        producer = sent[0].process.partition(".")[0]
        for each in operations:
            if each.process.partition(".")[0] == producer and begin_ms <= each.invoked_ms <= end_ms:
                yield each
