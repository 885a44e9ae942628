"""A streams group (KIP-1071): the fold of its records, and what its coordinator notes besides.

Kafka: ``StreamsGroup``, ``StreamsGroupMember``. ``apply`` takes in one record; nothing else changes a group,
but for its notes. The group's state follows from its records: ``Empty`` without members, ``NotReady`` while
its topics are not as its topology needs them, ``Assigning`` until there is a target for its epoch,
``Reconciling`` until all members are there, then ``Stable``. A group that is deleted is gone: no group here
is ``Dead``.

**What a heartbeat says** and whether it makes sense, and what StreamsGroupDescribe shows. Kafka:
``GroupCoordinatorService.throwIfStreamsGroupHeartbeatRequestIsInvalid``, ``MemberTaskOffsets``,
``StreamsGroupMember.Builder``; ``StreamsGroup.asDescribedGroup``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from minikafka.coordinator.group.group import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    Draft,
    ModernGroup,
    ModernMember,
    RecordKeys,
    check_commit_version,
    fenced_member_epoch,
    member_bytes,
)
from minikafka.coordinator.group.messages import (
    DescribedStreamsGroup,
    DescribedStreamsMember,
    EndpointPartitions,
    ListedGroup,
    MemberTasks,
    StreamsGroupHeartbeat,
    StreamsTask,
)
from minikafka.coordinator.group.streams.task_assignment import Holders, StreamsMemberState
from minikafka.coordinator.group.streams.topology import (
    ConfiguredTopology,
    CopartitionGroup,
    Subtopology,
    Tasks,
    TopicInfo,
    Topology,
    check_topology,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import (
    GroupRecord,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
    StreamsSubtopology,
    StreamsTopicInfo,
    TaskIds,
)

PROTOCOL_TYPE = "streams"
INITIAL_EPOCH = 1
"""Of a group and of its target assignment, before there is anything to assign: a member that waits for its
first tasks is in this one, and 0 stays the epoch with which it joins."""
NO_METADATA = StreamsGroupMemberMetadataValue(client_id="", client_host="")
NO_TASKS = StreamsGroupCurrentMemberAssignmentValue(
    member_epoch=0, previous_member_epoch=0, state=int(StreamsMemberState.STABLE)
)
NO_TARGET = StreamsGroupTargetAssignmentMemberValue()
_NONE: frozenset[int] = frozenset()
_ROLES = ("active", "standby", "warmup")
_Task = tuple[str, str, int]
"""A role, a subtopology, a partition."""

TaskOffsets = dict[str, dict[int, int]]
"""By subtopology and partition: the sum of the offsets of the task's changelogs."""

ASSIGNOR_NAME = "sticky"


class StreamsGroupMember(ModernMember, frozen=True):
    """``metadata`` is what the member told, ``current`` which tasks it has and in which epoch."""

    metadata: StreamsGroupMemberMetadataValue = NO_METADATA
    current: StreamsGroupCurrentMemberAssignmentValue = NO_TASKS

    @property
    def size_bytes(self) -> int:
        """What it takes in memory because of what it told."""
        told = self.metadata
        about = (self.member_id, told.instance_id, told.rack_id, told.client_id, told.client_host)
        tags = (text for pair in told.client_tags for text in pair)
        host = None if told.user_endpoint is None else told.user_endpoint[0]
        return member_bytes((*about, told.process_id, host, *tags))

    @property
    def assigned_tasks(self) -> MemberTasks:
        current = self.current
        active = {key: frozenset(epochs) for key, epochs in current.active_tasks.items()}
        return MemberTasks(active, current.standby_tasks, current.warmup_tasks)

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.current.state == StreamsMemberState.STABLE and self.epoch == epoch

    def check_epoch(self, epoch: int, owned: Tasks | None) -> None:
        """Whether a heartbeat of this epoch is the member's next. The epoch before is good too, if the member
        has no more tasks than it shall: the answer that told it the new one may have been lost.

        Raises:
            KafkaError: FENCED_MEMBER_EPOCH.
        """
        if epoch in (JOIN_EPOCH, self.epoch):
            return
        if epoch == self.current.previous_member_epoch and owned is not None and self._has_all(owned):
            return
        raise fenced_member_epoch(PROTOCOL_TYPE, epoch, known=self.epoch, has="tasks")

    def _has_all(self, owned: Tasks) -> bool:
        assigned = self.assigned_tasks
        return all(
            numbers <= has.get(subtopology_id, _NONE)
            for asked, has in (
                (owned.active, assigned.active),
                (owned.standby, assigned.standby),
                (owned.warmup, assigned.warmup),
            )
            for subtopology_id, numbers in asked.items()
        )

    def tasks(self) -> Iterator[_Task]:
        """All that it has, and what it must give back."""
        current = self.current
        for role in _ROLES:
            for tasks in (
                getattr(current, f"{role}_tasks"),
                getattr(current, f"{role}_tasks_pending_revocation"),
            ):
                for subtopology_id, numbers in tasks.items():
                    for number in numbers:
                        yield role, subtopology_id, number


