"""What a scrape reads, but for groups, transactions and share partitions (``coordinator_metrics``).

Everything is read when asked; nothing is kept for it but plain counters. A source is a generator that others'
turns interrupt, so it goes over copies of whatever may change meanwhile.

It reads of requests, purgatories, the controller and the process; of clients and their quotas,
``CLIENTS_MAX`` clients at most; of the file systems of the log directories; of traffic, replicas, partitions,
logs, fetchers and replication quotas; of logins, of new connections, and of the authorizer. Listeners that
have counted nothing show zeros, so that a rate sees the first failure.

**Exposition**: the series as prometheus-client wants them, in chunks that are small enough for the event
loop. The page ``/metrics`` gives others their turn between two chunks; the text of a family that came in
several has one head. prometheus-client brings half of the standard library's ``http`` and ``urllib``: a tenth
of a broker's start and 3 MB, so it is imported for the first scrape.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from minikafka import __version__
from minikafka.controller.context import ControllerContext
from minikafka.deferred import deferred
from minikafka.errors import ErrorCode
from minikafka.log.cleanable_log import dirty_bytes
from minikafka.metrics import names
from minikafka.metrics.broker_stats import AuthenticationMetrics
from minikafka.metrics.names import SCRAPE_SECONDS, SCRAPE_SLICE_SECONDS
from minikafka.metrics.request_metrics import Phase, quantiles
from minikafka.metrics.sensors import KafkaMetric
from minikafka.metrics.series import (
    SHARES,
    Sample,
    Series,
    SeriesType,
    Source,
    summary_samples,
    timer_samples,
)
from minikafka.named_tuple import NamedTuple
from minikafka.network.addresses import format_address
from minikafka.network.limits import ConnectionCounts
from minikafka.network.socket_server import SocketServer
from minikafka.server.cluster.metadata_cache import PartitionMetadata
from minikafka.server.http.coordinator_metrics import GroupFigures, share_partitions_left_out
from minikafka.server.replica.partition import Partition
from minikafka.server.runtime.event_loop import LoopLag
from minikafka.server.services import Services
from minikafka.server.storage.log_cleaner import LogCleaner
from minikafka.types import NO_LEADER

if TYPE_CHECKING:
    import prometheus_client
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector
else:
    prometheus_client = deferred("prometheus_client")
    Collector = object


PARTITIONS_MAX = 10_000
"""Partitions that have series of their own: sixteen each. A scrape of so many takes about a second and a
half, in slices."""

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
_SHARE_TRAFFIC = (
    (names.SHARE_FETCH_REQUESTS, "share_fetch_requests"),
    (names.FAILED_SHARE_FETCH_REQUESTS, "failed_share_fetch_requests"),
    (names.SHARE_ACKNOWLEDGEMENT_REQUESTS, "share_acknowledgement_requests"),
    (names.FAILED_SHARE_ACKNOWLEDGEMENT_REQUESTS, "failed_share_acknowledgement_requests"),
)
"""Most topics are not shared: those have no series, as in Kafka, which makes the meters of a topic when they
are needed."""

PROCESS_IO = Path("/proc/self/io")
SLICE_PARTITIONS = 1_000
"""Partitions of the cluster that are counted before others have a turn: about 1 ms."""

RUNNING, STARTING = 3, 1
"""Kafka's ``BrokerState``."""

_PHASES = (
    (names.REQUEST_QUEUE_TIME, Phase.REQUEST_QUEUE),
    (names.LOCAL_TIME, Phase.LOCAL),
    (names.REMOTE_TIME, Phase.REMOTE),
    (names.RESPONSE_QUEUE_TIME, Phase.RESPONSE_QUEUE),
    (names.RESPONSE_SEND_TIME, Phase.RESPONSE_SEND),
)

NETWORK_PROCESSOR = "0"
"""Kafka's threads of a listener; here it is one."""

