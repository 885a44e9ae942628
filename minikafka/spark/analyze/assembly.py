"""From the rows of the passes to ``Analysis``: plain arithmetic, no Spark.

``assemble_partition`` and ``assemble_topic`` take what the passes found of one; a partition without a batch
has zeros.

When retention will cut a partition: Kafka's rules, applied to the segments that are there.

Kafka: ``UnifiedLog.deleteOldSegments``. By time the oldest segment goes when its greatest timestamp is more
than retention.ms ago, and the next one after it; by size, as long as what remains is at least
retention.bytes. Nothing at or above the high watermark goes, and only where cleanup.policy has delete.

A log directory does not hold the configuration of its topics, so the values are given, each with its source.
Where a segment has no timestamp Kafka takes the time of the file, which is not known here: what is behind it
is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from minikafka.config.broker import BrokerConfig
from minikafka.config.definition import format_value
from minikafka.config.resolution import topic_config
from minikafka.config.topic import TOPIC_CONFIG_KEYS
from minikafka.protocol.records.compression import CompressionType
from minikafka.spark.analyze.analysis import (
    Approximation,
    BatchFill,
    Bucket,
    CodecTrial,
    CodecUse,
    Damage,
    Duplicate,
    Duplicates,
    Epoch,
    Gap,
    Gaps,
    KeyCount,
    Keys,
    LogId,
    OpenTransaction,
    Partition,
    RecordSizes,
    Retention,
    Setting,
    SizeCount,
    Timestamps,
    Topic,
    TopKey,
    Transactions,
)
from minikafka.spark.analyze.passes import QUANTILES, SHOWN_MAX, HeaderFigures, RecordFigures

SHOWN = ("cleanup.policy", "retention.ms", "retention.bytes")
DEFAULT = "Kafka's default"


class SegmentFigures(NamedTuple):
    """One segment, the oldest first."""

    first_offset: int
    last_offset: int
    records: int
    bytes: int
    max_timestamp: int | None


class TopicSettings(NamedTuple):
    """What retention goes by."""

    deletes: bool
    retention_ms: int
    """Below 0: no limit."""
    retention_bytes: int
    shown: dict[str, Setting]


def topic_settings(
    topic: str, overrides: Mapping[str, Mapping[str, str]], broker: BrokerConfig, *, broker_source: str
) -> TopicSettings:
    """The settings of ``topic``: ``overrides[topic]``, else ``overrides["*"]``, else those of ``broker``,
    whose own are Kafka's defaults.

    Raises:
        ConfigError: an unknown name, or a value that is not allowed.
    """
    own, everywhere = overrides.get(topic, {}), overrides.get("*", {})
    config = topic_config(broker, {**everywhere, **own})
    of_broker = broker.static_properties()
    shown = {}
    for name in SHOWN:
        key = TOPIC_CONFIG_KEYS[name]
        if name in own:
            source = f"given for {topic}"
        elif name in everywhere:
            source = "given for all topics"
        elif any(synonym.name in of_broker for synonym in key.synonyms):
            source = broker_source
        else:
            source = DEFAULT
        shown[name] = Setting(value=format_value(key, getattr(config, key.attribute)) or "", source=source)
    policy = shown["cleanup.policy"].value.split(",")
    return TopicSettings("delete" in policy, config.retention_ms, config.retention_bytes, shown)


def forecast(
    segments: Sequence[SegmentFigures], settings: TopicSettings, *, high_watermark: int | None, now_ms: int
) -> Retention:
    """What retention does to ``segments``; ``high_watermark`` None: not known, all of it is committed."""
    removable = [
        segment
        for segment in segments
        if settings.deletes and (high_watermark is None or segment.last_offset < high_watermark)
    ]
    cuts = _cuts_by_time(removable, settings.retention_ms)
    due = sum(1 for cut_ms in cuts if cut_ms <= now_ms)
    total = sum(segment.bytes for segment in segments)
    bytes_left = None
    if settings.deletes and settings.retention_bytes >= 0:
        remaining = total - sum(segment.bytes for segment in removable[:due])
        while due < len(removable) and remaining - settings.retention_bytes >= removable[due].bytes:
            remaining -= removable[due].bytes
            due += 1
        if due < len(segments):
            bytes_left = max(0, settings.retention_bytes + segments[due].bytes - remaining)
    return Retention(
        settings=settings.shown,
        applies=settings.deletes,
        due_segments=due,
        due_records=sum(segment.records for segment in removable[:due]),
        due_bytes=sum(segment.bytes for segment in removable[:due]),
        next_ms=cuts[due] if due < len(cuts) else None,
        last_ms=cuts[-1] if cuts and len(cuts) == len(segments) else None,
        bytes_left=bytes_left,
    )


def _cuts_by_time(segments: Sequence[SegmentFigures], retention_ms: int) -> list[int]:
    """When time removes each of the segments, up to the first of which that is not known."""
    cuts: list[int] = []
    if retention_ms < 0:
        return cuts
    for segment in segments:
        if segment.max_timestamp is None:
            break
        cut_ms = segment.max_timestamp + retention_ms + 1
        cuts.append(max(cut_ms, cuts[-1]) if cuts else cut_ms)
    return cuts


KEY_CHARACTERS_MAX = 120
"""Of a key in the report."""

_PLACE = re.compile(r".*/(?P<segment>\d{20}\.log), position (?P<position>\d+): ")
"""How an error of the sources begins."""

APPROXIMATIONS = (
    Approximation(
        figure="record sizes: quantiles, least, greatest",
        how="counted in buckets that grow by 2^(1/32)",
        error="1.1 %; none below 45 bytes",
    ),
    Approximation(
        figure="keys of a topic with several partitions",
        how="HyperLogLog over the exact keys of its partitions",
        error="1 % (standard deviation)",
    ),
    Approximation(
        figure="batch fill: medians and 99th percentiles",
        how="percentile_approx",
        error="the rank, by 1 in 10,000",
    ),
    Approximation(
        figure="compression ratio, what another codec saves",
        how="a sample of batches of each partition, compressed again",
        error="that of the sample; none where it has all batches",
    ),
    Approximation(
        figure="bytes that compaction saves",
        how="the superseded share of keys and values, of the stored bytes",
        error="as far as superseded records compress differently; aborted records count as records",
    ),
    Approximation(
        figure="timestamps: first and late ones, throughput",
        how="from batch headers: the first record's and the latest timestamp of each batch",
        error="what is out of order inside a batch does not show",
    ),
)


@dataclass(frozen=True)
class PartitionSource:
    """Where a partition was read, and what else is known of it."""

    log: LogId
    log_dir: str
    broker: int | None
    segments: int
    high_watermark: int | None
    settings: TopicSettings


@dataclass(frozen=True)
class Figures:
    """All that the passes found."""

    headers: HeaderFigures
    records: RecordFigures
    trials: Mapping[LogId, Any]
    damage_counts: Mapping[LogId, int]
    """By headers and CRCs."""
    batch_size: int
    now_ms: int


def assemble_partition(source: PartitionSource, figures: Figures) -> Partition:
    """One partition."""
    headers, log = figures.headers, source.log
    totals = headers.totals.get(log)
    damage = _damage(source, figures)
    segments = [
        SegmentFigures(row.first_offset, row.last_offset, row.records, row.bytes, row.max_timestamp)
        for row in headers.segments.get(log, [])
    ]
    return Partition(
        topic=log.topic,
        partition=log.partition,
        log_dir=source.log_dir,
        broker=source.broker,
        records=totals.records if totals else 0,
        bytes=totals.bytes if totals else 0,
        batches=totals.batches if totals else 0,
        control_batches=totals.control_batches if totals else 0,
        segments=source.segments,
        first_offset=totals.first_offset if totals else None,
        log_end_offset=totals.last_offset + 1 if totals else None,
        high_watermark=source.high_watermark,
        fill=_fill(totals, figures.batch_size) if totals and totals.batches else None,
        codecs=[
            CodecUse(codec=row.codec, batches=row.batches, records=row.records, bytes=row.bytes)
            for row in headers.codecs.get(log, [])
        ],
        trial=_trial(figures.trials.get(log), totals.data_bytes if totals else 0),
        sizes=_sizes(figures.records.sizes.get(log)),
        keys=_keys(log, figures.records, totals.data_bytes if totals else 0),
        gaps=_gaps(log, headers),
        timestamps=_timestamps(totals, headers.order.get(log)),
        epochs=[
            Epoch(
                epoch=row.leader_epoch,
                first_offset=row.first_offset,
                last_offset=row.last_offset,
                batches=row.batches,
                records=row.records,
            )
            for row in headers.epochs.get(log, [])
        ],
        duplicates=_duplicates(log, headers),
        transactions=_transactions(log, headers),
        throughput=_buckets(headers.throughput.get(log, [])),
        damage=damage[:SHOWN_MAX],
        damage_left_out=max(0, _damage_count(log, figures, len(damage)) - SHOWN_MAX),
        retention=forecast(
            segments, source.settings, high_watermark=source.high_watermark, now_ms=figures.now_ms
        ),
    )


def assemble_topic(name: str, partitions: Sequence[Partition], figures: Figures) -> Topic:
    """A topic of its partitions."""
    keys = [each.keys for each in partitions if each.keys is not None]
    throughput: dict[int, Bucket] = {}
    for partition in partitions:
        for bucket in partition.throughput:
            so_far = throughput.get(bucket.start_ms, Bucket(start_ms=bucket.start_ms, records=0, bytes=0))
            throughput[bucket.start_ms] = Bucket(
                start_ms=bucket.start_ms,
                records=so_far.records + bucket.records,
                bytes=so_far.bytes + bucket.bytes,
            )
    estimate = figures.records.topic_keys.get(name, 0)
    return Topic(
        name=name,
        records=sum(each.records for each in partitions),
        bytes=sum(each.bytes for each in partitions),
        batches=sum(each.batches for each in partitions),
        tombstones=sum(each.tombstones for each in keys),
        null_key_records=sum(each.null_key_records for each in keys),
        keys=sum(each.keys for each in keys) if len(keys) <= 1 else estimate,
        superseded_records=sum(each.superseded_records for each in keys),
        compaction_saves_bytes=sum(each.compaction_saves_bytes for each in keys),
        bucket_ms=figures.headers.bucket_ms.get(name, 0),
        throughput=[throughput[start] for start in sorted(throughput)],
        size_histogram=[
            SizeCount(size_min=row.size_min, records=row.records, bytes=row.bytes)
            for row in figures.records.size_histogram.get(name, [])
        ],
        key_histogram=[
            KeyCount(records_min=row.records_min, keys=row.keys, records=row.records)
            for row in figures.records.key_histogram.get(name, [])
        ],
        partitions=list(partitions),
    )


def shown_key(key: bytes) -> str:
    """A key for people: its text, else its bytes in hexadecimal; cut where it is long."""
    try:
        text = key.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if not text.isprintable() or (key and not text):
        text = f"0x{key.hex()}"
    return text if len(text) <= KEY_CHARACTERS_MAX else f"{text[:KEY_CHARACTERS_MAX]}…"


def _fill(totals: Any, batch_size: int) -> BatchFill:
    batches = totals.batches
    return BatchFill(
        records_mean=totals.records / batches,
        records_p50=totals.records_quantiles[0],
        records_p99=totals.records_quantiles[1],
        records_max=totals.records_max,
        bytes_mean=totals.data_bytes / batches,
        bytes_p50=totals.size_quantiles[0],
        bytes_p99=totals.size_quantiles[1],
        bytes_max=totals.size_max,
        single_record_batches=totals.single_record_batches,
        fill=totals.filled_bytes / batches / batch_size,
        batch_size=batch_size,
    )


def _trial(row: Any, data_bytes: int) -> CodecTrial | None:
    if row is None:
        return None
    sizes = {codec.name.lower(): row[f"{codec.name.lower()}_bytes"] for codec in CompressionType}
    stored = row.stored_bytes
    return CodecTrial(
        batches=row.batches,
        failed=row.failed,
        stored_bytes=stored,
        plain_bytes=sizes["none"],
        ratio=sizes["none"] / stored if stored else 1.0,
        bytes_by_codec=sizes,
        saved_by_codec={
            name: round(data_bytes * (1 - size / stored)) if stored else 0 for name, size in sizes.items()
        },
    )


def _sizes(row: Any) -> RecordSizes | None:
    if row is None or not row.records:
        return None
    return RecordSizes(
        records=row.records,
        bytes=row.bytes,
        mean=row.bytes / row.records,
        min=row.size_min,
        max=row.size_max,
        quantiles={f"p{100 * each:g}": size for each, size in zip(QUANTILES, row.quantiles, strict=True)},
    )


def _keys(log: LogId, records: RecordFigures, data_bytes: int) -> Keys | None:
    sizes = records.sizes.get(log)
    if sizes is None or not sizes.records:
        return None
    row = records.keys.get(log)
    null_key_records = records.null_key_records.get(log, 0)
    top = [
        TopKey(
            key=shown_key(bytes(each.key)),
            partition=log.partition,
            records=each.records,
            bytes=each.bytes,
            share=each.records / sizes.records,
        )
        for each in records.top_keys.get(log, [])
    ]
    with_key = sizes.records - null_key_records
    superseded_bytes = row.superseded_bytes if row else 0
    return Keys(
        keys=row.keys if row else 0,
        null_key_records=null_key_records,
        tombstones=sizes.tombstones,
        keys_once=row.keys_once if row else 0,
        records_max=row.records_max if row else 0,
        top_share=sum(each.records for each in top) / with_key if with_key else 0.0,
        superseded_records=row.superseded_records if row else 0,
        superseded_bytes=superseded_bytes,
        compaction_saves_bytes=round(data_bytes * superseded_bytes / sizes.bytes) if sizes.bytes else 0,
        newest_tombstones=row.newest_tombstones if row else 0,
        top=top,
    )


def _gaps(log: LogId, headers: HeaderFigures) -> Gaps:
    row, totals = headers.order.get(log), headers.totals.get(log)
    return Gaps(
        gaps=row.gaps if row else 0,
        missing=row.missing if row else 0,
        missing_inside=totals.missing_inside if totals else 0,
        overlaps=row.overlaps if row else 0,
        first=[
            Gap(after_offset=each.after_offset, before_offset=each.before_offset, missing=each.missing)
            for each in headers.gaps.get(log, [])
        ],
    )


def _timestamps(totals: Any, order: Any) -> Timestamps:
    return Timestamps(
        first_ms=totals.first_timestamp if totals else None,
        last_ms=totals.last_timestamp if totals else None,
        log_append_time_batches=totals.log_append_time_batches if totals else 0,
        late_batches=order.late_batches if order else 0,
        late_records=order.late_records if order else 0,
        late_max_ms=(order.late_max_ms or 0) if order else 0,
    )


def _duplicates(log: LogId, headers: HeaderFigures) -> Duplicates:
    row = headers.duplicate_totals.get(log)
    names = Duplicate.__struct_fields__
    return Duplicates(
        batches=row.batches if row else 0,
        records=row.records if row else 0,
        first=[Duplicate(**{name: each[name] for name in names}) for each in headers.duplicates.get(log, [])],
    )


def _transactions(log: LogId, headers: HeaderFigures) -> Transactions:
    row = headers.transaction_totals.get(log)
    names = [name for name in Transactions.__struct_fields__ if name != "first_open"]
    return Transactions(
        **{name: row[name] if row else 0 for name in names},
        first_open=[
            OpenTransaction(**{name: each[name] for name in OpenTransaction.__struct_fields__})
            for each in headers.open_transactions.get(log, [])
        ],
    )


def _buckets(rows: Sequence[Any]) -> list[Bucket]:
    return [Bucket(start_ms=row.start_ms, records=row.records, bytes=row.bytes) for row in rows]


def _damage_count(log: LogId, figures: Figures, shown: int) -> int:
    return max(shown, figures.damage_counts.get(log, 0))


def _damage(source: PartitionSource, figures: Figures) -> list[Damage]:
    """What headers and CRCs show, then what only decoding does."""
    found = [
        Damage(
            log_dir=row.log_dir,
            segment=row.segment,
            position=row.position,
            offset=row.base_offset,
            what=_without_place(row.error),
        )
        for row in figures.headers.damaged.get(source.log, [])
    ]
    seen = {(each.segment, each.position) for each in found}
    for row in figures.records.undecodable.get(source.log, []):
        place = _PLACE.match(row.error)
        segment, position = (place["segment"], int(place["position"])) if place else ("", None)
        if (segment, position) not in seen:
            found.append(
                Damage(
                    log_dir=source.log_dir,
                    segment=segment,
                    position=position,
                    offset=None,
                    what=_without_place(row.error),
                )
            )
    return found


def _without_place(error: str) -> str:
    return _PLACE.sub("", error, count=1)
