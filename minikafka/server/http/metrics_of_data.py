"""What a scrape reads of traffic, replicas, partitions, logs, fetchers and replication quotas.

Everything is read when asked; nothing is kept for it but plain counters. A source is a generator that others'
turns interrupt, so it goes over copies of whatever may change meanwhile.

Samples of a summary, as a scrape shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from minikafka.log.manager.cleanable_log import dirty_bytes
from minikafka.metrics import names
from minikafka.metrics.request_metrics import KafkaTimer
from minikafka.metrics.series import QUANTILES, Sample, Series, Source
from minikafka.network.addresses import format_address
from minikafka.server.cluster.metadata_cache import PartitionMetadata
from minikafka.server.replica.partition import Partition
from minikafka.server.services import Services
from minikafka.server.storage.log_cleaner import LogCleaner
from minikafka.types import NO_LEADER

SHARES: Final = tuple(float(text) for text in QUANTILES)


def summary(
    series: Series, values: list[float], *, count: int, labels: tuple[str, ...] = ()
) -> Iterator[Sample]:
    """``values`` for ``SHARES``. Without a sum: where only some values are taken, there is none (nor does the
    JMX exporter give one)."""
    for quantile, value in zip(QUANTILES, values, strict=True):
        yield Sample(series, value, (*labels, quantile))
    yield Sample(series, count, labels, "_count")


def timer_summary(series: Series, timer: KafkaTimer) -> Iterator[Sample]:
    """Of a timer's durations."""
    return summary(series, timer.quantiles_ms(SHARES), count=timer.count)


PARTITIONS_MAX = 10_000
"""Partitions that have series of their own: sixteen each. A scrape of so many takes about a second and a
half, in slices."""

SLICE_PARTITIONS = 1_000
"""Partitions that are counted before others have a turn: 1 to 2 ms."""

_TRAFFIC = (
    (names.MESSAGES_IN, "messages_in"),
    (names.BYTES_IN, "bytes_in"),
    (names.BYTES_OUT, "bytes_out"),
    (names.BYTES_REJECTED, "bytes_rejected"),
    (names.PRODUCE_REQUESTS, "produce_requests"),
    (names.FETCH_REQUESTS, "fetch_requests"),
    (names.FAILED_PRODUCE_REQUESTS, "failed_produce_requests"),
    (names.FAILED_FETCH_REQUESTS, "failed_fetch_requests"),
)


def sources_of_data(services: Services, cleaner: LogCleaner) -> list[Source]:
    """All of this module."""
    about_services = (
        _traffic,
        _replicas,
        _partitions,
        _cluster,
        _directories,
        _flushes,
        _fetchers,
        _replication_quotas,
    )
    return [*(partial(source, services) for source in about_services), partial(_cleaner, services, cleaner)]


def _traffic(services: Services) -> Iterator[Sample]:
    stats = services.replica_manager.stats
    total, topics = stats.total(), list(stats.topics.items())
    for series, field in _TRAFFIC:
        yield Sample(series, getattr(total, field))
        for topic, counts in topics:
            yield Sample(series, counts.value(field), (topic,))
    yield Sample(names.REPLICATION_BYTES_IN, stats.replication_bytes_in)
    yield Sample(names.REPLICATION_BYTES_OUT, stats.replication_bytes_out)


def _replicas(services: Services) -> Iterator[Sample | None]:
    replicas = services.replica_manager
    led = under_replicated = under_min_isr = at_min_isr = 0
    for count, partition in enumerate(list(replicas.partitions.values()), 1):
        led += partition.is_leader
        under_replicated += partition.is_under_replicated
        under_min_isr += _is_under_min_isr(partition)
        at_min_isr += _is_at_min_isr(partition)
        if count % SLICE_PARTITIONS == 0:
            yield None
    yield Sample(names.LEADER_COUNT, led)
    yield Sample(names.PARTITION_COUNT, len(replicas.partitions))
    yield Sample(names.OFFLINE_REPLICA_COUNT, replicas.offline_count)
    yield Sample(names.UNDER_REPLICATED, under_replicated)
    yield Sample(names.UNDER_MIN_ISR, under_min_isr)
    yield Sample(names.AT_MIN_ISR, at_min_isr)
    yield Sample(names.ISR_SHRINKS, replicas.isr_counts.shrinks)
    yield Sample(names.ISR_EXPANDS, replicas.isr_counts.expands)
    yield Sample(names.FAILED_ISR_UPDATES, replicas.isr_counts.failed)