CHUNK_SAMPLES = 250
"""About 2 ms."""
CHUNK_BYTES = 64 * 1024
"""Of labels: names of topics are short, those of groups may have 32 KB each."""


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
    for series, field in _SHARE_TRAFFIC:
        yield Sample(series, getattr(total, field))
        for topic, counts in topics:
            if count := getattr(counts, field):
                yield Sample(series, count, (topic,))
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
    return timer_samples(names.LOG_FLUSHES, services.log_flushes)


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


def sources_of_clients(services: Services) -> list[Source]:
    """All of this module."""
    return [partial(source, services) for source in (_clients, _quotas)]


def _clients(services: Services) -> Iterator[Sample]:
    clients = services.client_quotas.clients()
    for client in clients:
        yield Sample(names.CLIENT_PRODUCED, client.produced_bytes, (client.user, client.client_id))
    for client in clients:
        yield Sample(names.CLIENT_FETCHED, client.fetched_bytes, (client.user, client.client_id))


def _quotas(services: Services) -> Iterator[Sample]:
    now_ms = services.clock.monotonic_ms()
    families: dict[tuple[str, str], list[KafkaMetric]] = {}
    for metric in services.metrics.metrics.values():
        families.setdefault((metric.name.group, metric.name.name), []).append(metric)
    for family, series in names.QUOTA_METRICS.items():
        for metric in families.get(family, ()):
            yield Sample(series, metric.measure(now_ms), _labels(metric))
    for (group, _), metrics in families.items():
        for metric in metrics:
            if metric.quota is not None and metric.quota.is_upper:
                yield Sample(names.QUOTA_BOUND, metric.quota.bound, (group, *_labels(metric)))


def _labels(metric: KafkaMetric) -> tuple[str, ...]:
    """The user and the client id."""
    return tuple(value for _, value in metric.name.tags)


class Space(NamedTuple):
    """Bytes of a file system."""

    total: int
    free: int


class DiskFigures:
    """What was found last."""

    def __init__(self, services: Services) -> None:
        self._log_manager = services.log_manager
        self._space: dict[str, Space] = {}

    def __repr__(self) -> str:
        return f"DiskFigures({self._space})"

    async def read(self) -> None:
        """Ask in another thread: a file system that hangs must not stop the loop. Of directories that are
        offline nothing is shown."""
        online = self._log_manager.directories.configured
        offline = self._log_manager.offline_directories
        self._space = await asyncio.to_thread(_space, [each for each in online if each not in offline])

    def samples(self) -> Iterator[Sample]:
        """What the last ``read`` found."""
        for directory, space in self._space.items():
            yield Sample(names.LOG_DIRECTORY_BYTES, space.total, (directory,))
        for directory, space in self._space.items():
            yield Sample(names.LOG_DIRECTORY_FREE_BYTES, space.free, (directory,))


def _space(directories: list[str]) -> dict[str, Space]:
    found = {}
    for directory in directories:
        try:
            told = os.statvfs(directory)
        except OSError:  # the next access of its logs takes it offline
            continue
        found[directory] = Space(told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize)
    return found


def sources_of_broker(
    services: Services, socket_server: SocketServer, loop_lag: LoopLag, groups: GroupFigures
) -> list[Source]:
    """All of this module."""
    about_services = (
        _broker,
        _requests,
        _purgatories,
        _controller,
    )
    return [
        *(partial(source, services) for source in about_services),
        partial(_left_out, services, groups),
        partial(_trace_spans, services),
        _disk_io,
        partial(_connections, socket_server),
        partial(_loop, loop_lag),
    ]


def _broker(services: Services) -> Iterator[Sample]:
    yield Sample(names.BUILD_INFO, 1, (__version__, str(services.node_id)))
    yield Sample(names.BROKER_STATE, RUNNING if services.metadata_received.is_set() else STARTING)


def _disk_io() -> Iterator[Sample]:
    """Kafka: ``LinuxIoMetricsCollector``."""
    try:
        lines = PROCESS_IO.read_text().splitlines()
    except OSError:  # not Linux, or a container that hides it
        return
    counts = dict(line.split(": ", 1) for line in lines)
    yield Sample(names.DISK_READ_BYTES, int(counts["read_bytes"]))
    yield Sample(names.DISK_WRITE_BYTES, int(counts["write_bytes"]))


