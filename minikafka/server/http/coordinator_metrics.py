"""What a scrape reads of the groups, transactions and share partitions that this broker coordinates or leads.

``GroupFigures.read`` is awaited before a scrape: it goes over the groups in slices, and asks other leaders
where their partitions end. ``samples`` shows what it has found. A group is at one coordinator, so each series
is shown by one broker of a cluster, and sums over all brokers are right.

How much is shown has limits, by count and by the length of names, which clients choose: groups with members
come before those without.

**Where partitions end that other brokers lead**: the lag of a group, which is known at the group's
coordinator, needs it. Asked at each scrape, of all those leaders at once (ListOffsets). Who looks waits for a
moment only: a leader that is slow or gone must not hold up a scrape. What it answers later counts the next
time, and what it said last counts for a minute.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from minikafka.coordinator.group.group import Group
from minikafka.coordinator.group.shard import GroupShard
from minikafka.coordinator.transaction.metadata import TransactionState
from minikafka.metrics import coordinator_names as names
from minikafka.metrics.coordinator_names import GROUP_METRICS, SHARE_COORDINATOR_METRICS, TRANSACTION_METRICS
from minikafka.metrics.request_metrics import Histogram
from minikafka.metrics.series import Sample, Series, Source, histogram_samples, timer_samples
from minikafka.named_tuple import NamedTuple
from minikafka.server.apis.partition_offsets import ask_leader
from minikafka.server.coordinator.hosted_shard import HostedShard, ShardState
from minikafka.server.coordinator.service import max_and_avg_samples
from minikafka.server.runtime.work_scheduler import TimeSlice
from minikafka.server.services import Services
from minikafka.server.share.share_partitions import (
    HostedSharePartition,
    SharePartitionFigures,
    SharePartitionManager,
)
from minikafka.share.share_partition import AcknowledgeType
from minikafka.types import BrokerId, Offset, TopicPartition

SLICE_PARTITIONS = 1_000
"""Share partitions that are counted before others have a turn: about 1 ms."""
SHARE_PARTITIONS_MAX = 10_000
"""Share partitions that have series of their own: three each."""
SHARE_SUMMARIES_MAX = 1_000
"""Of those, how many have summaries too: seven numbers for each of three."""

_SHARD_STATES = (ShardState.LOADING, ShardState.ACTIVE, ShardState.FAILED)

WAIT_MS = 250
"""For the answers: many round trips, and nothing beside the 10 s that Prometheus waits."""
KEPT_MS = 60_000
"""For so long an answer counts when no other comes: a few of the usual scrapes."""

GROUPS_MAX = 2_000
GROUP_OFFSETS_MAX = 5_000
"""Groups and committed offsets that have series of their own: 2 MB of text, 0.3 s of CPU in slices."""
LABEL_BYTES_MAX = 512 * 1024
"""Of names, for either: a name may have 32 KB."""

_CONSUMER_STATES = ("empty", "assigning", "reconciling", "stable", "dead")
_SHARE_STATES = ("empty", "stable", "dead")
_STREAMS_STATES = {
    "empty": "empty",
    "notready": "not_ready",
    "assigning": "assigning",
    "reconciling": "reconciling",
    "stable": "stable",
    "dead": "dead",
}
"""As a group's state is spelt, in small letters, and as Kafka's metric spells it."""

_TRANSACTION_STATES = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)
"""Those that last."""

_SHARE_PARTITION_HISTOGRAMS: tuple[tuple[Series, Callable[[SharePartitionFigures], Histogram]], ...] = (
    (names.IN_FLIGHT_BATCH_RECORDS, lambda figures: figures.batch_records),
    (names.FETCH_LOCK_TIME, lambda figures: figures.fetch_lock_times_ms),
    (names.FETCH_LOCK_RATIO, lambda figures: figures.fetch_lock_percents),
)

_ACKNOWLEDGE_TYPES = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
)


def sources_of_coordinators(services: Services, groups: GroupFigures) -> list[Source]:
    """All of this module."""
    return [partial(transactions, services), partial(share_groups, services), groups.samples]


class Told(NamedTuple):
    """A leader's answer, and when it came on the monotonic clock."""

    at_ms: int
    offsets: dict[TopicPartition, Offset]


