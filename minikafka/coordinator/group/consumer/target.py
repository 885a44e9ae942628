"""What shall be assigned to whom in a KIP-848 group, and when that is decided anew.

Kafka: ``TargetAssignmentBuilder``, ``updateTargetAssignment`` and ``updateSubscriptionMetadata``.
A group epoch stands for the members, their subscriptions and the partitions of the topics that they want. The
last of these is kept as a hash: a topic that comes, grows or goes makes another hash, and so another epoch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from uuid import UUID

from minikafka.coordinator.group.consumer.assignor import Assignor, GroupSpec, MemberSpec
from minikafka.coordinator.group.consumer.assignor_range import assign_range
from minikafka.coordinator.group.consumer.assignor_uniform import assign_uniform
from minikafka.coordinator.group.consumer.change import GroupDraft
from minikafka.coordinator.group.consumer.consumer_group import ConsumerGroup
from minikafka.coordinator.group.consumer.member import ConsumerGroupMember
from minikafka.coordinator.group.topic_image import TopicImage
from minikafka.protocol.internal.group_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

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


def topics_have_changed(group: ConsumerGroup, topics: TopicImage) -> bool:
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


def update_target(draft: GroupDraft, topics: TopicImage, default_assignor: str) -> None:
    """Decide anew for the group's epoch, and write down whose target is another one."""
    group = draft.group
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
    for member_id, partitions in assignor(GroupSpec(members, counts)).items():
        if group.targets.get(member_id) != partitions:
            key = ConsumerGroupTargetAssignmentMemberKey(group.group_id, member_id)
            draft.write(key, ConsumerGroupTargetAssignmentMemberValue(partitions))
    draft.write(
        ConsumerGroupTargetAssignmentMetadataKey(group.group_id),
        ConsumerGroupTargetAssignmentMetadataValue(group.epoch),
    )
