"""When records are due: an open loop's timetable, which the target cannot slow down.

A schedule is a list of stretches of constant rate, so a fixed rate is one stretch and a recording of real
traffic is many. Several producers share a schedule by taking every n-th record of it.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from minikafka.errors import UNDECODABLE, ConfigError


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
