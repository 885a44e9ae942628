"""The broker properties of replication and of the controller. Kafka: ``ReplicationConfigs``."""

from typing import Annotated

from minikafka.config.definition import INT_MAX, LONG_MAX, ConfigType, Importance, UpdateMode, prop
from minikafka.config.log_properties import LogProperties

BOOLEAN, INT, LONG, STRING = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG, ConfigType.STRING
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW

MIB = 1024 * 1024


class ReplicationProperties(LogProperties, frozen=True, kw_only=True):
    """A field is the property's name with underscores for dots."""

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
        prop(INT, MEDIUM, "Sweep finished produces out of the purgatory when this many may be in it.", ge=0),
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
        int, prop(INT, MEDIUM, "Tries to have the leaders moved.", ge=1)
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
            update=UpdateMode.CLUSTER_WIDE,
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
            update=UpdateMode.CLUSTER_WIDE,
        ),
    ] = LONG_MAX
    replica_alter_log_dirs_io_max_bytes_per_second: Annotated[
        int,
        prop(
            LONG,
            MEDIUM,
            "The most bytes a second that move between the broker's log directories; best kept above 1 MB/s.",
            ge=0,
            update=UpdateMode.CLUSTER_WIDE,
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
