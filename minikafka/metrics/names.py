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
"""

from __future__ import annotations

from functools import partial
from typing import Final

from minikafka.metrics.names_of_clients import CLIENTS
from minikafka.metrics.names_of_coordinators import GROUP_METRICS, load_times
from minikafka.metrics.names_of_data import FOLLOWING, LOGS, PARTITIONS, REPLICAS, TRAFFIC
from minikafka.metrics.names_of_transactions import TRANSACTIONS
from minikafka.metrics.series import (
    Series,
    counter,
    gauge,
    mbean_counter,
    mbean_gauge,
    mbean_summary,
    summary,
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
        ("ControllerChange", "How long it took to take office."),
        ("LeaderElection", "Brokers came or went: until those that they led have leaders."),
        ("TopicChange", "Topics were created, or partitions added."),
        ("TopicDeletion", "Steps of the deletion of topics."),
        ("PartitionReassignment", "Steps of reassignments."),
        ("AutoLeaderBalance", "Looks at whether leadership is spread as it is preferred."),
        ("ManualLeaderBalance", "Elections that somebody asked for."),
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


_groups = partial(mbean_gauge, "kafka.coordinator.group:GroupMetadataManager")


# Groups that this broker coordinates.
GROUPS = _groups("NumGroups", "Groups, of both protocols.")
GROUP_OFFSETS = _groups("NumOffsets", "Committed offsets.")
GROUPS_BY_STATE = {
    "PreparingRebalance": _groups("NumGroupsPreparingRebalance", "Classic groups that wait for members."),
    "CompletingRebalance": _groups(
        "NumGroupsCompletingRebalance", "Classic groups that wait for the leader."
    ),
    "Stable": _groups("NumGroupsStable", "Classic groups at work."),
    "Dead": _groups("NumGroupsDead", "Classic groups that are being removed."),
    "Empty": _groups("NumGroupsEmpty", "Classic groups without members."),
}
GROUP_COUNT = gauge(
    "kafka_server_group_coordinator_metrics_group_count",
    "Groups by protocol: classic or consumer.",
    "protocol",
    mbean="kafka.server:type=group-coordinator-metrics,name=group-count,protocol=…",
)
CONSUMER_GROUP_COUNT = gauge(
    "kafka_server_group_coordinator_metrics_consumer_group_count",
    "Groups of KIP-848 by state: empty, assigning, reconciling, stable, dead.",
    "state",
    mbean="kafka.server:type=group-coordinator-metrics,name=consumer-group-count,state=…",
)
COORDINATOR_PARTITIONS = gauge(
    "kafka_server_group_coordinator_metrics_num_partitions",
    "Partitions of __consumer_offsets that are coordinated here, by state: loading, active, failed.",
    "state",
    mbean="kafka.server:type=group-coordinator-metrics,name=num-partitions,state=…",
)
GROUPS_LOAD_TIMES = load_times(GROUP_METRICS)
GROUP_ACTIVITY = {
    name: gauge(
        f"kafka_server_group_coordinator_metrics_{name}_count",
        help,
        mbean=f"kafka.server:type=group-coordinator-metrics,name={name.replace('_', '-')}-count",
    )
    for name, help in (
        ("offset_commit", "Offsets that were committed since the broker started."),
        ("offset_expiration", "Offsets that expired since the broker started."),
        ("offset_deletion", "Offsets that were deleted on demand since the broker started."),
        ("group_completed_rebalance", "Rebalances of classic groups since the broker started."),
        ("consumer_group_rebalance", "New epochs of KIP-848 groups since the broker started."),
    )
}
"""Gauges that only grow: so are Kafka's in JMX."""
GROUP_COMMITTED_OFFSET = gauge(
    "kafka_consumergroup_current_offset",
    "Offset that the group has committed; only its coordinator shows it.",
    "consumergroup",
    "topic",
    "partition",
)
GROUP_COMMITTED_OFFSET_SUM = gauge(
    "kafka_consumergroup_current_offset_sum",
    "Sum of what the group has committed for a topic.",
    "consumergroup",
    "topic",
)
GROUP_LAG = gauge(
    "kafka_consumergroup_lag",
    "High watermark at the leader less what the group has committed. Only its coordinator shows it.",
    "consumergroup",
    "topic",
    "partition",
)
GROUP_LAG_SUM = gauge(
    "kafka_consumergroup_lag_sum",
    "The group's lag in a topic; there is none while a leader of one of its partitions does not answer.",
    "consumergroup",
    "topic",
)
GROUP_MEMORY = gauge(
    "minikafka_group_memory_bytes",
    "What the groups that are coordinated here take in memory; group.max.memory.bytes is the limit.",
)
GROUP_MEMBERS = gauge("kafka_consumergroup_members", "Members of the group.", "consumergroup")
GROUP_SERIES = (
    GROUPS,
    GROUP_OFFSETS,
    *GROUPS_BY_STATE.values(),
    GROUP_COUNT,
    CONSUMER_GROUP_COUNT,
    COORDINATOR_PARTITIONS,
    *GROUPS_LOAD_TIMES.values(),
    *GROUP_ACTIVITY.values(),
    GROUP_MEMORY,
    GROUP_COMMITTED_OFFSET,
    GROUP_COMMITTED_OFFSET_SUM,
    GROUP_LAG,
    GROUP_LAG_SUM,
    GROUP_MEMBERS,
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
    "minikafka_scrape_slice_seconds_max", "Its longest piece, in which the event loop did nothing else."
)
SERIES_LEFT_OUT = gauge(
    "minikafka_scrape_left_out",
    "Groups, their offsets, partitions, or partitions of fetchers without series: there are too many.",
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
    *CLIENTS,
    *PROCESS,
)
