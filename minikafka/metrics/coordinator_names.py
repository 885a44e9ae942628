"""The series of what a broker coordinates: groups, transactions, share groups and their coordinators.

What is said about names and labels: see ``names``. Kafka's coordinators measure some things alike, each in a
group of metrics of its own; so ``load_times`` makes the series of one.

Kafka: ``GroupCoordinatorMetrics``, ``GroupCoordinatorRuntimeMetrics``, ``TransactionStateManager``,
``ShareCoordinatorMetrics``, ``ShareGroupMetrics``, ``SharePartitionMetrics`` (KIP-1103).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from minikafka.metrics.series import (
    Series,
    counter,
    gauge,
    mbean_counter,
    mbean_gauge,
    mbean_summary,
)

GROUP_METRICS: Final = "group-coordinator-metrics"
TRANSACTION_METRICS: Final = "transaction-coordinator-metrics"
SHARE_COORDINATOR_METRICS: Final = "share-coordinator-metrics"
LOAD_TIME_MAX: Final = "partition-load-time-max"
LOAD_TIME_AVG: Final = "partition-load-time-avg"
WRITE_LATENCY_MAX: Final = "write-latency-max"
WRITE_LATENCY_AVG: Final = "write-latency-avg"


def load_times(group: str) -> Mapping[str, Series]:
    """By the metric's name."""
    return _max_and_avg(
        group,
        LOAD_TIME_MAX,
        LOAD_TIME_AVG,
        "Milliseconds until a partition of the coordinator's topic was loaded",
        none="load",
    )