class LeaderOffsets:
    """What the other leaders have said."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._told: dict[BrokerId, Told] = {}
        self._asking: dict[BrokerId, asyncio.Task[None]] = {}

    def __repr__(self) -> str:
        return f"LeaderOffsets(told by {sorted(self._told)}, asking {sorted(self._asking)})"

    async def high_watermarks(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """Without those whose leader is this broker, is gone, or has not answered."""
        services = self._services
        by_leader: dict[BrokerId, list[TopicPartition]] = defaultdict(list)
        for topic_partition in sorted(set(wanted)):
            told = services.metadata.partition(topic_partition)
            leader = services.node_id if told is None else told.leader
            if leader != services.node_id and services.metadata.is_alive(leader):
                by_leader[leader].append(topic_partition)
        for leader, asked in by_leader.items():
            if leader not in self._asking:
                ask = partial(self._ask, leader, asked)
                self._asking[leader] = services.supervisor.start(f"lag-{leader}", ask)
        if self._asking:
            await asyncio.wait(self._asking.values(), timeout=WAIT_MS / 1000)
        now_ms = services.clock.monotonic_ms()
        self._told = {
            leader: told
            for leader, told in self._told.items()
            if leader in by_leader and now_ms - told.at_ms < KEPT_MS
        }
        return {
            topic_partition: offset
            for leader, asked in by_leader.items()
            if leader in self._told
            for topic_partition, offset in self._told[leader].offsets.items()
        }

    async def _ask(self, leader: BrokerId, asked: list[TopicPartition]) -> None:
        try:
            found = await ask_leader(self._services, leader, asked)
            if found:
                self._told[leader] = Told(self._services.clock.monotonic_ms(), found)
        finally:
            del self._asking[leader]


class CommittedRow(NamedTuple):
    """One committed offset."""

    group: str
    topic_partition: TopicPartition
    offset: Offset


class GroupFigures:
    """What was found last."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._leaders = LeaderOffsets(services)
        self._states: Counter[tuple[str, str]] = Counter()
        self._members: list[tuple[str, int]] = []
        self._rows: list[CommittedRow] = []
        self._high_watermarks: dict[TopicPartition, Offset] = {}
        self.groups = 0
        self.offsets = 0
        """How many there are, shown or not."""

    def __repr__(self) -> str:
        return f"GroupFigures({self.groups} groups, {self.offsets} offsets)"

    @property
    def groups_left_out(self) -> int:
        return self.groups - len(self._members)

    @property
    def offsets_left_out(self) -> int:
        return self.offsets - len(self._rows)

    async def read(self) -> None:
        """Look at all groups; the other leaders are asked meanwhile, and may not answer."""
        time_slice = TimeSlice()
        states: Counter[tuple[str, str]] = Counter()
        in_use: list[tuple[GroupShard, Group]] = []
        empty: list[tuple[GroupShard, Group]] = []
        offsets = 0
        for hosted in self._services.groups.hosted_shards():
            if hosted.state is not ShardState.ACTIVE:
                continue
            offsets += hosted.shard.offsets_count
            for group in hosted.shard.groups():
                listed = group.listed()
                states[listed.group_type, listed.state.lower()] += 1
                (in_use if group.members else empty).append((hosted.shard, group))
                await time_slice.give_way()
        self._states, self.groups, self.offsets = states, states.total(), offsets
        shown = in_use + empty
        self._members = [(group.group_id, len(group.members)) for _, group in _first_of(shown)]
        self._rows = await _committed(shown, time_slice)
        await self._read_high_watermarks(time_slice)

    async def _read_high_watermarks(self, time_slice: TimeSlice) -> None:
        partitions = self._services.replica_manager.partitions
        found: dict[TopicPartition, Offset] = {}
        elsewhere: dict[TopicPartition, None] = {}
        for row in self._rows:
            hosted = partitions.get(row.topic_partition)
            if hosted is not None and hosted.is_leader:
                found[row.topic_partition] = hosted.log.high_watermark
            else:
                elsewhere[row.topic_partition] = None
            await time_slice.give_way()
        self._high_watermarks = found | await self._leaders.high_watermarks(elsewhere)

    # The source

    def samples(self) -> Iterator[Sample]:
        """What the last ``read`` found."""
        yield from self._counts()
        yield Sample(names.GROUP_OFFSETS, self.offsets)
        yield Sample(names.OFFSET_COUNT, self.offsets)
        yield from self._offsets()
        for group, size in self._members:
            yield Sample(names.GROUP_MEMBERS, size, (group,))

    def _counts(self) -> Iterator[Sample]:
        services, states = self._services, self._states
        protocols: Counter[str] = Counter()
        for (protocol, _), count in states.items():
            protocols[protocol] += count
        yield Sample(names.GROUPS, self.groups)
        for state, series in names.GROUPS_BY_STATE.items():
            yield Sample(series, states["classic", state.lower()])
        for state in names.GROUPS_BY_STATE:
            yield Sample(names.CLASSIC_GROUP_COUNT, states["classic", state.lower()], (state,))
        for protocol in ("classic", "consumer", "share", "streams"):
            yield Sample(names.GROUP_COUNT, protocols[protocol], (protocol,))
        for state in _CONSUMER_STATES:
            yield Sample(names.CONSUMER_GROUP_COUNT, states["consumer", state], (state,))
        for state in _SHARE_STATES:
            yield Sample(names.SHARE_GROUP_COUNT, states["share", state], (state,))
        for state, told in _STREAMS_STATES.items():
            yield Sample(names.STREAMS_GROUP_COUNT, states["streams", state], (told,))
        shards: list[HostedShard[GroupShard]] = services.groups.hosted_shards()
        for shard_state in _SHARD_STATES:
            count = sum(shard.state is shard_state for shard in shards)
            yield Sample(names.COORDINATOR_PARTITIONS, count, (shard_state.value,))
        yield from max_and_avg_samples(
            services.metrics, GROUP_METRICS, names.GROUPS_LOAD_TIMES, now_ms=services.clock.monotonic_ms()
        )
        counts = services.groups.counts
        yield Sample(names.GROUP_MEMORY, services.groups.memory_bytes())
        for name, done in (
            ("offset_commit", counts.offset_commits),
            ("offset_expiration", counts.offset_expirations),
            ("offset_deletion", counts.offset_deletions),
            ("group_completed_rebalance", counts.completed_rebalances),
            ("consumer_group_rebalance", counts.consumer_group_rebalances),
            ("share_group_rebalance", counts.share_group_rebalances),
            ("streams_group_rebalance", counts.streams_group_rebalances),
        ):
            yield Sample(names.GROUP_ACTIVITY[name], done)

    def _offsets(self) -> Iterator[Sample]:
        """Each family for itself. An unknown lag is not shown, nor is a sum that lacks one."""
        offsets: Counter[tuple[str, str]] = Counter()
        lags: Counter[tuple[str, str]] = Counter()
        unknown: set[tuple[str, str]] = set()
        for row in self._rows:
            labels = row.group, row.topic_partition.topic, str(row.topic_partition.partition)
            yield Sample(names.GROUP_COMMITTED_OFFSET, row.offset, labels)
            offsets[labels[:2]] += row.offset
        for row in self._rows:
            labels = row.group, row.topic_partition.topic, str(row.topic_partition.partition)
            high_watermark = self._high_watermarks.get(row.topic_partition)
            if high_watermark is None:
                unknown.add(labels[:2])
                continue
            lag = max(0, high_watermark - row.offset)
            lags[labels[:2]] += lag
            yield Sample(names.GROUP_LAG, lag, labels)
        for group_topic, offset in offsets.items():
            yield Sample(names.GROUP_COMMITTED_OFFSET_SUM, offset, group_topic)
        for group_topic, lag in lags.items():
            if group_topic not in unknown:
                yield Sample(names.GROUP_LAG_SUM, lag, group_topic)