def _is_under_min_isr(partition: Partition) -> bool:
    return partition.is_leader and len(partition.isr) < partition.effective_min_isr


def _is_at_min_isr(partition: Partition) -> bool:
    return partition.is_leader and len(partition.isr) == partition.effective_min_isr


_OF_EACH_PARTITION: tuple[tuple[Series, Callable[[Partition], int]], ...] = (
    (names.PARTITION_UNDER_REPLICATED, lambda each: each.is_under_replicated),
    (names.PARTITION_UNDER_MIN_ISR, _is_under_min_isr),
    (names.PARTITION_AT_MIN_ISR, _is_at_min_isr),
    (names.PARTITION_REPLICAS, lambda each: len(each.replicas) if each.is_leader else 0),
    (names.PARTITION_IN_SYNC, lambda each: len(each.isr)),
    (names.LOG_SIZE, lambda each: each.log.size_bytes),
    (names.LOG_SEGMENTS, lambda each: len(each.log.segments)),
    (names.LOG_START_OFFSET, lambda each: each.log.log_start_offset),
    (names.LOG_END_OFFSET, lambda each: each.log.log_end_offset),
)
_OF_EACH_LED_PARTITION: tuple[tuple[Series, Callable[[Partition], int]], ...] = (
    (names.PARTITION_HIGH_WATERMARK, lambda each: each.log.high_watermark),
    (names.PARTITION_OLDEST_OFFSET, lambda each: each.log.log_start_offset),
    (names.PARTITION_LEADER, lambda each: each.leader_id),
    (names.PARTITION_REPLICA_COUNT, lambda each: len(each.replicas)),
    (names.PARTITION_ISR_COUNT, lambda each: len(each.isr)),
    (names.PARTITION_LEADER_IS_PREFERRED, lambda each: each.leader_id == each.replicas[0]),
    (names.PARTITION_IS_UNDER_REPLICATED, lambda each: len(each.isr) < len(each.replicas)),
)
_OF_EACH_LEADERLESS_PARTITION: dict[Series, Callable[[PartitionMetadata], int]] = {
    names.PARTITION_LEADER: lambda each: each.leader,
    names.PARTITION_REPLICA_COUNT: lambda each: len(each.replicas),
    names.PARTITION_ISR_COUNT: lambda each: len(each.isr),
    names.PARTITION_LEADER_IS_PREFERRED: lambda each: False,
    names.PARTITION_IS_UNDER_REPLICATED: lambda each: len(each.isr) < len(each.replicas),
}


def _partitions(services: Services) -> Iterator[Sample]:
    shown = shown_partitions(services)
    labels = [(each.topic_partition.topic, str(each.topic_partition.partition)) for each in shown]
    for series, read in _OF_EACH_PARTITION:
        for partition, label in zip(shown, labels, strict=True):
            yield Sample(series, read(partition), label)
    leaderless = _leaderless_partitions(services)
    for series, read in _OF_EACH_LED_PARTITION:
        for partition, label in zip(shown, labels, strict=True):
            if partition.is_leader:
                yield Sample(series, read(partition), label)
        if (read_told := _OF_EACH_LEADERLESS_PARTITION.get(series)) is not None:
            for topic, told in leaderless:
                yield Sample(series, read_told(told), (topic, str(told.partition)))


def _leaderless_partitions(services: Services) -> list[tuple[str, PartitionMetadata]]:
    """Those of the cluster, with their topics, on the controller; no other broker would show them."""
    if not services.controller.is_controller:
        return []
    found = (
        (topic.name, partition)
        for topic in services.metadata.topics()
        for partition in topic.partitions
        if partition.leader == NO_LEADER
    )
    return list(islice(found, PARTITIONS_MAX))


def _cluster(services: Services) -> Iterator[Sample]:
    """What ``kafka_exporter`` shows of the cluster; on the controller, so that it is there once."""
    if not services.controller.is_controller:
        return
    brokers = services.metadata.brokers()
    yield Sample(names.BROKERS, len(brokers))
    for broker in brokers:
        endpoint = broker.endpoint(services.config.inter_broker_listener())
        address = "" if endpoint is None else format_address(*endpoint)
        yield Sample(names.BROKER_INFO, 1, (str(broker.node_id), address))
    for topic in services.metadata.topics()[:PARTITIONS_MAX]:
        yield Sample(names.TOPIC_PARTITIONS, len(topic.partitions), (topic.name,))


def shown_partitions(services: Services) -> list[Partition]:
    """Those that have series of their own."""
    return list(services.replica_manager.partitions.values())[:PARTITIONS_MAX]


