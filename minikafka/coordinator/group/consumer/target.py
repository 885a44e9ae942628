"""What shall be assigned to whom in a KIP-848 group, and when that is decided again.

Kafka: ``TargetAssignmentBuilder``, ``updateTargetAssignment`` and ``updateSubscriptionMetadata``.
A group epoch stands for the members, their subscriptions and the partitions of the topics that they want. The
last of these is kept as a hash: a topic that comes, grows or goes makes another hash, and so another epoch.

**Assignors** (Kafka: ``ConsumerGroupPartitionAssignor``, ``GroupSpec``). An assignor is a pure function:
members in the order in which ties are broken, with what they want and what their target is now; the result is
the new target of each. It promises

- every partition of a topic that any member wants goes to exactly one member that wants the topic,
- only as many partitions change hands as balance asks for.

``range`` takes each topic by itself, so that members with the same wants get the same partition numbers of
topics of one size, and can join them. Kafka: ``RangeAssignor``, with its stickiness.

``uniform`` is as even as can be, and sticky. Kafka: ``UniformAssignor``. Where all members want the same
topics (``UniformHomogeneousAssignmentBuilder``), the loads of any two differ by one at most, and no more
partitions move than that needs. Where they want different ones (``UniformHeterogeneousAssignmentBuilder``),
no move of one partition to another of its topic's subscribers would make the two more even.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from heapq import heapify, heapreplace
from typing import Protocol
from uuid import UUID

import msgspec

from minikafka.coordinator.group.consumer.consumer_group import ConsumerGroup, ConsumerGroupMember, GroupDraft
from minikafka.coordinator.group.environment import TopicImage
from minikafka.protocol.internal.group_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartitions,
)


class MemberSpec(msgspec.Struct, frozen=True):
    """``topic_ids`` exist, those that the member names first, then those of its regular expression, each in
    the order of their names; ``target`` may name others."""

    topic_ids: tuple[UUID, ...]
    target: TopicPartitions


class GroupSpec(msgspec.Struct, frozen=True):
    """``partition_counts`` has every topic that a member wants."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[UUID, int]

    @property
    def is_homogeneous(self) -> bool:
        """All want the same topics."""
        if self.has_one_subscription:
            return True
        return len({frozenset(member.topic_ids) for member in self.members.values()}) <= 1

    @property
    def has_one_subscription(self) -> bool:
        """All members have the same tuple of topics, which is quicker to see than that they are equal: to
        compare thousands of ids takes its time."""
        first = next(iter(self.members.values()), None)
        return first is None or all(each.topic_ids is first.topic_ids for each in self.members.values())

    @property
    def cost(self) -> int:
        """How long an assignor takes, roughly in microseconds."""
        cost = sum(self.partition_counts.values())
        if not self.has_one_subscription:
            cost += sum(len(member.topic_ids) for member in self.members.values())
        return cost

    def subscribers(self) -> dict[UUID, list[str]]:
        """Who wants each topic; the lists are not to be changed."""
        if self.members and self.has_one_subscription:
            topic_ids = next(iter(self.members.values())).topic_ids
            all_members = list(self.members)
            return dict.fromkeys(topic_ids, all_members)
        subscribers: dict[UUID, list[str]] = {}
        for member_id, member in self.members.items():
            for topic_id in member.topic_ids:
                subscribers.setdefault(topic_id, []).append(member_id)
        return subscribers


Assignor = Callable[[GroupSpec], dict[str, TopicPartitions]]


class AssignmentBuilder:
    """Targets in the making: sets that grow. At the end a member has no topic without partitions, and its
    topics in the order in which it wants them."""

    def __init__(self, spec: GroupSpec) -> None:
        self._members = spec.members
        self.partitions: dict[str, dict[UUID, set[int]]] = {member_id: {} for member_id in spec.members}
        self.load = dict.fromkeys(spec.members, 0)
        """How many partitions each member has."""

    def give(self, member_id: str, topic_id: UUID, partition: int) -> None:
        self.partitions[member_id].setdefault(topic_id, set()).add(partition)
        self.load[member_id] += 1

    def take(self, member_id: str, topic_id: UUID) -> int:
        """The member's last partition of the topic, which it loses."""
        partition = max(self.partitions[member_id][topic_id])
        self.partitions[member_id][topic_id].remove(partition)
        self.load[member_id] -= 1
        return partition

    def build(self) -> dict[str, TopicPartitions]:
        targets: dict[str, TopicPartitions] = {}
        ranked: tuple[UUID, ...] = ()
        rank: dict[UUID, int] = {}
        for member_id, topics in self.partitions.items():
            topic_ids = self._members[member_id].topic_ids
            if topic_ids is not ranked:
                ranked, rank = topic_ids, {topic_id: number for number, topic_id in enumerate(topic_ids)}
            # Most members have a few of the topics: going through all that they want would take longer.
            has = sorted((topic_id for topic_id, numbers in topics.items() if numbers), key=rank.__getitem__)
            targets[member_id] = {topic_id: frozenset(topics[topic_id]) for topic_id in has}
        return targets


