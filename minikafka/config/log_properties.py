"""The broker's properties for logs: the defaults of topics, and the work that keeps logs in order.

Kafka: ``ServerLogConfigs``, ``LogConfig.SERVER_CONFIG_DEF``, ``CleanerConfig``, ``TransactionLogConfig``.
Type, bounds and documentation of a topic default are those of the topic property. Different from Kafka:
``log.dirs`` is ``minikafka-data`` under the working directory: what is in ``/tmp`` is gone after a reboot.
"""

import sys
from typing import Annotated

import msgspec

from minikafka.config.definition import LONG_MAX, ConfigType, Importance, UpdateMode, prop
from minikafka.config.network_properties import NetworkProperties
from minikafka.config.topic import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    TOPIC_CONFIG_KEYS,
    CleanupPolicy,
    CompressionTypeName,
    TimestampTypeName,
)

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def default_of(topic_property: str) -> msgspec.Meta:
    """The annotation of a broker property that is the default of ``topic_property``."""
    key = TOPIC_CONFIG_KEYS[topic_property]
    documentation = f"The default of {key.name}. {key.documentation}"
    return prop(key.type, key.importance, documentation, ge=key.ge, le=key.le, update=UpdateMode.CLUSTER_WIDE)


class LogProperties(NetworkProperties, frozen=True, kw_only=True):
    """Logs; a part of ``BrokerConfig``."""

    log_dirs: Annotated[tuple[str, ...], prop(LIST, HIGH, "The directories that hold the logs.")] = (
        "minikafka-data",
    )

    # Defaults of topics. The unit variants (hours, minutes) are read only at the start, as in Kafka.
    compression_type: Annotated[CompressionTypeName, default_of("compression.type")] = "producer"
    compression_gzip_level: Annotated[int, default_of("compression.gzip.level")] = -1
    compression_lz4_level: Annotated[int, default_of("compression.lz4.level")] = 9
    compression_zstd_level: Annotated[int, default_of("compression.zstd.level")] = 3
    log_cleaner_delete_retention_ms: Annotated[int, default_of("delete.retention.ms")] = DAY_MS
    log_cleaner_max_compaction_lag_ms: Annotated[int, default_of("max.compaction.lag.ms")] = LONG_MAX
    log_cleaner_min_cleanable_ratio: Annotated[float, default_of("min.cleanable.dirty.ratio")] = 0.5
    log_cleaner_min_compaction_lag_ms: Annotated[int, default_of("min.compaction.lag.ms")] = 0
    log_cleanup_policy: Annotated[tuple[CleanupPolicy, ...], default_of("cleanup.policy")] = ("delete",)
    log_flush_interval_messages: Annotated[int, default_of("flush.messages")] = LONG_MAX
    log_flush_interval_ms: Annotated[int, default_of("flush.ms")] | None = None
    log_index_interval_bytes: Annotated[int, default_of("index.interval.bytes")] = 4096
    log_index_size_max_bytes: Annotated[int, default_of("segment.index.bytes")] = 10 * 1024 * 1024
    log_local_retention_bytes: Annotated[int, default_of("local.retention.bytes")] = -2
    log_local_retention_ms: Annotated[int, default_of("local.retention.ms")] = -2
    log_message_timestamp_after_max_ms: Annotated[int, default_of("message.timestamp.after.max.ms")] = HOUR_MS
    log_message_timestamp_before_max_ms: Annotated[int, default_of("message.timestamp.before.max.ms")] = (
        LONG_MAX
    )
    log_message_timestamp_type: Annotated[TimestampTypeName, default_of("message.timestamp.type")] = (
        "CreateTime"
    )
    log_preallocate: Annotated[bool, default_of("preallocate")] = False
    log_retention_bytes: Annotated[int, default_of("retention.bytes")] = -1
    log_retention_ms: Annotated[int, default_of("retention.ms")] | None = None
    log_retention_minutes: (
        Annotated[int, prop(INT, HIGH, "retention.ms in minutes, when log.retention.ms is not set.")] | None
    ) = None
    log_retention_hours: Annotated[
        int, prop(INT, HIGH, "retention.ms in hours, when neither log.retention.ms nor .minutes is set.")
    ] = 168
    log_roll_ms: Annotated[int, default_of("segment.ms")] | None = None
    log_roll_hours: Annotated[
        int, prop(INT, HIGH, "segment.ms in hours, when log.roll.ms is not set.", ge=1)
    ] = 168
    log_roll_jitter_ms: Annotated[int, default_of("segment.jitter.ms")] | None = None
    log_roll_jitter_hours: Annotated[
        int, prop(INT, HIGH, "segment.jitter.ms in hours, when log.roll.jitter.ms is not set.", ge=0)
    ] = 0
    log_segment_bytes: Annotated[int, default_of("segment.bytes")] = 1024 * 1024 * 1024
    log_segment_delete_delay_ms: Annotated[int, default_of("file.delete.delay.ms")] = MINUTE_MS
    message_max_bytes: Annotated[int, default_of("max.message.bytes")] = 1024 * 1024 + 12
    min_insync_replicas: Annotated[int, default_of("min.insync.replicas")] = 1
    unclean_leader_election_enable: Annotated[bool, default_of("unclean.leader.election.enable")] = False

    # Compaction.
    log_cleaner_backoff_ms: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "How long to wait when there is no log to compact.",
            ge=0,
            update=UpdateMode.CLUSTER_WIDE,
        ),
    ] = 15 * 1000
    log_cleaner_dedupe_buffer_size: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "Bytes for the keys of logs that are being compacted, of all threads.",
            ge=1,
            update=UpdateMode.CLUSTER_WIDE,
        ),
    ] = 128 * 1024 * 1024
    log_cleaner_enable: Annotated[
        bool, prop(BOOLEAN, MEDIUM, "Whether logs are compacted at all; without it internal topics grow.")
    ] = True
    log_cleaner_io_buffer_load_factor: Annotated[
        float,
        prop(
            DOUBLE,
            MEDIUM,
            "How full the buffer for keys may become, from 0 to 1.",
            ge=0,
            le=1,
            update=UpdateMode.CLUSTER_WIDE,
        ),
    ] = 0.9
    log_cleaner_io_buffer_size: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "Bytes that are read at a time, of all threads.",
            ge=0,
            update=UpdateMode.CLUSTER_WIDE,
        ),
    ] = 512 * 1024
    log_cleaner_io_max_bytes_per_second: Annotated[
        float,
        prop(
            DOUBLE,
            MEDIUM,
            "The most that compaction reads and writes in a second.",
            ge=0,
            update=UpdateMode.CLUSTER_WIDE,
        ),
    ] = sys.float_info.max
    log_cleaner_threads: Annotated[
        int, prop(INT, MEDIUM, "How many logs are compacted at the same time.", ge=1)
    ] = 1

    # Work that is done from time to time.
    log_flush_offset_checkpoint_interval_ms: Annotated[
        int, prop(INT, HIGH, "How often the recovery points are written down.", ge=0)
    ] = MINUTE_MS
    log_flush_scheduler_interval_ms: Annotated[
        int, prop(LONG, HIGH, "How often to look for logs that flush.ms says to flush.", ge=1)
    ] = LONG_MAX
    log_flush_start_offset_checkpoint_interval_ms: Annotated[
        int, prop(INT, HIGH, "How often the log start offsets are written down.", ge=0)
    ] = MINUTE_MS
    log_initial_task_delay_ms: Annotated[
        int, prop(LONG, LOW, "How long after the start the work on logs begins.", ge=0)
    ] = 30 * 1000
    log_retention_check_interval_ms: Annotated[
        int, prop(LONG, MEDIUM, "How often to look for segments that retention lets go.", ge=1)
    ] = 5 * MINUTE_MS
    producer_id_expiration_check_interval_ms: Annotated[
        int, prop(INT, LOW, "How often to look for producer ids that have expired.", ge=1)
    ] = 10 * MINUTE_MS
    producer_id_expiration_ms: Annotated[
        int,
        prop(
            INT,
            LOW,
            "How long a partition remembers an idempotent producer that no longer writes.",
            ge=1,
            update=UpdateMode.CLUSTER_WIDE,
        ),
    ] = DAY_MS
    replica_high_watermark_checkpoint_interval_ms: Annotated[
        int, prop(LONG, HIGH, "How often the high watermarks are written down.", ge=1)
    ] = 5 * 1000
