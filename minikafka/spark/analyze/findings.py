"""What an analysis shows that should be acted on: rules over its figures, without Spark.

A finding says what was seen, with units, and what to do, with the property's Kafka name. Errors come first,
then warnings, then notices, each in the order of topics. Internal topics (``__consumer_offsets``, …) are
Kafka's own: what their keys and batches look like is no finding, what is wrong with their logs is.

| code | severity | what |
|---|---|---|
| ``damage`` | error | a piece of a segment is no batch, or not the one that was written |
| ``replicas-differ`` | error | brokers have different batches below the high watermark |
| ``overlap`` | error | offsets are there twice |
| ``records-lost`` | error | a group has not read what retention has removed |
| ``records-at-risk`` | warning | retention will remove what a group has not read, within a day |
| ``disk-full`` | error, warning, notice | by its growth of late the file system will be full |
| ``duplicates`` | warning | batches of one producer, epoch and sequence are there twice |
| ``open-transaction`` | warning | a transaction has no marker: the last stable offset stands before it |
| ``future-timestamps`` | warning | retention by time waits for them |
| ``past-retention`` | notice | segments go as soon as a broker looks |
| ``hot-partition``, ``idle-partition`` | notice | records are spread unevenly |
| ``hot-key`` | notice | one key has much of a partition |
| ``late-records`` | notice | timestamps are out of order |
| ``compression`` | notice | another codec would take less, by a sample that was compressed again |
| ``small-batches`` | notice | producers send few records at once |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Final, NamedTuple

from minikafka.spark.analyze.analysis import Analysis, Directory, Finding, Partition, Topic
from minikafka.units import format_bytes, format_duration

ERROR, WARNING, NOTICE = "error", "warning", "notice"
_ORDER: Final = {ERROR: 0, WARNING: 1, NOTICE: 2}

SAVED_SHARE_MIN: Final = 0.15
SAVED_BYTES_MIN: Final = 1_000_000
"""What another codec must save of a topic."""

SMALL_BATCHES_MIN: Final = 100
SMALL_RECORDS_MEAN: Final = 5.0
SMALL_FILL: Final = 0.1
"""Batches are small when they have fewer records on average, and fill less of batch.size."""
BATCH_OVERHEAD_BYTES: Final = 61
"""The header of a batch (``DefaultRecordBatch.RECORD_BATCH_OVERHEAD``)."""

RECORDS_MIN: Final = 1_000
"""Below, how records are spread over keys and partitions is chance."""
HOT_KEY_SHARE: Final = 0.2
HOT_PARTITION: Final = 2.0
"""Times the mean of its topic's partitions."""
LATE_SHARE: Final = 0.01
LATE_MS: Final = 60_000
FUTURE_MS: Final = 3_600_000
"""Kafka's message.timestamp.after.max.ms."""

DAY_MS: Final = 86_400_000
GROWTH_DAYS: Final = 7
"""Growth is what was written in the last so many days of the log."""
GROWTH_SPAN_MIN_MS: Final = 3_600_000
"""A log that spans less says nothing of days."""
FORECAST_DAYS: Final = 365
SOON_DAYS, NEAR_DAYS = 7, 30
"""A disk that is full by then is an error, a warning."""


def find(analysis: Analysis) -> list[Finding]:
    """All findings, the gravest first."""
    rules: Sequence[Callable[[Topic, int], Iterable[Finding]]] = (
        _damage, _overlaps, _duplicates, _open_transactions, _future, _retention, _late
    )  # fmt: skip
    of_users: Sequence[Callable[[Topic, int], Iterable[Finding]]] = (
        _spread, _hot_keys, _compression, _small_batches
    )  # fmt: skip
    found: list[Finding] = [*_replicas(analysis), *_groups(analysis), *_disks(analysis)]
    for topic in analysis.topics:
        applied = rules if is_internal(topic.name) else (*rules, *of_users)
        found += chain.from_iterable(rule(topic, analysis.created_ms) for rule in applied)
    return sorted(found, key=lambda each: _ORDER[each.severity])


def is_internal(topic: str) -> bool:
    return topic.startswith("__")