def assign_range(spec: GroupSpec) -> dict[str, TopicPartitions]:
    builder = AssignmentBuilder(spec)
    owners: dict[UUID, set[str]] = {}
    for member_id, member in spec.members.items():
        for topic_id in member.target:
            owners.setdefault(topic_id, set()).add(member_id)
    for topic_id, member_ids in spec.subscribers().items():
        _assign_topic(spec, builder, topic_id, member_ids, owners.get(topic_id, set()))
    return builder.build()


def _assign_topic(
    spec: GroupSpec,
    builder: AssignmentBuilder,
    topic_id: UUID,
    member_ids: Sequence[str],
    owners: AbstractSet[str],
) -> None:
    """``owners``: the members whose target has some of the topic, which may not want it any more."""
    partition_count = spec.partition_counts[topic_id]
    quota, extra = divmod(partition_count, len(member_ids))
    left = set(range(partition_count))
    kept: dict[str, int] = {}
    for member_id in filter(owners.__contains__, member_ids) if owners else ():
        # The lowest numbers stay: they are the same ones in every topic of this size.
        current = [
            number for number in sorted(spec.members[member_id].target.get(topic_id, ())) if number in left
        ]
        count = quota
        if len(current) > quota and extra > 0:
            extra -= 1
            count += 1
        for partition in current[:count]:
            left.remove(partition)
            builder.give(member_id, topic_id, partition)
        kept[member_id] = min(len(current), count)
    free: Iterator[int] = iter(sorted(left))
    for member_id in member_ids:
        if quota == 0 and extra == 0:
            break
        needed = quota - kept.get(member_id, 0)
        if needed >= 0 and extra > 0:
            extra -= 1
            needed += 1
        for _ in range(needed):
            builder.give(member_id, topic_id, next(free))


def assign_uniform(spec: GroupSpec) -> dict[str, TopicPartitions]:
    builder = AssignmentBuilder(spec)
    if not spec.members:
        return {}
    if spec.is_homogeneous:
        _assign_evenly(spec, builder)
    else:
        _assign_by_subscription(spec, builder)
    return builder.build()


def _assign_evenly(spec: GroupSpec, builder: AssignmentBuilder) -> None:
    topic_ids = next(iter(spec.members.values())).topic_ids
    quota, extra = divmod(sum(spec.partition_counts[topic_id] for topic_id in topic_ids), len(spec.members))
    left = {topic_id: set(range(spec.partition_counts[topic_id])) for topic_id in topic_ids}
    below: deque[str] = deque()
    at_quota: deque[str] = deque()
    rank = {topic_id: number for number, topic_id in enumerate(topic_ids)}
    for member_id, member in spec.members.items():
        for topic_id in sorted(filter(rank.__contains__, member.target), key=rank.__getitem__):
            for partition in sorted(member.target[topic_id]):
                load = builder.load[member_id]
                if partition in left[topic_id] and (load < quota or (load == quota and extra > 0)):
                    extra -= load == quota
                    left[topic_id].remove(partition)
                    builder.give(member_id, topic_id, partition)
        if builder.load[member_id] <= quota:
            (below if builder.load[member_id] < quota else at_quota).append(member_id)
    # In turn, so that the partitions of one topic, whose traffic is alike, spread over the members.
    for topic_id in topic_ids:
        for partition in sorted(left[topic_id]):
            member_id = below.popleft() if below else at_quota.popleft()
            builder.give(member_id, topic_id, partition)
            if builder.load[member_id] <= quota:
                (below if builder.load[member_id] < quota else at_quota).append(member_id)


def _assign_by_subscription(spec: GroupSpec, builder: AssignmentBuilder) -> None:
    subscribers = spec.subscribers()
    owners: dict[UUID, set[int]] = {topic_id: set() for topic_id in subscribers}
    for member_id, member in spec.members.items():
        for topic_id in member.topic_ids:
            for partition in sorted(member.target.get(topic_id, ())):
                if partition < spec.partition_counts[topic_id] and partition not in owners[topic_id]:
                    owners[topic_id].add(partition)
                    builder.give(member_id, topic_id, partition)
    # Topics that few want first: the others can go around what those have taken.
    order = sorted(subscribers, key=lambda topic_id: len(subscribers[topic_id]))
    rank = {member_id: number for number, member_id in enumerate(spec.members)}
    for topic_id in order:
        heap = [(builder.load[member_id], rank[member_id], member_id) for member_id in subscribers[topic_id]]
        heapify(heap)
        for partition in range(spec.partition_counts[topic_id]):
            if partition not in owners[topic_id]:
                load, number, member_id = heap[0]
                builder.give(member_id, topic_id, partition)
                heapreplace(heap, (load + 1, number, member_id))
    moved = True
    while moved:
        moved = False
        for topic_id in order:
            moved = _even_out(builder, topic_id, subscribers[topic_id]) or moved


