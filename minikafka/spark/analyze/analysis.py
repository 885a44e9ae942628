"""What an analysis found, as plain values: the report's JSON is this, and its HTML is drawn from it.

Offsets are Kafka's, sizes bytes, timestamps and durations milliseconds; null is "not known" or "there is
none". Names follow Kafka's; what is approximate is listed in ``Analysis.approximations``.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

FORMAT = "minikafka-analysis/1"


class Directory(msgspec.Struct, frozen=True, kw_only=True):
    """A log directory that was read."""

    path: str
    broker: int | None
    cluster_id: str | None
    partitions: int
    disk_free_bytes: int | None = None
    """Of the file system that it is on, when it was read; null: an object store."""


class CodecUse(msgspec.Struct, frozen=True, kw_only=True):
    """Batches of one codec."""

    codec: str
    batches: int
    records: int
    bytes: int


class BatchFill(msgspec.Struct, frozen=True, kw_only=True):
    """How full producers made their batches."""

    records_mean: float
    records_p50: int
    records_p99: int
    records_max: int
    bytes_mean: float
    bytes_p50: int
    bytes_p99: int
    bytes_max: int
    single_record_batches: int
    fill: float
    """How full the batches are on average, as a share of ``batch_size``, 1.0 at most: a batch that is larger
    counts as full."""
    batch_size: int
    """The producers' batch.size that was assumed."""


class CodecTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A sample of batches in every codec."""

    batches: int
    failed: int
    """Batches that could not be decompressed."""
    stored_bytes: int
    plain_bytes: int
    """Uncompressed."""
    ratio: float
    """plain_bytes / stored_bytes: what the codec in use makes of it."""
    bytes_by_codec: dict[str, int]
    saved_by_codec: dict[str, int]
    """What the whole partition would save, by the sample; negative: it would grow."""


class RecordSizes(msgspec.Struct, frozen=True, kw_only=True):
    """Of keys and values together, uncompressed."""

    records: int
    bytes: int
    mean: float
    min: int
    max: int
    quantiles: dict[str, int]


class TopKey(msgspec.Struct, frozen=True, kw_only=True):
    """One of the keys with the most records."""

    key: str
    """As UTF-8, else in hexadecimal behind ``0x``."""
    partition: int
    records: int
    bytes: int
    share: float
    """Of the partition's records."""


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of a partition, and what a compaction of all its records would do."""

    keys: int
    null_key_records: int
    tombstones: int
    keys_once: int
    """Keys with one record."""
    records_max: int
    """Of one key."""
    top_share: float
    """Of the records that have keys: those of the top keys."""
    superseded_records: int
    """Records whose key has a newer one."""
    superseded_bytes: int
    """Of their keys and values, uncompressed."""
    compaction_saves_bytes: int
    """On disk: the superseded share of the stored bytes."""
    newest_tombstones: int
    """Keys whose newest record is a tombstone; these go after delete.retention.ms."""
    top: list[TopKey]


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets between two batches that no batch has; negative: an overlap."""

    after_offset: int
    before_offset: int
    missing: int


