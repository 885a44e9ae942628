"""What an analysis must find, worked out by plain Python over lists: slow, simple, and of its own making.

Batches are dicts with the columns of ``kafka-log-batches``; records are tuples of Record.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

Row = dict[str, Any]
Log = tuple[str, int]

BATCHES = (
    "topic string, partition int, log_dir string, segment string, position long, size int, base_offset long, "
    "last_offset long, leader_epoch int, crc long, crc_ok boolean, codec string, records int, "
    "timestamp_type int, base_timestamp long, max_timestamp long, producer_id long, producer_epoch short, "
    "base_sequence int, is_transactional boolean, is_control boolean, control_type string, "
    "delete_horizon long, error string"
)
BATCH_COLUMNS = [column.split()[0] for column in BATCHES.split(", ")]


class Record(NamedTuple):
    """A record, or a damaged piece (``error``)."""

    topic: str
    partition: int
    offset: int | None
    key: bytes | None
    value: bytes | None
    error: str | None = None

    @property
    def value_size(self) -> int | None:
        return None if self.value is None else len(self.value)

    @property
    def size(self) -> int:
        return len(self.key or b"") + len(self.value or b"")


BATCH_SIZE = 16_384
"""The producers' batch.size that is assumed."""


def by_log(rows: Iterable[Row]) -> dict[Log, list[Row]]:
    found: dict[Log, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["topic"], row["partition"]].append(row)
    return {log: sorted(members, key=lambda row: row["base_offset"]) for log, members in found.items()}


def data(batches: Iterable[Row]) -> list[Row]:
    return [row for row in batches if not row["is_control"]]


def first_timestamp(row: Row) -> int | None:
    known = row["timestamp_type"] == 0 and row["delete_horizon"] is None
    value: int = row["base_timestamp"] if known else row["max_timestamp"]
    return value if value >= 0 else None


