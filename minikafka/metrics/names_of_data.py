"""The series of topics, partitions, logs and replication; see ``names``."""

from __future__ import annotations

from functools import partial

from minikafka.metrics.series import Series, counter, gauge, mbean_counter, mbean_gauge, mbean_summary

_topic_counter = partial(mbean_counter, "kafka.server:BrokerTopicMetrics")

# Traffic. ``topic``: those that this broker hosts; a topic that is gone takes its series along.
MESSAGES_IN = _topic_counter("MessagesIn", "Records that producers appended.", "topic")
BYTES_IN = _topic_counter("BytesIn", "Bytes of record batches that producers appended.", "topic")
BYTES_OUT = _topic_counter("BytesOut", "Bytes of record batches that consumers were answered with.", "topic")
BYTES_REJECTED = _topic_counter("BytesRejected", "Bytes of batches larger than allowed.", "topic")
PRODUCE_REQUESTS = _topic_counter("TotalProduceRequests", "Appends of producers, one a partition.", "topic")
FETCH_REQUESTS = _topic_counter("TotalFetchRequests", "Reads of partitions by fetches.", "topic")
FAILED_PRODUCE_REQUESTS = _topic_counter(
    "FailedProduceRequests", "Appends that were refused, one a partition.", "topic"
)
FAILED_FETCH_REQUESTS = _topic_counter(
    "FailedFetchRequests", "Reads that were refused, one a partition.", "topic"
)
REPLICATION_BYTES_IN = _topic_counter("ReplicationBytesIn", "Bytes that this broker's fetchers appended.")
REPLICATION_BYTES_OUT = _topic_counter("ReplicationBytesOut", "Bytes that followers were answered with.")
TRAFFIC = (
    MESSAGES_IN,
    BYTES_IN,
    BYTES_OUT,
    BYTES_REJECTED,
    PRODUCE_REQUESTS,
    FETCH_REQUESTS,
    FAILED_PRODUCE_REQUESTS,
    FAILED_FETCH_REQUESTS,
    REPLICATION_BYTES_IN,
    REPLICATION_BYTES_OUT,
)


_replica_manager = partial(mbean_gauge, "kafka.server:ReplicaManager")
_isr_counter = partial(mbean_counter, "kafka.server:ReplicaManager")


LEADER_COUNT = _replica_manager("LeaderCount", "Partitions that this broker leads.")
PARTITION_COUNT = _replica_manager("PartitionCount", "Replicas that are online here.")
OFFLINE_REPLICA_COUNT = _replica_manager("OfflineReplicaCount", "Replicas whose log directory is offline.")
UNDER_REPLICATED = _replica_manager(
    "UnderReplicatedPartitions",
    "Partitions led here whose ISR lacks a replica; those that a reassignment adds do not count yet.",
)
UNDER_MIN_ISR = _replica_manager(
    "UnderMinIsrPartitionCount", "Partitions led here whose ISR is smaller than min.insync.replicas."
)
AT_MIN_ISR = _replica_manager(
    "AtMinIsrPartitionCount", "Partitions led here whose ISR is as large as min.insync.replicas."
)
ISR_SHRINKS = _isr_counter("IsrShrinks", "Changes by which an ISR became smaller.")
ISR_EXPANDS = _isr_counter("IsrExpands", "Changes by which an ISR became larger.")
FAILED_ISR_UPDATES = _isr_counter("FailedIsrUpdates", "Changes of an ISR that were not written as proposed.")
REPLICAS = (
    LEADER_COUNT,
    PARTITION_COUNT,
    OFFLINE_REPLICA_COUNT,
    UNDER_REPLICATED,
    UNDER_MIN_ISR,
    AT_MIN_ISR,
    ISR_SHRINKS,
    ISR_EXPANDS,
    FAILED_ISR_UPDATES,
)


def _partition(name: str, help: str) -> Series:
    return mbean_gauge("kafka.cluster:Partition", name, help, "topic", "partition")


def _log(name: str, help: str) -> Series:
    return mbean_gauge("kafka.log:Log", name, help, "topic", "partition")


