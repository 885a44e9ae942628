"""What a scrape reads of requests, purgatories, the controller, the groups and the process.

See ``metrics_of_data`` for how a source behaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import islice

from minikafka import __version__
from minikafka.controller.context import ControllerContext
from minikafka.errors import ErrorCode
from minikafka.metrics import names
from minikafka.metrics.names_of_coordinators import GROUP_METRICS
from minikafka.metrics.request_metrics import Phase, quantiles
from minikafka.metrics.series import Sample, Source
from minikafka.network.socket_server import SocketServer
from minikafka.server.coordinator_metrics import load_time_samples
from minikafka.server.hosted_shard import ShardState
from minikafka.server.loop_lag import LoopLag
from minikafka.server.metrics_of_data import PARTITIONS_MAX
from minikafka.server.metrics_of_transactions import transactions
from minikafka.server.services import Services
from minikafka.server.summaries import SHARES, summary, timer_summary
from minikafka.types import NO_LEADER

GROUPS_MAX = 10_000
GROUP_OFFSETS_MAX = 10_000
"""Groups and committed offsets that have series of their own."""

RUNNING, STARTING = 3, 1
"""Kafka's ``BrokerState``."""

_PHASES = (
    (names.REQUEST_QUEUE_TIME, Phase.REQUEST_QUEUE),
    (names.LOCAL_TIME, Phase.LOCAL),
    (names.REMOTE_TIME, Phase.REMOTE),
    (names.RESPONSE_QUEUE_TIME, Phase.RESPONSE_QUEUE),
    (names.RESPONSE_SEND_TIME, Phase.RESPONSE_SEND),
)

_CONSUMER_STATES = ("empty", "assigning", "reconciling", "stable", "dead")
_SHARD_STATES = (ShardState.LOADING, ShardState.ACTIVE, ShardState.FAILED)


def sources_of_broker(services: Services, socket_server: SocketServer, loop_lag: LoopLag) -> list[Source]:
    """All of this module."""
    about_services = (
        _broker,
        _requests,
        _purgatories,
        _controller,
        _groups,
        _group_offsets,
        transactions,
        _left_out,
    )
    return [
        *(partial(source, services) for source in about_services),
        partial(_connections, socket_server),
        partial(_loop, loop_lag),
    ]


def _broker(services: Services) -> Iterator[Sample]:
    yield Sample(names.BUILD_INFO, 1, (__version__, str(services.node_id)))
    yield Sample(names.BROKER_STATE, RUNNING if services.instructed.is_set() else STARTING)


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


def _controller(services: Services) -> Iterator[Sample]:
    loop = services.controller
    context = loop.context or ControllerContext(-1)  # who is not the controller knows of nothing
    offline = imbalanced = 0
    for topic_partition, assignment in list(context.assignments.items()):
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


# Groups


def _groups(services: Services) -> Iterator[Sample]:
    shards = services.groups.hosted_shards()
    listed = [each for shard in shards for each in shard.shard.list_groups()]
    states = Counter((each.group_type, each.state.lower()) for each in listed)
    protocols = Counter(each.group_type for each in listed)
    yield Sample(names.GROUPS, len(listed))
    for state, series in names.GROUPS_BY_STATE.items():
        yield Sample(series, states["classic", state.lower()])
    for protocol in ("classic", "consumer"):
        yield Sample(names.GROUP_COUNT, protocols[protocol], (protocol,))
    for state in _CONSUMER_STATES:
        yield Sample(names.CONSUMER_GROUP_COUNT, states["consumer", state], (state,))
    for shard_state in _SHARD_STATES:
        count = sum(shard.state is shard_state for shard in shards)
        yield Sample(names.COORDINATOR_PARTITIONS, count, (shard_state.value,))
    yield from load_time_samples(
        services.metrics, GROUP_METRICS, names.GROUPS_LOAD_TIMES, now_ms=services.clock.monotonic_ms()
    )
    counts = services.groups.counts
    for name, done in (
        ("offset_commit", counts.offset_commits),
        ("offset_expiration", counts.offset_expirations),
        ("offset_deletion", counts.offset_deletions),
        ("group_completed_rebalance", counts.completed_rebalances),
        ("consumer_group_rebalance", counts.consumer_group_rebalances),
    ):
        yield Sample(names.GROUP_ACTIVITY[name], done)


def _group_offsets(services: Services) -> Iterator[Sample]:
    count = 0
    shown: list[tuple[str, str, int, int]] = []
    members: list[tuple[str, int]] = []
    for shard in services.groups.hosted_shards():
        if shard.state is not ShardState.ACTIVE:
            continue
        members += shard.shard.member_counts()
        count += shard.shard.offsets_count
        offsets = islice(shard.shard.committed_offsets(), GROUP_OFFSETS_MAX - len(shown))
        shown += [(group, topic, partition, entry.offset) for group, topic, partition, entry in offsets]
    yield Sample(names.GROUP_OFFSETS, count)
    for group, topic, partition, offset in shown:
        yield Sample(names.GROUP_COMMITTED_OFFSET, offset, (group, topic, str(partition)))
    for group, size in members[:GROUPS_MAX]:
        yield Sample(names.GROUP_MEMBERS, size, (group,))


def _left_out(services: Services) -> Iterator[Sample]:
    shards = [each.shard for each in services.groups.hosted_shards() if each.state is ShardState.ACTIVE]
    fetchers = services.replica_manager.fetchers
    counts = (
        ("partitions", len(services.replica_manager.partitions), PARTITIONS_MAX),
        ("fetched partitions", 0 if fetchers is None else sum(1 for _ in fetchers.lags()), PARTITIONS_MAX),
        ("groups", sum(len(shard.member_counts()) for shard in shards), GROUPS_MAX),
        ("group offsets", sum(shard.offsets_count for shard in shards), GROUP_OFFSETS_MAX),
    )
    for what, count, shown in counts:
        yield Sample(names.SERIES_LEFT_OUT, max(0, count - shown), (what,))


# The loop


def _loop(loop_lag: LoopLag) -> Iterator[Sample]:
    yield Sample(names.REQUEST_HANDLER_IDLE, loop_lag.idle_share)
    yield Sample(names.NETWORK_PROCESSOR_IDLE, loop_lag.idle_share)
    lags = loop_lag.seconds.quantiles(SHARES)
    yield from summary(names.LOOP_LAG, lags, count=loop_lag.count)
