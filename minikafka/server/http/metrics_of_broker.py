"""What a scrape reads of requests, purgatories, the controller, the groups and the process.

See ``metrics_of_data`` for how a source behaves.

What a scrape reads of clients and their quotas.

See ``metrics_of_data`` for how a source behaves. There are ``CLIENTS_MAX`` clients at most.

What a scrape shows of the file systems of the log directories.

What a scrape reads of the transactions that this broker coordinates, and of those that write to its
partitions. See ``metrics_of_data``.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from minikafka import __version__
from minikafka.controller.context import ControllerContext
from minikafka.coordinator.transaction.metadata import TransactionState
from minikafka.errors import ErrorCode
from minikafka.metrics import names
from minikafka.metrics.names_of_coordinators import TRANSACTION_METRICS
from minikafka.metrics.registry import KafkaMetric
from minikafka.metrics.request_metrics import Phase, quantiles
from minikafka.metrics.series import Sample, Source
from minikafka.network.socket_server import SocketServer
from minikafka.server.coordinator.hosted_shard import ShardState
from minikafka.server.coordinator.operations import load_time_samples
from minikafka.server.http.metrics import GroupFigures
from minikafka.server.http.metrics_of_data import PARTITIONS_MAX, SHARES, summary, timer_summary
from minikafka.server.runtime.loop_lag import LoopLag
from minikafka.server.services import Services
from minikafka.types import NO_LEADER


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


_SHARD_STATES = (ShardState.LOADING, ShardState.ACTIVE, ShardState.FAILED)
_STATES = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)
"""Those that last."""


def transactions(services: Services) -> Iterator[Sample]:
    """A source."""
    coordinator, verification = services.transactions, services.transaction_verification
    hosted = coordinator.hosted_shards()
    yield Sample(names.MARKERS_WITHOUT_LEADER, coordinator.markers.without_leader)
    yield Sample(names.LOG_APPEND_RETRIES, coordinator.parked.delayed)
    counts: Counter[TransactionState] = Counter()
    for each in hosted:
        if each.state is ShardState.ACTIVE:
            counts.update(each.shard.counts_by_state())
    for state in _STATES:
        yield Sample(names.TRANSACTIONAL_IDS, counts[state], (state.kafka_name,))
    for shard_state in _SHARD_STATES:
        count = sum(each.state is shard_state for each in hosted)
        yield Sample(names.TRANSACTION_PARTITIONS, count, (shard_state.value,))
    yield from load_time_samples(
        services.metrics,
        TRANSACTION_METRICS,
        names.TRANSACTIONS_LOAD_TIMES,
        now_ms=services.clock.monotonic_ms(),
    )
    yield Sample(names.VERIFICATION_FAILURES, verification.failures)
    yield from timer_summary(names.VERIFICATION_TIME, verification.times)


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


def sources_of_broker(
    services: Services, socket_server: SocketServer, loop_lag: LoopLag, groups: GroupFigures
) -> list[Source]:
    """All of this module."""
    about_services = (
        _broker,
        _requests,
        _purgatories,
        _controller,
        transactions,
    )
    return [
        *(partial(source, services) for source in about_services),
        groups.samples,
        partial(_left_out, services, groups),
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
        yield from summary(names.TOTAL_TIME, times, count=metrics.count, labels=(metrics.name,))
    for series, phase in _PHASES:
        for metrics in asked:
            times = quantiles(metrics.timed.of(phase), SHARES)
            yield from summary(series, times, count=metrics.count, labels=(metrics.name,))
    for metrics in asked:
        sizes = metrics.sizes.quantiles(SHARES)
        yield from summary(names.REQUEST_BYTES, sizes, count=metrics.count, labels=(metrics.name,))
    for metrics in asked:
        times = metrics.throttle_ms.quantiles(SHARES)
        yield from summary(names.THROTTLE_TIME, times, count=metrics.throttled, labels=(metrics.name,))


def _connections(server: SocketServer) -> Iterator[Sample]:
    open_now = Counter(connection.listener_name for connection in server.connections)
    for listener in server.listener_names:
        yield Sample(names.CONNECTION_COUNT, open_now[listener], (listener, "0"))


def _purgatories(services: Services) -> Iterator[Sample]:
    parked, groups = services.replica_manager.parked, services.groups.parked
    waiting = [
        (purgatory.name, purgatory.watched, purgatory.delayed)
        for purgatory in (parked.produce, parked.fetch, parked.delete_records)
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
        yield from timer_summary(names.CONTROLLER_EVENTS[kind], timer)


def _left_out(services: Services, groups: GroupFigures) -> Iterator[Sample]:
    fetchers = services.replica_manager.fetchers
    partitions = len(services.replica_manager.partitions)
    fetched = 0 if fetchers is None else sum(1 for _ in fetchers.lags())
    counts = (
        ("partitions", max(0, partitions - PARTITIONS_MAX)),
        ("fetched partitions", max(0, fetched - PARTITIONS_MAX)),
        ("groups", groups.groups_left_out),
        ("group offsets", groups.offsets_left_out),
    )
    for what, count in counts:
        yield Sample(names.SERIES_LEFT_OUT, count, (what,))


# The loop


def _loop(loop_lag: LoopLag) -> Iterator[Sample]:
    yield Sample(names.REQUEST_HANDLER_IDLE, loop_lag.idle_share)
    yield Sample(names.NETWORK_PROCESSOR_IDLE, loop_lag.idle_share)
    lags = loop_lag.seconds.quantiles(SHARES)
    yield from summary(names.LOOP_LAG, lags, count=loop_lag.count)
