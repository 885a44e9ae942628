"""What a scrape shows of the groups that this broker coordinates, with their lag.

``GroupFigures.read`` is awaited before a scrape: it goes over the groups in slices, and asks other leaders
where their partitions end. ``samples`` shows what it has found. A group is at one coordinator, so each series
is shown by one broker of a cluster, and sums over all brokers are right.

How much is shown has limits, by count and by the length of names, which clients choose: groups with members
come before those without.

Where partitions end that other brokers lead: the lag of a group, which is known at the group's
coordinator, needs it. Asked at each scrape, of all those leaders at once (ListOffsets).

Who looks waits for a moment only: a leader that is slow or gone must not hold up a scrape. What it answers
later counts the next time, and what it said last counts for a minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import NamedTuple

from minikafka.coordinator.group.group import Group
from minikafka.coordinator.group.shard import GroupShard
from minikafka.errors import ErrorCode, KafkaError
from minikafka.metrics import names
from minikafka.metrics.names_of_coordinators import GROUP_METRICS
from minikafka.metrics.series import Sample
from minikafka.network.broker_client import BrokerUnavailable
from minikafka.protocol.wire.api_versions import ApiKey
from minikafka.server.cluster.broker_connection import BrokerConnection
from minikafka.server.coordinator.hosted_shard import HostedShard, ShardState
from minikafka.server.coordinator.operations import load_time_samples
from minikafka.server.runtime.time_slice import TimeSlice
from minikafka.server.services import Services
from minikafka.types import NO_EPOCH, BrokerId, Offset, TopicPartition

logger = logging.getLogger(__name__)


class Told(NamedTuple):
    """A leader's answer, and when it came on the monotonic clock."""

    at_ms: int
    offsets: dict[TopicPartition, Offset]


WAIT_MS = 250
"""For the answers: many round trips, and nothing beside the 10 s that Prometheus waits."""
KEPT_MS = 60_000
"""For so long an answer counts when no other comes: a few of the usual scrapes."""
TIMEOUT_MS = 10_000
"""For one leader's answer."""
PARTITIONS_PER_REQUEST = 500
"""About 5 ms of the leader's loop."""
LATEST_TIMESTAMP, READ_UNCOMMITTED, CONSUMER = -1, 0, -1


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
            found = await _ask(self._services, leader, asked)
            if found:
                self._told[leader] = Told(self._services.clock.monotonic_ms(), found)
        finally:
            del self._asking[leader]


async def _ask(
    services: Services, leader: BrokerId, asked: list[TopicPartition]
) -> dict[TopicPartition, Offset]:
    connection = BrokerConnection(
        name=f"broker {leader}",
        client_id=f"broker-{services.node_id}-lag",
        timeout_ms=TIMEOUT_MS,
        connect=services.connect,
    )
    broker = services.metadata.broker(leader)
    address = None if broker is None else broker.endpoint(services.config.inter_broker_listener())
    found: dict[TopicPartition, Offset] = {}
    try:
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            for first in range(0, len(asked), PARTITIONS_PER_REQUEST):
                body = _request(asked[first : first + PARTITIONS_PER_REQUEST])
                answer = await connection.request(address, ApiKey.LIST_OFFSETS, body)
                found |= {
                    TopicPartition(topic.name, each.partition_index): Offset(each.offset)
                    for topic in answer.topics
                    for each in topic.partitions
                    if each.error_code == ErrorCode.NONE
                }
    except (BrokerUnavailable, KafkaError, TimeoutError) as error:
        reason = error if str(error) else f"it does not answer within {TIMEOUT_MS} ms"
        logger.info("the lag of groups in partitions of broker %d is not known: %s", leader, reason)
    finally:
        await connection.close()
    return found


def _request(asked: list[TopicPartition]) -> dict[str, object]:
    return {
        "replica_id": CONSUMER,
        "isolation_level": READ_UNCOMMITTED,
        "timeout": TIMEOUT_MS,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": each.partition,
                        "current_leader_epoch": NO_EPOCH,
                        "timestamp": LATEST_TIMESTAMP,
                    }
                    for each in partitions
                ],
            }
            for topic, partitions in groupby(asked, key=lambda each: each.topic)
        ],
    }


GROUPS_MAX = 2_000
GROUP_OFFSETS_MAX = 5_000
"""Groups and committed offsets that have series of their own: 2 MB of text, 0.3 s of CPU in slices."""
LABEL_BYTES_MAX = 512 * 1024
"""Of names, for either: a name may have 32 KB."""

_CONSUMER_STATES = ("empty", "assigning", "reconciling", "stable", "dead")
_SHARD_STATES = (ShardState.LOADING, ShardState.ACTIVE, ShardState.FAILED)


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
        for protocol in ("classic", "consumer"):
            yield Sample(names.GROUP_COUNT, protocols[protocol], (protocol,))
        for state in _CONSUMER_STATES:
            yield Sample(names.CONSUMER_GROUP_COUNT, states["consumer", state], (state,))
        shards: list[HostedShard[GroupShard]] = services.groups.hosted_shards()
        for shard_state in _SHARD_STATES:
            count = sum(shard.state is shard_state for shard in shards)
            yield Sample(names.COORDINATOR_PARTITIONS, count, (shard_state.value,))
        yield from load_time_samples(
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