def _directories(services: Services) -> Iterator[Sample]:
    log_manager = services.log_manager
    offline = dict(log_manager.offline_directories)
    yield Sample(names.LOG_DIRECTORIES_OFFLINE, len(offline))
    for directory in log_manager.directories.configured:
        yield Sample(names.LOG_DIRECTORY_OFFLINE, directory in offline, (directory,))


def _flushes(services: Services) -> Iterator[Sample]:
    return timer_summary(names.LOG_FLUSHES, services.log_flushes)


def _cleaner(services: Services, cleaner: LogCleaner) -> Iterator[Sample]:
    log_manager = services.log_manager
    uncleanable = [log_manager.directory_of(log) for log in cleaner.uncleanable]
    for directory in log_manager.directories.configured:
        yield Sample(names.CLEANER_UNCLEANABLE, uncleanable.count(directory), (directory,))
    for directory in log_manager.directories.configured:
        of_directory = [log for log in cleaner.uncleanable if log_manager.directory_of(log) == directory]
        yield Sample(names.CLEANER_UNCLEANABLE_BYTES, sum(map(dirty_bytes, of_directory)), (directory,))
    last = cleaner.last
    written, read = sum(each.bytes_written for each in last), sum(each.bytes_read for each in last)
    yield Sample(names.CLEANER_RECOPY, 100 * written / max(read, 1))
    yield Sample(names.CLEANER_BUFFER, max((100 * each.buffer_utilization for each in last), default=0))
    yield Sample(names.CLEANER_TIME, max((each.elapsed_ms / 1000 for each in last), default=0))
    yield Sample(names.CLEANER_DELAY, cleaner.overdue_ms_max / 1000)
    yield Sample(names.CLEANER_MAX_DIRTY, 100 * cleaner.dirty_ratio_max)
    yield Sample(names.CLEANER_SINCE_LAST_RUN, cleaner.since_last_look_ms)
    yield Sample(names.CLEANER_DEAD, cleaner.dead_count)
    yield Sample(names.CLEANER_IN_PROGRESS, len(cleaner.in_progress))
    yield Sample(names.CLEANER_COMPACTIONS, cleaner.compactions)


def _fetchers(services: Services) -> Iterator[Sample]:
    fetchers = services.replica_manager.fetchers
    lags = [] if fetchers is None else list(fetchers.lags())
    failed = 0 if fetchers is None else len(fetchers.failed_partitions)
    stats = [] if fetchers is None else list(fetchers.stats())
    yield Sample(names.FETCHER_MAX_LAG, max((lag for _, _, lag in lags), default=0), ("Replica",))
    yield Sample(names.FETCHER_FAILED, failed, ("Replica",))
    slowest = min((each.requests_per_s for each in stats), default=0)
    yield Sample(names.FETCHER_MIN_RATE, slowest, ("Replica",))
    yield Sample(names.FETCHER_DEAD, sum(each.is_dead for each in stats), ("Replica",))
    for each in stats:
        labels = (each.client_id, each.leader.host, str(each.leader.port))
        yield Sample(names.FETCHER_REQUESTS, each.requests, labels)
    for each in stats:
        labels = (each.client_id, each.leader.host, str(each.leader.port))
        yield Sample(names.FETCHER_BYTES, each.bytes, labels)
    for client_id, topic_partition, lag in lags[:PARTITIONS_MAX]:
        labels = (client_id, topic_partition.topic, str(topic_partition.partition))
        yield Sample(names.FETCHER_LAG, lag, labels)


def _replication_quotas(services: Services) -> Iterator[Sample]:
    quotas, now_ms = services.replication_quotas, services.clock.monotonic_ms()
    kinds = (
        ("LeaderReplication", names.LEADER_REPLICATION_RATE, quotas.leader),
        ("FollowerReplication", names.FOLLOWER_REPLICATION_RATE, quotas.follower),
        ("AlterLogDirsReplication", names.ALTER_LOG_DIRS_RATE, quotas.alter_log_dirs),
    )
    for _, series, quota in kinds:
        yield Sample(series, quota.rate(now_ms))
    for kind, _, quota in kinds:
        if quota.bound is not None:
            yield Sample(names.REPLICATION_BOUND, quota.bound, (kind,))
    for kind, _, quota in kinds:
        hosted = [each for each in quota.held_back.items() if each[0] in services.replica_manager.partitions]
        for (topic, partition), count in hosted[:PARTITIONS_MAX]:
            yield Sample(names.REPLICATION_HELD_BACK, count, (kind, topic, str(partition)))
