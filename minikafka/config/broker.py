"""What can be configured for a broker. Kafka: ``KafkaConfig``, ``AbstractKafkaConfig``.

``BrokerConfig`` is the table of all properties, and holds their values; ``broker_config`` makes one from
property texts and checks what must hold between properties. A field is a property that does something here;
Kafka's others are known, too, and ``not_honoured`` says of each why it does nothing.

``broker.id`` is another name of ``node.id``, and ``log.dir`` of ``log.dirs``, with Kafka's relations: ids
given under both names must agree, ``log.dirs`` wins over ``log.dir``. ``node.id`` is 1 where Kafka insists
on a value. ``api.versions``, ``cluster.id``, ``coordination``, ``http.*``, ``log.level``, ``log.format``
and ``trace.*`` are minikafka's own.

This module is long because all properties of a broker stand in one table.
"""

import re
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

import msgspec

from minikafka.config.broker_checks import SQLITE_SCHEME, check_broker_config
from minikafka.config.definition import (
    HIDDEN,
    INT_MAX,
    LONG_MAX,
    SHORT_MAX,
    ConfigKey,
    ConfigType,
    Importance,
    UpdateMode,
    config_keys,
    format_value,
    parse_value,
    prop,
)
from minikafka.config.listeners import Listener, parse_listeners, parse_protocol_map
from minikafka.config.security import (
    LISTENER_KEYS_EXTRA,
    LOGIN_KEY_PREFIXES,
    SecurityConfig,
    StoreTypeName,
    listener_property,
    may_be_of_listener,
)
from minikafka.config.topic import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    TOPIC_CONFIG_KEYS,
    CleanupPolicy,
    CompressionTypeName,
    TimestampTypeName,
)
from minikafka.errors import ConfigError

BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, PASSWORD = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.SHORT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
    ConfigType.PASSWORD,
)
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
MIB = 1024 * 1024

DEFAULT_PROTOCOL_MAP = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
COORDINATION_FILE = "coordination.sqlite"

