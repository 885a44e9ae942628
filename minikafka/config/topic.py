"""What can be configured for one topic. Kafka: ``LogConfig``, ``TopicConfig``, ``ServerTopicConfigSynonyms``.

Defaults and bounds are those of Kafka 4.x (KIP-1030: ``segment.bytes`` at least 1 MiB, messages at most an
hour ahead of the broker's clock). Bounds are checked where text is read; a ``TopicConfig`` made in code may
go beyond them, which is how tests get small segments.

**Which replicas replicate under a throttle**: ``partition:broker,partition:broker,...``, or ``*``. Kafka:
``ThrottledReplicaListValidator``, ``TopicConfigHandler.parseThrottledPartitions``; KIP-73. The topic
properties ``leader.replication.throttled.replicas`` and ``follower.replication.throttled.replicas`` are such
lists. Empty entries are fine behind the last one, as in Kafka, whose lists may end in commas.
"""

import re
from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Final, Literal

import msgspec

from minikafka.config.definition import (
    INT_MAX,
    LONG_MAX,
    ConfigKey,
    ConfigType,
    Importance,
    Synonym,
    config_keys,
    prop,
)
from minikafka.errors import ConfigError

EVERY_REPLICA = "*"

_REPLICA = re.compile(r"([0-9]+):([0-9]+)", re.ASCII)
_DIGITS_MAX = 10
"""Of INT_MAX; zeros in front do not count."""

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)
MEDIUM = Importance.MEDIUM

