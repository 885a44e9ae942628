"""A streams group as StreamsGroupDescribe shows it. Kafka: ``StreamsGroup.asDescribedGroup``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from minikafka.coordinator.group.messages import (
    DescribedStreamsGroup,
    DescribedStreamsMember,
    MemberTasks,
    StreamsTask,
)
from minikafka.coordinator.group.streams.streams_group import (
    NO_TARGET,
    StreamsGroup,
    StreamsGroupMember,
    TaskOffsets,
)
from minikafka.coordinator.group.streams.tasks import TopicInfo
from minikafka.protocol.internal.group_records import StreamsGroupTopologyValue, StreamsTopicInfo

ASSIGNOR_NAME = "sticky"


def described_group(group: StreamsGroup) -> DescribedStreamsGroup:
    return DescribedStreamsGroup(
        group_id=group.group_id,
        state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR_NAME,
        topology=_described_topology(group),
        members=tuple(_described_member(group, member) for member in group.members.values()),
    )


def _described_topology(group: StreamsGroup) -> StreamsGroupTopologyValue | None:
    """With the partitions that internal topics have, where all topics are as the topology needs them."""
    topology, configured = group.topology, group.notes.configured
    if topology is None or configured is None or configured.subtopologies is None or configured.status:
        return topology
    subtopologies = []
    for each in topology.subtopologies:
        known = configured.subtopologies.get(each.subtopology_id)
        if known is None:
            continue
        subtopologies.append(
            msgspec.structs.replace(
                each,
                repartition_source_topics=_with_partitions(
                    each.repartition_source_topics, known.repartition_source_topics
                ),
                state_changelog_topics=_with_partitions(
                    each.state_changelog_topics, known.state_changelog_topics
                ),
            )
        )
    return StreamsGroupTopologyValue(topology.epoch, tuple(subtopologies))


def _with_partitions(
    topics: Iterable[StreamsTopicInfo], configured: Mapping[str, TopicInfo]
) -> tuple[StreamsTopicInfo, ...]:
    return tuple(
        msgspec.structs.replace(topic, partitions=configured[topic.name].partitions)
        if topic.name in configured
        else topic
        for topic in topics
    )


def _described_member(group: StreamsGroup, member: StreamsGroupMember) -> DescribedStreamsMember:
    target = group.targets.get(member.member_id, NO_TARGET)
    offsets, ends = group.notes.task_offsets.get(member.member_id, ({}, {}))
    return DescribedStreamsMember(
        member_id=member.member_id,
        member_epoch=member.epoch,
        metadata=member.metadata,
        task_offsets=_flat(offsets),
        task_end_offsets=_flat(ends),
        assignment=member.assigned_tasks,
        target_assignment=MemberTasks(target.active_tasks, target.standby_tasks, target.warmup_tasks),
    )


def _flat(offsets: TaskOffsets) -> tuple[StreamsTask, ...]:
    return tuple(
        StreamsTask(subtopology_id, number, offset)
        for subtopology_id, numbers in sorted(offsets.items())
        for number, offset in sorted(numbers.items())
    )