def where(finding: Finding) -> str:
    """The partition, the topic or the directory."""
    if finding.topic is None:
        return finding.log_dir or ""
    return finding.topic if finding.partition is None else f"{finding.topic}-{finding.partition}"


def _finding(
    severity: str,
    code: str,
    of: Topic | Partition | Directory,
    seen: str,
    advice: str,
    *,
    setting: str | None = None,
) -> Finding:
    topic, log_dir, partition = None, None, None
    if isinstance(of, Partition):
        topic, log_dir, partition = of.topic, of.log_dir, of.partition
    elif isinstance(of, Topic):
        topic = of.name
    else:
        log_dir = of.path
    return Finding(
        severity=severity,
        code=code,
        log_dir=log_dir,
        topic=topic,
        partition=partition,
        seen=seen,
        advice=advice,
        setting=setting,
    )


# What is wrong with a log


def _damage(topic: Topic, now_ms: int) -> Iterator[Finding]:
    for each in topic.partitions:
        if not each.damage:
            continue
        first, others = each.damage[0], len(each.damage) - 1 + each.damage_left_out
        file = f"{first.log_dir}/{each.topic}-{each.partition}/{first.segment}"
        place = f"{file} at {first.position}: " if first.segment else ""
        yield _finding(
            ERROR,
            "damage",
            each,
            f"damaged: {place}{first.what}" + (f" (and {others:,} more)" if others else ""),
            "Keep a copy of the directory. Where another replica is whole, let its broker lead, stop this "
            "one and move the partition's directory away: it is fetched again.",
        )


def _overlaps(topic: Topic, now_ms: int) -> Iterator[Finding]:
    for each in topic.partitions:
        if each.gaps.overlaps:
            what = counted(each.gaps.overlaps, "batch", "batches")
            yield _finding(
                ERROR,
                "overlap",
                each,
                f"{what} with offsets that were there before",
                "No broker writes such a log: files of two logs are mixed. Have it fetched again from "
                "another replica.",
            )


def _replicas(analysis: Analysis) -> Iterator[Finding]:
    of_topic = {topic.name: topic for topic in analysis.topics}
    for each in analysis.replicas or []:
        if each.first is None:
            continue
        (partition,) = (one for one in of_topic[each.topic].partitions if one.partition == each.partition)
        crcs = [
            f"broker {batch.broker}: {batch.file} position {batch.position}: CRC {batch.stored_crc:08x}, of "
            f"the bytes {batch.actual_crc:08x}"
            for batch in each.first.batches
            if batch.stored_crc is not None and batch.actual_crc is not None
        ]
        yield _finding(
            ERROR,
            "replicas-differ",
            partition,
            f"{counted(each.differences, 'batch differs', 'batches differ')}, the first at offset "
            f"{each.first.offset:,}: {each.first.what}" + "".join(f"\n  {crc}" for crc in crcs),
            "A replica whose CRCs are those of its bytes is whole: let its broker lead, and have the other "
            "fetched again (stop its broker, move the partition's directory away).",
        )


def _duplicates(topic: Topic, now_ms: int) -> Iterator[Finding]:
    for each in topic.partitions:
        if each.duplicates.batches:
            first = each.duplicates.first[0] if each.duplicates.first else None
            which = (
                f"; the first of producer {first.producer_id} at offset {first.first_offset:,}"
                if first
                else ""
            )
            yield _finding(
                WARNING,
                "duplicates",
                each,
                f"{counted(each.duplicates.batches, 'repeated batch', 'repeated batches')} of idempotent "
                f"producers ({counted(each.duplicates.records, 'record')}){which}",
                "Consumers see these records twice. A broker refuses such batches while it remembers the "
                "producer: look whether it is forgotten too early, or the leader's log was restored.",
                setting="producer.id.expiration.ms",
            )


