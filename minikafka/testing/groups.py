"""What a test asks about groups: who is in one, what each member has, and how far it has come.

For groups of all types: classic and consumer groups, share groups (KIP-932) and streams groups (KIP-1071). It
is read from the brokers of the test, without a client, so it works on a secure broker too. Only brokers in
reach are asked: what an isolated or dead one has is not known until another has taken over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from minikafka.types import TopicPartition

if TYPE_CHECKING:
    from minikafka.coordinator.group.messages import DescribedModernMember
    from minikafka.coordinator.group.shard import GroupShard
    from minikafka.coordinator.share.messages import SharePartitionSummary
    from minikafka.server.replica.partition import Partition
    from minikafka.server.services import Services

GROUP_TIMEOUT_S = 30.0
"""A member that joins a group of the newer protocols has its place after a heartbeat or two."""
GROUP_POLL_S = 0.02


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a group."""

    member_id: str
    client_id: str
    host: str
    assignment: dict[str, tuple[int, ...]]
    """Partition numbers by topic; in a streams group its active tasks, by subtopology."""
    standby: dict[str, tuple[int, ...]] = {}
    """Of a streams group: its standby tasks, by subtopology."""
    warmup: dict[str, tuple[int, ...]] = {}
    """Of a streams group: tasks whose state it restores before it has them."""