# Requests
def _requests(services: Services) -> Iterator[Sample]:
    asked = [each for each in services.request_metrics if each.count]
    for metrics in asked:
        for version, count in metrics.counts.items():
            yield Sample(names.REQUESTS, count, (metrics.name, str(version)))
    for metrics in asked:
        for code, count in list(metrics.errors.items()):
            yield Sample(names.REQUEST_ERRORS, count, (metrics.name, ErrorCode(code).name))
    for metrics in asked:
        times = quantiles(metrics.timed.totals(), SHARES)
        yield from summary_samples(names.TOTAL_TIME, times, count=metrics.count, labels=(metrics.name,))
    for series, phase in _PHASES:
        for metrics in asked:
            times = quantiles(metrics.timed.of(phase), SHARES)
            yield from summary_samples(series, times, count=metrics.count, labels=(metrics.name,))
    for metrics in asked:
        sizes = metrics.sizes.quantiles(SHARES)
        yield from summary_samples(names.REQUEST_BYTES, sizes, count=metrics.count, labels=(metrics.name,))
    for metrics in asked:
        times = metrics.throttle_ms.quantiles(SHARES)
        yield from summary_samples(
            names.THROTTLE_TIME, times, count=metrics.throttled, labels=(metrics.name,)
        )


def _connections(server: SocketServer) -> Iterator[Sample]:
    open_now = Counter(connection.listener_name for connection in server.connections)
    for listener in server.listener_names:
        yield Sample(names.CONNECTION_COUNT, open_now[listener], (listener, "0"))


def _purgatories(services: Services) -> Iterator[Sample]:
    parked, groups = services.replica_manager.parked, services.groups.parked
    waiting = [
        (purgatory.name, purgatory.watched, purgatory.delayed)
        for purgatory in (parked.produce, parked.fetch, parked.delete_records, parked.share_fetch)
    ]
    waiting += [(each.name, each.watched, each.delayed) for each in (groups.rebalance, groups.heartbeat)]
    for name, watched, _ in waiting:
        yield Sample(names.PURGATORY_SIZE, watched, (name,))
    for name, _, delayed in waiting:
        yield Sample(names.PURGATORY_DELAYED, delayed, (name,))
    yield Sample(names.FETCH_SESSIONS, len(services.fetch_sessions))


# The controller
def _controller(services: Services) -> Iterator[Sample | None]:
    loop = services.controller
    context = loop.context or ControllerContext(-1)  # who is not the controller knows of nothing
    offline = imbalanced = 0
    for count, (topic_partition, assignment) in enumerate(list(context.assignments.items()), 1):
        if count % SLICE_PARTITIONS == 0:
            yield None
        if context.is_to_be_deleted(topic_partition.topic):
            continue
        current = context.leadership.get(topic_partition)
        leader = NO_LEADER if current is None else current.state.leader
        offline += leader == NO_LEADER or not context.is_online(leader, topic_partition)
        imbalanced += bool(assignment.replicas) and leader != assignment.replicas[0]
    yield Sample(names.ACTIVE_CONTROLLER, loop.is_controller)
    yield Sample(names.OFFLINE_PARTITIONS, offline)
    yield Sample(names.PREFERRED_IMBALANCE, imbalanced)
    yield Sample(names.GLOBAL_TOPICS, len(context.topics))
    yield Sample(names.GLOBAL_PARTITIONS, len(context.assignments))
    yield Sample(names.ACTIVE_BROKERS, len(context.brokers))
    yield Sample(names.TOPICS_TO_DELETE, len(context.topics_to_be_deleted))
    yield Sample(names.REASSIGNING_PARTITIONS, len(context.being_reassigned))
    yield Sample(names.UNCLEAN_ELECTIONS, context.unclean_elections)
    yield Sample(names.LEADER_ELECTIONS, context.leader_elections)
    yield Sample(names.CONTROLLER_QUEUE, loop.events_waiting)
    for kind, timer in loop.stats.timers.items():
        yield from timer_samples(names.CONTROLLER_EVENTS[kind], timer)


