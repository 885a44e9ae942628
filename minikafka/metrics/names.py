"""Every series that a broker shows to Prometheus: name, type, labels, help, and the MBean that it stands for.

The names are those that Strimzi's rules for the JMX exporter give to Kafka's MBeans, so that dashboards
made for Apache Kafka work: ``kafka.server:type=ReplicaManager,name=LeaderCount`` becomes
``kafka_server_replicamanager_leadercount``; a meter ``…PerSec`` becomes a counter ``…_total``; a gauge
``…Percent`` becomes ``…_percent`` (0 to 1); a histogram becomes a summary whose ``quantile`` is one of
``QUANTILES``; the other keys of an MBean become labels, spelled as in Kafka. The domain
``kafka.coordinator.group`` follows the common rule for it (``kafka_coordinator_group_…``); groups' offsets
and ends of partitions have the names of ``kafka_exporter``. What Kafka has no MBean for begins with
``minikafka_``; the process itself has the names of prometheus-client (``process_…``, ``python_…``).

Traffic is shown by topic and, without the label, as the broker's total, which counts topics that are gone
too.

A counter is named here without ``_total``, as prometheus-client wants it; ``Series.sample`` is what a query
says. A summary has ``_count`` too, which counts each request; the times themselves may be sampled.

The series with the names of ``kafka_exporter`` have its labels too. There one process shows them for the
whole cluster; here each is shown by one broker, so that sums over a cluster are the same: what is of a
partition by its leader, what is of a group by its coordinator, and what is of the cluster, its topics and its
partitions without a leader by the controller.

The series of clients are Kafka's per quota, tagged with the user and the client id that it is set for; an
empty label stands for all clients that share it. Which requests a client made is counted with no quota set,
too.

What a broker coordinates has series in ``coordinator_names``; ``ALL_SERIES`` has them all.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from minikafka.metrics.coordinator_names import GROUP_SERIES, SHARE_GROUPS, TRANSACTIONS
from minikafka.metrics.series import (
    Series,
    counter,
    gauge,
    mbean_counter,
    mbean_gauge,
    mbean_summary,
    summary,
)

_LABELS: Final = ("user", "client_id")


def _quota(group: str, attribute: str, help: str) -> Series:
    return gauge(
        f"kafka_server_{group.lower()}_{attribute.replace('-', '_')}",
        help,
        *_LABELS,
        mbean=f"kafka.server:type={group},user=…,client-id=…, attribute {attribute}",
    )


def _throttle_time(group: str) -> Series:
    return _quota(group, "throttle-time", "Recent mean throttle time in milliseconds; NaN if not throttled.")


CLIENT_PRODUCED = counter(
    "minikafka_client_produced_bytes", "Bytes of the client's Produce requests.", *_LABELS
)
CLIENT_FETCHED = counter("minikafka_client_fetched_bytes", "Bytes of records that the client read.", *_LABELS)
QUOTA_BOUND = gauge(
    "minikafka_client_quota_bound",
    "What the rate of the same labels may be: bytes a second, or percent of the handler's time.",
    "type",
    *_LABELS,
)
QUOTA_METRICS: Final = {
    (group, attribute): _quota(group, attribute, help)
    for group, attribute, help in (
        ("Produce", "byte-rate", "Bytes a second of Produce requests."),
        ("Fetch", "byte-rate", "Bytes a second of records that were read."),
        ("Request", "request-time", "Percent of one core that requests took."),
        ("ControllerMutation", "mutation-rate", "Partitions a second that were created or deleted."),
        ("ControllerMutation", "tokens", "Partitions that may be created or deleted at once; below 0: none."),
    )
} | {
    (group, "throttle-time"): _throttle_time(group)
    for group in ("Produce", "Fetch", "Request", "ControllerMutation")
}
"""By the group and the name of the metric that is shown."""

CLIENTS: Final = (CLIENT_PRODUCED, CLIENT_FETCHED, QUOTA_BOUND, *QUOTA_METRICS.values())


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
SHARE_FETCH_REQUESTS = _topic_counter(
    "TotalShareFetchRequests",
    "ShareFetch requests, counted once for each topic. Only topics that were asked for.",
    "topic",
)
FAILED_SHARE_FETCH_REQUESTS = _topic_counter(
    "FailedShareFetchRequests",
    "Of those, what was answered with an error for a partition of the topic. Only topics that had one.",
    "topic",
)
SHARE_ACKNOWLEDGEMENT_REQUESTS = _topic_counter(
    "TotalShareAcknowledgementRequests",
    "Requests that acknowledge records, ShareFetch too, counted once for each topic. Only topics that were "
    "acknowledged.",
    "topic",
)
FAILED_SHARE_ACKNOWLEDGEMENT_REQUESTS = _topic_counter(
    "FailedShareAcknowledgementRequests",
    "Of those, where a partition's acknowledgements were refused, or not safe. Only topics that had one.",
    "topic",
)
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
    SHARE_FETCH_REQUESTS,
    FAILED_SHARE_FETCH_REQUESTS,
    SHARE_ACKNOWLEDGEMENT_REQUESTS,
    FAILED_SHARE_ACKNOWLEDGEMENT_REQUESTS,
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
    "kafka_topic_partition_leader", "The leader's broker id; -1: no leader.", "topic", "partition"
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
CLEANER_DEAD = mbean_gauge(
    _CLEANER, "DeadThreadCount", "Cleaners that died of a bug and are not restarted yet."
)
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
FETCHER_DEAD = _fetcher_manager("DeadThreadCount", "Fetchers that died.")
FETCHER_FAILED = _fetcher_manager("FailedPartitionsCount", "Partitions whose fetching has failed.")
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
    "How often a fetch left the partition out because the replication quota of that type was exceeded.",
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


_REQUEST_METRICS = "kafka.network:RequestMetrics"


def _request_time(name: str, help: str) -> Series:
    help = f"{help} Milliseconds, of the latest timed requests: all, but one in 256 of Produce and Fetch."
    return mbean_summary(_REQUEST_METRICS, name, help, "request")


# ``request`` is an API as Kafka spells it; each Fetch counts again as FetchConsumer or FetchFollower.
REQUESTS = mbean_counter(
    _REQUEST_METRICS,
    "Requests",
    "Requests that were handled.",
    "request",
    "version",
)
REQUEST_ERRORS = mbean_counter(
    _REQUEST_METRICS,
    "Errors",
    "Errors in answers, as often as an answer has them; NONE is not counted.",
    "request",
    "error",
)
TOTAL_TIME = _request_time("TotalTimeMs", "From the request's arrival until its answer was written.")
REQUEST_QUEUE_TIME = _request_time(
    "RequestQueueTimeMs", "From the request's arrival until its handler began."
)
LOCAL_TIME = _request_time("LocalTimeMs", "In the handler.")
REMOTE_TIME = _request_time(
    "RemoteTimeMs", "Parked: for followers, for more bytes, for the disk or the coordination store."
)
REQUEST_BYTES = mbean_summary(
    _REQUEST_METRICS,
    "RequestBytes",
    "Size of requests in bytes, with their headers; of those that were timed, as above.",
    "request",
)
THROTTLE_TIME = mbean_summary(
    _REQUEST_METRICS,
    "ThrottleTimeMs",
    "Throttle times of requests that a quota delayed. Milliseconds; each of them counts.",
    "request",
)
RESPONSE_QUEUE_TIME = _request_time(
    "ResponseQueueTimeMs", "The answer waited for those of earlier requests on the connection."
)
RESPONSE_SEND_TIME = _request_time("ResponseSendTimeMs", "Until the answer was handed to the transport.")
REQUEST_TIMES = (
    TOTAL_TIME,
    REQUEST_QUEUE_TIME,
    LOCAL_TIME,
    REMOTE_TIME,
    THROTTLE_TIME,
    RESPONSE_QUEUE_TIME,
    RESPONSE_SEND_TIME,
)
CONNECTION_COUNT = gauge(
    "kafka_server_socket_server_metrics_connection_count",
    "Open connections.",
    "listener",
    "networkProcessor",
    mbean="kafka.server:type=socket-server-metrics,listener=…,networkProcessor=0",
)
REQUEST_HANDLER_IDLE = gauge(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "Share of the last seconds in which the event loop's thread used no CPU, 0 to 1.",
    mbean="kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
)
NETWORK_PROCESSOR_IDLE = gauge(
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "The same: one thread does both.",
    mbean="kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
)
PURGATORY_SIZE = mbean_gauge(
    "kafka.server:DelayedOperationPurgatory",
    "PurgatorySize",
    "Entries of the watch lists: an operation counts once a key, until it is purged.",
    "delayedOperation",
)
PURGATORY_DELAYED = mbean_gauge(
    "kafka.server:DelayedOperationPurgatory",
    "NumDelayedOperations",
    "Operations that wait.",
    "delayedOperation",
)
FETCH_SESSIONS = mbean_gauge(
    "kafka.server:FetchSessionCache",
    "NumIncrementalFetchSessions",
    "Incremental fetch sessions.",
)
REQUESTS_AND_PURGATORY = (
    REQUESTS,
    REQUEST_ERRORS,
    *REQUEST_TIMES,
    REQUEST_BYTES,
    CONNECTION_COUNT,
    REQUEST_HANDLER_IDLE,
    NETWORK_PROCESSOR_IDLE,
    PURGATORY_SIZE,
    PURGATORY_DELAYED,
    FETCH_SESSIONS,
)


_controller = partial(mbean_gauge, "kafka.controller:KafkaController")


# The controller's view. Brokers that are not the controller show 0 in all of them, as in Kafka.
ACTIVE_CONTROLLER = _controller("ActiveControllerCount", "1: this broker is the controller.")
OFFLINE_PARTITIONS = _controller("OfflinePartitionsCount", "Partitions without a leader that is alive.")
PREFERRED_IMBALANCE = _controller(
    "PreferredReplicaImbalanceCount", "Partitions that another replica leads than the preferred one."
)
GLOBAL_TOPICS = _controller("GlobalTopicCount", "Topics of the cluster.")
GLOBAL_PARTITIONS = _controller("GlobalPartitionCount", "Partitions of the cluster.")
ACTIVE_BROKERS = _controller("ActiveBrokerCount", "Brokers that are registered.")
TOPICS_TO_DELETE = _controller("TopicsToDeleteCount", "Topics that are to be deleted.")
REASSIGNING_PARTITIONS = gauge(
    "minikafka_controller_reassigning_partitions", "Partitions of the cluster that are being reassigned."
)
UNCLEAN_ELECTIONS = mbean_counter(
    "kafka.controller:ControllerStats",
    "UncleanLeaderElections",
    "Elections of a leader that may lack records which were committed.",
)
CONTROLLER_EVENTS = {
    kind: mbean_summary(
        "kafka.controller:ControllerStats", f"{kind}RateAndTimeMs", f"{help} Milliseconds, of the latest."
    )
    for kind, help in (
        ("ControllerChange", "How long a new controller took to become active."),
        ("LeaderElection", "Brokers joined or failed: until their partitions have leaders."),
        ("TopicChange", "Topics were created, or partitions added."),
        ("TopicDeletion", "Steps of the deletion of topics."),
        ("PartitionReassignment", "Steps of reassignments."),
        ("AutoLeaderBalance", "Checks whether the preferred replicas lead."),
        ("ManualLeaderBalance", "Elections that a client asked for."),
        ("ControlledShutdown", "Brokers that asked to have their leaders moved."),
        ("IsrChange", "Changes of ISRs that leaders announced."),
        ("LeaderAndIsrResponseReceived", "Answers to LeaderAndIsr."),
        ("LogDirChange", "Log directories that failed."),
        ("UncleanLeaderElectionEnable", "Unclean elections were allowed for all topics."),
        ("TopicUncleanLeaderElectionEnable", "Unclean elections were allowed for a topic."),
    )
}
"""By what happened: how often the controller has dealt with it, and how long that took."""
LEADER_ELECTIONS = counter("minikafka_controller_leader_elections", "Leaders that this controller elected.")
CONTROLLER_QUEUE = mbean_gauge(
    "kafka.controller:ControllerEventManager",
    "EventQueueSize",
    "Events that wait for the controller.",
)
CONTROLLER = (
    ACTIVE_CONTROLLER,
    OFFLINE_PARTITIONS,
    PREFERRED_IMBALANCE,
    GLOBAL_TOPICS,
    GLOBAL_PARTITIONS,
    ACTIVE_BROKERS,
    TOPICS_TO_DELETE,
    REASSIGNING_PARTITIONS,
    UNCLEAN_ELECTIONS,
    LEADER_ELECTIONS,
    CONTROLLER_QUEUE,
    *CONTROLLER_EVENTS.values(),
)


# The process. prometheus-client's own collectors add ``process_resident_memory_bytes``,
# ``process_cpu_seconds_total``, ``process_open_fds``, ``process_max_fds``, ``python_gc_collections_total`` …
BUILD_INFO = gauge("minikafka_build_info", "1, with the version and the broker's id.", "version", "node_id")
BROKER_STATE = mbean_gauge(
    "kafka.server:KafkaServer",
    "BrokerState",
    "3: it serves; 1: it has not joined the cluster yet.",
)
DISK_READ_BYTES = mbean_gauge(
    "kafka.server:KafkaServer",
    "linux-disk-read-bytes",
    "Bytes that the process has had read from disks (/proc/self/io, only on Linux).",
)
DISK_WRITE_BYTES = mbean_gauge(
    "kafka.server:KafkaServer",
    "linux-disk-write-bytes",
    "Bytes that the process has had written to disks (/proc/self/io, only on Linux).",
)
LOOP_LAG = summary(
    "minikafka_event_loop_lag_seconds", "How much later than it was due a timer of the event loop fired."
)
SCRAPE_SECONDS = gauge(
    "minikafka_scrape_seconds", "How long the scrape before this one took, with its pauses."
)
SCRAPE_SLICE_SECONDS = gauge(
    "minikafka_scrape_slice_seconds_max", "Its longest slice, in which the event loop did nothing else."
)
TRACE_SPANS = counter("minikafka_trace_spans", "Spans sent to trace.otlp.endpoint, or dropped.", "outcome")
SERIES_LEFT_OUT = gauge(
    "minikafka_scrape_left_out",
    "Groups, their offsets, partitions, those of fetchers, share partitions without series: too many.",
    "what",
)
PROCESS = (
    BUILD_INFO,
    BROKER_STATE,
    DISK_READ_BYTES,
    DISK_WRITE_BYTES,
    LOOP_LAG,
    SCRAPE_SECONDS,
    SCRAPE_SLICE_SECONDS,
    SERIES_LEFT_OUT,
    TRACE_SPANS,
)

# Who logs in, who connects, and what the authorizer says. Kafka's rates are counters here.
_SOCKET_SERVER: Final = "kafka.server:type=socket-server-metrics,listener=…"


def _authentication(name: str, help: str) -> Series:
    attribute = name.replace("_", "-")
    return counter(
        f"kafka_server_socket_server_metrics_{name}",
        help,
        "listener",
        "networkProcessor",
        mbean=f"{_SOCKET_SERVER},networkProcessor=0, attribute {attribute}-total",
    )


AUTHENTICATIONS: Final = {
    "successful": _authentication(
        "successful_authentication",
        "Connections that proved who they are, by SASL or, on a listener of SSL, by a handshake; HTTP: by a "
        "token or a password.",
    ),
    "failed": _authentication(
        "failed_authentication", "Connections that did not, for whatever reason; HTTP: requests."
    ),
    "successful_reauthentication": _authentication(
        "successful_reauthentication", "Clients that proved it again on the same connection (KIP-368)."
    ),
    "failed_reauthentication": _authentication(
        "failed_reauthentication", "Clients that did not, when their time had come."
    ),
    "no_reauth": _authentication(
        "successful_authentication_no_reauth",
        "Of the successful ones, clients that are too old to prove it again.",
    ),
    "expired_killed": gauge(
        "kafka_server_socket_server_metrics_expired_connections_killed_count",
        "Connections that were closed since the broker started, because they went on after their time.",
        "listener",
        "networkProcessor",
        mbean=f"{_SOCKET_SERVER},networkProcessor=0, attribute expired-connections-killed-count",
    ),
}
"""By the field of ``AuthenticationMetrics``."""
EXPIRED_CONNECTIONS_KILLED = mbean_gauge(
    "kafka.network:SocketServer", "ExpiredConnectionsKilledCount", "The same, of all listeners."
)
TLS_HANDSHAKES_FAILED = counter(
    "minikafka_tls_handshakes_failed", "TLS handshakes that failed or took too long.", "listener"
)
CONNECTIONS_CREATED = counter(
    "kafka_server_socket_server_metrics_connection_creation",
    "Connections that were accepted.",
    "listener",
    "networkProcessor",
    mbean=f"{_SOCKET_SERVER},networkProcessor=0, attribute connection-creation-total",
)
CONNECTIONS_REFUSED = counter(
    "minikafka_connections_refused", "Connections that were closed at once, because of a limit.", "listener"
)
CONNECTION_THROTTLES = counter(
    "minikafka_connection_throttles",
    "Connections that had to wait because too many came at once (KIP-612): to the listener or the broker, or "
    "from their address (ip), after which those are closed.",
    "listener",
    "by",
    mbean=f"{_SOCKET_SERVER}, attributes connection-accept-throttle-time and "
    "ip-connection-accept-throttle-time, which are minikafka_connection_throttle_seconds divided by this",
)
CONNECTION_THROTTLE_SECONDS = counter(
    "minikafka_connection_throttle_seconds", "How long they waited, together.", "listener", "by"
)


def _authorizations(name: str, help: str) -> Series:
    return counter(
        f"kafka_server_plugins_authorization_{name}",
        help,
        mbean="kafka.server:type=plugins,config=authorizer.class.name,class=StandardAuthorizer, attribute "
        f"authorization-{name}-rate-per-minute",
    )


AUTHORIZATION_REQUESTS = _authorizations("request", "Questions to the authorizer.")
AUTHORIZATIONS_ALLOWED = _authorizations("allowed", "Those that it said yes to.")
AUTHORIZATIONS_DENIED = _authorizations("denied", "Those that it said no to.")
ACLS = gauge(
    "kafka_server_plugins_acls_total_count",
    "ACLs that there are.",
    mbean="kafka.server:type=plugins,config=authorizer.class.name,class=StandardAuthorizer, attribute "
    "acls-total-count",
)
SECURITY = (
    *AUTHENTICATIONS.values(),
    EXPIRED_CONNECTIONS_KILLED,
    TLS_HANDSHAKES_FAILED,
    CONNECTIONS_CREATED,
    CONNECTIONS_REFUSED,
    CONNECTION_THROTTLES,
    CONNECTION_THROTTLE_SECONDS,
    AUTHORIZATION_REQUESTS,
    AUTHORIZATIONS_ALLOWED,
    AUTHORIZATIONS_DENIED,
    ACLS,
)

ALL_SERIES: Final = (
    *TRAFFIC,
    *REPLICAS,
    *PARTITIONS,
    *LOGS,
    *REQUESTS_AND_PURGATORY,
    *CONTROLLER,
    *FOLLOWING,
    *GROUP_SERIES,
    *TRANSACTIONS,
    *SHARE_GROUPS,
    *CLIENTS,
    *SECURITY,
    *PROCESS,
)