class GroupOffset(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group has come with a partition."""

    offset: int
    """The committed offset; of a share group the start offset that is persisted: all records before it are
    acknowledged or archived, and some behind it may be, which only ``lag`` tells."""
    log_end_offset: int | None
    """The high watermark; None, like ``lag``: the partition has no leader among the brokers in reach."""
    lag: int | None
    """Records that are not consumed; of a share group, those that are not acknowledged or archived."""
    in_flight: int = 0
    """Of a share group: records that a member has now, under an acquisition lock."""
    delivery_count: int = 0
    """Of a share group: how often the record with most deliveries was given out, among those in flight and
    those that came back."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A group as it is now. ``type`` and ``state`` as Kafka spells them: ``share`` and ``Stable``."""

    group_id: str
    type: str
    state: str
    members: tuple[Member, ...]
    offsets: dict[tuple[str, int], GroupOffset]
    """By ``(topic, partition)``; only those with an offset."""

    @property
    def lag(self) -> int | None:
        """Over all partitions with an offset; None: one of them is not known."""
        lags = [each.lag for each in self.offsets.values()]
        known = [each for each in lags if each is not None]
        return sum(known) if len(known) == len(lags) else None

    @property
    def in_flight(self) -> int:
        """Of a share group: records that members have now."""
        return sum(each.in_flight for each in self.offsets.values())

    def has_settled(self, members: int) -> bool:
        """Whether so many members are in it and nothing is on its way to another. A share group is stable as
        soon as it has a member; here it is when each has partitions, which the assignor gives to all."""
        if len(self.members) != members or self.state != ("Stable" if members else "Empty"):
            return False
        return self.type != "share" or all(each.assignment for each in self.members)


class AsksGroups:
    """What ``Broker`` and ``Cluster`` tell of groups."""

    def _services(self) -> list[Services]:
        """Of all brokers in reach."""
        raise NotImplementedError

    async def group(self, group_id: str) -> Group | None:
        """The group as it is now; None: there is no such group, or its coordinator is moving. Of a share
        group also what is in flight::

            group = await broker.group("workers")
            assert group.in_flight == 3 and group.offsets["orders", 0].delivery_count == 1
        """
        brokers = self._services()
        for services in brokers:
            shard = _shard(services, group_id)
            if shard is None:
                continue
            listed = next((each for each in shard.list_groups() if each.group_id == group_id), None)
            if listed is not None:
                members = _members(services, shard, group_id, listed.group_type)
                if listed.group_type == "share":
                    offsets = await _share_offsets(brokers, services, shard, group_id)
                else:
                    offsets = _committed(brokers, shard, group_id)
                return Group(
                    group_id=group_id,
                    type=listed.group_type,
                    state=listed.state,
                    members=members,
                    offsets=offsets,
                )
        return None

    async def wait_for_group(
        self, group_id: str, *, members: int, timeout_s: float = GROUP_TIMEOUT_S
    ) -> Group:
        """Until the group has so many members and is stable (empty with 0). Returns it.

        Raises:
            TimeoutError: says how the group is.
        """
        wanted = f"{members} members and nothing to rebalance"
        return await self._wait(group_id, lambda group: group.has_settled(members), wanted, timeout_s)

    async def wait_until_consumed(
        self, group_id: str, topic: str, *, timeout_s: float = GROUP_TIMEOUT_S
    ) -> Group:
        """Until the group has consumed every record that is in ``topic``: committed behind it, of a share
        group acknowledged or archived. Returns the group.

        Raises:
            TimeoutError: says how far the group is.
        """
        wanted = f"consumed all of {topic}"
        return await self._wait(
            group_id, lambda group: _has_consumed(self._services(), group, topic), wanted, timeout_s
        )

    async def _wait(
        self, group_id: str, condition: Callable[[Group], bool], wanted: str, timeout_s: float
    ) -> Group:
        group = None
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    group = await self.group(group_id)
                    if group is not None and condition(group):
                        return group
                    await asyncio.sleep(GROUP_POLL_S)
        except TimeoutError:
            last = "there is no such group" if group is None else str(group)
            raise TimeoutError(
                f"group {group_id}: not within {timeout_s:g} s: {wanted}. Last: {last}"
            ) from None


def _shard(services: Services, group_id: str) -> GroupShard | None:
    """None: another broker coordinates the group, or it is being loaded."""
    from minikafka.errors import KafkaError

    try:
        return services.groups.shard_of(group_id)
    except KafkaError:
        return None


def _members(services: Services, shard: GroupShard, group_id: str, kind: str) -> tuple[Member, ...]:
    match kind:
        case "share":
            return tuple(_modern(services, each) for each in shard.describe_share_group(group_id).members)
        case "consumer":
            return tuple(_modern(services, each) for each in shard.describe_consumer_group(group_id).members)
        case "streams":
            return tuple(
                Member(
                    member_id=each.member_id,
                    client_id=each.metadata.client_id,
                    host=each.metadata.client_host,
                    assignment=_sorted(each.assignment.active),
                    standby=_sorted(each.assignment.standby),
                    warmup=_sorted(each.assignment.warmup),
                )
                for each in shard.describe_streams_group(group_id).members
            )
        case _:
            return tuple(
                Member(
                    member_id=each.member_id,
                    client_id=each.client_id,
                    host=each.client_host,
                    assignment=_classic_assignment(each.assignment),
                )
                for each in shard.describe_group(group_id).members
            )


def _modern(services: Services, member: DescribedModernMember) -> Member:
    assignment = {}
    for topic_id, numbers in member.assignment.items():
        topic = services.metadata.topic_by_id(topic_id)
        if topic is not None:  # else it has just been deleted
            assignment[topic.name] = numbers
    return Member(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=_sorted(assignment),
    )


def _classic_assignment(assignment: bytes) -> dict[str, tuple[int, ...]]:
    """The group's leader makes it, and only consumers are known to make one of partitions."""
    from minikafka.protocol.internal.consumer_protocol import MalformedSubscription, read_assignment

    try:
        return _sorted(read_assignment(assignment).partitions)
    except MalformedSubscription:
        return {}


def _sorted(numbers: Mapping[str, Iterable[int]]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(sorted(numbers[name])) for name in sorted(numbers)}


def _leader(brokers: Sequence[Services], at: TopicPartition) -> Partition | None:
    for services in brokers:
        partition = services.replica_manager.partitions.get(at)
        if partition is not None and partition.is_leader:
            return partition
    return None


def _committed(
    brokers: Sequence[Services], shard: GroupShard, group_id: str
) -> dict[tuple[str, int], GroupOffset]:
    offsets: dict[tuple[str, int], GroupOffset] = {}
    for topic, partitions in shard.offsets_of(group_id).items():
        for number, committed in partitions.items():
            at = TopicPartition(topic, number)
            leader = _leader(brokers, at)
            end = None if leader is None else leader.log.high_watermark
            lag = None if end is None else max(0, end - committed.offset)
            offsets[at] = GroupOffset(offset=committed.offset, log_end_offset=end, lag=lag)
    return dict(sorted(offsets.items()))


async def _share_offsets(
    brokers: Sequence[Services], services: Services, shard: GroupShard, group_id: str
) -> dict[tuple[str, int], GroupOffset]:
    """Start offset and lag are those that the share coordinator has, what no leader can lose; what is in
    flight only the leaders know."""
    from minikafka.coordinator.share.messages import (
        NO_LEADER_EPOCH,
        UNINITIALIZED_START_OFFSET,
        ReadShareState,
    )

    partitions = shard.share_partitions(group_id)
    wanted = [
        ReadShareState(topic_id, number, NO_LEADER_EPOCH)
        for topic_id, each in partitions.items()
        for number in each.partitions
    ]
    summaries = await services.share_persister.read_summary(group_id, wanted) if wanted else []
    offsets: dict[tuple[str, int], GroupOffset] = {}
    for summary in summaries:
        if summary.error is None and summary.start_offset != UNINITIALIZED_START_OFFSET:
            at = TopicPartition(partitions[summary.topic_id].topic, summary.partition)
            offsets[at] = _share_offset(brokers, group_id, at, summary)
    return dict(sorted(offsets.items()))


def _share_offset(
    brokers: Sequence[Services], group_id: str, at: TopicPartition, summary: SharePartitionSummary
) -> GroupOffset:
    from minikafka.share.share_partition import RecordState

    leader = _leader(brokers, at)
    end = None if leader is None else leader.log.high_watermark
    lag = None
    if end is not None:
        lag = max(0, end - summary.start_offset - max(0, summary.delivery_complete_count))
    runs = [
        run
        for services in brokers
        for hosted in services.share_partitions.hosted()
        if hosted.key.group_id == group_id and hosted.topic_partition == at and hosted.shared is not None
        for run in hosted.shared.runs
    ]
    return GroupOffset(
        offset=summary.start_offset,
        log_end_offset=end,
        lag=lag,
        in_flight=sum(run.count for run in runs if run.state is RecordState.ACQUIRED),
        delivery_count=max((run.delivery_count for run in runs if not run.is_over), default=0),
    )


def _has_consumed(brokers: Sequence[Services], group: Group, topic: str) -> bool:
    known = next((found for each in brokers if (found := each.metadata.topic(topic)) is not None), None)
    if known is None:
        return False
    for partition in known.partitions:
        at = TopicPartition(topic, partition.partition)
        offset, leader = group.offsets.get(at), _leader(brokers, at)
        if leader is None:
            return False
        if offset is not None:
            if offset.lag != 0:
                return False
        elif leader.log.high_watermark > leader.log.log_start_offset:
            return False
    return True