def _left_out(services: Services, groups: GroupFigures) -> Iterator[Sample]:
    fetchers = services.replica_manager.fetchers
    partitions = len(services.replica_manager.partitions)
    fetched = 0 if fetchers is None else sum(1 for _ in fetchers.lags())
    counts = (
        ("partitions", max(0, partitions - PARTITIONS_MAX)),
        ("fetched partitions", max(0, fetched - PARTITIONS_MAX)),
        ("groups", groups.groups_left_out),
        ("group offsets", groups.offsets_left_out),
        *share_partitions_left_out(services),
    )
    for what, count in counts:
        yield Sample(names.SERIES_LEFT_OUT, count, (what,))


def _trace_spans(services: Services) -> Iterator[Sample]:
    exporter = services.replica_manager.tracer.exporter
    if exporter is not None:
        yield Sample(names.TRACE_SPANS, exporter.exported, ("exported",))
        yield Sample(names.TRACE_SPANS, exporter.dropped, ("dropped",))


# The loop
def _loop(loop_lag: LoopLag) -> Iterator[Sample]:
    yield Sample(names.REQUEST_HANDLER_IDLE, loop_lag.idle_share)
    yield Sample(names.NETWORK_PROCESSOR_IDLE, loop_lag.idle_share)
    lags = loop_lag.seconds.quantiles(SHARES)
    yield from summary_samples(names.LOOP_LAG, lags, count=loop_lag.count)


def sources_of_security(
    services: Services, socket_server: SocketServer, handshakes_of_http: Callable[[], Mapping[str, int]]
) -> list[Source]:
    """All of this module. ``handshakes_of_http``: those of the HTTP port that failed, by its name."""
    return [
        partial(_authentications, services, socket_server, handshakes_of_http),
        partial(_refused_connections, socket_server),
        partial(_authorizer, services),
    ]


def _authentications(
    services: Services, server: SocketServer, handshakes_of_http: Callable[[], Mapping[str, int]]
) -> Iterator[Sample]:
    """A handshake is an authentication too, in Kafka's counts: one that fails everywhere, one that succeeds
    where nothing follows it."""
    nothing = AuthenticationMetrics()
    handshakes = server.handshakes
    failed = dict(handshakes_of_http())
    done: dict[str, int] = {}
    if handshakes is not None:
        failed |= handshakes.failed
        done = {
            listener.name: handshakes.done.get(listener.name, 0)
            for listener in services.config.endpoints()
            if listener.protocol == "SSL"
        }
    by_handshake: dict[str, dict[str, int]] = {"successful": done, "failed": failed}
    counted = dict.fromkeys(server.listener_names, nothing) | services.security_metrics.listeners
    for field, series in names.AUTHENTICATIONS.items():
        for listener, counts in counted.items():
            count = getattr(counts, field) + by_handshake.get(field, {}).get(listener, 0)
            yield Sample(series, count, (listener, NETWORK_PROCESSOR))
    expired = sum(counts.expired_killed for counts in counted.values())
    yield Sample(names.EXPIRED_CONNECTIONS_KILLED, expired)
    for listener in counted:
        yield Sample(names.TLS_HANDSHAKES_FAILED, failed.get(listener, 0), (listener,))