class Notes:
    """What a coordinator knows of a group and does not write: it is lost with its leadership."""

    def __init__(self) -> None:
        self.configured: ConfiguredTopology | None = None
        """The topology with the topics as they are, for ``configured_for``: the hash of their metadata."""
        self.configured_for = 0
        self.is_delayed = False
        """The first members wait for others before anything is assigned."""
        self.shutdown_member_id: str | None = None
        """Who has asked for the end of the whole application; until the group is empty."""
        self.endpoint_epoch = -1
        """Rises whenever who answers interactive queries of what may have changed."""
        self.endpoints: dict[str, EndpointPartitions] = {}
        """By member id, as far as they were asked for."""
        self.task_offsets: dict[str, tuple[TaskOffsets, TaskOffsets]] = {}
        """By member id: how far its tasks are restored, and where their changelogs end."""

    def forget(self, member_id: str) -> None:
        self.endpoints.pop(member_id, None)
        self.task_offsets.pop(member_id, None)


class StreamsGroup(ModernGroup[StreamsGroupMember]):
    """See the module header, and ``group.Group``. A copy has the same notes."""

    KEYS = RecordKeys(
        group=StreamsGroupMetadataKey,
        assignment=StreamsGroupTargetAssignmentMetadataKey,
        member=StreamsGroupMemberMetadataKey,
        target=StreamsGroupTargetAssignmentMemberKey,
        current=StreamsGroupCurrentMemberAssignmentKey,
    )

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.metadata = StreamsGroupMetadataValue(epoch=INITIAL_EPOCH)
        self.assignment_epoch = INITIAL_EPOCH
        self.assigned_at_ms = 0
        """When the target assignment was worked out; 0: not known."""
        self.topology: StreamsGroupTopologyValue | None = None
        self.parsed_topology: Topology | None = None
        """The same, as assignors and checks of topics take it."""
        self.targets: dict[str, StreamsGroupTargetAssignmentMemberValue] = {}
        self._holders: dict[_Task, tuple[str, ...]] = {}
        """The processes of the members that have a task; one twice while a log with a gap is replayed."""
        self._topology_bytes = 0
        self.notes = Notes()
        self.computing_epoch = -1
        """For which a target is being worked out beside the loop; -1: none is."""

    def __repr__(self) -> str:
        return f"StreamsGroup({self._group_id!r}, {self.state}, {self.epoch}, {len(self.members)} members)"

    # What it is

    @property
    def epoch(self) -> int:
        return self.metadata.epoch

    @property
    def metadata_hash(self) -> int:
        return self.metadata.metadata_hash

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.topology is None or self.topology.epoch != self.metadata.validated_topology_epoch:
            return "NotReady"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def subscribed_topics(self) -> list[str]:
        """All topics that the topology needs, in alphabetical order; some may not exist."""
        return [] if self.topology is None else required_topics(self.topology)

    def holders(self) -> Holders:
        def of(role: str, subtopology_id: str, number: int) -> tuple[str, ...]:
            return self._holders.get((role, subtopology_id, number), ())

        return Holders(
            lambda subtopology_id, number: of("active", subtopology_id, number),
            lambda subtopology_id, number: of("standby", subtopology_id, number),
            lambda subtopology_id, number: of("warmup", subtopology_id, number),
        )

    # The Group protocol

    def listed(self) -> ListedGroup:
        return ListedGroup(self._group_id, PROTOCOL_TYPE, self.state, PROTOCOL_TYPE)

    def check_offset_commit(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation_or_member_epoch: int,
        version: int,
        is_transactional: bool = False,
    ) -> None:
        """An older epoch of the member may do, see ``check_committed``."""
        member = self.committing_member(
            member_id, group_instance_id, generation_or_member_epoch, is_transactional=is_transactional
        )
        if member is None:
            return
        if not is_transactional:
            check_commit_version(version, kind=PROTOCOL_TYPE)
        if generation_or_member_epoch > member.epoch:
            raise _stale(
                f"Received member epoch {generation_or_member_epoch} is newer than current member epoch "
                f"{member.epoch}."
            )

    def check_committed(self, member_id: str, epoch: int, partitions: Iterable[tuple[str, int]]) -> None:
        """Whether a member may commit ``partitions`` with an older epoch: when it has had their tasks since
        then (Kafka: ``createAssignmentEpochValidator``, KIP-1071).

        Raises:
            KafkaError: STALE_MEMBER_EPOCH.
        """
        member = self.members.get(member_id)
        if member is None or epoch < 0 or epoch >= member.epoch:
            return
        if self.topology is None:
            raise _stale("Topology is not available for offset commit validation.")
        subtopologies = {
            name: each.subtopology_id for each in self.topology.subtopologies for name in source_topics(each)
        }
        current = member.current
        for topic, number in partitions:
            subtopology_id = subtopologies.get(topic)
            if subtopology_id is None:
                raise _stale(f"Topic {topic} is not in the topology.")
            since = current.active_tasks.get(subtopology_id, {}).get(number)
            if since is None:
                since = current.active_tasks_pending_revocation.get(subtopology_id, {}).get(number)
            if since is None:
                raise _stale(
                    f"Task {subtopology_id}-{number} is not assigned or pending revocation for member."
                )
            if epoch < since:
                raise _stale(
                    f"Received member epoch {epoch} is older than assignment epoch {since} for task "
                    f"{subtopology_id}-{number}."
                )

    def check_offset_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.epoch:
            raise _stale(
                f"The received member epoch {member_epoch} does not match the expected member epoch "
                f"{member.epoch}."
            )

    def is_subscribed_to(self, topic: str) -> bool:
        if not self.members or self.topology is None:
            return False
        return any(topic in source_topics(each) for each in self.topology.subtopologies)

    def tombstones(self) -> list[GroupRecord]:
        return self._tombstones(self.targets, StreamsGroupTopologyKey(self._group_id))

    # The fold

    def apply(self, record: GroupRecord) -> None:
        """Take in one record of this group."""
        match record.key, record.value:
            case StreamsGroupMetadataKey(), StreamsGroupMetadataValue() as value:
                self.metadata = value
                self.checked_version = -1
            case StreamsGroupTopologyKey(), StreamsGroupTopologyValue() | None as topology:
                self._put_topology(topology)
            case (
                StreamsGroupTargetAssignmentMetadataKey(),
                StreamsGroupTargetAssignmentMetadataValue() as value,
            ):
                self.assignment_epoch = value.assignment_epoch
                self.assigned_at_ms = value.assignment_timestamp_ms
            case StreamsGroupTargetAssignmentMetadataKey(), None:
                self.assignment_epoch, self.assigned_at_ms = INITIAL_EPOCH, 0
            case StreamsGroupTargetAssignmentMemberKey() as key, value:
                if isinstance(value, StreamsGroupTargetAssignmentMemberValue):
                    self.targets[key.member_id] = value
                else:
                    self.targets.pop(key.member_id, None)
            case StreamsGroupMemberMetadataKey() as key, StreamsGroupMemberMetadataValue() as value:
                member = self.members.get(key.member_id) or StreamsGroupMember(key.member_id)
                self._put(msgspec.structs.replace(member, metadata=value))
            case StreamsGroupMemberMetadataKey() as key, None:
                self._remove(key.member_id)
            case (
                StreamsGroupCurrentMemberAssignmentKey() as key,
                StreamsGroupCurrentMemberAssignmentValue() as value,
            ):
                # After compaction this may come before what the member told.
                member = self.members.get(key.member_id) or StreamsGroupMember(key.member_id)
                self._put(msgspec.structs.replace(member, current=value))
            case StreamsGroupCurrentMemberAssignmentKey() as key, None:
                if key.member_id in self.members:
                    self._put(msgspec.structs.replace(self.members[key.member_id], current=NO_TASKS))

    def _put_topology(self, value: StreamsGroupTopologyValue | None) -> None:
        self.footprint.adjust(-self._topology_bytes)
        self.topology = value
        self.parsed_topology = None if value is None else parse_topology(value)
        self._topology_bytes = 0 if value is None else topology_bytes(value)
        self.footprint.adjust(self._topology_bytes)
        self.checked_version = -1

    def _put(self, member: StreamsGroupMember) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self._let_go(old)
        self.members[member.member_id] = member
        self.footprint.adjust(member.size_bytes)
        for task in member.tasks():
            self._holders[task] = (*self._holders.get(task, ()), member.metadata.process_id)
        if member.metadata.instance_id is not None:
            self.static_members[member.metadata.instance_id] = member.member_id

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._let_go(member)
        instance_id = member.metadata.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]

    def _let_go(self, member: StreamsGroupMember) -> None:
        self.footprint.adjust(-member.size_bytes)
        for task in member.tasks():
            left = list(self._holders.get(task, ()))
            if member.metadata.process_id in left:
                left.remove(member.metadata.process_id)
            if left:
                self._holders[task] = tuple(left)
            else:
                self._holders.pop(task, None)


