"""What an assignor is given, and which there are. Kafka: ``ConsumerGroupPartitionAssignor``, ``GroupSpec``.

An assignor is a pure function: members in the order in which ties are broken, with what they want and what
their target is now; the result is everybody's new target. It promises

- every partition of a topic that somebody wants goes to exactly one member that wants the topic,
- only as many partitions change hands as balance asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

import msgspec

from minikafka.protocol.internal.group_records import TopicPartitions


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
        wanted = {member.topic_ids for member in self.members.values()}
        return len(set(map(frozenset, wanted))) <= 1

    def subscribers(self) -> dict[UUID, list[str]]:
        """Who wants each topic."""
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
        return {
            member_id: {
                topic_id: frozenset(numbers)
                for topic_id in self._members[member_id].topic_ids
                if (numbers := topics.get(topic_id))
            }
            for member_id, topics in self.partitions.items()
        }