class Gaps(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets that are not there."""

    gaps: int
    missing: int
    missing_inside: int
    """Inside batches, where a compaction took records out."""
    overlaps: int
    first: list[Gap]


class Timestamps(msgspec.Struct, frozen=True, kw_only=True):
    """Of a partition's records."""

    first_ms: int | None
    last_ms: int | None
    log_append_time_batches: int
    late_batches: int
    """Their first record is older than one of an earlier batch."""
    late_records: int
    """In those batches."""
    late_max_ms: int


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """What was written under one leader."""

    epoch: int
    first_offset: int
    last_offset: int
    batches: int
    records: int


class Duplicate(msgspec.Struct, frozen=True, kw_only=True):
    """Batches with the same producer, epoch and sequence."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    first_offset: int
    last_offset: int
    batches: int
    records: int


class Duplicates(msgspec.Struct, frozen=True, kw_only=True):
    """Idempotent batches that are there more than once; counted without the first."""

    batches: int
    records: int
    first: list[Duplicate]


class OpenTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction without a marker."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    records: int


class Transactions(msgspec.Struct, frozen=True, kw_only=True):
    """Of a partition."""

    committed: int
    aborted: int
    open: int
    empty: int
    """Markers without a batch of records."""
    committed_records: int
    aborted_records: int
    open_records: int
    aborted_bytes: int
    first_open: list[OpenTransaction]


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a segment that is no batch, or not the one that was written."""

    log_dir: str
    segment: str
    position: int | None
    offset: int | None
    what: str


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A property that retention goes by, and where its value is from."""

    value: str
    source: str


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """When Kafka's retention removes segments, the oldest first."""

    settings: dict[str, Setting]
    applies: bool
    """Whether cleanup.policy has delete."""
    due_segments: int
    """Those that are to go now, by time or by size."""
    due_records: int
    due_bytes: int
    next_ms: int | None
    """When time takes the next segment that is not due."""
    last_ms: int | None
    """When time has taken all that is there now."""
    due_offset: int | None = None
    """The first that is left when what is due has gone."""
    next_offset: int | None = None
    """The first that is left when the next segment has gone, too."""
    bytes_left: int | None = None
    """How much may be appended before size takes the next segment; null without retention.bytes."""


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """What was written in ``Topic.bucket_ms`` from ``start_ms`` on; those without anything are left out."""

    start_ms: int
    records: int
    bytes: int


class SizeCount(msgspec.Struct, frozen=True, kw_only=True):
    """Records of ``size_min`` to below twice that."""

    size_min: int
    records: int
    bytes: int


class KeyCount(msgspec.Struct, frozen=True, kw_only=True):
    """Keys with ``records_min`` to below twice as many records."""

    records_min: int
    keys: int
    records: int


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """One partition, as one log directory has it."""

    topic: str
    partition: int
    log_dir: str
    broker: int | None
    records: int
    bytes: int
    batches: int
    control_batches: int
    segments: int
    first_offset: int | None
    log_end_offset: int | None
    high_watermark: int | None
    """By the checkpoint, which is seconds behind a running broker."""
    fill: BatchFill | None
    codecs: list[CodecUse]
    trial: CodecTrial | None
    sizes: RecordSizes | None
    keys: Keys | None
    gaps: Gaps
    timestamps: Timestamps
    epochs: list[Epoch]
    duplicates: Duplicates
    transactions: Transactions
    throughput: list[Bucket]
    damage: list[Damage]
    damage_left_out: int
    """How many more there are."""
    retention: Retention


class ProducerUse(msgspec.Struct, frozen=True, kw_only=True):
    """What one producer wrote of a topic. A log has no names of clients: a producer's id is all it knows."""

    producer_id: int | None
    """Null: all those that are not idempotent."""
    producer_epoch: int
    partitions: int
    batches: int
    records: int
    bytes: int
    codecs: list[str]
    is_transactional: bool
    first_ms: int | None
    last_ms: int | None


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic over all its partitions."""

    name: str
    records: int
    bytes: int
    batches: int
    tombstones: int
    null_key_records: int
    keys: int | None
    """Exact where one partition has records, else an estimate; null: records were not read."""
    superseded_records: int
    compaction_saves_bytes: int
    bucket_ms: int
    throughput: list[Bucket]
    size_histogram: list[SizeCount]
    key_histogram: list[KeyCount]
    partitions: list[Partition]
    producers: list[ProducerUse] = []
    """Those with the most bytes; none where no producer has an id."""
    producers_left_out: int = 0


class ReplicaBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What one broker has at a difference."""

    broker: int
    file: str | None
    """Null: there is no batch with this base offset."""
    position: int | None
    last_offset: int | None
    leader_epoch: int | None
    size: int | None
    stored_crc: int | None
    """As the header says."""
    actual_crc: int | None
    """Of the bytes that are there."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first place where the replicas of a partition are not the same."""

    offset: int
    what: str
    batches: list[ReplicaBatch]


class ReplicaComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One partition that several brokers have."""

    topic: str
    partition: int
    brokers: list[int]
    from_offset: int
    to_offset: int
    """Exclusive: the least high watermark."""
    batches: int
    bytes: int
    """Of one replica."""
    differences: int
    first: Difference | None


class CommittedOffset(msgspec.Struct, frozen=True, kw_only=True):
    """Where a group goes on reading, by ``__consumer_offsets``."""

    group_id: str
    topic: str
    partition: int
    offset: int
    committed_ms: int


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What needs attention, the gravest first; ``spark.analyze.findings`` has the rules."""

    severity: str
    """``error``: records are lost or will be; ``warning``: they may be; ``notice``: what costs too much."""
    code: str
    """Of the rule, such as ``damage``."""
    log_dir: str | None
    topic: str | None
    partition: int | None
    """Null: of the topic as a whole; without a topic, of the log directory."""
    seen: str
    """The figures that it is concluded from."""
    advice: str
    setting: str | None
    """The property of the advice, by its Kafka name."""


class Approximation(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that is not exact."""

    figure: str
    how: str
    error: str


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    format: str
    created_ms: int
    directories: list[Directory]
    topics: list[Topic]
    replicas: list[ReplicaComparison] | None
    """Null: the directories are of one broker."""
    approximations: list[Approximation]
    committed: list[CommittedOffset] = []
    """Of the topics that were analysed; none where ``__consumer_offsets`` was not."""
    findings: list[Finding] = []


class LogId(NamedTuple):
    """A partition, as rows are looked up by it."""

    topic: str
    partition: int


def encode(analysis: Analysis) -> bytes:
    """JSON, indented, with a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(analysis), indent=2) + b"\n"