class StreamsGroupDraft(Draft[StreamsGroup]):
    """A streams group, and the records that change it."""

    def __init__(self, group: StreamsGroup) -> None:
        super().__init__(group, StreamsGroup.apply)

    def write_first(self, record: GroupRecord) -> None:
        """What is no record of this group: the end of the one that it replaces."""
        self.records.insert(0, record)


def _stale(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.STALE_MEMBER_EPOCH, reason)


def source_topics(subtopology: StreamsSubtopology) -> list[str]:
    """What the subtopology reads, repartition topics too."""
    repartition = (topic.name for topic in subtopology.repartition_source_topics)
    return [*subtopology.source_topics, *repartition]


def required_topics(topology: StreamsGroupTopologyValue) -> list[str]:
    """Kafka: ``StreamsTopology.requiredTopics``; in alphabetical order."""
    names: set[str] = set()
    for each in topology.subtopologies:
        names.update(source_topics(each))
        names.update(topic.name for topic in each.state_changelog_topics)
    return sorted(names)


def topology_bytes(topology: StreamsGroupTopologyValue) -> int:
    """About what it takes in memory: its strings, and what each of them costs beside its letters."""
    return sum(len(text) + 60 for each in topology.subtopologies for text in _strings(each))


def _strings(each: StreamsSubtopology) -> Iterator[str]:
    yield each.subtopology_id
    yield from each.source_topics
    yield from each.source_topic_regex
    yield from each.repartition_sink_topics
    for topic in (*each.state_changelog_topics, *each.repartition_source_topics):
        yield topic.name
        for pair in topic.topic_configs:
            yield from pair