CleanupPolicy = Literal["compact", "delete"]
CompressionTypeName = Literal["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]
TimestampTypeName = Literal["CreateTime", "LogAppendTime"]

MINUTE_MS = 60 * 1000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

DECOMPRESSED_BYTES_UNBOUND = 2147483639
"""The longest array of Java's: Kafka's way to say that there is no bound."""


class AllPartitions(Enum):
    """The one value that says: all partitions of a topic (Kafka's ``AllReplicas``)."""

    ALL = EVERY_REPLICA


ThrottledPartitions = frozenset[int] | AllPartitions


ALL: Final = AllPartitions.ALL
NONE: Final[frozenset[int]] = frozenset()


def check_throttled_replicas(name: str, replicas: Sequence[str]) -> None:
    """Whether ``replicas`` is such a list.

    Raises:
        ConfigError: names the property, and the entry that is wrong.
    """
    if tuple(replicas) == (EVERY_REPLICA,):
        return
    ended = False
    for replica in replicas:
        if not replica:
            ended = True
        elif ended or _parse(replica) is None:
            wrong = "an entry that is empty" if ended else repr(replica)
            raise ConfigError(
                f"Invalid value {','.join(replicas)} for configuration {name}: {wrong} is no replica; "
                "expected partition:broker,partition:broker,... or '*' alone"
            )


def throttled_partitions(replicas: Sequence[str], broker_id: int) -> ThrottledPartitions:
    """The partitions whose replica on ``broker_id`` is in a list that was checked."""
    if EVERY_REPLICA in replicas:
        return ALL
    parsed = (_parse(replica) for replica in replicas)
    return frozenset(each[0] for each in parsed if each is not None and each[1] == broker_id)


def _parse(replica: str) -> tuple[int, int] | None:
    """Partition and broker; None for what is neither."""
    match = _REPLICA.fullmatch(replica)
    if match is None:
        return None
    partition_digits, broker_digits = (digits.lstrip("0") for digits in match.groups())
    if max(len(partition_digits), len(broker_digits)) > _DIGITS_MAX:
        return None
    partition, broker_id = int(partition_digits or 0), int(broker_digits or 0)
    return (partition, broker_id) if max(partition, broker_id) <= INT_MAX else None


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of one topic; a field is the property's name with underscores for dots."""

    cleanup_policy: Annotated[
        tuple[CleanupPolicy, ...],
        prop(
            LIST,
            MEDIUM,
            "What happens to old records: 'delete' removes whole segments past the retention time or size, "
            "'compact' keeps the newest record of each key, and both may be given.",
            synonyms=(Synonym("log.cleanup.policy"),),
        ),
    ] = ("delete",)
    compression_type: Annotated[
        CompressionTypeName,
        prop(
            STRING,
            MEDIUM,
            "The codec that batches are stored with: a codec, 'uncompressed', or 'producer' to keep "
            "what the producer chose.",
            synonyms=(Synonym("compression.type"),),
        ),
    ] = "producer"
    compression_gzip_level: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "The level of compression when compression.type is gzip: 1 to 9, or -1 for zlib's own choice.",
            ge=-1,
            le=9,
            synonyms=(Synonym("compression.gzip.level"),),
        ),
    ] = -1
    compression_lz4_level: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "The level of compression when compression.type is lz4.",
            ge=1,
            le=17,
            synonyms=(Synonym("compression.lz4.level"),),
        ),
    ] = 9
    compression_zstd_level: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "The level of compression when compression.type is zstd.",
            ge=-131072,
            le=22,
            synonyms=(Synonym("compression.zstd.level"),),
        ),
    ] = 3
    delete_retention_ms: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "How long a compacted topic keeps the markers of deleted keys.",
            ge=0,
            synonyms=(Synonym("log.cleaner.delete.retention.ms"),),
        ),
    ] = DAY_MS
    errors_deadletterqueue_group_enable: Annotated[
        bool,
        prop(BOOLEAN, MEDIUM, "Whether share groups may use the topic as their dead letter queue."),
    ] = False
    file_delete_delay_ms: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "How long a deleted segment's files are kept on disk.",
            ge=0,
            synonyms=(Synonym("log.segment.delete.delay.ms"),),
        ),
    ] = MINUTE_MS
    flush_messages: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "Force records to the disk after this many; the default leaves it to the operating system.",
            ge=1,
            synonyms=(Synonym("log.flush.interval.messages"),),
        ),
    ] = LONG_MAX
    flush_ms: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "Force records to the disk after this time; the default leaves it to the operating system.",
            ge=0,
            synonyms=(Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
        ),
    ] = LONG_MAX
    follower_replication_throttled_replicas: Annotated[
        tuple[str, ...],
        prop(
            LIST,
            MEDIUM,
            "The replicas that follow under the follower's throttle: partition:broker,..., or '*' for all.",
        ),
    ] = ()
    index_interval_bytes: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "About how many bytes of records lie between two entries of the offset index.",
            ge=0,
            synonyms=(Synonym("log.index.interval.bytes"),),
        ),
    ] = 4096
    leader_replication_throttled_replicas: Annotated[
        tuple[str, ...],
        prop(
            LIST,
            MEDIUM,
            "The replicas that lead under the leader's throttle: partition:broker,..., or '*' for all.",
        ),
    ] = ()
    local_retention_bytes: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "With tiered storage, the size from which on local segments are deleted; -2 for retention.bytes. "
            "There is no tiered storage here, so retention.bytes counts.",
            ge=-2,
            synonyms=(Synonym("log.local.retention.bytes"),),
        ),
    ] = -2
    local_retention_ms: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "With tiered storage, the age from which on local segments are deleted; -2 for retention.ms. "
            "There is no tiered storage here, so retention.ms counts.",
            ge=-2,
            synonyms=(Synonym("log.local.retention.ms"),),
        ),
    ] = -2
    max_compaction_lag_ms: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "The longest time before a record of a compacted topic is compacted.",
            ge=1,
            synonyms=(Synonym("log.cleaner.max.compaction.lag.ms"),),
        ),
    ] = LONG_MAX
    max_message_bytes: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "The largest batch that the topic takes, after compression.",
            ge=0,
            synonyms=(Synonym("message.max.bytes"),),
        ),
    ] = 1024 * 1024 + 12
    max_decompressed_message_bytes: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "The largest record, once it is decompressed. Only the default can be set: a batch may be "
            "128 MiB then, whatever its records are.",
            ge=DECOMPRESSED_BYTES_UNBOUND,
            le=DECOMPRESSED_BYTES_UNBOUND,
        ),
    ] = DECOMPRESSED_BYTES_UNBOUND
    message_timestamp_after_max_ms: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "How far a record's timestamp may be ahead of the broker's clock; only for CreateTime.",
            ge=0,
            synonyms=(Synonym("log.message.timestamp.after.max.ms"),),
        ),
    ] = HOUR_MS
    message_timestamp_before_max_ms: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "How far a record's timestamp may be behind the broker's clock; only for CreateTime.",
            ge=0,
            synonyms=(Synonym("log.message.timestamp.before.max.ms"),),
        ),
    ] = LONG_MAX
    message_timestamp_type: Annotated[
        TimestampTypeName,
        prop(
            STRING,
            MEDIUM,
            "Whether a record's timestamp is the producer's (CreateTime) or the broker's (LogAppendTime).",
            synonyms=(Synonym("log.message.timestamp.type"),),
        ),
    ] = "CreateTime"
    min_cleanable_dirty_ratio: Annotated[
        float,
        prop(
            DOUBLE,
            MEDIUM,
            "Compact a log when more than this part of it is not compacted yet.",
            ge=0,
            le=1,
            synonyms=(Synonym("log.cleaner.min.cleanable.ratio"),),
        ),
    ] = 0.5
    min_compaction_lag_ms: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "The least time before a record of a compacted topic is compacted.",
            ge=0,
            synonyms=(Synonym("log.cleaner.min.compaction.lag.ms"),),
        ),
    ] = 0
    min_insync_replicas: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "With acks=all, how many in-sync replicas must have a record before it is acknowledged.",
            ge=1,
            synonyms=(Synonym("min.insync.replicas"),),
        ),
    ] = 1
    preallocate: Annotated[
        bool,
        prop(
            BOOLEAN,
            MEDIUM,
            "Whether a new segment's file gets its full size at once.",
            synonyms=(Synonym("log.preallocate"),),
        ),
    ] = False
    remote_copy_lag_bytes: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "Bytes behind the end from which on a segment is copied to tiered storage. There is none here.",
            ge=-1,
        ),
    ] = -1
    remote_copy_lag_ms: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "Age from which on a segment is copied to tiered storage. There is no tiered storage here.",
            ge=-1,
        ),
    ] = 0
    remote_log_copy_disable: Annotated[
        bool,
        prop(
            BOOLEAN,
            MEDIUM,
            "Whether nothing more is copied to tiered storage. There is no tiered storage here.",
        ),
    ] = False
    remote_log_delete_on_disable: Annotated[
        bool,
        prop(
            BOOLEAN,
            MEDIUM,
            "Whether disabling tiered storage deletes its data. There is no tiered storage here.",
        ),
    ] = False
    remote_storage_enable: Annotated[
        bool,
        prop(
            BOOLEAN,
            MEDIUM,
            "Whether the topic has tiered storage. There is none here, so only false can be set.",
        ),
    ] = False
    retention_bytes: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "Delete the oldest segments while the partition is larger than this; -1 for no limit.",
            synonyms=(Synonym("log.retention.bytes"),),
        ),
    ] = -1
    retention_ms: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "Delete segments whose newest record is older than this; -1 for no limit.",
            ge=-1,
            synonyms=(
                Synonym("log.retention.ms"),
                Synonym("log.retention.minutes", MINUTE_MS),
                Synonym("log.retention.hours", HOUR_MS),
            ),
        ),
    ] = 7 * DAY_MS
    segment_bytes: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "The size at which a new segment file starts.",
            ge=1024 * 1024,
            synonyms=(Synonym("log.segment.bytes"),),
        ),
    ] = 1024 * 1024 * 1024
    segment_index_bytes: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "The size of an index file; a full index starts a new segment.",
            ge=4,
            synonyms=(Synonym("log.index.size.max.bytes"),),
        ),
    ] = 10 * 1024 * 1024
    segment_jitter_ms: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "The most that is taken at random from segment.ms, so that segments do not all start at once.",
            ge=0,
            synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", HOUR_MS)),
        ),
    ] = 0
    segment_ms: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "The age at which a new segment starts even when the old one is not full.",
            ge=1,
            synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", HOUR_MS)),
        ),
    ] = 7 * DAY_MS
    unclean_leader_election_enable: Annotated[
        bool,
        prop(
            BOOLEAN,
            MEDIUM,
            "Whether a replica that is not in sync may become leader when no other is left, losing records.",
            synonyms=(Synonym("unclean.leader.election.enable"),),
        ),
    ] = False

    @property
    def compact(self) -> bool:
        """Whether the topic is compacted."""
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Whether old segments are deleted."""
        return "delete" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """The age at which a segment rolls: compaction must reach every record within its lag."""
        return min(self.max_compaction_lag_ms, self.segment_ms) if self.compact else self.segment_ms


TOPIC_CONFIG_KEYS: dict[str, ConfigKey] = config_keys(TopicConfig)
"""Every topic property by its name."""


def check_gzip_level(level: int) -> None:
    """What the bounds leave open (``GzipCompression``'s validator). Raises ConfigError."""
    if level == 0:
        raise ConfigError(
            "Invalid value 0 for configuration compression.gzip.level: "
            "Value must be between 1 and 9 or equal to -1"
        )


def check_topic_config(config: TopicConfig) -> None:
    """What must hold between properties (``LogConfig.validateValues``), and within the lists of replicas.

    Raises:
        ConfigError: says which two disagree, or what is wrong in a list.
    """
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )
    check_gzip_level(config.compression_gzip_level)
    if config.remote_storage_enable:
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    if len(set(config.cleanup_policy)) != len(config.cleanup_policy):
        names = ",".join(config.cleanup_policy)
        raise ConfigError(f"Invalid value {names} for configuration cleanup.policy: each policy only once")
    for name, replicas in (
        ("leader.replication.throttled.replicas", config.leader_replication_throttled_replicas),
        ("follower.replication.throttled.replicas", config.follower_replication_throttled_replicas),
    ):
        check_throttled_replicas(name, replicas)