def _first_of(groups: list[tuple[GroupShard, Group]]) -> Iterator[tuple[GroupShard, Group]]:
    """As many as have series."""
    label_bytes = 0
    for each in groups[:GROUPS_MAX]:
        label_bytes += len(each[1].group_id)
        if label_bytes > LABEL_BYTES_MAX:
            return
        yield each


async def _committed(groups: list[tuple[GroupShard, Group]], time_slice: TimeSlice) -> list[CommittedRow]:
    """As many committed offsets as have series, by group, topic and partition."""
    rows: list[CommittedRow] = []
    label_bytes = 0
    for shard, group in groups:
        for topic, partitions in sorted(shard.offsets_of(group.group_id).items()):
            for number in sorted(partitions):
                label_bytes += len(group.group_id) + len(topic)
                if len(rows) >= GROUP_OFFSETS_MAX or label_bytes > LABEL_BYTES_MAX:
                    return rows
                at = TopicPartition(topic, number)
                rows.append(CommittedRow(group.group_id, at, Offset(partitions[number].offset)))
        await time_slice.give_way()
    return rows


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
    for state in _TRANSACTION_STATES:
        yield Sample(names.TRANSACTIONAL_IDS, counts[state], (state.kafka_name,))
    for shard_state in _SHARD_STATES:
        count = sum(each.state is shard_state for each in hosted)
        yield Sample(names.TRANSACTION_PARTITIONS, count, (shard_state.value,))
    yield from max_and_avg_samples(
        services.metrics,
        TRANSACTION_METRICS,
        names.TRANSACTIONS_LOAD_TIMES,
        now_ms=services.clock.monotonic_ms(),
    )
    yield Sample(names.VERIFICATION_FAILURES, verification.failures)
    yield from timer_samples(names.VERIFICATION_TIME, verification.times)