def parse_topology(value: StreamsGroupTopologyValue) -> Topology:
    """With names in the place of indices. What is not valid in it is left out: requests are checked."""
    return Topology(value.epoch, {each.subtopology_id: _parse(each) for each in value.subtopologies})


def _parse(value: StreamsSubtopology) -> Subtopology:
    sources = value.source_topics
    regexes = value.source_topic_regex
    repartition = tuple(topic.name for topic in value.repartition_source_topics)

    def named(names: tuple[str, ...], indices: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(names[index] for index in indices if 0 <= index < len(names))

    return Subtopology(
        subtopology_id=value.subtopology_id,
        source_topics=sources,
        source_topic_regex=regexes,
        repartition_sink_topics=value.repartition_sink_topics,
        repartition_source_topics=_infos(value.repartition_source_topics),
        state_changelog_topics=_infos(value.state_changelog_topics),
        copartition_groups=tuple(
            CopartitionGroup(
                named(sources, group.source_topics),
                named(regexes, group.source_topic_regex),
                named(repartition, group.repartition_source_topics),
            )
            for group in value.copartition_groups
        ),
    )


def _infos(topics: tuple[StreamsTopicInfo, ...]) -> tuple[TopicInfo, ...]:
    return tuple(
        TopicInfo(topic.name, topic.partitions, topic.replication_factor, topic.topic_configs)
        for topic in topics
    )


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