def _open_transactions(topic: Topic, now_ms: int) -> Iterator[Finding]:
    for each in topic.partitions:
        if not each.transactions.open:
            continue
        first = each.transactions.first_open[0] if each.transactions.first_open else None
        which = f": producer {first.producer_id} from offset {first.first_offset:,} on" if first else ""
        what = counted(each.transactions.open, "open transaction")
        yield _finding(
            WARNING,
            "open-transaction",
            each,
            f"{what} ({counted(each.transactions.open_records, 'record')}){which}",
            "Consumers that read committed records stop before it. It is no fault where the producer still "
            "works; else see `minikafka transactions find-hanging` and abort it.",
            setting="transaction.max.timeout.ms",
        )


def _future(topic: Topic, now_ms: int) -> Iterator[Finding]:
    for each in topic.partitions:
        last_ms = each.timestamps.last_ms
        if last_ms is None or last_ms <= now_ms + FUTURE_MS:
            continue
        yield _finding(
            WARNING,
            "future-timestamps",
            each,
            f"the newest timestamp is {shown_time(last_ms)}, {format_duration(last_ms - now_ms)} ahead",
            "Retention by time keeps such a segment until then. Producers may have given microseconds or "
            "have a wrong clock; a broker refuses them by this property, or writes its own time "
            "(message.timestamp.type=LogAppendTime).",
            setting="message.timestamp.after.max.ms",
        )


# Retention, and the disk


def _retention(topic: Topic, now_ms: int) -> Iterator[Finding]:
    due = [each.retention for each in topic.partitions]
    segments, size = sum(each.due_segments for each in due), sum(each.due_bytes for each in due)
    if segments:
        records = sum(each.due_records for each in due)
        yield _finding(
            NOTICE,
            "past-retention",
            topic,
            f"{counted(segments, 'segment')} past retention: {counted(records, 'record')}, "
            f"{format_bytes(size)}",
            "A broker removes them within log.retention.check.interval.ms (5 minutes by default). What is "
            "still needed must be kept before one starts on this directory.",
            setting="retention.ms",
        )


def _groups(analysis: Analysis) -> Iterator[Finding]:
    """Kafka forgets the offsets of a group without members after a week, so that these still count."""
    partitions = {
        (each.topic, each.partition): each for topic in analysis.topics for each in topic.partitions
    }
    for commit in sorted(analysis.committed, key=lambda each: (each.topic, each.partition, each.group_id)):
        partition = partitions.get((commit.topic, commit.partition))
        if partition is None or partition.first_offset is None or not partition.retention.applies:
            continue
        retention, now_ms = partition.retention, analysis.created_ms
        position = (
            f"the group {commit.group_id} goes on at offset {commit.offset:,} (committed "
            f"{format_duration(now_ms - commit.committed_ms)} ago)"
        )
        if commit.offset < partition.first_offset:
            yield _finding(
                ERROR,
                "records-lost",
                partition,
                f"{position}, and the log begins at {partition.first_offset:,}: "
                f"{counted(partition.first_offset - commit.offset, 'offset')} removed before it read them",
                "It goes on as its auto.offset.reset says: `latest` leaves out all that is there. Give the "
                "topic more retention, or the group more consumers.",
                setting="retention.ms",
            )
            continue
        until, when = retention.due_offset, "as soon as a broker looks"
        if (until is None or commit.offset >= until) and retention.next_ms is not None:
            if retention.next_ms > now_ms + DAY_MS:
                continue
            until, when = retention.next_offset, f"at {shown_time(retention.next_ms)}"
        if until is None or commit.offset >= until:
            continue
        yield _finding(
            WARNING,
            "records-at-risk",
            partition,
            f"{position}, and {when} retention removes what is before {until:,}: "
            f"{counted(until - commit.offset, 'offset')} that it has not read",
            "Give the topic more retention until the group has caught up; `minikafka why group` says what "
            "holds it up.",
            setting="retention.ms",
        )


class _Growth(NamedTuple):
    """How a partition grows."""

    partition: Partition
    bytes_per_ms: float
    most: float
    """Bytes that retention lets it have; infinity: there is no limit."""

    def in_(self, ms: float) -> float:
        """Bytes more after ``ms``."""
        return max(0.0, min(self.bytes_per_ms * ms, self.most - self.partition.bytes))


