"""The ``uniform`` assignor: as even as can be, and sticky.

Kafka: ``UniformAssignor``. Where all members want the same topics (``UniformHomogeneousAssignmentBuilder``),
the loads of any two differ by one at most, and no more partitions move than that needs. Where they want
different ones (``UniformHeterogeneousAssignmentBuilder``), no move of one partition to another of its
topic's subscribers would make the two more even.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heapreplace
from uuid import UUID

from minikafka.coordinator.group.consumer.assignor import AssignmentBuilder, GroupSpec
from minikafka.protocol.internal.group_records import TopicPartitions


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
    for member_id, member in spec.members.items():
        for topic_id in topic_ids:
            for partition in sorted(member.target.get(topic_id, ())):
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
