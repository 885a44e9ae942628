"""Where a group's offsets are to go: what ``minikafka groups reset-offsets`` shows before it does anything.

Kafka: ``ConsumerGroupCommand.prepareOffsetsToReset``. A new offset always lies within the log: what would lie
outside is moved to its nearer end, and the plan says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, assert_never

import msgspec

from minikafka.cli.groups.requests import EARLIEST, LATEST, GroupAdmin, ListedOffset
from minikafka.cli.shared.commands import CommandError, explain
from minikafka.errors import KafkaError
from minikafka.types import TopicPartition

Kind = Literal["earliest", "latest", "current", "time", "shift", "offset"]

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.ASCII | re.IGNORECASE,
)


class Target(msgspec.Struct, frozen=True):
    """What was asked for; ``value`` is a timestamp in ms, a number of records, or an offset."""

    kind: Kind
    value: int = 0


class Reset(msgspec.Struct, frozen=True):
    """One partition's change. ``current`` is None when nothing is committed."""

    group: str
    topic: str
    partition: int
    current: int | None
    new: int
    note: str = ""
    """Why it is not what was asked for."""


class LogRange(msgspec.Struct, frozen=True):
    """The offsets of a partition's first record and of the next one that is written."""

    start: int
    end: int


def new_offset(
    target: Target, log: LogRange, *, committed: int | None, at_time: int | None
) -> tuple[int, str]:
    """The offset to commit, and why it is not what was asked for. ``at_time``: of the first record at or
    after the target's time; None when there is none.

    Raises:
        CommandError: nothing is committed that could be shifted.
    """
    match target.kind:
        case "earliest":
            wanted = log.start
        case "latest":
            wanted = log.end
        case "current":
            wanted = log.end if committed is None else committed
        case "time":
            wanted = log.end if at_time is None else at_time
        case "offset":
            wanted = target.value
        case "shift":
            if committed is None:
                raise CommandError("nothing is committed that could be shifted")
            wanted = committed + target.value
        case _:
            assert_never(target.kind)
    if wanted < log.start:
        return log.start, f"{wanted} is before the log's start"
    if wanted > log.end:
        return log.end, f"{wanted} is behind the log's end"
    return wanted, ""


async def plan_resets(
    admin: GroupAdmin, group: str, partitions: Sequence[TopicPartition], target: Target
) -> list[Reset]:
    """The changes for ``partitions``.

    Raises:
        CommandError: a partition's offsets cannot be known, or cannot be what was asked for.
    """
    committed = await admin.committed(group)
    starts = await _listed(admin, partitions, EARLIEST)
    ends = await _listed(admin, partitions, LATEST)
    times = await _listed(admin, partitions, target.value) if target.kind == "time" else {}
    resets = []
    for each in partitions:
        at_time = times.get(each, -1)
        log = LogRange(starts[each], ends[each])
        try:
            new, note = new_offset(
                target, log, committed=committed.get(each), at_time=None if at_time < 0 else at_time
            )
        except CommandError as error:
            raise CommandError(f"{group}: {each}: {error}") from None
        resets.append(Reset(group, each.topic, each.partition, committed.get(each), new, note))
    return resets


async def _listed(
    admin: GroupAdmin, partitions: Sequence[TopicPartition], timestamp_ms: int
) -> dict[TopicPartition, int]:
    offsets = {}
    for partition, listed in (await admin.list_offsets(partitions, timestamp_ms)).items():
        if isinstance(listed, KafkaError):
            raise CommandError(f"{partition}: {explain(listed)}")
        assert isinstance(listed, ListedOffset)
        offsets[partition] = listed.offset
    return offsets


def parse_datetime(text: str) -> int:
    """``2026-02-03T04:05:06.789`` as ms since 1970; UTC unless it says otherwise. Raises ValueError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text}: must be a time like 2026-02-03T04:05:06.789 or …+01:00") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_duration(text: str) -> int:
    """``P1DT2H30M`` as ms. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError(f"{text}: must be a duration like P1D, PT2H30M or PT45S")
    parts = {name: float(number) for name, number in match.groupdict().items() if number}
    return round(timedelta(**parts).total_seconds() * 1000)


def parse_topic(text: str) -> tuple[str, list[int] | None]:
    """``orders`` (all partitions) or ``orders:0,1``. Raises ValueError."""
    topic, separator, partitions = text.partition(":")
    try:
        wanted = [int(each) for each in partitions.split(",")] if separator else None
    except ValueError:
        wanted = [-1]
    if not topic or (wanted is not None and min(wanted) < 0):
        raise ValueError(f"--topic {text}: must be TOPIC or TOPIC:0,1,2")
    return topic, wanted