def nth(values: Iterable[int], share: float) -> int | None:
    """The smallest that at least ``share`` of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def totals(batches: list[Row]) -> Row:
    members = data(batches)
    firsts = [each for row in members if (each := first_timestamp(row)) is not None]
    latest = [row["max_timestamp"] for row in members if row["max_timestamp"] >= 0]
    return {
        "records": sum(row["records"] for row in members),
        "bytes": sum(row["size"] for row in batches),
        "data_bytes": sum(row["size"] for row in members),
        "filled_bytes": sum(min(row["size"], BATCH_SIZE) for row in members),
        "batches": len(members),
        "control_batches": len(batches) - len(members),
        "transactional_batches": sum(row["is_transactional"] for row in members),
        "idempotent_batches": sum(row["producer_id"] >= 0 for row in members),
        "single_record_batches": sum(row["records"] == 1 for row in members),
        "log_append_time_batches": sum(row["timestamp_type"] == 1 for row in members),
        "first_offset": min(row["base_offset"] for row in batches),
        "last_offset": max(row["last_offset"] for row in batches),
        "first_timestamp": min(firsts, default=None),
        "last_timestamp": max(latest, default=None),
        "missing_inside": sum(
            row["last_offset"] - row["base_offset"] + 1 - row["records"] for row in members
        ),
        "records_max": max((row["records"] for row in members), default=None),
        "size_max": max((row["size"] for row in members), default=None),
    }


def gaps(batches: list[Row]) -> list[Row]:
    found, highest = [], None
    for row in batches:
        if highest is not None and row["base_offset"] != highest + 1:
            missing = row["base_offset"] - highest - 1
            found.append({"after_offset": highest, "before_offset": row["base_offset"], "missing": missing})
        highest = row["last_offset"] if highest is None else max(highest, row["last_offset"])
    return found


def gap_totals(batches: list[Row]) -> Row:
    missing = [each["missing"] for each in gaps(batches)]
    return {
        "gaps": sum(each > 0 for each in missing),
        "missing": sum(each for each in missing if each > 0),
        "overlaps": sum(each < 0 for each in missing),
    }


def disorder(batches: list[Row]) -> Row:
    greatest: int | None = None
    late: list[tuple[int, int]] = []
    for row in data(batches):
        first = first_timestamp(row)
        if greatest is not None and first is not None and first < greatest:
            late.append((greatest - first, row["records"]))
        if row["max_timestamp"] >= 0:
            greatest = row["max_timestamp"] if greatest is None else max(greatest, row["max_timestamp"])
    return {
        "late_batches": len(late),
        "late_records": sum(records for _, records in late),
        "late_max_ms": max((late_ms for late_ms, _ in late), default=None),
    }


def duplicates(batches: list[Row]) -> list[Row]:
    groups: dict[tuple[int, int, int], list[Row]] = defaultdict(list)
    for row in data(batches):
        if row["producer_id"] >= 0 and row["base_sequence"] >= 0:
            groups[row["producer_id"], row["producer_epoch"], row["base_sequence"]].append(row)
    return [
        {
            "producer_id": key[0],
            "producer_epoch": key[1],
            "base_sequence": key[2],
            "first_offset": members[0]["base_offset"],
            "last_offset": members[-1]["base_offset"],
            "batches": len(members) - 1,
            "records": sum(row["records"] for row in members[1:]),
        }
        for key, members in groups.items()
        if len(members) > 1
    ]


def transactions(batches: list[Row]) -> list[Row]:
    found: list[Row] = []
    pending: dict[int, list[Row]] = defaultdict(list)

    def end(producer_id: int, marker: Row | None) -> None:
        members = pending.pop(producer_id, [])
        if marker is None:
            state = "open"
        elif not members:
            state = "empty"
        else:
            state = {"COMMIT": "committed", "ABORT": "aborted"}[marker["control_type"]]
        found.append(
            {
                "producer_id": producer_id,
                "producer_epoch": max(
                    row["producer_epoch"] for row in [*members, *([marker] if marker else [])]
                ),
                "first_offset": members[0]["base_offset"] if members else None,
                "last_offset": members[-1]["last_offset"] if members else None,
                "records": sum(row["records"] for row in members),
                "bytes": sum(row["size"] for row in members),
                "marker_offset": marker["base_offset"] if marker else None,
                "state": state,
            }
        )

    for row in batches:
        if row["producer_id"] < 0:
            continue
        if row["is_control"]:
            end(row["producer_id"], row)
        elif row["is_transactional"]:
            pending[row["producer_id"]].append(row)
    for producer_id in list(pending):
        end(producer_id, None)
    return found


def grouped(batches: list[Row], name: str, *, control: bool) -> dict[Any, Row]:
    """By a column: offsets, batches, records and bytes; of data batches alone unless ``control``."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in batches if control else data(batches):
        groups[row[name]].append(row)
    return {
        value: {
            "first_offset": min(row["base_offset"] for row in members),
            "last_offset": max(row["last_offset"] for row in members),
            "batches": len(members),
            "records": sum(row["records"] for row in data(members)),
            "bytes": sum(row["size"] for row in members),
        }
        for value, members in groups.items()
    }


def throughput(batches: list[Row], bucket_ms: int) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for row in data(batches):
        if row["max_timestamp"] >= 0:
            start = row["max_timestamp"] // bucket_ms * bucket_ms
            records, size = found.get(start, (0, 0))
            found[start] = records + row["records"], size + row["size"]
    return found


def keys(records: Sequence[Record]) -> Row:
    """Of one partition's records, in the order of their offsets."""
    groups: dict[bytes, list[Record]] = defaultdict(list)
    for record in records:
        if record.key is not None:
            groups[record.key].append(record)
    counts = Counter({key: len(members) for key, members in groups.items()})
    return {
        "keys": len(groups),
        "keys_once": sum(count == 1 for count in counts.values()),
        "records_max": max(counts.values()),
        "superseded_records": sum(count - 1 for count in counts.values()),
        "superseded_bytes": sum(record.size for members in groups.values() for record in members[:-1]),
        "newest_tombstones": sum(members[-1].value is None for members in groups.values()),
        "newest_tombstone_bytes": sum(
            members[-1].size for members in groups.values() if members[-1].value is None
        ),
    }


def top_keys(records: Sequence[Record], count: int) -> list[tuple[bytes, int, int]]:
    """Key, records, bytes: the most frequent ones, of equals the least; keys with one record are none."""
    counts: Counter[bytes] = Counter(record.key for record in records if record.key is not None)
    sizes: Counter[bytes] = Counter()
    for record in records:
        if record.key is not None:
            sizes[record.key] += record.size
    ordered = sorted(((-number, key) for key, number in counts.items() if number > 1))
    return [(key, -number, sizes[key]) for number, key in ordered[:count]]