def share_groups(services: Services) -> Iterator[Sample | None]:
    """A source."""
    manager, coordinator = services.share_partitions, services.shares
    yield Sample(names.SHARE_SESSIONS, len(manager.sessions))
    yield Sample(names.SHARE_SESSION_PARTITIONS, manager.sessions.partitions)
    yield Sample(names.SHARE_SESSION_EVICTIONS, manager.sessions.evictions)
    for kind in _ACKNOWLEDGE_TYPES:
        yield Sample(names.RECORD_ACKNOWLEDGEMENTS, manager.counts.acknowledged[kind], (kind.name.title(),))
    hosted_partitions = manager.hosted()
    yield from _in_flight(hosted_partitions[:SHARE_PARTITIONS_MAX])
    yield from _figures_of_partitions(hosted_partitions[:SHARE_SUMMARIES_MAX])
    yield Sample(names.SHARE_FETCH_EXPIRES, manager.counts.expired_fetches)
    yield from histogram_samples(names.SHARE_PARTITION_LOAD_TIME, manager.counts.load_times_ms)
    yield from _share_fetches(manager)
    for series, by_group in (
        (names.DEAD_LETTERS, manager.counts.dead_letters),
        (names.DEAD_LETTER_REQUESTS, manager.counts.dead_letter_requests),
        (names.DEAD_LETTER_FAILURES, manager.counts.dead_letter_failures),
    ):
        for group_id, count in by_group.items():
            yield Sample(series, count, (group_id,))
    yield Sample(names.SHARE_PARTITIONS, len(manager))
    yield Sample(names.SHARE_STATE_WRITES, coordinator.writes)
    hosted = coordinator.hosted_shards()
    for shard_state in _SHARD_STATES:
        count = sum(each.state is shard_state for each in hosted)
        yield Sample(names.SHARE_STATE_PARTITIONS, count, (shard_state.value,))
    for series_by_name in (names.SHARE_LOAD_TIMES, names.SHARE_WRITE_LATENCIES):
        yield from max_and_avg_samples(
            services.metrics,
            SHARE_COORDINATOR_METRICS,
            series_by_name,
            now_ms=services.clock.monotonic_ms(),
        )
    for at, offset in coordinator.pruned():
        yield Sample(names.SHARE_LAST_PRUNED_OFFSET, offset, (at.topic, str(at.partition)))


def _in_flight(hosted_partitions: Sequence[HostedSharePartition]) -> Iterator[Sample | None]:
    timeouts: list[Sample] = []
    records: list[Sample] = []
    batches: list[Sample] = []
    for count, hosted in enumerate(hosted_partitions, 1):
        labels = _labels(hosted)
        record_count, run_count = hosted.in_flight
        timeouts.append(Sample(names.ACQUISITION_LOCK_TIMEOUTS, hosted.lock_timeouts, labels))
        records.append(Sample(names.IN_FLIGHT_RECORDS, record_count, labels))
        batches.append(Sample(names.IN_FLIGHT_BATCHES, run_count, labels))
        if count % SLICE_PARTITIONS == 0:
            yield None
    yield from timeouts
    yield from records
    yield from batches


def share_partitions_left_out(services: Services) -> list[tuple[str, int]]:
    """How many have no series, and how many no summaries."""
    count = len(services.share_partitions)
    return [
        ("share partitions", max(0, count - SHARE_PARTITIONS_MAX)),
        ("summaries of share partitions", max(0, count - SHARE_SUMMARIES_MAX)),
    ]


def _figures_of_partitions(hosted_partitions: Sequence[HostedSharePartition]) -> Iterator[Sample | None]:
    for series, histogram_of in _SHARE_PARTITION_HISTOGRAMS:
        for hosted in hosted_partitions:
            yield from histogram_samples(series, histogram_of(hosted.figures), _labels(hosted))
            yield None


def _labels(hosted: HostedSharePartition) -> tuple[str, str, str]:
    return hosted.key.group_id, hosted.topic_partition.topic, str(hosted.topic_partition.partition)


def _share_fetches(manager: SharePartitionManager) -> Iterator[Sample | None]:
    of_groups = list(manager.counts.fetches.items())
    for group_id, figures in of_groups:
        yield from histogram_samples(names.SHARE_FETCH_RATIO, figures.acquired_percents, (group_id,))
        yield None
    for group_id, figures in of_groups:
        yield from histogram_samples(names.SHARE_ACQUIRE_TIME, figures.acquire_times_ms, (group_id,))
        yield None