def _max_and_avg(group: str, max_name: str, avg_name: str, help: str, *, none: str) -> Mapping[str, Series]:
    return {
        name: gauge(
            f"kafka_server_{group}_{name}".replace("-", "_"),
            f"{help}: {what} the last 30 to 60 seconds; not a number when there was no {none}.",
            mbean=f"kafka.server:type={group},name={name}",
        )
        for name, what in ((max_name, "the most in"), (avg_name, "the mean of"))
    }


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
    "Groups by protocol: classic, consumer or share.",
    "protocol",
    mbean="kafka.server:type=group-coordinator-metrics,name=group-count,protocol=…",
)
CLASSIC_GROUP_COUNT = gauge(
    "kafka_server_group_coordinator_metrics_classic_group_count",
    "Classic groups by state: PreparingRebalance, CompletingRebalance, Stable, Dead, Empty.",
    "state",
    mbean="kafka.server:type=group-coordinator-metrics,name=classic-group-count,state=…",
)
OFFSET_COUNT = gauge(
    "kafka_server_group_coordinator_metrics_offset_count",
    "Committed offsets.",
    mbean="kafka.server:type=group-coordinator-metrics,name=offset-count",
)
CONSUMER_GROUP_COUNT = gauge(
    "kafka_server_group_coordinator_metrics_consumer_group_count",
    "Groups of KIP-848 by state: empty, assigning, reconciling, stable, dead.",
    "state",
    mbean="kafka.server:type=group-coordinator-metrics,name=consumer-group-count,state=…",
)
SHARE_GROUP_COUNT = gauge(
    "kafka_server_group_coordinator_metrics_share_group_count",
    "Share groups by state: empty, stable, dead.",
    "state",
    mbean="kafka.server:type=group-coordinator-metrics,name=share-group-count,state=…",
)
STREAMS_GROUP_COUNT = gauge(
    "kafka_server_group_coordinator_metrics_streams_group_count",
    "Streams groups by state: empty, not_ready, assigning, reconciling, stable, dead.",
    "state",
    mbean="kafka.server:type=group-coordinator-metrics,name=streams-group-count,state=…",
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
        ("share_group_rebalance", "New epochs of share groups since the broker started."),
        ("streams_group_rebalance", "New epochs of streams groups since the broker started."),
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
    CLASSIC_GROUP_COUNT,
    CONSUMER_GROUP_COUNT,
    OFFSET_COUNT,
    SHARE_GROUP_COUNT,
    STREAMS_GROUP_COUNT,
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

_channels = partial(mbean_gauge, "kafka.coordinator.transaction:TransactionMarkerChannelManager")

MARKERS_WITHOUT_LEADER: Final = _channels(
    "UnknownDestinationQueueSize", "Transactions whose markers wait for a partition to have a leader."
)
LOG_APPEND_RETRIES: Final = _channels(
    "LogAppendRetryQueueSize", "Transactions whose markers are written, but not their completion."
)
TRANSACTIONAL_IDS: Final = gauge(
    "minikafka_transactional_ids", "Transactional ids that are coordinated here, by state.", "state"
)
TRANSACTIONS_LOAD_TIMES: Final = load_times(TRANSACTION_METRICS)
TRANSACTION_PARTITIONS: Final = gauge(
    "minikafka_transaction_coordinator_partitions",
    "Partitions of __transaction_state that are coordinated here, by state: loading, active, failed.",
    "state",
)
_VERIFICATION = "kafka.server:AddPartitionsToTxnManager"

VERIFICATION_FAILURES: Final = counter(
    "kafka_server_addpartitionstotxnmanager_verificationfailurerate",
    "Partitions for which a transaction's coordinator did not agree, or could not be asked.",
    mbean="kafka.server:type=AddPartitionsToTxnManager,name=VerificationFailureRate",
)
VERIFICATION_TIME: Final = mbean_summary(
    _VERIFICATION,
    "VerificationTimeMs",
    "Milliseconds from a transaction's first batch for a partition until its coordinator had answered.",
)
TRANSACTIONS: Final = (
    MARKERS_WITHOUT_LEADER,
    LOG_APPEND_RETRIES,
    TRANSACTIONAL_IDS,
    TRANSACTION_PARTITIONS,
    VERIFICATION_FAILURES,
    VERIFICATION_TIME,
    *TRANSACTIONS_LOAD_TIMES.values(),
)


_share_sessions = partial(mbean_gauge, "kafka.server:ShareSessionCache")

SHARE_SESSIONS = _share_sessions("ShareSessionsCount", "Share sessions of members with this broker.")
SHARE_SESSION_PARTITIONS = _share_sessions("SharePartitionsCount", "Partitions in all share sessions.")
SHARE_SESSION_EVICTIONS = mbean_counter(
    "kafka.server:ShareSessionCache", "ShareSessionEvictions", "Share sessions that ended with a connection."
)
RECORD_ACKNOWLEDGEMENTS = mbean_counter(
    "kafka.server:ShareGroupMetrics",
    "RecordAcknowledgements",
    "Records that members of share groups have acknowledged, by how: Accept, Release, Reject, Renew.",
    "ackType",
)
SHARE_PARTITION_LABELS: Final = ("group", "topic", "partition")
ACQUISITION_LOCK_TIMEOUTS = mbean_counter(
    "kafka.server:SharePartitionMetrics",
    "AcquisitionLockTimeout",
    "Records whose lock was over before they were acknowledged, since its members are here.",
    *SHARE_PARTITION_LABELS,
)
IN_FLIGHT_RECORDS = mbean_gauge(
    "kafka.server:SharePartitionMetrics",
    "InFlightMessageCount",
    "Records of a share partition from its start offset to the last that a member was given.",
    *SHARE_PARTITION_LABELS,
)
IN_FLIGHT_BATCHES = mbean_gauge(
    "kafka.server:SharePartitionMetrics",
    "InFlightBatchCount",
    "Of those: runs of records with the same history. Kafka counts batches.",
    *SHARE_PARTITION_LABELS,
)
_share_partition_summary = partial(mbean_summary, "kafka.server:SharePartitionMetrics")
IN_FLIGHT_BATCH_RECORDS = _share_partition_summary(
    "InFlightBatchMessageCount",
    "Records of each batch that came to be in flight, as members were told of them.",
    *SHARE_PARTITION_LABELS,
)
FETCH_LOCK_TIME = _share_partition_summary(
    "FetchLockTimeMs",
    "Milliseconds for which a share fetch has kept others from the share partition: from when it found that "
    "there may be records until it had acquired them, disk reads and all. Kafka's begins "
    "before it is known whether there are any.",
    *SHARE_PARTITION_LABELS,
)
FETCH_LOCK_RATIO = _share_partition_summary(
    "FetchLockRatio",
    "Percent of the time since the fetch before for which a share fetch kept others from the share "
    "partition.",
    *SHARE_PARTITION_LABELS,
)
SHARE_PARTITION_SUMMARIES: Final = (IN_FLIGHT_BATCH_RECORDS, FETCH_LOCK_TIME, FETCH_LOCK_RATIO)
SHARE_FETCH_EXPIRES = mbean_counter(
    "kafka.server:DelayedShareFetchMetrics",
    "Expires",
    "Share fetches that were answered because their max wait was over, with what there was, or nothing.",
)
_share_group_summary = partial(mbean_summary, "kafka.server:ShareGroupMetrics")
SHARE_PARTITION_LOAD_TIME = _share_group_summary(
    "PartitionLoadTimeMs", "Milliseconds until a share partition was loaded, or could not be."
)
SHARE_FETCH_RATIO = _share_group_summary(
    "RequestTopicPartitionsFetchRatio",
    "Percent of a share fetch's partitions that were acquired for its answer; of groups with members here.",
    "group",
)
SHARE_ACQUIRE_TIME = _share_group_summary(
    "TopicPartitionsAcquireTimeMs",
    "Milliseconds until a share fetch acquired partitions, or gave up; of groups with members here.",
    "group",
)
_dead_letters = partial(mbean_counter, "kafka.server:ShareGroupMetrics")
DEAD_LETTERS = _dead_letters(
    "DeadLetterQueueRecordCount", "Records that are in dead letter queues of share groups.", "group"
)._replace(mbean="kafka.server:type=ShareGroupMetrics,name=DeadLetterQueueRecordCount,group=…")
DEAD_LETTER_REQUESTS = _dead_letters(
    "DeadLetterQueueTotalProduceRequests", "Produce requests for dead letter queues.", "group"
)
DEAD_LETTER_FAILURES = _dead_letters(
    "DeadLetterQueueFailedProduceRequests",
    "Of those, what failed for good: its records are archived and not in the queue.",
    "group",
)
SHARE_PARTITIONS = gauge(
    "minikafka_share_partitions", "Partitions that this broker leads and share groups consume, each by group."
)
SHARE_STATE_WRITES = counter(
    "kafka_server_share_coordinator_metrics_write",
    "Writes of the share coordinator for leaders of partitions.",
    mbean="kafka.server:type=share-coordinator-metrics,name=write-total",
)
SHARE_STATE_PARTITIONS = gauge(
    "minikafka_share_coordinator_partitions",
    "Partitions of __share_group_state that are coordinated here, by state: loading, active, failed.",
    "state",
)
SHARE_LOAD_TIMES = load_times(SHARE_COORDINATOR_METRICS)
SHARE_WRITE_LATENCIES = _max_and_avg(
    SHARE_COORDINATOR_METRICS,
    WRITE_LATENCY_MAX,
    WRITE_LATENCY_AVG,
    "Milliseconds until a request to write states was answered, with the replication of __share_group_state",
    none="write",
)
SHARE_LAST_PRUNED_OFFSET = gauge(
    "kafka_server_share_coordinator_metrics_last_pruned_offset",
    "Offset below which the partition of __share_group_state was last pruned; there is none before that.",
    "topic",
    "partition",
    mbean=f"kafka.server:type={SHARE_COORDINATOR_METRICS},name=last-pruned-offset,topic=…,partition=…",
)
SHARE_GROUPS = (
    SHARE_SESSIONS,
    SHARE_SESSION_PARTITIONS,
    SHARE_SESSION_EVICTIONS,
    RECORD_ACKNOWLEDGEMENTS,
    ACQUISITION_LOCK_TIMEOUTS,
    IN_FLIGHT_RECORDS,
    IN_FLIGHT_BATCHES,
    *SHARE_PARTITION_SUMMARIES,
    SHARE_FETCH_EXPIRES,
    SHARE_PARTITION_LOAD_TIME,
    SHARE_FETCH_RATIO,
    SHARE_ACQUIRE_TIME,
    DEAD_LETTERS,
    DEAD_LETTER_REQUESTS,
    DEAD_LETTER_FAILURES,
    SHARE_PARTITIONS,
    SHARE_STATE_WRITES,
    SHARE_STATE_PARTITIONS,
    *SHARE_LOAD_TIMES.values(),
    *SHARE_WRITE_LATENCIES.values(),
    SHARE_LAST_PRUNED_OFFSET,
)