def _refused_connections(server: SocketServer) -> Iterator[Sample]:
    nothing = ConnectionCounts()
    counted = {name: server.limits.counts.get(name, nothing) for name in server.listener_names}
    for listener, counts in counted.items():
        yield Sample(names.CONNECTIONS_CREATED, counts.accepted, (listener, NETWORK_PROCESSOR))
    for listener, counts in counted.items():
        yield Sample(names.CONNECTIONS_REFUSED, counts.refused, (listener,))
    for listener, counts in counted.items():
        yield Sample(names.CONNECTION_THROTTLES, counts.throttled, (listener, "listener"))
        yield Sample(names.CONNECTION_THROTTLES, counts.ip_throttled, (listener, "ip"))
    for listener, counts in counted.items():
        yield Sample(names.CONNECTION_THROTTLE_SECONDS, counts.delayed_ms / 1000, (listener, "listener"))
        yield Sample(names.CONNECTION_THROTTLE_SECONDS, counts.ip_delayed_ms / 1000, (listener, "ip"))


def _authorizer(services: Services) -> Iterator[Sample]:
    counts = services.security_metrics.authorizer
    yield Sample(names.AUTHORIZATION_REQUESTS, counts.requests)
    yield Sample(names.AUTHORIZATIONS_ALLOWED, counts.allowed)
    yield Sample(names.AUTHORIZATIONS_DENIED, counts.denied)
    yield Sample(names.ACLS, 0 if services.acls is None else services.acls.count)


class BrokerCollector:
    """Reads all sources when it is asked. A large family comes as several in a row with the same name."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric | None]:
        """None where a source has had its slice and has nothing to show yet."""
        for source in self._sources:
            chunk: Metric | None = None
            chunk_bytes = 0
            for sample in source():
                if sample is None:
                    yield None
                    continue
                series = sample.series
                is_full = chunk is not None and (
                    len(chunk.samples) == CHUNK_SAMPLES or chunk_bytes >= CHUNK_BYTES
                )
                if chunk is None or is_full or chunk.name != series.name:
                    if chunk is not None:
                        yield chunk
                    chunk, chunk_bytes = (
                        prometheus_client.Metric(series.name, series.help, series.type.value),
                        0,
                    )
                _add(chunk, sample)
                chunk_bytes += sum(map(len, sample.labels))
            if chunk is not None:
                yield chunk
        of_process = prometheus_client.PROCESS_COLLECTOR, prometheus_client.GC_COLLECTOR
        for collector in (*of_process, prometheus_client.PLATFORM_COLLECTOR):
            yield from collector.collect()


def _add(chunk: Metric, sample: Sample) -> None:
    series = sample.series
    suffix = "_total" if series.type is SeriesType.COUNTER else sample.suffix
    labels = dict(zip(series.labels, sample.labels, strict=False))
    chunk.add_sample(series.name + suffix, labels, float(sample.value))


class _Chunk(Collector):
    """A registry of one chunk."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


class Exposition:
    """The text of one scrape, chunk by chunk; remembers how long the last one took."""

    def __init__(self, sources: list[Source], now_ns: Callable[[], int]) -> None:
        """``sources`` may grow later. Imports prometheus-client."""
        sources.append(self.of_scrapes)
        self._collector = BrokerCollector(sources)
        self._text_of = prometheus_client.generate_latest
        self._now_ns = now_ns
        self._seconds = 0.0
        self._slice_seconds_max = 0.0

    def texts(self) -> Iterator[bytes]:
        """Each chunk in the text format, empty ones too. Between two of them others may have their turn."""
        began_ns = slice_ns = self._now_ns()
        longest_ns, name = 0, ""
        for chunk in self._collector.collect():
            text = b""
            if chunk is not None:
                text = self._text_of(_Chunk(chunk))
                if chunk.name == name:
                    text = text.split(b"\n", 2)[2]  # HELP and TYPE stand before the family's first chunk
                name = chunk.name
            longest_ns = max(longest_ns, self._now_ns() - slice_ns)
            yield text
            slice_ns = self._now_ns()
        self._seconds = (slice_ns - began_ns) / 1_000_000_000
        self._slice_seconds_max = longest_ns / 1_000_000_000

    def of_scrapes(self) -> Iterator[Sample]:
        """The source that says how long the scrape before took."""
        yield Sample(SCRAPE_SECONDS, self._seconds)
        yield Sample(SCRAPE_SLICE_SECONDS, self._slice_seconds_max)