_HTTP_TLS_PREFIX = "http_ssl_"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750, section 2.1."""
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def default_of(topic_property: str) -> msgspec.Meta:
    """The annotation of a broker property that is the default of ``topic_property``."""
    key = TOPIC_CONFIG_KEYS[topic_property]
    documentation = f"The default of {key.name}. {key.documentation}"
    return prop(key.type, key.importance, documentation, ge=key.ge, le=key.le, update=CLUSTER_WIDE)


class BrokerConfig(SecurityConfig, frozen=True, kw_only=True):
    """The properties of one broker; a field is the property's name with underscores for dots."""

    # Listeners and connections (``SocketServerConfigs``). Different from Kafka:
    # - ``listeners`` is ``PLAINTEXT://localhost:9092``, not all interfaces: a broker without authentication
    #   does not offer itself to the network unless told to.
    # - ``socket.send.buffer.bytes`` and ``socket.receive.buffer.bytes`` are -1 (the system's choice), not
    #   100 KiB: an event loop reads what has arrived in one call, and a fixed size would switch off Linux's
    #   autotuning.
    # - ``queued.max.request.bytes`` has a limit, Kafka's default has none.

    listeners: Annotated[
        tuple[str, ...],
        prop(LIST, HIGH, "Where to listen: NAME://host:port, several with commas; no host: all interfaces."),
    ] = ("PLAINTEXT://localhost:9092",)
    advertised_listeners: (
        Annotated[
            tuple[str, ...],
            prop(LIST, HIGH, "The addresses that clients are told to connect to; unset: those of listeners."),
        ]
        | None
    ) = None
    listener_security_protocol_map: Annotated[
        str,
        prop(STRING, LOW, "Listener name to security protocol, NAME:PROTOCOL, several with commas."),
    ] = DEFAULT_PROTOCOL_MAP
    controller_listener_names: Annotated[
        tuple[str, ...],
        prop(LIST, HIGH, "Listeners of Kafka's KRaft controller. They are left out: there is none here."),
    ] = ()
    inter_broker_listener_name: (
        Annotated[
            str, prop(STRING, MEDIUM, "The listener that brokers use among themselves; unset: PLAINTEXT.")
        ]
        | None
    ) = None
    socket_request_max_bytes: Annotated[
        int, prop(INT, HIGH, "The largest request; a larger one closes its connection.", ge=1)
    ] = 100 * 1024 * 1024
    socket_send_buffer_bytes: Annotated[
        int, prop(INT, HIGH, "SO_SNDBUF of connections; -1 leaves it to the system.", ge=-1)
    ] = -1
    socket_receive_buffer_bytes: Annotated[
        int, prop(INT, HIGH, "SO_RCVBUF of connections; -1 leaves it to the system.", ge=-1)
    ] = -1
    socket_listen_backlog_size: Annotated[
        int, prop(INT, MEDIUM, "How many connections may wait to be accepted.", ge=1)
    ] = 50
    queued_max_request_bytes: Annotated[
        int,
        prop(LONG, MEDIUM, "Bytes of requests in memory before no more are read; -1 for no limit.", ge=-1),
    ] = 256 * 1024 * 1024
    connections_max_idle_ms: Annotated[
        int, prop(LONG, MEDIUM, "A connection without traffic for this long is closed; negative: never.")
    ] = 10 * 60 * 1000
    max_connections: Annotated[
        int, prop(INT, MEDIUM, "The most connections to the broker.", ge=0, update=CLUSTER_WIDE)
    ] = INT_MAX
    max_connections_per_ip: Annotated[
        int, prop(INT, MEDIUM, "The most connections from one address.", ge=0, update=CLUSTER_WIDE)
    ] = INT_MAX
    max_connections_per_ip_overrides: Annotated[
        str,
        prop(STRING, MEDIUM, "max.connections.per.ip for single hosts: host:count,…", update=CLUSTER_WIDE),
    ] = ""
    max_connection_creation_rate: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "New connections a second; those beyond it are read later.",
            ge=1,
            update=CLUSTER_WIDE,
        ),
    ] = INT_MAX

    # Logs (``ServerLogConfigs``, ``LogConfig.SERVER_CONFIG_DEF``, ``CleanerConfig``): the defaults of topics,
    # whose type, bounds and documentation are those of the topic property, and the work that keeps logs in
    # order. Different from Kafka: ``log.dirs`` is ``minikafka-data`` under the working directory: what is in
    # ``/tmp`` is gone after a reboot.

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
            update=CLUSTER_WIDE,
        ),
    ] = 15 * 1000
    log_cleaner_dedupe_buffer_size: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "Bytes for the keys of logs that are being compacted, of all threads.",
            ge=1,
            update=CLUSTER_WIDE,
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
            update=CLUSTER_WIDE,
        ),
    ] = 0.9
    log_cleaner_io_buffer_size: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "Bytes that are read at a time, of all threads.",
            ge=0,
            update=CLUSTER_WIDE,
        ),
    ] = 512 * 1024
    log_cleaner_io_max_bytes_per_second: Annotated[
        float,
        prop(
            DOUBLE,
            MEDIUM,
            "The most that compaction reads and writes in a second.",
            ge=0,
            update=CLUSTER_WIDE,
        ),
    ] = sys.float_info.max
    log_cleaner_threads: Annotated[
        int,
        prop(INT, MEDIUM, "How many logs are compacted at the same time.", ge=1, update=CLUSTER_WIDE),
    ] = 1

    # Work that is done from time to time.
    log_flush_offset_checkpoint_interval_ms: Annotated[
        int, prop(INT, HIGH, "How often the recovery points are checkpointed.", ge=0)
    ] = MINUTE_MS
    log_flush_scheduler_interval_ms: Annotated[
        int, prop(LONG, HIGH, "How often to look for logs that flush.ms says to flush.", ge=1)
    ] = LONG_MAX
    log_flush_start_offset_checkpoint_interval_ms: Annotated[
        int, prop(INT, HIGH, "How often the log start offsets are checkpointed.", ge=0)
    ] = MINUTE_MS
    log_initial_task_delay_ms: Annotated[
        int, prop(LONG, LOW, "How long after the start the work on logs begins.", ge=0)
    ] = 30 * 1000
    log_retention_check_interval_ms: Annotated[
        int, prop(LONG, MEDIUM, "How often to check for segments that retention deletes.", ge=1)
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
            update=CLUSTER_WIDE,
        ),
    ] = DAY_MS
    replica_high_watermark_checkpoint_interval_ms: Annotated[
        int, prop(LONG, HIGH, "How often the high watermarks are checkpointed.", ge=1)
    ] = 5 * 1000

    # Replication and the controller (``ReplicationConfigs``).

    replica_lag_time_max_ms: Annotated[
        int, prop(LONG, HIGH, "A follower that was not caught up for so long leaves the ISR.", ge=1)
    ] = 30_000
    replica_fetch_wait_max_ms: Annotated[
        int, prop(INT, HIGH, "How long the leader may keep a follower's fetch waiting.", ge=0)
    ] = 500
    replica_fetch_min_bytes: Annotated[
        int, prop(INT, HIGH, "A follower's fetch is answered when there are so many bytes.", ge=0)
    ] = 1
    replica_fetch_max_bytes: Annotated[
        int, prop(INT, MEDIUM, "The most bytes of one partition that a follower fetches at once.", ge=0)
    ] = MIB
    replica_fetch_response_max_bytes: Annotated[
        int, prop(INT, MEDIUM, "The most bytes that a follower fetches at once.", ge=0)
    ] = 10 * MIB
    replica_fetch_backoff_ms: Annotated[
        int, prop(INT, MEDIUM, "How long a fetcher waits after an error of a partition or a leader.", ge=0)
    ] = 1000
    num_replica_fetchers: Annotated[
        int, prop(INT, HIGH, "Fetchers for each source broker; partitions are spread over them.", ge=1)
    ] = 1
    replica_socket_timeout_ms: Annotated[
        int, prop(INT, HIGH, "How long a fetcher waits for an answer beyond the fetch's own wait.", ge=1)
    ] = 30_000
    replica_selector_class: (
        Annotated[
            str,
            prop(
                STRING,
                MEDIUM,
                "Which replica a consumer may read from: unset (the leader), or "
                "org.apache.kafka.common.replica.RackAwareReplicaSelector.",
            ),
        ]
        | None
    ) = None
    producer_purgatory_purge_interval_requests: Annotated[
        int,
        prop(INT, MEDIUM, "Purge completed produces from the purgatory when it may hold this many.", ge=0),
    ] = 1000
    request_timeout_ms: Annotated[
        int, prop(INT, HIGH, "How long a broker waits for another broker's answer about transactions.", ge=1)
    ] = 30_000
    controller_socket_timeout_ms: Annotated[
        int, prop(INT, MEDIUM, "How long the controller waits for a broker's answer.", ge=1)
    ] = 30_000
    controlled_shutdown_enable: Annotated[
        bool, prop(BOOLEAN, MEDIUM, "Whether a stopping broker first has its leaders moved.")
    ] = True
    controlled_shutdown_max_retries: Annotated[
        int, prop(INT, MEDIUM, "How often moving the leaders is tried.", ge=1)
    ] = 3
    controlled_shutdown_retry_backoff_ms: Annotated[
        int, prop(LONG, MEDIUM, "The pause between these tries.", ge=0)
    ] = 5_000
    auto_leader_rebalance_enable: Annotated[
        bool, prop(BOOLEAN, HIGH, "Whether the controller gives leadership back to preferred replicas.")
    ] = True
    leader_imbalance_check_interval_seconds: Annotated[
        int, prop(LONG, HIGH, "How often it looks whether it should.", ge=1, le=INT_MAX)
    ] = 300
    leader_imbalance_per_broker_percentage: Annotated[
        int,
        prop(
            INT,
            HIGH,
            "How many percent of the partitions that prefer a broker others may lead before it does.",
            ge=0,
        ),
    ] = 10
    leader_replication_throttled_rate: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "The most bytes a second that followers fetch here of the partitions in their topic's "
            "leader.replication.throttled.replicas while they are not in sync; best kept above 1 MB/s.",
            ge=0,
            update=CLUSTER_WIDE,
        ),
    ] = LONG_MAX
    follower_replication_throttled_rate: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "The most bytes a second that this broker fetches of the partitions in their topic's "
            "follower.replication.throttled.replicas while it is not in sync; best kept above 1 MB/s.",
            ge=0,
            update=CLUSTER_WIDE,
        ),
    ] = LONG_MAX
    replica_alter_log_dirs_io_max_bytes_per_second: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "The most bytes a second that move between the broker's log directories; best kept above 1 MB/s.",
            ge=0,
            update=CLUSTER_WIDE,
        ),
    ] = LONG_MAX
    replication_quota_window_num: Annotated[
        int, prop(INT, LOW, "Samples that the rate of throttled replication is measured over.", ge=1)
    ] = 11
    replication_quota_window_size_seconds: Annotated[
        int, prop(INT, LOW, "The length of each of these samples.", ge=1)
    ] = 1
    alter_log_dirs_replication_quota_window_num: Annotated[
        int, prop(INT, LOW, "Samples that the rate of moves between log directories is measured over.", ge=1)
    ] = 11
    alter_log_dirs_replication_quota_window_size_seconds: Annotated[
        int, prop(INT, LOW, "The length of each of these samples.", ge=1)
    ] = 1

    # The store of the cluster's state: a SQLite file, or ZooKeeper (``ZkConfigs``, as of 3.9).
    # ``coordination`` is minikafka's own. ``zookeeper.session.timeout.ms`` holds for both stores: it is how
    # long a broker may be silent before the others take it for dead.

    coordination: (
        Annotated[
            str,
            prop(
                STRING,
                MEDIUM,
                "Where the brokers of one machine keep their state: sqlite:///PATH; unset: in the first log "
                "directory.",
            ),
        ]
        | None
    ) = None
    zookeeper_connect: (
        Annotated[
            str,
            prop(
                STRING,
                HIGH,
                "Where the brokers of several machines keep their state: ZooKeeper servers as host:port with "
                "commas, at the end a /path for a part of their tree; unset: a SQLite file.",
            ),
        ]
        | None
    ) = None
    zookeeper_session_timeout_ms: Annotated[
        int, prop(INT, HIGH, "How long the session of a broker lasts without a heartbeat.", ge=1)
    ] = 18_000
    zookeeper_connection_timeout_ms: (
        Annotated[
            int,
            prop(
                INT,
                HIGH,
                "How long to wait for ZooKeeper at the start; unset: zookeeper.session.timeout.ms.",
                ge=1,
            ),
        ]
        | None
    ) = None

    # Of Kafka 3.9, the last with ZooKeeper. What other values would mean: ``broker_checks``.
    inter_broker_protocol_version: Annotated[
        str,
        prop(
            STRING,
            MEDIUM,
            "Which release's requests the brokers speak with each other: 3.9, as Apache Kafka 3.9 on "
            "ZooKeeper. Clusters of lower ones have to be raised to it first.",
        ),
    ] = "3.9"
    zookeeper_metadata_migration_enable: Annotated[
        bool,
        prop(
            BOOLEAN,
            HIGH,
            "Only false: brokers here know no KRaft, and start in no cluster that migrates to it.",
        ),
    ] = False

    # The group coordinator and its topic (``GroupCoordinatorConfig``). None of them changes while the broker
    # runs, as in Kafka. ``group.consumer.session.timeout.ms`` and
    # ``group.consumer.heartbeat.interval.ms`` are what a group has that sets nothing itself; their bounds
    # hold for groups that do. Different from Kafka:
    # - ``group.max.member.metadata.bytes`` and ``group.max.memory.bytes`` are ours. The first is as much as a
    #   record of the group may have (``max.message.bytes``), in which the metadata has to fit anyway.
    # - ``offsets.topic.replication.factor`` is 3 at most, not 3, unless it is set (see
    #   ``server.coordinator.service``).
    # - Assignors are chosen by name, because there is no class to load.
    # - ``group.consumer.assignment.interval.ms`` is 0, not 1 s: two consumers that start together have their
    #   partitions after 5 s and not after 10, since the first hears of the second when it confirms what it
    #   was assigned, and not with its next heartbeat. Kafka spares itself assignments of groups into which
    #   hundreds come at once.

    group_min_session_timeout_ms: Annotated[
        int, prop(INT, MEDIUM, "The shortest session that a member of a classic group may ask for.")
    ] = 6_000
    group_max_session_timeout_ms: Annotated[
        int, prop(INT, MEDIUM, "The longest session that a member of a classic group may ask for.")
    ] = 1_800_000
    group_initial_rebalance_delay_ms: Annotated[
        int, prop(INT, MEDIUM, "How long an empty classic group waits for more members than the first.")
    ] = 3_000
    group_max_size: Annotated[int, prop(INT, MEDIUM, "The most members of a classic group.", ge=1)] = INT_MAX
    group_max_member_metadata_bytes: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "Bytes of metadata that a member of a group may have: its protocols' metadata, or its topics. "
            "Kafka has no such limit.",
            ge=1,
        ),
    ] = 1024 * 1024
    group_max_memory_bytes: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "Bytes that all groups of this broker may take; a new member gets a sixteenth of what is left "
            "at most. Kafka has no such limit.",
            ge=1,
        ),
    ] = 256 * 1024 * 1024
    group_consumer_session_timeout_ms: Annotated[
        int, prop(INT, MEDIUM, "How long a consumer group waits for a member's heartbeat.", ge=1)
    ] = 45_000
    group_consumer_min_session_timeout_ms: Annotated[
        int, prop(INT, MEDIUM, "The shortest session that a consumer group may have.", ge=1)
    ] = 45_000
    group_consumer_max_session_timeout_ms: Annotated[
        int, prop(INT, MEDIUM, "The longest session that a consumer group may have.", ge=1)
    ] = 60_000
    group_consumer_heartbeat_interval_ms: Annotated[
        int, prop(INT, MEDIUM, "How often members of a consumer group must send heartbeats.", ge=1)
    ] = 5_000
    group_consumer_min_heartbeat_interval_ms: Annotated[
        int, prop(INT, MEDIUM, "The shortest heartbeat interval that a consumer group may have.", ge=1)
    ] = 5_000
    group_consumer_max_heartbeat_interval_ms: Annotated[
        int, prop(INT, MEDIUM, "The longest heartbeat interval that a consumer group may have.", ge=1)
    ] = 15_000
    group_consumer_assignment_interval_ms: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "The least time between two assignments of a consumer group: members that come or go meanwhile "
            "wait for the next one. Kafka has 1 s, with which consumers that start together have their "
            "partitions a heartbeat later.",
            ge=0,
            update=CLUSTER_WIDE,
        ),
    ] = 0
    group_consumer_min_assignment_interval_ms: Annotated[
        int, prop(INT, MEDIUM, "The shortest assignment interval that a consumer group may have.", ge=0)
    ] = 0
    group_consumer_max_assignment_interval_ms: Annotated[
        int, prop(INT, MEDIUM, "The longest assignment interval that a consumer group may have.", ge=0)
    ] = 15_000
    group_consumer_assignor_offload_enable: Annotated[
        bool,
        prop(
            BOOLEAN,
            MEDIUM,
            "Whether a thread works out assignments of consumer groups that take long. Else they are worked "
            "out at once, and all requests wait.",
            update=CLUSTER_WIDE,
        ),
    ] = True
    group_consumer_max_size: Annotated[
        int, prop(INT, MEDIUM, "The most members of a consumer group.", ge=1)
    ] = INT_MAX
    group_consumer_regex_refresh_interval_ms: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "How long it may take until a regular expression matches a topic that its member may describe "
            "only since then, or none that it may not describe any more. A topic that comes or goes is "
            "noticed within 10 s.",
            ge=10_000,
        ),
    ] = 600_000
    group_consumer_assignors: Annotated[
        tuple[Literal["uniform", "range"], ...],
        prop(LIST, MEDIUM, "The assignors of consumer groups; the first one is the default."),
    ] = ("uniform", "range")
    group_coordinator_rebalance_protocols: Annotated[
        tuple[Literal["classic", "consumer", "share", "streams"], ...],
        prop(
            LIST,
            MEDIUM,
            "The protocols of groups. Without consumer its requests are answered with UNSUPPORTED_VERSION; "
            "classic must be there.",
        ),
    ] = ("classic", "consumer", "streams")
    group_consumer_migration_policy: Annotated[
        Literal["disabled", "upgrade", "downgrade", "bidirectional"],
        prop(
            STRING,
            MEDIUM,
            "Which way a group may change its protocol: a classic group becomes a consumer group (upgrade), "
            "a consumer group becomes a classic group (downgrade), both, or neither.",
        ),
    ] = "bidirectional"
    group_share_session_timeout_ms: Annotated[
        int, prop(INT, MEDIUM, "How long a share group waits for a member's heartbeat.", ge=1)
    ] = 45_000
    group_share_min_session_timeout_ms: Annotated[
        int, prop(INT, MEDIUM, "The shortest session that a share group may have.", ge=1)
    ] = 45_000
    group_share_max_session_timeout_ms: Annotated[
        int, prop(INT, MEDIUM, "The longest session that a share group may have.", ge=1)
    ] = 60_000
    group_share_heartbeat_interval_ms: Annotated[
        int, prop(INT, MEDIUM, "How often members of a share group must send heartbeats.", ge=1)
    ] = 5_000
    group_share_min_heartbeat_interval_ms: Annotated[
        int, prop(INT, MEDIUM, "The shortest heartbeat interval that a share group may have.", ge=1)
    ] = 5_000
    group_share_max_heartbeat_interval_ms: Annotated[
        int, prop(INT, MEDIUM, "The longest heartbeat interval that a share group may have.", ge=1)
    ] = 15_000
    group_share_max_size: Annotated[
        int, prop(INT, MEDIUM, "The most members of a share group.", ge=1, le=1000)
    ] = 200
    group_share_assignors: Annotated[
        tuple[Literal["simple"], ...], prop(LIST, MEDIUM, "The assignor of share groups; there is one.")
    ] = ("simple",)
    group_share_assignment_interval_ms: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "The least time between two assignments of a share group.",
            ge=0,
            update=CLUSTER_WIDE,
        ),
    ] = 1_000
    group_share_min_assignment_interval_ms: Annotated[
        int, prop(INT, MEDIUM, "The shortest such time that a share group may have.", ge=0)
    ] = 0
    group_share_max_assignment_interval_ms: Annotated[
        int, prop(INT, MEDIUM, "The longest such time that a share group may have.", ge=0)
    ] = 15_000
    group_share_assignor_offload_enable: Annotated[
        bool,
        prop(
            BOOLEAN,
            MEDIUM,
            "Whether a thread works out assignments of share groups that take long. Else they are worked out "
            "at once, and all requests wait.",
            update=CLUSTER_WIDE,
        ),
    ] = True
    group_share_initialize_retry_interval_ms: Annotated[
        int, prop(INT, LOW, "When the share coordinator is asked again for a group's partitions.", ge=1)
    ] = 30_000
    group_share_delivery_count_limit: Annotated[
        int, prop(INT, MEDIUM, "How often a record is delivered to a share group at most.", ge=2, le=10)
    ] = 5
    group_share_min_delivery_count_limit: Annotated[
        int, prop(INT, MEDIUM, "The least such limit that a share group may have.", ge=2, le=5)
    ] = 2
    group_share_max_delivery_count_limit: Annotated[
        int, prop(INT, MEDIUM, "The highest such limit that a share group may have.", ge=5, le=25)
    ] = 10
    group_share_record_lock_duration_ms: Annotated[
        int, prop(INT, MEDIUM, "How long a member holds a record that it was given.", ge=1_000, le=3_600_000)
    ] = 30_000
    group_share_min_record_lock_duration_ms: Annotated[
        int, prop(INT, MEDIUM, "The shortest such lock that a share group may have.", ge=1_000, le=30_000)
    ] = 15_000
    group_share_max_record_lock_duration_ms: Annotated[
        int, prop(INT, MEDIUM, "The longest such lock that a share group may have.", ge=30_000, le=3_600_000)
    ] = 60_000
    group_share_partition_max_record_locks: Annotated[
        int, prop(INT, MEDIUM, "The most records of a partition that a group holds.", ge=100, le=10_000)
    ] = 2_000
    group_share_min_partition_max_record_locks: Annotated[
        int, prop(INT, MEDIUM, "The least such number that a share group may have.", ge=100, le=2_000)
    ] = 100
    group_share_max_partition_max_record_locks: Annotated[
        int, prop(INT, MEDIUM, "The highest such number that a group may have.", ge=2_000, le=10_000)
    ] = 4_000
    group_share_max_share_sessions: Annotated[
        int, prop(INT, MEDIUM, "The most sessions of share consumers that the broker keeps.", ge=1)
    ] = 2_000
    errors_deadletterqueue_auto_create_topics_enable: Annotated[
        bool,
        prop(
            BOOLEAN,
            MEDIUM,
            "Whether the dead letter queue of a share group is created when its topic does not exist.",
            update=CLUSTER_WIDE,
        ),
    ] = False
    errors_deadletterqueue_topic_name_prefix: Annotated[
        str,
        prop(
            STRING,
            MEDIUM,
            "What the names of topics begin with that are dead letter queues; empty for any name.",
            update=CLUSTER_WIDE,
        ),
    ] = "dlq."
    # Streams groups (KIP-1071).
    group_streams_session_timeout_ms: Annotated[
        int,
        prop(INT, MEDIUM, "How long a streams group waits for a member's heartbeat.", ge=1),
    ] = 45_000
    group_streams_min_session_timeout_ms: Annotated[
        int,
        prop(INT, MEDIUM, "The shortest session that a streams group may have.", ge=1),
    ] = 45_000
    group_streams_max_session_timeout_ms: Annotated[
        int,
        prop(INT, MEDIUM, "The longest session that a streams group may have.", ge=1),
    ] = 60_000
    group_streams_heartbeat_interval_ms: Annotated[
        int,
        prop(INT, MEDIUM, "How often members of a streams group must send heartbeats.", ge=1),
    ] = 5_000
    group_streams_min_heartbeat_interval_ms: Annotated[
        int,
        prop(INT, MEDIUM, "The shortest heartbeat interval that a streams group may have.", ge=1),
    ] = 5_000
    group_streams_max_heartbeat_interval_ms: Annotated[
        int,
        prop(INT, MEDIUM, "The longest heartbeat interval that a streams group may have.", ge=1),
    ] = 15_000
    group_streams_max_size: Annotated[
        int,
        prop(INT, MEDIUM, "The most members of a streams group.", ge=1),
    ] = 2_147_483_647
    group_streams_num_standby_replicas: Annotated[
        int,
        prop(INT, MEDIUM, "How many standbys each task of a streams group has.", ge=0),
    ] = 0
    group_streams_max_standby_replicas: Annotated[
        int,
        prop(INT, MEDIUM, "The most standbys that a streams group may have.", ge=0),
    ] = 2
    group_streams_initial_rebalance_delay_ms: Annotated[
        int,
        prop(
            INT,
            MEDIUM,
            "How long the first member of a streams group waits for others before tasks are assigned.",
            ge=0,
        ),
    ] = 3_000
    group_streams_assignment_interval_ms: Annotated[
        int,
        prop(INT, MEDIUM, "The least time between two assignments of a streams group.", ge=0),
    ] = 1_000
    group_streams_min_assignment_interval_ms: Annotated[
        int,
        prop(INT, MEDIUM, "The shortest such time that a streams group may have.", ge=0),
    ] = 0
    group_streams_max_assignment_interval_ms: Annotated[
        int,
        prop(INT, MEDIUM, "The longest such time that a streams group may have.", ge=0),
    ] = 15_000
    group_streams_assignor_offload_enable: Annotated[
        bool,
        prop(
            BOOLEAN,
            MEDIUM,
            "Whether a thread works out assignments of streams groups that take long. Else they are worked "
            "out at once, and all requests wait.",
            update=CLUSTER_WIDE,
        ),
    ] = True
    group_streams_assignors: Annotated[
        tuple[Literal["sticky"], ...],
        prop(LIST, MEDIUM, "The assignor of streams groups; there is one."),
    ] = ("sticky",)
    group_streams_task_offset_interval_ms: Annotated[
        int,
        prop(
            INT, MEDIUM, "How often members of a streams group tell how far their tasks are restored.", ge=1
        ),
    ] = 60_000
    group_streams_min_task_offset_interval_ms: Annotated[
        int,
        prop(INT, MEDIUM, "The shortest such time that a streams group may have.", ge=1),
    ] = 15_000
    group_streams_num_warmup_replicas: Annotated[
        int,
        prop(INT, MEDIUM, "How many tasks of a streams group are warmed up at once at most.", ge=0),
    ] = 2
    group_streams_max_warmup_replicas: Annotated[
        int,
        prop(INT, MEDIUM, "The most such tasks that a streams group may have.", ge=0),
    ] = 20
    group_streams_rack_aware_assignment_tags: Annotated[
        tuple[str, ...],
        prop(LIST, MEDIUM, "The client tags over whose values the standbys of a task are spread."),
    ] = ()
    group_streams_acceptable_recovery_lag: Annotated[
        int,
        prop(ConfigType.LONG, MEDIUM, "How many offsets a task may be behind to count as caught up.", ge=0),
    ] = 10_000
    offset_metadata_max_bytes: Annotated[
        int, prop(INT, HIGH, "The most bytes of text that a client may commit with an offset.", ge=0)
    ] = 4096
    offsets_load_buffer_size: Annotated[
        int, prop(INT, HIGH, "How many bytes of the offsets topic are read at once to load groups.", ge=1)
    ] = 5 * 1024 * 1024
    offsets_commit_timeout_ms: Annotated[
        int, prop(INT, HIGH, "How long a group's records may take to reach all in-sync replicas.", ge=1)
    ] = 5_000
    offsets_retention_minutes: Annotated[
        int, prop(INT, HIGH, "How long unused committed offsets are kept.", ge=1)
    ] = 7 * 24 * 60
    offsets_retention_check_interval_ms: Annotated[
        int, prop(LONG, HIGH, "How often offsets are looked for whose retention is over.", ge=1)
    ] = 600_000
    offsets_topic_num_partitions: Annotated[
        int, prop(INT, HIGH, "Partitions of the offsets topic when it is made.", ge=1)
    ] = 50
    offsets_topic_replication_factor: Annotated[
        int,
        prop(
            SHORT,
            HIGH,
            "Replicas of the offsets topic. When it is set, groups wait until so many brokers are there; "
            "unset: 3, or as many as there are when the topic is made.",
            ge=1,
            le=SHORT_MAX,
        ),
    ] = 3
    offsets_topic_segment_bytes: Annotated[
        int, prop(INT, HIGH, "The segment size of the offsets topic when it is made.", ge=1)
    ] = 100 * 1024 * 1024
    offsets_topic_compression_codec: Annotated[
        int,
        prop(
            INT, HIGH, "The codec of the offsets topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.", ge=0, le=4
        ),
    ] = 0

    # The transaction coordinator, its topic, and the check of transactional writes (``TransactionLogConfig``,
    # ``TransactionStateManagerConfig``). Different from Kafka:
    # - ``transaction.state.log.replication.factor`` is 3 at most, not 3, unless it is set (see
    #   ``server.coordinator.service``).
    # - ``transaction.two.phase.commit.enable`` is not there: it belongs to version 6 of InitProducerId, which
    #   Kafka 4.1 holds back.

    transaction_max_timeout_ms: Annotated[
        int,
        prop(INT, HIGH, "The longest timeout that a transactional producer may ask for.", ge=1),
    ] = 15 * 60_000
    transactional_id_expiration_ms: Annotated[
        int,
        prop(INT, HIGH, "How long a transactional id is remembered that begins no transaction.", ge=1),
    ] = 7 * 24 * 3_600_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: Annotated[
        int,
        prop(INT, LOW, "How often transactions are looked for that have timed out, to abort them.", ge=1),
    ] = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: Annotated[
        int, prop(INT, LOW, "How often transactional ids are looked for that have expired.", ge=1)
    ] = 3_600_000
    transaction_state_log_num_partitions: Annotated[
        int, prop(INT, HIGH, "Partitions of the transaction topic when it is made.", ge=1)
    ] = 50
    transaction_state_log_replication_factor: Annotated[
        int,
        prop(
            SHORT,
            HIGH,
            "Replicas of the transaction topic. When it is set, transactional producers wait until so many "
            "brokers are there; unset: 3, or as many as there are when the topic is made.",
            ge=1,
            le=SHORT_MAX,
        ),
    ] = 3
    transaction_state_log_min_isr: Annotated[
        int,
        prop(
            INT,
            HIGH,
            "The min.insync.replicas of the transaction topic when it is made; its number of replicas, "
            "where that is less.",
            ge=1,
        ),
    ] = 2
    transaction_state_log_segment_bytes: Annotated[
        int, prop(INT, HIGH, "The segment size of the transaction topic when it is made.", ge=1)
    ] = 100 * 1024 * 1024
    transaction_state_log_load_buffer_size: Annotated[
        int,
        prop(INT, HIGH, "How many bytes of the transaction topic are read at once to load it.", ge=1),
    ] = 5 * 1024 * 1024
    transaction_partition_verification_enable: Annotated[
        bool,
        prop(
            BOOLEAN,
            LOW,
            "Whether a transactional write is checked with the coordinator of its transaction (KIP-890).",
            update=CLUSTER_WIDE,
        ),
    ] = True
    add_partitions_to_txn_retry_backoff_ms: Annotated[
        int,
        prop(
            INT,
            HIGH,
            "How long a producer's write waits before its partition is added to the transaction again, when "
            "the transaction before is not over yet.",
            ge=1,
        ),
    ] = 20
    add_partitions_to_txn_retry_backoff_max_ms: Annotated[
        int,
        prop(
            INT,
            HIGH,
            "For how long it is tried again before the producer gets CONCURRENT_TRANSACTIONS.",
            ge=0,
        ),
    ] = 100

    # The share coordinator and its topic (``ShareCoordinatorConfig``). Different from Kafka:
    # ``share.coordinator.state.topic.replication.factor`` is 3 at most, not 3, unless it is set.

    share_coordinator_state_topic_num_partitions: Annotated[
        int, prop(INT, HIGH, "Partitions of the share-group state topic when it is made.", ge=1)
    ] = 50
    share_coordinator_state_topic_replication_factor: Annotated[
        int,
        prop(
            SHORT,
            HIGH,
            "Replicas of the share-group state topic. When it is set, share groups wait until so many "
            "brokers are there; unset: 3, or as many as there are when the topic is made.",
            ge=1,
            le=SHORT_MAX,
        ),
    ] = 3
    share_coordinator_state_topic_min_isr: Annotated[
        int,
        prop(
            SHORT,
            HIGH,
            "The min.insync.replicas of the share-group state topic when it is made; its number of replicas, "
            "where that is less.",
            ge=1,
            le=SHORT_MAX,
        ),
    ] = 2
    share_coordinator_state_topic_segment_bytes: Annotated[
        int, prop(INT, HIGH, "The segment size of the share-group state topic when it is made.", ge=1)
    ] = 100 * 1024 * 1024
    share_coordinator_state_topic_compression_codec: Annotated[
        int,
        prop(
            INT,
            HIGH,
            "How records of the share-group state topic are compressed: 0 not at all, 1 gzip, 2 snappy, "
            "3 lz4, 4 zstd.",
            ge=0,
            le=4,
        ),
    ] = 0
    share_coordinator_state_topic_prune_interval_ms: Annotated[
        int,
        prop(
            INT, LOW, "How often records of the share-group state topic are deleted that are redundant.", ge=1
        ),
    ] = 5 * 60_000
    share_coordinator_cold_partition_snapshot_interval_ms: Annotated[
        int,
        prop(
            INT,
            LOW,
            "After this time without a snapshot the state of a share partition is written again, so that "
            "what is before it in the topic can be deleted.",
            ge=1,
        ),
    ] = 5 * 60_000
    share_coordinator_snapshot_update_records_per_snapshot: Annotated[
        int,
        prop(INT, MEDIUM, "Updates of a share partition's state between two snapshots.", ge=0, le=500),
    ] = 500
    share_coordinator_load_buffer_size: Annotated[
        int,
        prop(INT, HIGH, "How many bytes of the share-group state topic are read at once to load it.", ge=1),
    ] = 5 * 1024 * 1024
    share_coordinator_write_timeout_ms: Annotated[
        int,
        prop(
            INT,
            HIGH,
            "How long the share coordinator waits for the replicas of its topic to have a write.",
            ge=1,
        ),
    ] = 5_000

    # The windows of client quotas (``QuotaConfig``). Those of replication quotas are with replication.

    quota_window_num: Annotated[
        int, prop(INT, LOW, "Samples that a client's rate is measured over.", ge=1)
    ] = 11
    quota_window_size_seconds: Annotated[
        int, prop(INT, LOW, "The length of each of these samples.", ge=1)
    ] = 1
    controller_quota_window_num: Annotated[
        int, prop(INT, LOW, "Windows of controller mutations that a client may save up for a burst.", ge=1)
    ] = 11
    controller_quota_window_size_seconds: Annotated[
        int, prop(INT, LOW, "The length of each of these windows.", ge=1)
    ] = 1

    # How dynamic passwords are stored (``PasswordEncoderConfigs``).

    password_encoder_secret: (
        Annotated[
            str,
            prop(
                PASSWORD, MEDIUM, "Passwords that are set while the broker runs are stored encrypted with it."
            ),
        ]
        | None
    ) = None
    password_encoder_old_secret: (
        Annotated[
            str,
            prop(
                PASSWORD,
                MEDIUM,
                "The secret before this one: what it has encrypted is encrypted again at the next start.",
            ),
        ]
        | None
    ) = None
    password_encoder_keyfactory_algorithm: (
        Annotated[
            Literal["PBKDF2WithHmacSHA512", "PBKDF2WithHmacSHA256", "PBKDF2WithHmacSHA1"],
            prop(STRING, LOW, "How a key is made of the secret; none: PBKDF2WithHmacSHA512."),
        ]
        | None
    ) = None
    password_encoder_cipher_algorithm: Annotated[
        Literal["AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"],
        prop(STRING, LOW, "The cipher, under Java's name."),
    ] = "AES/CBC/PKCS5Padding"
    password_encoder_key_length: Annotated[int, prop(INT, LOW, "Bits of the key: 128, 192 or 256.", ge=8)] = (
        128
    )
    password_encoder_iterations: Annotated[
        int, prop(INT, LOW, "Iterations of the key derivation.", ge=1024)
    ] = 4096

    # The broker itself.

    node_id: Annotated[int, prop(INT, HIGH, "The broker's id, unique in its cluster.", ge=0)] = 1
    broker_rack: Annotated[str, prop(STRING, MEDIUM, "The rack that the broker stands in.")] | None = None
    cluster_id: (
        Annotated[
            str, prop(STRING, MEDIUM, "The id of the cluster; unset: what the data says, or a new one.")
        ]
        | None
    ) = None
    num_partitions: Annotated[int, prop(INT, MEDIUM, "Partitions of a topic that does not say.", ge=1)] = 1
    default_replication_factor: Annotated[
        int, prop(INT, MEDIUM, "Replicas of a topic that does not say.", ge=1)
    ] = 1
    auto_create_topics_enable: Annotated[
        bool, prop(BOOLEAN, HIGH, "Whether a topic is created when a client first asks for it.")
    ] = True
    delete_topic_enable: Annotated[bool, prop(BOOLEAN, HIGH, "Whether topics can be deleted.")] = True
    fetch_max_bytes: Annotated[int, prop(INT, MEDIUM, "The most bytes in one fetch response.", ge=1024)] = (
        55 * 1024 * 1024
    )
    fetch_purgatory_purge_interval_requests: Annotated[
        int,
        prop(INT, MEDIUM, "Purge completed fetches from the purgatory when it may hold this many.", ge=0),
    ] = 1000
    max_request_partition_size_limit: Annotated[
        int,
        prop(INT, MEDIUM, "The most partitions in one answer to DescribeTopicPartitions.", ge=1),
    ] = 2000
    max_incremental_fetch_session_cache_slots: Annotated[
        int, prop(INT, MEDIUM, "How many incremental fetch sessions the broker keeps.", ge=0)
    ] = 1000
    api_versions: Annotated[
        Literal["3.9", "4.1", "4.4"],
        prop(
            STRING,
            LOW,
            "The release of Kafka whose APIs and versions clients see, so that they can be tried with an "
            "older broker. Brokers of one cluster, and minikafka's own tools, speak all versions.",
        ),
    ] = "4.4"
    telemetry_max_bytes: Annotated[
        int, prop(INT, LOW, "The most bytes of metrics that a client may send at once.", ge=1)
    ] = 1024 * 1024
    # The flight recorder (``server/runtime/event_recorder``). minikafka's own.

    event_recorder_max_bytes: Annotated[
        int,
        prop(
            INT,
            LOW,
            "How much of what the broker has decided is kept, in memory and in two files in the first of "
            "log.dirs, for minikafka events and the status page; the oldest goes first. 0: nothing is kept.",
            ge=0,
        ),
    ] = 4 * 1024 * 1024
    event_recorder_flush_interval_ms: Annotated[
        int,
        prop(
            INT,
            LOW,
            "How long an event waits until it is written to the file: what a killed broker may lose.",
            ge=1,
        ),
    ] = 200
    event_recorder_slow_request_ms: Annotated[
        int,
        prop(
            LONG,
            LOW,
            "A request that takes longer is recorded as an event, with its phases. Waiting that was asked "
            "for, such as a fetch's for records, does not count.",
            ge=1,
        ),
    ] = 1000
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        prop(STRING, LOW, "The least severe lines that are logged."),
    ] = "info"
    log_format: Annotated[
        Literal["text", "json"],
        prop(STRING, LOW, "How log lines look: for people, or one JSON object a line."),
    ] = "text"

    # Batches that are followed (``server/tracing``); minikafka's own.

    trace_one_in: Annotated[
        int,
        prop(
            INT,
            LOW,
            "Follow one in so many of the batches that producers write, on all brokers alike, and send their "
            "spans to trace.otlp.endpoint; 0: none.",
            ge=0,
            update=CLUSTER_WIDE,
        ),
    ] = 0
    trace_otlp_endpoint: (
        Annotated[
            str,
            prop(
                STRING,
                LOW,
                "Where spans of batches that are followed are sent, by OTLP over HTTP: the URL of a "
                "collector, Jaeger or Tempo, like http://localhost:4318; where it has no path, /v1/traces is "
                "added. It needs the extra otel.",
            ),
        ]
        | None
    ) = None
    trace_otlp_headers: (
        Annotated[
            str,
            prop(
                PASSWORD,
                LOW,
                "Headers of these requests: NAME=VALUE, several with commas, values percent-encoded, as in "
                "OTEL_EXPORTER_OTLP_HEADERS.",
            ),
        ]
        | None
    ) = None

    originals: dict[str, str] = msgspec.field(default_factory=dict)
    """The property texts that this was made of (``AbstractConfig.originals``); no property itself."""

    # The HTTP port: where it listens, whom it answers, and its TLS (as ``SslConfigs``; used when there is a
    # key store). minikafka's own; Kafka has JMX for this.

    http_port: (
        Annotated[
            int,
            prop(
                INT,
                MEDIUM,
                "The port of the status page, /metrics, /healthz and /readyz; 0: any free one; unset: none.",
                ge=0,
                le=65535,
            ),
        ]
        | None
    ) = None
    http_host: Annotated[
        str,
        prop(
            STRING,
            MEDIUM,
            "The address that the HTTP port listens on; empty: all. Beyond this machine it wants "
            "http.bearer.token or http.basic.auth.users, and http.ssl.keystore.location.",
        ),
    ] = "127.0.0.1"
    http_allowed_hosts: Annotated[
        tuple[str, ...],
        prop(
            LIST,
            MEDIUM,
            "Names that the HTTP port is asked under, besides localhost, http.host, the address of the "
            "connection and the hosts that listeners advertise; *: any, which lets other sites' pages read "
            "it through a browser (DNS rebinding).",
        ),
    ] = ()

    # Who may read.

    http_bearer_token: (
        Annotated[
            str,
            prop(
                PASSWORD,
                MEDIUM,
                "The token that readers of the HTTP port show (Authorization: Bearer TOKEN); several with "
                "commas, so that they can be changed one after the other.",
            ),
        ]
        | None
    ) = None
    http_basic_auth_users: (
        Annotated[
            str,
            prop(
                PASSWORD,
                MEDIUM,
                "Users that may read the HTTP port, with their passwords: NAME:PASSWORD, several with "
                r"commas; a comma in a password is written \,.",
            ),
        ]
        | None
    ) = None

    # What the console on it shows and does.

    http_messages: (
        Annotated[
            bool,
            prop(
                BOOLEAN,
                MEDIUM,
                "Whether the console on the HTTP port shows keys and values of records; unset: only where "
                "the cluster has neither an authorizer nor a listener that authenticates, and readers from "
                "other machines authenticate.",
            ),
        ]
        | None
    ) = None
    http_admin: Annotated[
        bool,
        prop(
            BOOLEAN,
            MEDIUM,
            "Whether the console on the HTTP port changes things (resets offsets, cancels reassignments) for "
            "readers who authenticate: http.bearer.token, http.basic.auth.users, or "
            "http.ssl.client.auth=required.",
        ),
    ] = False
    http_registry_url: (
        Annotated[
            str,
            prop(
                STRING,
                MEDIUM,
                "The schema registry that the console decodes Avro and Protobuf by, like "
                "http://localhost:8081. It needs the extra console.",
            ),
        ]
        | None
    ) = None
    http_registry_basic_auth_user_info: (
        Annotated[
            str,
            prop(PASSWORD, MEDIUM, "Who asks that registry, as basic.auth.user.info has it: NAME:PASSWORD."),
        ]
        | None
    ) = None

    # TLS (``SslConfigs``).

    http_ssl_protocol: Annotated[str, prop(STRING, LOW, "As ssl.protocol, for the HTTP port.")] = "TLSv1.3"
    http_ssl_enabled_protocols: Annotated[
        tuple[str, ...], prop(LIST, LOW, "As ssl.enabled.protocols, for the HTTP port.")
    ] = ("TLSv1.2", "TLSv1.3")
    http_ssl_cipher_suites: Annotated[
        tuple[str, ...], prop(LIST, LOW, "As ssl.cipher.suites, for the HTTP port.")
    ] = ()
    http_ssl_client_auth: Annotated[
        Literal["none", "requested", "required"],
        prop(STRING, MEDIUM, "Whether readers of the HTTP port show a certificate; probes too, if required."),
    ] = "none"
    http_ssl_keystore_type: Annotated[
        StoreTypeName, prop(STRING, MEDIUM, "The kind of the HTTP port's key store: PEM or PKCS12.")
    ] = "JKS"
    http_ssl_keystore_location: (
        Annotated[
            str, prop(STRING, HIGH, "The file with the HTTP port's key and certificate; with it, HTTPS.")
        ]
        | None
    ) = None
    http_ssl_keystore_password: (
        Annotated[str, prop(PASSWORD, HIGH, "The password of the HTTP port's key store.")] | None
    ) = None
    http_ssl_keystore_key: (
        Annotated[str, prop(PASSWORD, HIGH, "The HTTP port's private key itself, PEM (PKCS #8).")] | None
    ) = None
    http_ssl_keystore_certificate_chain: (
        Annotated[str, prop(PASSWORD, HIGH, "The HTTP port's certificates themselves, PEM.")] | None
    ) = None
    http_ssl_key_password: (
        Annotated[str, prop(PASSWORD, HIGH, "The password of the HTTP port's private key.")] | None
    ) = None
    http_ssl_truststore_type: Annotated[
        StoreTypeName, prop(STRING, MEDIUM, "The kind of the HTTP port's trust store: PEM or PKCS12.")
    ] = "JKS"
    http_ssl_truststore_location: (
        Annotated[str, prop(STRING, HIGH, "The file with the authorities of readers' certificates.")] | None
    ) = None
    http_ssl_truststore_password: (
        Annotated[str, prop(PASSWORD, HIGH, "The password of the HTTP port's trust store.")] | None
    ) = None
    http_ssl_truststore_certificates: (
        Annotated[str, prop(PASSWORD, HIGH, "The authorities of readers' certificates themselves, PEM.")]
        | None
    ) = None
    http_ssl_crl_location: (
        Annotated[str, prop(STRING, LOW, "As ssl.crl.location, for readers of the HTTP port.")] | None
    ) = None

    def __repr__(self) -> str:
        """What is not as by default; passwords are not told."""
        told = ", ".join(
            f"{key.attribute}={HIDDEN if key.type is ConfigType.PASSWORD else repr(value)}"
            for key in BROKER_CONFIG_KEYS.values()
            if key.name not in ALIASES and (value := getattr(self, key.attribute)) != key.default
        )
        return f"BrokerConfig({told})"

    @property
    def broker_id(self) -> int:
        """The same as ``node_id``, as in Kafka."""
        return self.node_id

    def endpoints(self) -> tuple[Listener, ...]:
        """Where to listen, without the listeners of a KRaft controller."""
        return self._listeners("listeners", self.listeners, distinct_ports=True)

    def advertised_endpoints(self) -> tuple[Listener, ...]:
        """What clients are told to connect to. A host may be empty (all interfaces, nothing advertised)
        and a port 0 (the system's choice) when ``advertised.listeners`` is unset: the server fills both in.
        """
        if self.advertised_listeners is None:
            return self.endpoints()
        return self._listeners("advertised.listeners", self.advertised_listeners, distinct_ports=False)

    def inter_broker_listener(self) -> str:
        """The name of the listener that brokers use: the configured one, one with the configured protocol,
        or the first there is."""
        if self.inter_broker_listener_name is not None:
            return self.inter_broker_listener_name.upper()
        listeners = self.advertised_endpoints()
        protocol = self.security_inter_broker_protocol
        of_protocol = [each.name for each in listeners if each.protocol == protocol]
        return next(
            iter([name for name in of_protocol if name == protocol] or of_protocol), listeners[0].name
        )

    def inter_broker_protocol(self) -> str:
        """The security protocol of that listener."""
        name = self.inter_broker_listener()
        return next(each.protocol for each in self.advertised_endpoints() if each.name == name)

    def listener_security(self, listener_name: str) -> SecurityConfig:
        """What holds for one listener: its own values, and the broker's where it has none (KIP-103).

        Without what is one mechanism's alone (``listener.name.NAME.MECHANISM.…``).
        """
        values: dict[str, Any] = {field: getattr(self, field) for field in SecurityConfig.__struct_fields__}
        for name, text in self.originals.items():
            parts = listener_property(name)
            if parts is None or parts.listener != listener_name.upper() or parts.mechanism is not None:
                continue
            key = BROKER_CONFIG_KEYS.get(parts.name)
            if key is not None and key.attribute in values:
                values[key.attribute] = None if key.nullable and not text.strip() else parse_value(key, text)
        return SecurityConfig(**values)

    def coordination_path(self) -> str:
        """The file of the embedded store."""
        if self.coordination is None:
            return f"{self.log_dirs[0]}/{COORDINATION_FILE}"
        return self.coordination.removeprefix(SQLITE_SCHEME)

    def connection_overrides(self) -> dict[str, int]:
        """``max.connections.per.ip.overrides`` as host → most connections."""
        return _parse_overrides(self.max_connections_per_ip_overrides)

    def listener_value(self, listener_name: str, name: str) -> Any:
        """One of ``LISTENER_KEYS_EXTRA`` as a listener has it for itself; None: it has none."""
        for full_name, text in self.originals.items():
            parts = listener_property(full_name)
            if parts is not None and (parts.listener, parts.name) == (listener_name.upper(), name):
                return parse_value(BROKER_CONFIG_KEYS[name], text)
        return None

    def static_properties(self) -> dict[str, str]:
        """The texts this was made of, and values that code has set: Kafka's static broker configs."""
        changed = {
            key.name: text
            for key in BROKER_CONFIG_KEYS.values()
            if ALIASES.get(key.name) is None
            and getattr(self, key.attribute) != key.default
            and (text := format_value(key, getattr(self, key.attribute))) is not None
            and not any(name in self.originals for name in names_of_one_thing(key.name))
        }
        return {**changed, **self.originals}

    def http_tls(self) -> SecurityConfig | None:
        """The HTTP port's TLS under a listener's names; None: plain HTTP.

        Raises:
            ConfigError: something is said about TLS, and there is no key store.
        """
        values: dict[str, Any] = {}
        for field, default in _HTTP_TLS_DEFAULTS.items():
            if (value := getattr(self, field)) != default:
                values[field.removeprefix("http_")] = value
        if values.keys() & {"ssl_keystore_location", "ssl_keystore_key"}:
            return SecurityConfig(**values)
        if values:
            name = f"http.{min(values).replace('_', '.')}"
            raise ConfigError(
                f"{name} is set, but the HTTP port has no key store: set http.ssl.keystore.location, or "
                "http.ssl.keystore.key and http.ssl.keystore.certificate.chain"
            )
        return None

    def http_scheme(self) -> str:
        """What addresses of the port begin with."""
        return "http" if self.http_tls() is None else "https"

    def registry_url(self) -> str | None:
        """``http.registry.url``. Raises ConfigError: it is no URL."""
        given = self.http_registry_url
        if given is not None and not is_registry_url(given):
            raise ConfigError(
                f"Invalid value {given} for configuration http.registry.url: must be a URL like "
                "http://localhost:8081, without a user"
            )
        return given

    def check_registry_user(self) -> None:
        """Raises ConfigError: ``http.registry.basic.auth.user.info`` is not NAME:PASSWORD."""
        name, _, password = (self.http_registry_basic_auth_user_info or "name:password").partition(":")
        if not name or not password:
            raise ConfigError(
                f"Invalid value {HIDDEN} for configuration http.registry.basic.auth.user.info: must be "
                "NAME:PASSWORD"
            )

    def check_http_admin(self) -> None:
        """Raises ConfigError: no reader could change anything, because none can authenticate."""
        can = self.http_bearer_token or self.http_basic_auth_users or self.http_ssl_client_auth == "required"
        if self.http_admin and not can:
            raise ConfigError(
                "http.admin is true, but readers of the HTTP port do not authenticate: set "
                "http.bearer.token, http.basic.auth.users or http.ssl.client.auth=required"
            )

    def otlp_url(self) -> str | None:
        """``trace.otlp.endpoint`` with its path. Raises ConfigError: it is no URL."""
        given = self.trace_otlp_endpoint
        if given is None:
            return None
        why = (
            f"Invalid value {given} for configuration trace.otlp.endpoint: must be a URL like "
            "http://localhost:4318"
        )
        try:
            url = urlsplit(given)
            port = url.port
        except ValueError:
            raise ConfigError(why) from None
        if url.scheme not in ("http", "https") or not url.hostname or port == 0:
            raise ConfigError(why)
        return url.geturl() if url.path.strip("/") else url._replace(path="/v1/traces").geturl()

    def otlp_headers(self) -> dict[str, str]:
        """``trace.otlp.headers`` by name. Raises ConfigError."""
        headers: dict[str, str] = {}
        for pair in filter(None, (each.strip() for each in (self.trace_otlp_headers or "").split(","))):
            name, equals, value = pair.partition("=")
            if not equals or not _HEADER_NAME.fullmatch(name.strip()) or not unquote(value).isprintable():
                raise ConfigError(
                    "Invalid value for configuration trace.otlp.headers: must be NAME=VALUE, several with "
                    "commas"
                )
            headers[name.strip()] = unquote(value.strip())
        return headers

    def http_bearer_tokens(self) -> tuple[str, ...]:
        """Raises ConfigError: a token with characters that none can have."""
        tokens = tuple(filter(None, (part.strip() for part in (self.http_bearer_token or "").split(","))))
        if not all(map(_TOKEN.fullmatch, tokens)):
            raise ConfigError(
                f"Invalid value {HIDDEN} for configuration http.bearer.token: a token has letters, digits "
                "and -._~+/ only, and = at its end"
            )
        return tokens

    def http_basic_users(self) -> tuple[tuple[str, str], ...]:
        """Names and passwords. Raises ConfigError: an entry without one of them, or a name twice."""
        users: list[tuple[str, str]] = []
        for entry in re.split(r"(?<!\\),", self.http_basic_auth_users or ""):
            name, separator, password = entry.strip().replace("\\,", ",").partition(":")
            if not name and not separator:
                continue
            if not name or not password or name in dict(users):
                raise ConfigError(
                    f"Invalid value {HIDDEN} for configuration http.basic.auth.users: must be NAME:PASSWORD, "
                    "several with commas, each name once"
                )
            users.append((name, password))
        return tuple(users)

    def _listeners(self, name: str, values: tuple[str, ...], *, distinct_ports: bool) -> tuple[Listener, ...]:
        protocols = parse_protocol_map(self.listener_security_protocol_map)
        return parse_listeners(
            name,
            values,
            protocols=protocols,
            left_out=self.controller_listener_names,
            distinct_ports=distinct_ports,
        )