def _even_out(builder: AssignmentBuilder, topic_id: UUID, subscribers: list[str]) -> bool:
    """Move partitions of one topic from who has most to who has least; whether any moved.

    Every move makes the sum of the squares of the loads smaller, so this comes to an end.
    """
    moved = False
    while True:
        owners = [member_id for member_id in subscribers if builder.partitions[member_id].get(topic_id)]
        if not owners:
            return moved
        most = max(owners, key=builder.load.__getitem__)
        least = min(subscribers, key=builder.load.__getitem__)
        if builder.load[most] - builder.load[least] <= 1:
            return moved
        builder.give(least, topic_id, builder.take(most, topic_id))
        moved = True


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""What ``group.consumer.assignors`` may name."""


def metadata_hash(names: Iterable[str], topics: TopicImage) -> int:
    """A signed 64-bit number for the topics' ids, names and partition counts; 0 for none.

    Kafka hashes racks too, and with another function. It is compared with what was written by this one only;
    a log that Kafka wrote costs one rebalance.
    """
    facts = [
        f"{topic.topic_id.hex}/{topic.partition_count}/{topic.name}"
        for name in names
        if (topic := topics.topic(name)) is not None
    ]
    if not facts:
        return 0
    digest = hashlib.blake2b("\n".join(facts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def bump_epoch(draft: GroupDraft, topics: TopicImage) -> None:
    """The next group epoch, for the group as it is in the draft."""
    group = draft.group
    value = ConsumerGroupMetadataValue(
        epoch=group.epoch + 1, metadata_hash=metadata_hash(group.subscribed_topics(), topics)
    )
    draft.write(ConsumerGroupMetadataKey(group.group_id), value)
    if group.has_partition_metadata:
        draft.write(ConsumerGroupPartitionMetadataKey(group.group_id), None)


class Subscribed(Protocol):
    """A group whose epoch stands for the topics that it wants."""

    checked_version: int

    @property
    def metadata_hash(self) -> int: ...

    def subscribed_topics(self) -> list[str]: ...


def topics_have_changed(group: Subscribed, topics: TopicImage) -> bool:
    """Whether the group's topics are not those its epoch stands for. Costs nothing while no topic changes."""
    if group.checked_version == topics.version:
        return False
    if metadata_hash(group.subscribed_topics(), topics) != group.metadata_hash:
        return True
    group.checked_version = topics.version
    return False


def subscribed_topic_ids(
    group: ConsumerGroup, member: ConsumerGroupMember, topics: TopicImage
) -> tuple[UUID, ...]:
    """Of the topics that the member wants and that exist: those that it names, then those that its regular
    expression matches, each in the order of their names (Kafka's ``UnionSet`` of both)."""
    names: Iterable[str] = member.metadata.subscribed_topic_names
    if member.regex is not None and (resolved := group.regexes.get(member.regex)):
        names = dict.fromkeys((*names, *sorted(resolved.topics)))
    return tuple(topic.topic_id for name in names if (topic := topics.topic(name)) is not None)


def target_question(
    group: ConsumerGroup, topics: TopicImage, default_assignor: str
) -> tuple[Assignor, GroupSpec]:
    """What is to be decided for the group's epoch, and by which assignor."""
    wanted: dict[tuple[tuple[str, ...], str | None], tuple[UUID, ...]] = {}
    members: dict[str, MemberSpec] = {}
    # Static members keep their place in the order whatever their member ids are.
    for member in sorted(
        group.members.values(), key=lambda each: each.metadata.instance_id or each.member_id
    ):
        subscription = (member.metadata.subscribed_topic_names, member.regex)
        if subscription not in wanted:
            wanted[subscription] = subscribed_topic_ids(group, member, topics)
        target = group.targets.get(member.member_id, {})
        members[member.member_id] = MemberSpec(wanted[subscription], target)
    counts = {
        topic_id: topic.partition_count
        for topic_ids in wanted.values()
        for topic_id in topic_ids
        if (topic := topics.topic_by_id(topic_id)) is not None
    }
    # A log that another broker wrote may name an assignor that is not here.
    assignor = ASSIGNORS.get(group.preferred_assignor() or "", ASSIGNORS[default_assignor])
    return assignor, GroupSpec(members, counts)


def write_target(draft: GroupDraft, targets: Mapping[str, TopicPartitions], epoch: int) -> None:
    """What was decided for a group epoch, as far as it has changed; members that are gone have none."""
    group = draft.group
    for member_id, partitions in targets.items():
        if member_id in group.members and group.targets.get(member_id) != partitions:
            key = ConsumerGroupTargetAssignmentMemberKey(group.group_id, member_id)
            draft.write(key, ConsumerGroupTargetAssignmentMemberValue(partitions))
    draft.write(
        ConsumerGroupTargetAssignmentMetadataKey(group.group_id),
        ConsumerGroupTargetAssignmentMetadataValue(epoch),
    )