def _disks(analysis: Analysis) -> Iterator[Finding]:
    growths: dict[str, list[_Growth]] = {}
    for topic in analysis.topics:
        for each in topic.partitions:
            rate = growth_rate(each, topic.bucket_ms)
            if rate:
                growths.setdefault(each.log_dir, []).append(_Growth(each, rate, _limit(each, rate)))
    for directory in analysis.directories:
        if directory.disk_free_bytes is not None and directory.path in growths:
            yield from _disk(directory, growths[directory.path], directory.disk_free_bytes)


def growth_rate(partition: Partition, bucket_ms: int) -> float:
    """Bytes a millisecond, of the last days of its log; 0.0: there is none, or too little to say.

    What retention and compaction have taken is not there any more, so a log may have grown faster."""
    if not partition.throughput or not bucket_ms:
        return 0.0
    end_ms = partition.throughput[-1].start_ms + bucket_ms
    since_ms = max(end_ms - GROWTH_DAYS * DAY_MS, partition.throughput[0].start_ms)
    if end_ms - since_ms < GROWTH_SPAN_MIN_MS:
        return 0.0
    written = sum(each.bytes for each in partition.throughput if each.start_ms >= since_ms)
    return written / (end_ms - since_ms)


def _limit(partition: Partition, bytes_per_ms: float) -> float:
    """A compacted log is taken to grow on: how many keys come is not known."""
    if not partition.retention.applies:
        return float("inf")
    limits = [float("inf")]
    settings = partition.retention.settings
    for name, factor in (("retention.ms", bytes_per_ms), ("retention.bytes", 1.0)):
        value = int(settings[name].value) if name in settings and settings[name].value else -1
        if value >= 0:
            limits.append(value * factor)
    return min(limits)


def _disk(directory: Directory, growths: Sequence[_Growth], free: int) -> Iterator[Finding]:
    def is_full(days: int) -> bool:
        return sum(each.in_(days * DAY_MS) for each in growths) > free

    if not is_full(FORECAST_DAYS):
        return
    least, most = 0, FORECAST_DAYS  # not full, full
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if is_full(middle) else (middle, most)
    by_topic: dict[str, float] = {}
    for each in growths:
        a_day = each.in_(most * DAY_MS) / most
        by_topic[each.partition.topic] = by_topic.get(each.partition.topic, 0.0) + a_day
    fastest = max(by_topic, key=lambda name: by_topic[name])
    severity = ERROR if most <= SOON_DAYS else WARNING if most <= NEAR_DAYS else NOTICE
    yield _finding(
        severity,
        "disk-full",
        directory,
        f"{format_bytes(free)} are free and the logs grow by {format_bytes(sum(by_topic.values()))} a day, "
        f"as in their last {GROWTH_DAYS} days: full within {counted(most, 'day')}",
        f"{fastest} grows fastest ({format_bytes(by_topic[fastest])} a day): give it less retention, or move "
        "partitions to another broker or log directory.",
        setting="retention.bytes",
    )


# How records are spread


def _spread(topic: Topic, now_ms: int) -> Iterator[Finding]:
    count = len(topic.partitions)
    if count < 2 or topic.records < RECORDS_MIN:
        return
    mean = topic.records / count
    for each in topic.partitions:
        if each.records < HOT_PARTITION * mean or count == 2:  # of two it has all, and the other is idle
            continue
        yield _finding(
            NOTICE,
            "hot-partition",
            each,
            f"{counted(each.records, 'record')}, {each.records / mean:.1f} times the mean of the topic's "
            f"{count:,} partitions ({format_bytes(each.bytes)} of {format_bytes(topic.bytes)})",
            "Its leader and its consumer have more to do than others. Look at its top keys; producers may "
            "also name the partition, or have a partitioner of their own.",
            setting="partitioner.class",
        )
    idle = [each for each in topic.partitions if each.log_end_offset is None]
    if idle and mean >= 10:
        names = ", ".join(str(each.partition) for each in idle[:10]) + (", …" if len(idle) > 10 else "")
        yield _finding(
            NOTICE,
            "idle-partition",
            topic,
            f"{counted(len(idle), 'partition')} of {count:,} without a record: {names}",
            "Consumers of these have nothing to do: there are fewer keys than partitions, or producers name "
            "partitions.",
            setting="partitioner.class",
        )