_HTTP_TLS_DEFAULTS: dict[str, Any] = {
    field: default
    for field, default in zip(BrokerConfig.__struct_fields__, BrokerConfig.__struct_defaults__, strict=True)
    if field.startswith(_HTTP_TLS_PREFIX)
}


def is_registry_url(text: str) -> bool:
    """Whether it is a URL of http or https, with a host and without a user, query or fragment."""
    try:
        url = urlsplit(text)
        is_url = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False
    return is_url and url.username is None and not url.query and not url.fragment


ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs"}
"""Other names that Kafka has for a property."""


def _broker_keys() -> dict[str, ConfigKey]:
    keys = config_keys(BrokerConfig)
    for alias, name in ALIASES.items():
        keys[alias] = msgspec.structs.replace(
            keys[name], name=alias, documentation=f"Another name of {name}. {keys[name].documentation}"
        )
    return dict(sorted(keys.items()))


BROKER_CONFIG_KEYS: dict[str, ConfigKey] = _broker_keys()
"""Every broker property by its name."""


def broker_config_key(name: str) -> ConfigKey | None:
    """What the broker property ``name`` is, also of one listener (``listener.name.NAME.…``), and whether it
    is honoured or not; None for an unknown name."""
    key = BROKER_CONFIG_KEYS.get(name)
    if key is not None:
        return key
    parts = listener_property(name)
    if parts is None:
        return _not_honoured(name)
    key = BROKER_CONFIG_KEYS.get(parts.name)
    if key is None and parts.name.startswith(("sasl.", "ssl.", "principal.builder.")):
        key = _not_honoured(parts.name)
        if key is not None and parts.listener:
            return msgspec.structs.replace(key, name=name)
    if key is None or not parts.listener:
        return None
    is_security = key.attribute in SecurityConfig.__struct_fields__ and may_be_of_listener(key.name)
    if not is_security and (parts.mechanism is not None or key.name not in LISTENER_KEYS_EXTRA):
        return None
    if parts.mechanism is not None and not key.name.startswith(("sasl.", "connections.max.reauth")):
        return None
    documentation = f"{key.name} of the listener {parts.listener} alone. {key.documentation}"
    update_mode = UpdateMode.PER_BROKER if key.name.startswith(LOGIN_KEY_PREFIXES) else key.update_mode
    return msgspec.structs.replace(key, name=name, documentation=documentation, update_mode=update_mode)