# One a hosted partition. Only the leader's are more than 0, as in Kafka.
PARTITION_UNDER_REPLICATED = _partition("UnderReplicated", "1: led here, the ISR lacks a replica.")
PARTITION_UNDER_MIN_ISR = _partition("UnderMinIsr", "1: led here, the ISR is below min.insync.replicas.")
PARTITION_AT_MIN_ISR = _partition("AtMinIsr", "1: led here, the ISR is just min.insync.replicas.")
PARTITION_REPLICAS = _partition("ReplicasCount", "Replicas of the assignment; 0 unless led here.")
PARTITION_IN_SYNC = _partition("InSyncReplicasCount", "Replicas of the ISR; 0 unless led here.")
LOG_SIZE = _log("Size", "Bytes of the segments of the local replica.")
LOG_SEGMENTS = _log("NumLogSegments", "Segments of the local replica.")
LOG_START_OFFSET = _log("LogStartOffset", "First offset of the local replica.")
LOG_END_OFFSET = _log("LogEndOffset", "Offset after the last record of the local replica.")
PARTITION_HIGH_WATERMARK = gauge(
    "kafka_topic_partition_current_offset",
    "High watermark: consumers read below it. Only the leader shows it.",
    "topic",
    "partition",
)
PARTITION_OLDEST_OFFSET = gauge(
    "kafka_topic_partition_oldest_offset",
    "Log start offset at the leader. Only the leader shows it.",
    "topic",
    "partition",
)
PARTITION_LEADER = gauge(
    "kafka_topic_partition_leader", "The leader's broker id; -1: nobody leads.", "topic", "partition"
)
PARTITION_REPLICA_COUNT = gauge(
    "kafka_topic_partition_replicas", "Replicas of the assignment.", "topic", "partition"
)
PARTITION_ISR_COUNT = gauge(
    "kafka_topic_partition_in_sync_replica", "Replicas of the ISR.", "topic", "partition"
)
PARTITION_LEADER_IS_PREFERRED = gauge(
    "kafka_topic_partition_leader_is_preferred",
    "1: the first replica of the assignment leads.",
    "topic",
    "partition",
)
PARTITION_IS_UNDER_REPLICATED = gauge(
    "kafka_topic_partition_under_replicated_partition",
    "1: the ISR lacks a replica, or one that a reassignment adds.",
    "topic",
    "partition",
)
BROKERS = gauge("kafka_brokers", "Brokers that are registered. Only the controller shows it.")
BROKER_INFO = gauge(
    "kafka_broker_info", "1, for each registered broker. Only the controller shows it.", "id", "address"
)
TOPIC_PARTITIONS = gauge(
    "kafka_topic_partitions", "Partitions of the topic. Only the controller shows it.", "topic"
)
PARTITIONS = (
    PARTITION_UNDER_REPLICATED,
    PARTITION_UNDER_MIN_ISR,
    PARTITION_AT_MIN_ISR,
    PARTITION_REPLICAS,
    PARTITION_IN_SYNC,
    LOG_SIZE,
    LOG_SEGMENTS,
    LOG_START_OFFSET,
    LOG_END_OFFSET,
    PARTITION_HIGH_WATERMARK,
    PARTITION_OLDEST_OFFSET,
    PARTITION_LEADER,
    PARTITION_REPLICA_COUNT,
    PARTITION_ISR_COUNT,
    PARTITION_LEADER_IS_PREFERRED,
    PARTITION_IS_UNDER_REPLICATED,
    BROKERS,
    BROKER_INFO,
    TOPIC_PARTITIONS,
)

_log_manager = partial(mbean_gauge, "kafka.log:LogManager")
LOG_DIRECTORIES_OFFLINE = _log_manager("OfflineLogDirectoryCount", "Log directories that failed.")
LOG_DIRECTORY_OFFLINE = _log_manager("LogDirectoryOffline", "1: the log directory failed.", "logDirectory")
LOG_DIRECTORY_BYTES = gauge(
    "minikafka_log_directory_total_bytes", "Size of the log directory's file system.", "logDirectory"
)
LOG_DIRECTORY_FREE_BYTES = gauge(
    "minikafka_log_directory_free_bytes", "What the broker may still use of it.", "logDirectory"
)
LOG_FLUSHES = mbean_summary(
    "kafka.log:LogFlushStats",
    "LogFlushRateAndTimeMs",
    "Flushes of logs to the disk. Milliseconds; Kafka's are of one segment, these of all of a log.",
)


_CLEANER, _CLEANER_MANAGER = "kafka.log:LogCleaner", "kafka.log:LogCleanerManager"