def _hot_keys(topic: Topic, now_ms: int) -> Iterator[Finding]:
    for each in topic.partitions:
        if each.keys is None or not each.keys.top or each.records < RECORDS_MIN:
            continue
        top = each.keys.top[0]
        if top.share < HOT_KEY_SHARE or each.keys.keys < 2:
            continue
        yield _finding(
            NOTICE,
            "hot-key",
            each,
            f"the key {top.key} has {top.share:.0%} of the records ({top.records:,} of {each.records:,}, "
            f"{format_bytes(top.bytes)} uncompressed)",
            "All records of a key are in one partition, for one consumer of a group. Make keys finer, or "
            "give this one several.",
        )


def _late(topic: Topic, now_ms: int) -> Iterator[Finding]:
    late = [each.timestamps for each in topic.partitions if each.timestamps.late_max_ms >= LATE_MS]
    records = sum(each.late_records for each in late)
    if not late or records < LATE_SHARE * topic.records:
        return
    most = max(each.late_max_ms for each in late)
    yield _finding(
        NOTICE,
        "late-records",
        topic,
        f"{counted(records, 'record')} of {topic.records:,} in batches that are older than one before, by "
        f"up to {format_duration(most)}",
        "A segment goes by its newest timestamp, and a search by time finds the first that is late enough: "
        "both are coarser by that much. LogAppendTime has the broker's time instead.",
        setting="message.timestamp.type",
    )


# What costs too much


def _compression(topic: Topic, now_ms: int) -> Iterator[Finding]:
    trials = [each.trial for each in topic.partitions if each.trial is not None and each.trial.batches]
    if not trials:
        return
    saved = {name: sum(each.saved_by_codec[name] for each in trials) for name in trials[0].saved_by_codec}
    best = max(saved, key=lambda name: saved[name])
    if saved[best] < max(SAVED_BYTES_MIN, SAVED_SHARE_MIN * topic.bytes):
        return
    by_codec: dict[str, int] = {}
    for partition in topic.partitions:
        for use in partition.codecs:
            by_codec[use.codec] = by_codec.get(use.codec, 0) + use.bytes
    used = ", ".join(sorted(by_codec, key=lambda name: -by_codec[name]))
    batches, stored = sum(each.batches for each in trials), sum(each.stored_bytes for each in trials)
    yield _finding(
        NOTICE,
        "compression",
        topic,
        f"{best} would save {format_bytes(saved[best])} of {format_bytes(topic.bytes)} "
        f"({saved[best] / topic.bytes:.0%}); in use: {used}. By {counted(batches, 'batch', 'batches')} "
        f"({format_bytes(stored)}) that were compressed again",
        f"compression.type={best} at the producers; as the topic's property the broker compresses, with its "
        "own CPU.",
        setting="compression.type",
    )


def _small_batches(topic: Topic, now_ms: int) -> Iterator[Finding]:
    filled = [(each.batches, each.fill) for each in topic.partitions if each.fill is not None]
    batches = sum(count for count, _ in filled)
    if batches < SMALL_BATCHES_MIN:
        return
    records = sum(count * each.records_mean for count, each in filled) / batches
    full = sum(count * each.fill for count, each in filled) / batches
    if records >= SMALL_RECORDS_MEAN or full >= SMALL_FILL:
        return
    batch_size = filled[0][1].batch_size
    single = sum(each.single_record_batches for _, each in filled)
    yield _finding(
        NOTICE,
        "small-batches",
        topic,
        f"{records:.1f} records a batch ({single / batches:.0%} of batches have one), {full:.1%} of a "
        f"batch.size of {batch_size:,} bytes; headers of batches are "
        f"{format_bytes(batches * BATCH_OVERHEAD_BYTES)} of {format_bytes(topic.bytes)}",
        "Requests cost broker and client more than records do. Let producers wait a little (5 to 100 ms), "
        "and do not flush after each record.",
        setting="linger.ms",
    )


def counted(number: int, one: str, several: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def shown_time(timestamp_ms: int) -> str:
    """UTC, to the second; Python's calendar ends with the year 9999."""
    try:
        return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