def _not_honoured(name: str) -> ConfigKey | None:
    from minikafka.config.not_honoured import not_honoured_keys  # most brokers set none of them

    return not_honoured_keys().get(name)


def is_honoured(name: str) -> bool:
    """Whether a known property does what it says. The others have no attribute."""
    key = broker_config_key(name)
    return key is not None and bool(key.attribute)


def is_password(name: str) -> bool:
    """Whether a broker property is a password, also that of a listener."""
    key = broker_config_key(name)
    return key is not None and key.type is PASSWORD


_GROUPS: tuple[tuple[str, ...], ...] = (
    ("node.id", "broker.id"),
    ("log.dirs", "log.dir"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)


def names_of_one_thing(name: str) -> tuple[str, ...]:
    """``name`` and the other names for what it sets, the strongest first (``brokerConfigSynonyms``)."""
    return next((group for group in _GROUPS if name in group), (name,))


def override_properties(base: dict[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """``base`` with ``overrides`` on top (``DynamicBrokerConfig.overrideProps``).

    A property that is overridden takes its other names with it: ``log.retention.hours`` in a stronger place
    beats ``log.retention.ms`` in a weaker one. (The flush interval and its scheduler: two settings.)
    """
    merged = dict(base)
    for name in overrides:
        for other in names_of_one_thing(name):
            if name != "log.flush.scheduler.interval.ms" and other != "log.flush.scheduler.interval.ms":
                merged.pop(other, None)
    return {**merged, **overrides}


def broker_config(properties: Mapping[str, str]) -> BrokerConfig:
    """A checked ``BrokerConfig`` from property texts.

    Raises:
        ConfigError: an unknown name, a value that is not allowed, or values that contradict each other.
    """
    values: dict[str, Any] = {}
    for name in sorted(properties, key=lambda name: name in ALIASES):  # an alias only fills a gap
        key = broker_config_key(name)
        if key is None:
            raise ConfigError(f"Unknown broker config name: {name}")
        text = properties[name]
        value = None if key.nullable and not text.strip() else parse_value(key, text)
        if not key.attribute:
            _check_not_honoured(name, text)
            continue
        if name not in BROKER_CONFIG_KEYS:  # of one listener: see ``listener_security``
            continue
        if values.setdefault(key.attribute, value) != value and name == "broker.id":
            raise ConfigError(
                f"node.id ({values['node_id']}) and broker.id ({value}) must be the same when both are set"
            )
    config = BrokerConfig(**values, originals=dict(properties))
    check_broker_config(config)
    return config


def _check_not_honoured(name: str, text: str) -> None:
    from minikafka.config.not_honoured import check_not_honoured

    parts = listener_property(name)
    check_not_honoured(name if parts is None else parts.name, text, given_name=name)


def _parse_overrides(text: str) -> dict[str, int]:
    overrides: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, _, count = entry.rpartition(":")
        digits = count.strip()
        is_count = digits.isascii() and digits.isdigit() and len(digits) <= 10 and int(digits) <= INT_MAX
        if not host or not is_count:
            raise _invalid("max.connections.per.ip.overrides", entry, "must be host:count")
        overrides[host.strip().strip("[]")] = int(digits)
    return overrides


def _invalid(name: str, value: object, why: str) -> ConfigError:
    return ConfigError(f"Invalid value {value} for configuration {name}: {why}")


def effective_retention_ms(config: BrokerConfig) -> int:
    """``log.retention.ms``, else ``.minutes``, else ``.hours``, in milliseconds; -1 for no limit."""
    if config.log_retention_ms is not None:
        value = config.log_retention_ms
    elif config.log_retention_minutes is not None:
        value = config.log_retention_minutes * MINUTE_MS
    else:
        value = config.log_retention_hours * HOUR_MS
    return max(value, -1)
