"""The ``range`` assignor: each topic by itself, so that members with the same wants get the same partition
numbers of topics of one size, and can join them. Kafka: ``RangeAssignor``, with its stickiness.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from minikafka.coordinator.group.consumer.assignor import AssignmentBuilder, GroupSpec
from minikafka.protocol.internal.group_records import TopicPartitions


def assign_range(spec: GroupSpec) -> dict[str, TopicPartitions]:
    builder = AssignmentBuilder(spec)
    for topic_id, member_ids in spec.subscribers().items():
        _assign_topic(spec, builder, topic_id, member_ids)
    return builder.build()


def _assign_topic(
    spec: GroupSpec, builder: AssignmentBuilder, topic_id: UUID, member_ids: Sequence[str]
) -> None:
    partition_count = spec.partition_counts[topic_id]
    quota, extra = divmod(partition_count, len(member_ids))
    left = set(range(partition_count))
    kept: dict[str, int] = {}
    for member_id in member_ids:
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
        needed = quota - kept[member_id]
        if needed >= 0 and extra > 0:
            extra -= 1
            needed += 1
        for _ in range(needed):
            builder.give(member_id, topic_id, next(free))