# Percents are 0 to 100 here, as in Kafka, which cuts them and the seconds to whole numbers.
CLEANER_UNCLEANABLE = mbean_gauge(
    _CLEANER_MANAGER,
    "uncleanable-partitions-count",
    "Logs that cannot be compacted and are left as they are.",
    "logDirectory",
)
CLEANER_UNCLEANABLE_BYTES = mbean_gauge(
    _CLEANER_MANAGER, "uncleanable-bytes", "What should be compacted in those logs.", "logDirectory"
)
CLEANER_MAX_DIRTY = mbean_gauge(
    _CLEANER_MANAGER, "max-dirty-percent", "Bytes of the dirtiest log that have not been compacted."
)
CLEANER_SINCE_LAST_RUN = mbean_gauge(
    _CLEANER_MANAGER,
    "time-since-last-run-ms",
    "Since a cleaner looked for a log to compact: log.cleaner.backoff.ms at most, when it has nothing to do.",
)
CLEANER_RECOPY = mbean_gauge(
    _CLEANER,
    "cleaner-recopy-percent",
    "Bytes that the last compactions wrote, in percent of those that they read.",
)
CLEANER_BUFFER = mbean_gauge(
    _CLEANER,
    "max-buffer-utilization-percent",
    "The part of its buffer that the last compaction's keys took, of the cleaner with the most.",
)
CLEANER_TIME = mbean_gauge(
    _CLEANER,
    "max-clean-time-secs",
    "How long the last compaction took, of the cleaner that took longest.",
)
CLEANER_DELAY = mbean_gauge(
    _CLEANER,
    "max-compaction-delay-secs",
    "By how much a log's compaction is later than max.compaction.lag.ms, of the latest.",
)
CLEANER_DEAD = mbean_gauge(_CLEANER, "DeadThreadCount", "Cleaners that a bug has ended for the moment.")
CLEANER_IN_PROGRESS = gauge("minikafka_log_cleaner_in_progress", "Logs that are being compacted.")
CLEANER_COMPACTIONS = counter("minikafka_log_cleaner_compactions", "Compactions that were swapped in.")
LOGS = (
    LOG_DIRECTORIES_OFFLINE,
    LOG_DIRECTORY_OFFLINE,
    LOG_DIRECTORY_BYTES,
    LOG_DIRECTORY_FREE_BYTES,
    LOG_FLUSHES,
    CLEANER_UNCLEANABLE,
    CLEANER_UNCLEANABLE_BYTES,
    CLEANER_MAX_DIRTY,
    CLEANER_SINCE_LAST_RUN,
    CLEANER_RECOPY,
    CLEANER_BUFFER,
    CLEANER_TIME,
    CLEANER_DELAY,
    CLEANER_DEAD,
    CLEANER_IN_PROGRESS,
    CLEANER_COMPACTIONS,
)


def _fetcher_manager(name: str, help: str) -> Series:
    return mbean_gauge("kafka.server:ReplicaFetcherManager", name, help, "clientId")


def _fetcher(name: str, help: str) -> Series:
    help = f"{help} By the fetcher and the leader that it fetches from."
    return mbean_counter("kafka.server:FetcherStats", name, help, "clientId", "brokerHost", "brokerPort")


# Following.
FETCHER_MAX_LAG = _fetcher_manager("MaxLag", "Records by which the partition that lags most lags.")
FETCHER_MIN_RATE = _fetcher_manager(
    "MinFetchRate", "Fetch requests a second of the slowest fetcher, over the last minute; none: 0."
)
FETCHER_DEAD = _fetcher_manager("DeadThreadCount", "Fetchers whose loop has ended for no reason.")
FETCHER_FAILED = _fetcher_manager(
    "FailedPartitionsCount", "Partitions that are not fetched any more because something is wrong with them."
)
FETCHER_REQUESTS = _fetcher("Requests", "Fetch requests of followers, answered or not.")
FETCHER_BYTES = _fetcher("Bytes", "Bytes of records that followers appended.")
FETCHER_LAG = mbean_gauge(
    "kafka.server:FetcherLagMetrics",
    "ConsumerLag",
    "Records by which the local replica lags behind its leader, as of the last answer.",
    "clientId",
    "topic",
    "partition",
)


def _replication_rate(kind: str, whose: str) -> Series:
    return gauge(
        f"kafka_server_{kind.lower()}_byte_rate",
        f"Bytes a second of throttled replicas that {whose}.",
        mbean=f"kafka.server:type={kind},attribute byte-rate",
    )


LEADER_REPLICATION_RATE = _replication_rate("LeaderReplication", "followers fetch here")
FOLLOWER_REPLICATION_RATE = _replication_rate("FollowerReplication", "this broker fetches")
ALTER_LOG_DIRS_RATE = _replication_rate("AlterLogDirsReplication", "move between log directories here")
REPLICATION_BOUND = gauge(
    "minikafka_replication_quota_bytes_per_second",
    "The bound of a replication quota, by its type as above; there is none where the series is missing.",
    "type",
)
REPLICATION_HELD_BACK = counter(
    "minikafka_replication_held_back",
    "How often a fetch went without the partition because the replication quota of that type was exceeded.",
    "type",
    "topic",
    "partition",
)
FOLLOWING = (
    FETCHER_MAX_LAG,
    FETCHER_MIN_RATE,
    FETCHER_DEAD,
    FETCHER_FAILED,
    FETCHER_REQUESTS,
    FETCHER_BYTES,
    FETCHER_LAG,
    LEADER_REPLICATION_RATE,
    FOLLOWER_REPLICATION_RATE,
    ALTER_LOG_DIRS_RATE,
    REPLICATION_BOUND,
    REPLICATION_HELD_BACK,
)
