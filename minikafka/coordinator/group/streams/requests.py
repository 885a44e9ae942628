"""What a heartbeat of a streams group says and whether it makes sense, and what StreamsGroupDescribe shows.

Kafka: ``GroupCoordinatorService.throwIfStreamsGroupHeartbeatRequestIsInvalid``, ``MemberTaskOffsets``,
``StreamsGroupMember.Builder``; ``StreamsGroup.asDescribedGroup``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from minikafka.coordinator.group.messages import (
    DescribedStreamsGroup,
    DescribedStreamsMember,
    MemberTasks,
    StreamsGroupHeartbeat,
    StreamsTask,
)
from minikafka.coordinator.group.modern_group import JOIN_EPOCH, LEAVE_STATIC_EPOCH
from minikafka.coordinator.group.streams.streams_group import (
    NO_TARGET,
    StreamsGroup,
    StreamsGroupMember,
    TaskOffsets,
)
from minikafka.coordinator.group.streams.topology import ConfiguredTopology, Tasks, TopicInfo, check_topology
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import (
    StreamsGroupMemberMetadataValue,
    StreamsGroupTopologyValue,
    StreamsTopicInfo,
    TaskIds,
)

ASSIGNOR_NAME = "sticky"


def check_request(request: StreamsGroupHeartbeat) -> None:
    """Whether a heartbeat makes sense by itself (``throwIfStreamsGroupHeartbeatRequestIsInvalid``).

    Raises:
        KafkaError: INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY.
    """
    reason = _why_invalid(request)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    if request.topology is not None:
        check_topology(request.topology)


def _why_invalid(request: StreamsGroupHeartbeat) -> str | None:
    topology = request.topology
    tasks = (
        (request.active_tasks, "ActiveTasks"),
        (request.standby_tasks, "StandbyTasks"),
        (request.warmup_tasks, "WarmupTasks"),
    )
    if topology is not None and any(each.source_topic_regex for each in topology.subtopologies):
        return "Regular expressions for source topics are not supported yet."
    for value, name in (
        (request.member_id, "MemberId"),
        (request.group_id, "GroupId"),
        (request.instance_id, "InstanceId"),
        (request.rack_id, "RackId"),
    ):
        if value is not None and not value.strip():
            return f"{name} can't be empty."
    if request.member_epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        for owned, name in tasks:
            if owned:
                return f"{name} must be empty when (re-)joining."
        if topology is None:
            return "Topology must be non-null when (re-)joining."
    elif request.member_epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        return "InstanceId can't be null."
    elif request.member_epoch < LEAVE_STATIC_EPOCH:
        return f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2."
    if len({owned is None for owned, _ in tasks}) > 1:
        return "If one task-type is non-null, all must be non-null."
    if request.member_epoch != JOIN_EPOCH and topology is not None:
        return "Topology can only be provided when (re-)joining."
    return None


def owned_tasks(request: StreamsGroupHeartbeat) -> Tasks | None:
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    return Tasks(
        some_tasks(request.active_tasks), some_tasks(request.standby_tasks), some_tasks(request.warmup_tasks)
    )


def some_tasks(tasks: Mapping[str, frozenset[int]]) -> TaskIds:
    return {key: frozenset(numbers) for key, numbers in tasks.items() if numbers}


def metadata_of(
    before: StreamsGroupMember, request: StreamsGroupHeartbeat
) -> StreamsGroupMemberMetadataValue:
    """What the member tells, with what it told before where it says nothing. Who joins tells all of where it
    answers queries: without an endpoint it has none."""
    told = before.metadata
    joins = request.member_epoch == JOIN_EPOCH
    return StreamsGroupMemberMetadataValue(
        instance_id=told.instance_id if request.instance_id is None else request.instance_id,
        rack_id=told.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=(
            told.rebalance_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
        ),
        topology_epoch=told.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=told.process_id if request.process_id is None else request.process_id,
        user_endpoint=(
            request.user_endpoint if joins or request.user_endpoint is not None else told.user_endpoint
        ),
        client_tags=told.client_tags if request.client_tags is None else request.client_tags,
    )


def check_tasks(configured: ConfiguredTopology, owned: TaskIds) -> None:
    """Raises KafkaError INVALID_REQUEST."""
    for subtopology_id, numbers in owned.items():
        subtopology = (configured.subtopologies or {}).get(subtopology_id)
        if subtopology is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Subtopology {subtopology_id} does not exist in the topology.",
            )
        for number in sorted(numbers):
            if not 0 <= number < subtopology.number_of_tasks:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Task {number} for subtopology {subtopology_id} is invalid. Number of tasks for this "
                    f"subtopology: {subtopology.number_of_tasks}",
                )


def is_same_topology(one: StreamsGroupTopologyValue, other: StreamsGroupTopologyValue) -> bool:
    """The order of the subtopologies says nothing."""
    return one.epoch == other.epoch and {each.subtopology_id: each for each in one.subtopologies} == {
        each.subtopology_id: each for each in other.subtopologies
    }


def task_offsets(tasks: Iterable[StreamsTask]) -> TaskOffsets:
    nested: TaskOffsets = {}
    for each in tasks:
        offsets = nested.setdefault(each.subtopology_id, {})
        if each.partition in offsets:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Duplicate task offset for task {each.subtopology_id}_{each.partition}.",
            )
        offsets[each.partition] = each.offset
    return nested


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
