"""Streams groups (KIP-1071): heartbeats, leaving, silence.

Kafka: ``GroupMetadataManager.streamsGroupHeartbeat`` of 4.4 and what hangs on it. A heartbeat is as one of
KIP-848 (``consumer.consumer_groups``), with tasks in the place of partitions:

1. what the member tells, the topics as they are (``topology``) and how tasks are to be assigned:
   if any of that is new, a new group epoch;
2. for a new group epoch, a new target assignment (``task_assignment``), beside the loop if that takes long;
3. one step of this member from the tasks that it has to its target (``task_assignment``).

The first member brings the topology, which stays the group's: later ones must have the same, or an older one,
of which they are told. Internal topics that are missing are named in the result; who serves the request has
them created (``server.apis.streams_groups``), and a later heartbeat finds them. Until all topics are there
nothing is assigned. The first members of a group wait for others before there is a first assignment.

A classic group without members becomes a streams group when a member joins; a streams group without members
ends when a classic member joins. What was committed stays.

Where it differs: Kafka keeps a new group's first endpoint information epoch to itself; here the answer says
it at once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from minikafka.coordinator.group.classic_group import ClassicGroup
from minikafka.coordinator.group.classic_groups import ClassicGroups
from minikafka.coordinator.group.consumer.consumer_groups import JoinAfterEnd
from minikafka.coordinator.group.consumer.target import metadata_hash, topics_have_changed
from minikafka.coordinator.group.environment import (
    GroupCounts,
    GroupSettings,
    StreamsGroupSettings,
    TopicImage,
)
from minikafka.coordinator.group.group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    GroupMap,
    carry_out,
    check_memory,
    check_room,
    compute_assignment,
    find_group,
    forget_timers,
    group_of_record,
    is_computed_beside,
    may_assign,
    replace_static_member,
    revocation_timer,
    session_timer,
    unreleased_instance_id,
)
from minikafka.coordinator.group.messages import (
    Answer,
    DescribedStreamsGroup,
    Effect,
    Effects,
    EndpointPartitions,
    GroupOperation,
    JoinGroup,
    OperationKind,
    Park,
    StreamsGroupHeartbeat,
    StreamsGroupHeartbeatResult,
    StreamsStatus,
    Ticket,
)
from minikafka.coordinator.group.streams.streams_group import (
    NO_METADATA,
    NO_TARGET,
    PROTOCOL_TYPE,
    Notes,
    StreamsGroup,
    StreamsGroupDraft,
    StreamsGroupMember,
    check_request,
    check_tasks,
    described_group,
    is_same_topology,
    metadata_of,
    owned_tasks,
    parse_topology,
    required_topics,
    some_tasks,
    task_offsets,
    topology_bytes,
)
from minikafka.coordinator.group.streams.task_assignment import (
    MemberSpec,
    Reconciliation,
    StreamsMemberState,
    assign,
    cost_of,
)
from minikafka.coordinator.group.streams.topology import ConfiguredTopology, Tasks, configure
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
    StreamsTopicInfo,
    TaskIds,
)

_log = logging.getLogger(__name__)

STALE_TOPOLOGY = 0
SHUTDOWN_APPLICATION = 4
ASSIGNMENT_DELAYED = 5
MISSING_CLIENT_TAGS = 6
"""Codes of a heartbeat's status (KIP-1071); those of topics are the configured topology's."""
MISSING_CLIENT_TAGS_VERSION = 1
RACK_AWARE_TAGS = "rack.aware.assignment.tags"
_NONE: frozenset[int] = frozenset()


class _Heartbeat:
    """One heartbeat on its way: what it has come to so far."""

    def __init__(self, draft: StreamsGroupDraft, before: StreamsGroupMember) -> None:
        self.draft = draft
        self.before = before
        self.replaced: StreamsGroupMember | None = None
        """The static member whose place it takes."""
        self.status: list[StreamsStatus] = []
        self.begins_delay = False

    @property
    def group(self) -> StreamsGroup:
        return self.draft.group

    @property
    def notes(self) -> Notes:
        return self.draft.group.notes

    @property
    def member(self) -> StreamsGroupMember:
        return self.draft.group.members[self.before.member_id]

    def tell(self, code: int, detail: str) -> None:
        self.status.append(StreamsStatus(code, detail))


class StreamsGroups:
    """See the module header."""

    def __init__(
        self,
        groups: GroupMap,
        *,
        classic: ClassicGroups,
        settings: GroupSettings,
        topics: TopicImage,
        counts: GroupCounts,
    ) -> None:
        """``groups`` is shared with the shard's other parts; ``classic`` is where groups come from that
        become streams groups."""
        self._groups = groups
        self._classic = classic
        self._settings = settings
        self._topics = topics
        self._counts = counts

    def __repr__(self) -> str:
        return (
            f"StreamsGroups({sum(isinstance(each, StreamsGroup) for each in self._groups.values())} groups)"
        )

    def join_after_end(self, request: JoinGroup, ticket: Ticket) -> Effects:
        """A classic member joins where a streams group has no members: that one ends (see the module header).
        Answered with a JoinGroupResult."""
        tombstones = self._group(request.group_id).tombstones()
        return [JoinAfterEnd(tombstones, request, ticket, replay=self.replay, classic=self._classic)]

    # Members

    def heartbeat(self, request: StreamsGroupHeartbeat, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with a StreamsGroupHeartbeatResult.

        Raises:
            KafkaError: as the answer says; nothing has changed then.
        """
        check_request(request)
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leave(request, ticket)
        beat = self._begin(request)
        settings = self._settings.streams_group(request.group_id)
        group_was_empty = beat.group.is_empty
        metadata = metadata_of(beat.before, request)
        self._check_memory(beat, metadata, request)
        told_news = self._write_metadata(beat, metadata, request)
        configured, validated_epoch = self._configure(beat, request)
        self._note_offsets(beat, request)
        configs = _assignment_configs(settings)
        self._bump_if_due(
            beat, validated_epoch, configs, told_news=told_news, configured_for=beat.notes.configured_for
        )
        if group_was_empty and settings.initial_rebalance_delay_ms > 0 and not beat.notes.is_delayed:
            beat.begins_delay = True
        target = self._target_of(beat, configured, settings, now_ms)
        self._reconcile(beat, target, request)
        if request.shutdown_application and beat.notes.shutdown_member_id is None:
            _log.info("Group %s: member %s asks for shutdown", request.group_id, request.member_id)
            beat.notes.shutdown_member_id = request.member_id
        result = self._result(beat, configured, settings, request)
        return self._carry_out(beat, settings, Answer(ticket, result))

    def _begin(self, request: StreamsGroupHeartbeat) -> _Heartbeat:
        """The group and the member as they are, made where they are not.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH,
                FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID.
        """
        joins = request.member_epoch == JOIN_EPOCH
        known = self._groups.get(request.group_id)
        replaces = joins and isinstance(known, ClassicGroup) and known.is_empty
        if isinstance(known, StreamsGroup):
            group = known
        elif joins and (known is None or replaces):
            group = StreamsGroup(request.group_id)
        else:
            raise _not_found(request.group_id, is_there=known is not None)
        draft = StreamsGroupDraft(group)
        if replaces:
            draft.write_first(GroupRecord(GroupMetadataKey(request.group_id), None))
        if joins:
            self._check_room(group, request)
        if request.instance_id is not None:
            return self._begin_static(draft, request)
        if joins:
            before = group.members.get(request.member_id) or StreamsGroupMember(request.member_id)
        else:
            before = group.member(request.member_id)
        before.check_epoch(request.member_epoch, owned_tasks(request))
        return _Heartbeat(draft, before)

    def _begin_static(self, draft: StreamsGroupDraft, request: StreamsGroupHeartbeat) -> _Heartbeat:
        group, member_id, instance_id = draft.group, request.member_id, request.instance_id
        assert instance_id is not None
        old = group.static_member(instance_id)
        if request.member_epoch != JOIN_EPOCH:
            before = group.known_static_member(instance_id, member_id)
            before.check_epoch(request.member_epoch, owned_tasks(request))
            return _Heartbeat(draft, before)
        if old is None:
            return _Heartbeat(draft, group.members.get(member_id) or StreamsGroupMember(member_id))
        if old.epoch != LEAVE_STATIC_EPOCH:
            raise unreleased_instance_id(instance_id, member_id, owner=old.member_id)
        target = group.targets.get(old.member_id, NO_TARGET)
        beat = _Heartbeat(draft, replace_static_member(draft, old, member_id, target))
        beat.replaced = old
        return beat

    def _write_metadata(
        self, beat: _Heartbeat, metadata: StreamsGroupMemberMetadataValue, request: StreamsGroupHeartbeat
    ) -> bool:
        """Whether what the member tells asks for another assignment."""
        before, group_id = beat.before.metadata, beat.group.group_id
        if metadata == before and beat.before.member_id in beat.group.members:
            return False
        beat.draft.write(StreamsGroupMemberMetadataKey(group_id, beat.before.member_id), metadata)
        return request.instance_id is None or any(
            getattr(metadata, name) != getattr(before, name)
            for name in ("topology_epoch", "rack_id", "client_tags", "process_id")
        )

    def _configure(self, beat: _Heartbeat, request: StreamsGroupHeartbeat) -> tuple[ConfiguredTopology, int]:
        """The topology with the topics as they are, and its epoch if they are as it needs them, else -1.

        Raises:
            KafkaError: INVALID_REQUEST: another topology than the group's, or tasks that it does not have.
        """
        topology = self._topology(beat, request)
        told_epoch = beat.member.metadata.topology_epoch
        if told_epoch < topology.epoch:
            beat.tell(
                STALE_TOPOLOGY,
                f"The member's topology epoch {told_epoch} is behind the group's topology epoch "
                f"{topology.epoch}.",
            )
        notes = beat.notes
        configured = notes.configured
        if (
            configured is None
            or configured.epoch != topology.epoch
            or notes.configured_for != beat.group.metadata_hash
            or topics_have_changed(beat.group, self._topics)
        ):
            names = required_topics(topology)
            counts = {name: info.partition_count for name in names if (info := self._topics.topic(name))}
            parsed = beat.group.parsed_topology or parse_topology(topology)
            configured = notes.configured = configure(parsed, counts)
            notes.configured_for = metadata_hash(names, self._topics)
            notes.endpoints.clear()
        if configured.status is not None or configured.subtopologies is None:
            return configured, -1
        for owned in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
            check_tasks(configured, owned or {})
        return configured, topology.epoch

    def _topology(self, beat: _Heartbeat, request: StreamsGroupHeartbeat) -> StreamsGroupTopologyValue:
        """The group's; the first member brings it."""
        known, told = beat.group.topology, request.topology
        if known is None:
            if told is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    "The topology is null and the group topology is also null.",
                )
            beat.draft.write(StreamsGroupTopologyKey(beat.group.group_id), told)
            return told
        if told is not None and told.epoch >= known.epoch and not is_same_topology(told, known):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        return known

    def _note_offsets(self, beat: _Heartbeat, request: StreamsGroupHeartbeat) -> None:
        offsets, ends = beat.notes.task_offsets.get(request.member_id, ({}, {}))
        if request.task_offsets is not None or request.task_end_offsets is not None:
            beat.notes.task_offsets[request.member_id] = (
                offsets if request.task_offsets is None else task_offsets(request.task_offsets),
                ends if request.task_end_offsets is None else task_offsets(request.task_end_offsets),
            )

    def _bump_if_due(
        self,
        beat: _Heartbeat,
        validated_epoch: int,
        configs: tuple[tuple[str, str], ...],
        *,
        told_news: bool,
        configured_for: int,
    ) -> None:
        known = beat.group.metadata
        if (
            not told_news
            and known.metadata_hash == configured_for
            and known.validated_topology_epoch == validated_epoch
            and (known.last_assignment_configs or ()) == configs
        ):
            return
        self._rebalance_begins(
            beat.group,
            f"member {beat.before.member_id} joins, or says something new of itself"
            if told_news
            else "its topology, its topics or its configuration have changed",
        )
        value = msgspec.structs.replace(
            known,
            epoch=known.epoch + 1,
            metadata_hash=configured_for,
            validated_topology_epoch=validated_epoch,
            last_assignment_configs=configs,
        )
        beat.draft.write(StreamsGroupMetadataKey(beat.group.group_id), value)
        self._counts.streams_group_rebalances += 1

    def _rebalance_begins(self, group: StreamsGroup, cause: str) -> None:
        self._counts.rebalance_begins(
            group.group_id, generation=group.epoch, members=len(group.members), cause=cause
        )

    def _target_of(
        self, beat: _Heartbeat, configured: ConfiguredTopology, settings: StreamsGroupSettings, now_ms: int
    ) -> StreamsGroupTargetAssignmentMemberValue:
        """What the member shall have, worked out again for all of them where the group's epoch is new."""
        if beat.begins_delay or beat.notes.is_delayed:
            beat.tell(ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay.")
            return NO_TARGET
        if beat.group.assignment_epoch < beat.group.epoch:
            if may_assign(beat.group.assigned_at_ms, settings.assignment_interval_ms, now_ms):
                self._update_target(beat.draft, configured, settings, now_ms)
            else:
                beat.tell(ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval.")
        return beat.group.targets.get(beat.before.member_id, NO_TARGET)

    def _update_target(
        self,
        draft: StreamsGroupDraft,
        configured: ConfiguredTopology,
        settings: StreamsGroupSettings,
        now_ms: int,
    ) -> None:
        """A target for the group's epoch: now, or when it is worked out, if that takes long. Members have the
        last one until then."""
        group = draft.group
        if group.computing_epoch >= 0:
            return
        group_id, epoch = group.group_id, group.epoch
        if configured.status is not None or configured.subtopologies is None:
            _write_target(draft, dict.fromkeys(group.members, NO_TARGET), epoch, now_ms)
            return
        specs = {each.member_id: _spec(group, each) for each in group.members.values()}

        def compute() -> dict[str, StreamsGroupTargetAssignmentMemberValue]:
            assigned = assign(specs, configured, settings)
            return {member_id: _target(tasks) for member_id, tasks in assigned.items()}

        cost = cost_of(configured, settings, len(specs))
        if not is_computed_beside(group, cost, enabled=settings.assignor_offload_enable):
            _write_target(draft, compute(), epoch, now_ms)
            return

        def write(
            group: StreamsGroup, targets: Mapping[str, StreamsGroupTargetAssignmentMemberValue], now_ms: int
        ) -> Effects:
            draft = StreamsGroupDraft(group)
            _write_target(draft, targets, epoch, now_ms)
            return self._change(draft, [])

        draft.begins.append(
            lambda: compute_assignment(
                group_id, epoch, compute, find=lambda: self._find(group_id), write=write
            )
        )

    def _reconcile(
        self,
        beat: _Heartbeat,
        target: StreamsGroupTargetAssignmentMemberValue,
        request: StreamsGroupHeartbeat,
    ) -> None:
        group, member = beat.group, beat.member
        if member.is_reconciled_to(group.assignment_epoch):
            return
        current = Reconciliation(
            member.current,
            process_id=member.metadata.process_id,
            target_epoch=group.assignment_epoch,
            target=Tasks(target.active_tasks, target.standby_tasks, target.warmup_tasks),
            holders=group.holders(),
            owned=owned_tasks(request),
        ).step()
        if current != member.current:
            key = StreamsGroupCurrentMemberAssignmentKey(group.group_id, member.member_id)
            beat.draft.write(key, current)

    # The answer

    def _result(
        self,
        beat: _Heartbeat,
        configured: ConfiguredTopology,
        settings: StreamsGroupSettings,
        request: StreamsGroupHeartbeat,
    ) -> StreamsGroupHeartbeatResult:
        member, before, notes = beat.member, beat.before, beat.notes
        joins = request.member_epoch == JOIN_EPOCH
        has_changed = member.assigned_tasks != before.assigned_tasks
        has_moved = member.metadata.user_endpoint != before.metadata.user_endpoint
        if joins or has_changed or has_moved or beat.replaced is not None:
            notes.endpoints.pop(member.member_id, None)
        if has_moved or (has_changed and member.metadata.user_endpoint is not None):
            notes.endpoint_epoch += 1
        endpoints = None
        if notes.endpoint_epoch != request.endpoint_information_epoch:
            endpoints = self._endpoints(beat, configured)
        if configured.status is not None:
            beat.tell(*configured.status)
        if notes.shutdown_member_id is not None:
            beat.tell(
                SHUTDOWN_APPLICATION,
                f"Streams group member {notes.shutdown_member_id} encountered a fatal error and requested a "
                "shutdown for the entire application.",
            )
        self._tell_missing_tags(beat, settings, request)
        return StreamsGroupHeartbeatResult(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            task_offset_interval_ms=settings.task_offset_interval_ms,
            acceptable_recovery_lag=settings.acceptable_recovery_lag,
            status=tuple(beat.status),
            tasks=member.assigned_tasks if joins or has_changed else None,
            endpoint_information_epoch=notes.endpoint_epoch,
            partitions_by_user_endpoint=endpoints,
            internal_topics=tuple(
                StreamsTopicInfo(each.name, each.partitions, each.replication_factor, each.configs)
                for each in configured.internal_topics_to_create.values()
            ),
        )

    def _tell_missing_tags(
        self, beat: _Heartbeat, settings: StreamsGroupSettings, request: StreamsGroupHeartbeat
    ) -> None:
        told = {key for key, _ in beat.member.metadata.client_tags}
        missing = [tag for tag in settings.rack_aware_assignment_tags if tag not in told]
        if missing and request.version >= MISSING_CLIENT_TAGS_VERSION:
            beat.tell(
                MISSING_CLIENT_TAGS,
                f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. "
                "Configure them via 'client.tag.<tagKey>' in your Streams config.",
            )

    def _endpoints(self, beat: _Heartbeat, configured: ConfiguredTopology) -> tuple[EndpointPartitions, ...]:
        """Of all members that answer queries; kept until it changes, because all members ask for it."""
        found = []
        for member in beat.group.members.values():
            if member.metadata.user_endpoint is None or configured.subtopologies is None:
                continue
            known = beat.notes.endpoints.get(member.member_id)
            if known is None:
                known = self._endpoint(member, member.metadata.user_endpoint, configured)
                beat.notes.endpoints[member.member_id] = known
            found.append(known)
        return tuple(found)

    def _endpoint(
        self, member: StreamsGroupMember, endpoint: tuple[str, int], configured: ConfiguredTopology
    ) -> EndpointPartitions:
        tasks = member.assigned_tasks
        replicas = {
            key: tasks.standby.get(key, _NONE) | tasks.warmup.get(key, _NONE)
            for key in {**tasks.standby, **tasks.warmup}
        }
        return EndpointPartitions(
            endpoint, self._partitions(tasks.active, configured), self._partitions(replicas, configured)
        )

    def _partitions(
        self, tasks: TaskIds, configured: ConfiguredTopology
    ) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The partitions of the source topics that the tasks read."""
        found = []
        for subtopology_id, numbers in tasks.items():
            subtopology = (configured.subtopologies or {}).get(subtopology_id)
            if subtopology is None:
                continue
            for name in sorted({*subtopology.source_topics, *subtopology.repartition_source_topics}):
                info = self._topics.topic(name)
                mine = tuple(number for number in sorted(numbers) if info and number < info.partition_count)
                if mine:
                    found.append((name, mine))
        return tuple(found)

    # Leaving

    def _leave(self, request: StreamsGroupHeartbeat, ticket: Ticket) -> Effects:
        group = self._group(request.group_id)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = group.known_static_member(request.instance_id, request.member_id)
        if request.shutdown_application and group.notes.shutdown_member_id is None:
            group.notes.shutdown_member_id = request.member_id
        result = StreamsGroupHeartbeatResult(member_id=request.member_id, member_epoch=request.member_epoch)
        answer = Answer(ticket, result)
        if request.member_epoch == LEAVE_EPOCH or request.instance_id is None:
            return self._remove(group, member.member_id, why="leaves", answer=answer)
        # It keeps its tasks until its session ends. What it had to revoke it has revoked by leaving; and as
        # it comes back with an epoch of its own, its tasks are as from the beginning.
        current = msgspec.structs.replace(
            member.current,
            member_epoch=LEAVE_STATIC_EPOCH,
            active_tasks={
                key: dict.fromkeys(epochs, 0) for key, epochs in member.current.active_tasks.items()
            },
            active_tasks_pending_revocation={},
            standby_tasks_pending_revocation={},
            warmup_tasks_pending_revocation={},
        )
        draft = StreamsGroupDraft(group)
        draft.write(StreamsGroupCurrentMemberAssignmentKey(group.group_id, member.member_id), current)
        return self._change(draft, [], answer)

    def expired(self, operation: GroupOperation, now_ms: int) -> Effects:
        """A member is silent or too slow: it is fenced; or the time in which first members come is over."""
        group = self._find(operation.group_id)
        if group is None:
            return []
        if operation.kind is OperationKind.FIRST_ASSIGNMENT:
            return self._assign_first(group, operation, now_ms)
        if operation.member_id not in group.members:
            return []
        if (
            operation.kind is OperationKind.REVOCATION
            and group.members[operation.member_id].current.state != StreamsMemberState.UNREVOKED_TASKS
        ):
            return []
        reason = (
            "is silent" if operation.kind is OperationKind.SESSION else "has not revoked its tasks in time"
        )
        _log.info("Group %s: member %s %s and goes", group.group_id, operation.member_id, reason)
        return self._remove(group, operation.member_id, why=reason, retry=operation)

    def _assign_first(self, group: StreamsGroup, operation: GroupOperation, now_ms: int) -> Effects:
        group.notes.is_delayed = False
        configured = group.notes.configured
        if group.is_empty or configured is None or group.assignment_epoch >= group.epoch:
            return []  # without a configured topology the next heartbeat makes one, and assigns
        draft = StreamsGroupDraft(group)
        self._update_target(draft, configured, self._settings.streams_group(group.group_id), now_ms)
        return self._change(draft, [])

    def _remove(
        self,
        group: StreamsGroup,
        member_id: str,
        *,
        why: str,
        answer: Answer | None = None,
        retry: GroupOperation | None = None,
    ) -> Effects:
        group_id = group.group_id
        self._rebalance_begins(group, f"member {member_id} {why}")
        draft = StreamsGroupDraft(group)
        draft.remove_member(member_id)
        epoch = group.epoch + 1
        draft.write(StreamsGroupMetadataKey(group_id), msgspec.structs.replace(group.metadata, epoch=epoch))
        if draft.group.is_empty:
            draft.write(
                StreamsGroupTargetAssignmentMetadataKey(group_id),
                StreamsGroupTargetAssignmentMetadataValue(epoch),
            )
        return self._change(draft, forget_timers(group_id, member_id), answer, gone=member_id, retry=retry)

    def _check_room(self, group: StreamsGroup, request: StreamsGroupHeartbeat) -> None:
        """A static member that comes back needs none."""
        if request.instance_id is None or request.instance_id not in group.static_members:
            allowed = self._settings.group_streams_max_size
            check_room(group.members, request.member_id, allowed, kind=PROTOCOL_TYPE)

    def _check_memory(
        self, beat: _Heartbeat, metadata: StreamsGroupMemberMetadataValue, request: StreamsGroupHeartbeat
    ) -> None:
        """The first member answers for the topology too."""
        before = beat.before
        brings = request.topology if beat.group.topology is None else None
        if metadata == before.metadata and brings is None:
            return
        check_memory(
            self._groups.memory,
            before,
            msgspec.structs.replace(before, metadata=metadata),
            is_new=before.metadata is NO_METADATA,
            brings_bytes=0 if brings is None else topology_bytes(brings),
        )

    # Looking

    def describe(self, group_id: str) -> DescribedStreamsGroup:
        """A group that is not there, or no streams group, is described as GROUP_ID_NOT_FOUND."""
        group = self._find(group_id)
        if group is None:
            error = _not_found(group_id, is_there=group_id in self._groups)
            return DescribedStreamsGroup(group_id=group_id, error=error.code, error_message=error.message)
        return described_group(group)

    # Changes

    def _carry_out(self, beat: _Heartbeat, settings: StreamsGroupSettings, answer: Answer) -> Effects:
        group_id, member = beat.group.group_id, beat.member
        timers: Effects = []
        if beat.replaced is not None and beat.replaced.member_id != member.member_id:
            timers += forget_timers(group_id, beat.replaced.member_id)
        timers.append(session_timer(group_id, member.member_id, settings.session_timeout_ms))
        if member.current != beat.before.current:
            timers.append(_revocation(group_id, member))
        if beat.begins_delay:
            operation = GroupOperation(OperationKind.FIRST_ASSIGNMENT, group_id)
            timers.append(Park(operation, settings.initial_rebalance_delay_ms))
        gone = None if beat.replaced is None else beat.replaced.member_id
        return self._change(
            beat.draft,
            timers,
            answer,
            gone=None if gone == member.member_id else gone,
            begins_delay=beat.begins_delay,
        )

    def _change(
        self,
        draft: StreamsGroupDraft,
        timers: Effects,
        answer: Answer | None = None,
        *,
        gone: str | None = None,
        begins_delay: bool = False,
        retry: GroupOperation | None = None,
    ) -> Effects:
        """See ``group.carry_out``."""
        group_id, notes = draft.group.group_id, draft.group.notes

        def after(now_ms: int) -> Effects:
            group = self._find(group_id)
            if group is not None:
                group.notes = notes
                notes.is_delayed = notes.is_delayed or begins_delay
                if gone is not None:
                    notes.forget(gone)
                if group.is_empty:
                    notes.shutdown_member_id = None
            return []

        return carry_out(
            draft,
            timers,
            answer,
            find=lambda: self._find(group_id),
            replay=self.replay,
            after=after,
            retry=retry,
        )

    def _find(self, group_id: str) -> StreamsGroup | None:
        return find_group(self._groups, group_id, StreamsGroup)

    def _group(self, group_id: str) -> StreamsGroup:
        """Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self._find(group_id)
        if group is None:
            raise _not_found(group_id, is_there=group_id in self._groups)
        return group

    # The log

    def replay(self, record: GroupRecord, now_ms: int) -> None:
        """Any record of a streams group, when it is loaded and when it was written; and the end of a classic
        group that becomes one."""
        key, value = record.key, record.value
        if isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._classic.replay(key, value, now_ms)
            return
        if group := group_of_record(self._groups, record, StreamsGroup):
            group.apply(record)

    def loaded(self, now_ms: int) -> Effects:
        """All members are waited for again, and those that have tasks to give back have their time again."""
        effects: Effects = []
        for group in self._groups.values():
            if not isinstance(group, StreamsGroup):
                continue
            timeout_ms = self._settings.streams_group(group.group_id).session_timeout_ms
            for member in group.members.values():
                effects.append(session_timer(group.group_id, member.member_id, timeout_ms))
                if member.current.state == StreamsMemberState.UNREVOKED_TASKS:
                    effects.append(_revocation(group.group_id, member))
        return effects


def _assignment_configs(settings: StreamsGroupSettings) -> tuple[tuple[str, str], ...]:
    """What of the configuration asks for another assignment when it changes; by name."""
    configs = {"num.standby.replicas": str(settings.num_standby_replicas)}
    if settings.rack_aware_assignment_tags:
        configs[RACK_AWARE_TAGS] = ",".join(settings.rack_aware_assignment_tags)
    return tuple(sorted(configs.items()))


def _write_target(
    draft: StreamsGroupDraft,
    targets: Mapping[str, StreamsGroupTargetAssignmentMemberValue],
    epoch: int,
    now_ms: int,
) -> None:
    """As far as it has changed; members that are gone have none."""
    group = draft.group
    for member_id, target in targets.items():
        if member_id in group.members and group.targets.get(member_id) != target:
            draft.write(StreamsGroupTargetAssignmentMemberKey(group.group_id, member_id), target)
    draft.write(
        StreamsGroupTargetAssignmentMetadataKey(group.group_id),
        StreamsGroupTargetAssignmentMetadataValue(epoch, now_ms),
    )


def _target(tasks: Tasks) -> StreamsGroupTargetAssignmentMemberValue:
    return StreamsGroupTargetAssignmentMemberValue(
        active_tasks=some_tasks(tasks.active),
        standby_tasks=some_tasks(tasks.standby),
        warmup_tasks=some_tasks(tasks.warmup),
    )


def _spec(group: StreamsGroup, member: StreamsGroupMember) -> MemberSpec:
    told, target = member.metadata, group.targets.get(member.member_id, NO_TARGET)
    offsets, ends = group.notes.task_offsets.get(member.member_id, ({}, {}))
    return MemberSpec(
        instance_id=told.instance_id,
        rack_id=told.rack_id,
        process_id=told.process_id,
        client_tags=dict(told.client_tags),
        tasks=Tasks(target.active_tasks, target.standby_tasks, target.warmup_tasks),
        task_offsets=offsets,
        task_end_offsets=ends,
    )


def _revocation(group_id: str, member: StreamsGroupMember) -> Effect:
    """Begin or end the time in which the member must have given back what is taken from it."""
    is_due = member.current.state == StreamsMemberState.UNREVOKED_TASKS
    return revocation_timer(group_id, member.member_id, member.metadata.rebalance_timeout_ms, is_due=is_due)


def _not_found(group_id: str, *, is_there: bool) -> KafkaError:
    reason = f"Group {group_id} is not a streams group." if is_there else f"Group {group_id} not found."
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, reason)
