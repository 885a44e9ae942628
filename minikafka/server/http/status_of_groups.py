"""The groups that this broker coordinates, and their lag, for the status page. See ``status``."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import msgspec

from minikafka.coordinator.group.messages import ListedGroup
from minikafka.coordinator.group.shard import GroupShard
from minikafka.server.cluster.topic_validation import GROUP_METADATA_TOPIC
from minikafka.server.coordinator.hosted_shard import ShardState
from minikafka.server.runtime.turns import Turns
from minikafka.server.services import Services
from minikafka.types import TopicPartition

GROUPS_MAX = 200
OFFSETS_MAX = 500
OFFSETS_SEEN_MAX = 10_000
"""So many committed offsets are looked at: 13 ms, in slices."""


class GroupOffset(msgspec.Struct, frozen=True, kw_only=True):
    """What a group has committed for one partition."""

    group_id: str
    topic: str
    partition: int
    committed_offset: int
    high_watermark: int | None
    """None, like the lag: ``leader`` is another broker, which knows it."""
    lag: int | None
    leader: int
    """-1: nobody."""


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One group. ``type`` and ``state`` as Kafka spells them."""

    group_id: str
    type: str
    state: str
    members: int
    partitions: int
    """With a committed offset (among those that the filter lets through)."""
    lag: int | None
    """Over these; None: some broker else leads one of them, or not all offsets were looked at."""


class Coordinator(msgspec.Struct, frozen=True, kw_only=True):
    """Who has the groups of some partitions of ``__consumer_offsets``."""

    node_id: int
    """-1: nobody."""
    partitions: int


class GroupsStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Groups with their offsets, by name."""

    groups: list[GroupStatus]
    groups_left_out: int
    offsets: list[GroupOffset]
    offsets_left_out: int
    loading_partitions: int
    """Of ``__consumer_offsets``: their groups are not known yet."""
    failed_partitions: int
    """That could not be loaded."""
    coordinators: list[Coordinator]
    """The others."""


async def describe_groups(services: Services, turns: Turns, *, topic_filter: str) -> GroupsStatus:
    """The groups that are coordinated here; with a filter, those with offsets in such topics."""
    hosted = services.groups.hosted_shards()
    states = Counter(shard.state for shard in hosted)
    active = [shard.shard for shard in hosted if shard.state is ShardState.ACTIVE]
    all_groups = sorted(
        ((group.group_id, shard, group) for shard in active for group in shard.groups()),
        key=lambda each: each[0],
    )
    groups: list[GroupStatus] = []
    rows: list[GroupOffset] = []
    listed = seen = left_out = 0
    not_seen = max(0, sum(shard.offsets_count for shard in active) - OFFSETS_SEEN_MAX)
    for _, shard, group in all_groups:
        await turns.give_way()
        offsets = _offsets(services, shard, group.group_id, OFFSETS_SEEN_MAX - seen)
        seen += len(offsets)
        offsets = [each for each in offsets if topic_filter in each.topic]
        if topic_filter and not offsets:
            continue
        listed += 1
        left_out += max(0, len(rows) + len(offsets) - OFFSETS_MAX)
        rows += offsets[: OFFSETS_MAX - len(rows)]
        if len(groups) < GROUPS_MAX:
            groups.append(_group(group.listed(), len(group.members), offsets, is_all=not not_seen))
    return GroupsStatus(
        groups=groups,
        groups_left_out=listed - len(groups),
        offsets=rows,
        offsets_left_out=left_out + not_seen,
        loading_partitions=states[ShardState.LOADING],
        failed_partitions=states[ShardState.FAILED],
        coordinators=_others(services),
    )


def _offsets(services: Services, shard: GroupShard, group_id: str, count_max: int) -> list[GroupOffset]:
    """What the group has committed, by topic and partition."""
    found = []
    committed = (
        (topic, partition, partitions[partition].offset)
        for topic, partitions in sorted(shard.offsets_of(group_id).items())
        for partition in sorted(partitions)
    )
    for topic, partition, offset in islice(committed, count_max):
        at = TopicPartition(topic, partition)
        hosted, told = services.replica_manager.partitions.get(at), services.metadata.partition(at)
        is_led = hosted is not None and hosted.is_leader
        high_watermark = hosted.log.high_watermark if hosted is not None and is_led else None
        found.append(
            GroupOffset(
                group_id=group_id,
                topic=topic,
                partition=partition,
                committed_offset=offset,
                high_watermark=high_watermark,
                lag=None if high_watermark is None else max(0, high_watermark - offset),
                leader=-1 if told is None else told.leader,
            )
        )
    return found


def _group(group: ListedGroup, members: int, offsets: list[GroupOffset], *, is_all: bool) -> GroupStatus:
    lags = [each.lag for each in offsets if each.lag is not None]
    return GroupStatus(
        group_id=group.group_id,
        type=group.group_type,
        state=group.state,
        members=members,
        partitions=len(offsets),
        lag=sum(lags) if is_all and len(lags) == len(offsets) else None,
    )


def _others(services: Services) -> list[Coordinator]:
    topic = services.metadata.topic(GROUP_METADATA_TOPIC)
    leaders = Counter(partition.leader for partition in topic.partitions) if topic is not None else Counter()
    del leaders[services.node_id]
    return [Coordinator(node_id=node_id, partitions=leaders[node_id]) for node_id in sorted(leaders)]
