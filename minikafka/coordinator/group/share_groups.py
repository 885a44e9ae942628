"""Share groups (KIP-932): heartbeats, leaving, silence, and the state of their partitions.

Kafka: ``GroupMetadataManager.shareGroupHeartbeat`` and what hangs on it. A heartbeat is as one of KIP-848
(``consumer.consumer_groups``), without anything to wait for: what the member tells may make a new group
epoch, for which there is a new target assignment, which the member has at once.

Partitions that a group wants for the first time are written down as initializing, and when that is committed
the share coordinator is asked to keep state of them (``InitializeShareStates``). What it says is the next
call of the shard: those partitions are initialized, the others as if never seen, so that a later heartbeat
tries again; so does one that finds partitions initializing for longer than
``group.share.initialize.retry.interval.ms``. The heartbeat after that assigns them.

Administrators set start offsets, delete offsets and groups; the group must be empty. What is deleted is
written down as deleting before the share coordinator is asked, so that a later deletion finds what one that
was interrupted has left.

Where it differs: Kafka takes all partitions of a request as failed when one of them has failed; here each is
taken for itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from uuid import UUID

import msgspec

from minikafka.clock import has_passed
from minikafka.coordinator.group.consumer.target import (
    GroupSpec,
    MemberSpec,
    metadata_hash,
    topics_have_changed,
)
from minikafka.coordinator.group.environment import GroupCounts, GroupSettings, TopicImage
from minikafka.coordinator.group.group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    GroupMap,
    carry_out,
    check_memory,
    check_room,
    compute_assignment,
    find_group,
    group_of_record,
    is_computed_beside,
    may_assign,
    session_timer,
)
from minikafka.coordinator.group.messages import (
    AlterShareGroupOffsets,
    AlterShareGroupOffsetsResult,
    Answer,
    Append,
    Complete,
    DeleteShareGroupOffsetsResult,
    DeleteShareStates,
    DescribedShareGroup,
    DescribedShareMember,
    Effect,
    Effects,
    GroupOperation,
    InitializeShareStates,
    OperationKind,
    Park,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
    Ticket,
    coordinator_error,
)
from minikafka.coordinator.group.share_group import (
    ASSIGNOR_NAME,
    NO_METADATA,
    PROTOCOL_TYPE,
    ShareGroup,
    ShareGroupDraft,
    ShareGroupMember,
    assign_simple,
    with_deleting,
    with_initialized,
    with_initializing,
    without_initializing,
    without_topics,
)
from minikafka.coordinator.share.messages import (
    UNINITIALIZED_START_OFFSET,
    InitializeShareState,
    SharePartitionError,
    TopicIdPartition,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.group_records import (
    GroupRecord,
    NamedPartitions,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicPartitions,
)

_log = logging.getLogger(__name__)
_NONE: frozenset[int] = frozenset()


class _Question(Append):
    """What an administrator wants is written down, and then the share coordinator is asked for it."""

    __slots__ = ("_groups", "_question", "_ticket")

    def __init__(
        self,
        records: Iterable[GroupRecord],
        groups: ShareGroups,
        ticket: Ticket,
        question: InitializeShareStates | DeleteShareStates,
    ) -> None:
        super().__init__(tuple(records))
        self._groups = groups
        self._ticket = ticket
        self._question = question

    def written(self, now_ms: int) -> Effects:
        for record in self.records:
            self._groups.replay(record, now_ms)
        return []

    def committed(self, now_ms: int) -> Effects:
        return [self._question]

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        self._groups.not_asked(self._ticket)
        return [Answer(self._ticket, coordinator_error(error))]


class ShareGroups:
    """See the module header."""

    def __init__(
        self, groups: GroupMap, *, settings: GroupSettings, topics: TopicImage, counts: GroupCounts
    ) -> None:
        """``groups`` is shared with the shard's other parts."""
        self._groups = groups
        self._settings = settings
        self._topics = topics
        self._counts = counts
        self._asking: dict[Ticket, None] = {}
        """Those who wait for what the share coordinator says."""

    def __repr__(self) -> str:
        return f"ShareGroups({sum(isinstance(each, ShareGroup) for each in self._groups.values())} groups)"

    # Members

    def heartbeat(self, request: ShareGroupHeartbeat, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with a ShareGroupHeartbeatResult.

        Raises:
            KafkaError: as the answer says; nothing has changed then.
        """
        check_request(request)
        if request.member_epoch == LEAVE_EPOCH:
            return self._leave(request, ticket, now_ms)
        group = self._find(request.group_id)
        if group is None:
            if request.member_epoch != JOIN_EPOCH or request.group_id in self._groups:
                raise _not_found(request.group_id)
            group = ShareGroup(request.group_id)
        member_id = request.member_id
        check_room(group.members, member_id, self._settings.group_share_max_size, kind=PROTOCOL_TYPE)
        if request.member_epoch == JOIN_EPOCH:
            before = group.members.get(member_id) or ShareGroupMember(member_id)
        else:
            before = group.member(member_id)
            before.check_epoch(request.member_epoch)
        metadata = _metadata(before, request)
        if metadata != before.metadata:
            after = msgspec.structs.replace(before, metadata=metadata)
            check_memory(self._groups.memory, before, after, is_new=before.metadata is NO_METADATA)
        draft = ShareGroupDraft(group, now_ms)
        self._advance(draft, before, metadata, now_ms)
        member = draft.group.members[member_id]
        asks = self._initialize_new(draft, now_ms)
        tells_all = request.member_epoch == JOIN_EPOCH or request.subscribed_topic_names is not None
        result = ShareGroupHeartbeatResult(
            member_id=member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._settings.share_group(group.group_id).heartbeat_interval_ms,
            assignment=member.assigned if tells_all or member.assigned != before.assigned else None,
        )
        timers: Effects = [self._session(group.group_id, member_id)]
        return self._carry_out(draft, timers, Answer(ticket, result), then=asks)

    def _advance(
        self,
        draft: ShareGroupDraft,
        before: ShareGroupMember,
        metadata: ShareGroupMemberMetadataValue,
        now_ms: int,
    ) -> None:
        group_id, member_id, topics = draft.group.group_id, before.member_id, self._topics
        settled = draft.group.settled_version == topics.version
        pending = not settled and draft.group.has_unassigned(topics)
        if metadata != before.metadata:
            draft.write(ShareGroupMemberMetadataKey(group_id, member_id), metadata)
        changed = pending or set(metadata.subscribed_topic_names) != set(
            before.metadata.subscribed_topic_names
        )
        if changed or draft.group.epoch == 0 or topics_have_changed(draft.group, topics):
            is_members = changed and not pending
            self._bump_epoch(
                draft,
                f"member {member_id} joins, or subscribes to other topics"
                if is_members or draft.group.epoch == 0
                else "topics that it subscribes to have changed",
            )
        if draft.group.epoch > draft.group.assignment_epoch and self._may_assign(draft.group, now_ms):
            self._update_target(draft, now_ms)
        group = draft.group
        # A target of an earlier epoch may have topics that the member does not want any more.
        wanted = {info.topic_id for name in metadata.subscribed_topic_names if (info := topics.topic(name))}
        target = {
            topic_id: numbers
            for topic_id, numbers in group.targets.get(member_id, {}).items()
            if topic_id in wanted
        }
        if before.epoch != group.assignment_epoch or (changed and before.assigned != target):
            value = ShareGroupCurrentMemberAssignmentValue(
                member_epoch=group.assignment_epoch,
                previous_member_epoch=before.epoch,
                assigned_partitions=target,
            )
            draft.write(ShareGroupCurrentMemberAssignmentKey(group_id, member_id), value)

    def _may_assign(self, group: ShareGroup, now_ms: int) -> bool:
        interval_ms = self._settings.share_group(group.group_id).assignment_interval_ms
        return may_assign(group.assigned_at_ms, interval_ms, now_ms)

    def _bump_epoch(self, draft: ShareGroupDraft, cause: str) -> None:
        group = draft.group
        self._counts.rebalance_begins(
            group.group_id, generation=group.epoch, members=len(group.members), cause=cause
        )
        value = ShareGroupMetadataValue(
            epoch=group.epoch + 1, metadata_hash=metadata_hash(group.subscribed_topics(), self._topics)
        )
        draft.write(ShareGroupMetadataKey(group.group_id), value)
        self._counts.share_group_rebalances += 1

    def _update_target(self, draft: ShareGroupDraft, now_ms: int) -> None:
        """A target for the group's epoch: now, or when it is worked out, if that takes long."""
        group = draft.group
        if group.computing_epoch >= 0:
            return
        spec = self._group_spec(group)
        initialized = {key: each.partitions for key, each in group.partitions.initialized.items()}

        def compute() -> dict[str, TopicPartitions]:
            return assign_simple(spec, lambda topic_id, number: number in initialized.get(topic_id, _NONE))

        group_id, epoch = group.group_id, group.epoch
        offloads = self._settings.share_group(group_id).assignor_offload_enable
        if not is_computed_beside(group, spec.cost, enabled=offloads):
            _write_target(draft, compute(), epoch, now_ms)
            return

        def write(group: ShareGroup, targets: Mapping[str, TopicPartitions], now_ms: int) -> Effects:
            draft = ShareGroupDraft(group, now_ms)
            _write_target(draft, targets, epoch, now_ms)
            return self._carry_out(draft, [])

        draft.begins.append(
            lambda: compute_assignment(
                group_id, epoch, compute, find=lambda: self._find(group_id), write=write
            )
        )

    def _group_spec(self, group: ShareGroup) -> GroupSpec:
        infos = {name: info for name in group.subscribed_topics() if (info := self._topics.topic(name))}
        wanted: dict[tuple[str, ...], tuple[UUID, ...]] = {}
        members: dict[str, MemberSpec] = {}
        for member_id, member in sorted(group.members.items()):
            names = member.metadata.subscribed_topic_names
            if names not in wanted:
                wanted[names] = tuple(infos[name].topic_id for name in sorted(set(names)) if name in infos)
            members[member_id] = MemberSpec(wanted[names], group.targets.get(member_id, {}))
        return GroupSpec(members, {info.topic_id: info.partition_count for info in infos.values()})

    def _leave(self, request: ShareGroupHeartbeat, ticket: Ticket, now_ms: int) -> Effects:
        group = self._group(request.group_id)
        group.member(request.member_id)
        result = ShareGroupHeartbeatResult(
            member_id=request.member_id, member_epoch=LEAVE_EPOCH, heartbeat_interval_ms=0
        )
        answer = Answer(ticket, result)
        return self._remove(group, request.member_id, now_ms, why="leaves", answer=answer)

    def expired(self, operation: GroupOperation, now_ms: int) -> Effects:
        """A member is silent: it is fenced."""
        group = self._find(operation.group_id)
        if group is None or operation.member_id not in group.members:
            return []
        _log.info("Group %s: member %s is silent and goes", group.group_id, operation.member_id)
        return self._remove(group, operation.member_id, now_ms, why="is silent", retry=operation)

    def _remove(
        self,
        group: ShareGroup,
        member_id: str,
        now_ms: int,
        *,
        why: str,
        answer: Answer | None = None,
        retry: GroupOperation | None = None,
    ) -> Effects:
        group_id = group.group_id
        draft = ShareGroupDraft(group, now_ms)
        draft.remove_member(member_id)
        self._bump_epoch(draft, f"member {member_id} {why}")
        timers: Effects = [Complete(GroupOperation(OperationKind.SESSION, group_id, member_id))]
        return self._carry_out(draft, timers, answer, retry=retry)

    def _session(self, group_id: str, member_id: str) -> Park[GroupOperation]:
        timeout_ms = self._settings.share_group(group_id).session_timeout_ms
        return session_timer(group_id, member_id, timeout_ms)

    # The state of partitions

    def _initialize_new(self, draft: ShareGroupDraft, now_ms: int) -> Effects:
        """What the group wants and has no state: it is initializing, and the share coordinator is asked for
        it (Kafka: ``subscribedTopicsChangeMap``)."""
        group = draft.group
        if group.settled_version == self._topics.version:
            return []
        missing: dict[UUID, NamedPartitions] = {}
        for name in group.subscribed_topics():
            if info := self._topics.topic(name):
                known = self._known(group, info.topic_id, now_ms)
                numbers = frozenset(range(info.partition_count)) - known
                if numbers:
                    missing[info.topic_id] = NamedPartitions(name, numbers)
        if not missing:
            if not draft.records and not group.partitions.initializing:
                group.settled_version = self._topics.version
            return []
        # Also where it says nothing new: the time until the next retry begins again.
        value = with_initializing(group.partitions, missing)
        draft.write(ShareGroupStatePartitionMetadataKey(group.group_id), value)
        states = (
            InitializeShareState(topic_id, number, group.epoch, UNINITIALIZED_START_OFFSET)
            for topic_id, each in missing.items()
            for number in sorted(each.partitions)
        )
        group_id = group.group_id
        return [
            InitializeShareStates(
                group_id,
                tuple(states),
                lambda results, now_ms: self._initialized(group_id, missing, results, now_ms),
            )
        ]

    def _known(self, group: ShareGroup, topic_id: UUID, now_ms: int) -> frozenset[int]:
        """Which partitions have state, or have been asked for lately."""
        state = group.partitions
        known = state.initialized[topic_id].partitions if topic_id in state.initialized else _NONE
        since_ms = group.initializing_since_ms.get(topic_id)
        retry_ms = self._settings.group_share_initialize_retry_interval_ms
        is_asked = since_ms is not None and not has_passed(retry_ms, since_ms, now_ms)
        if is_asked and topic_id in state.initializing:
            known |= state.initializing[topic_id].partitions
        return known

    def _initialized(
        self,
        group_id: str,
        asked: Mapping[UUID, NamedPartitions],
        results: list[SharePartitionError],
        now_ms: int,
        answer: Answer | None = None,
    ) -> Effects:
        """The share coordinator has answered."""
        group = self._find(group_id)
        if group is None:
            return [] if answer is None else [answer]
        done, failed = _by_outcome(asked, results)
        for result in results:
            if result.error is not None:
                _log.warning(
                    "Group %s: the state of partition %d of topic %s is not initialized: %s",
                    group_id,
                    result.partition,
                    asked[result.topic_id].topic,
                    result.error,
                )
        draft = ShareGroupDraft(group, now_ms)
        draft.write_partitions(without_initializing(with_initialized(group.partitions, done), failed))
        return self._carry_out(draft, [], answer)

    def initialized_partitions(self, group_id: str) -> Mapping[UUID, NamedPartitions]:
        """Those of which the share coordinator keeps state; none of a group that is not there, as in
        Kafka."""
        group = self._find(group_id)
        return {} if group is None else group.partitions.initialized

    # Administrators

    def alter_offsets(self, request: AlterShareGroupOffsets, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with an AlterShareGroupOffsetsResult (Kafka: ``completeAlterShareGroupOffsets``).

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        group = self._group(request.group_id)
        group.check_delete()
        errors: dict[str, dict[int, KafkaError | None]] = {}
        asked: dict[UUID, NamedPartitions] = {}
        states: list[InitializeShareState] = []
        for name, offsets in request.topics.items():
            info = self._topics.topic(name)
            count = 0 if info is None else info.partition_count
            found = {number: offset for number, offset in offsets.items() if 0 <= number < count}
            errors[name] = {number: None if number in found else _unknown_partition() for number in offsets}
            if info is not None and found:
                asked[info.topic_id] = NamedPartitions(name, frozenset(found))
                states += [
                    InitializeShareState(info.topic_id, number, group.epoch, offset)
                    for number, offset in found.items()
                ]
        if not states:
            return [Answer(ticket, AlterShareGroupOffsetsResult(errors))]
        draft = ShareGroupDraft(group, now_ms)
        draft.write_partitions(with_initializing(group.partitions, asked))

        def done(results: list[SharePartitionError], now_ms: int) -> Effects:
            self._asking.pop(ticket, None)
            for result in results:
                errors[asked[result.topic_id].topic][result.partition] = result.error
            answer = Answer(ticket, AlterShareGroupOffsetsResult(errors))
            return self._initialized(group.group_id, asked, results, now_ms, answer)

        return self._ask(draft, ticket, InitializeShareStates(group.group_id, tuple(states), done))

    def delete_offsets(self, group_id: str, topics: Collection[str], ticket: Ticket, now_ms: int) -> Effects:
        """Answered with a DeleteShareGroupOffsetsResult (Kafka: ``initiateDeleteShareGroupOffsets``).

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        group = self._group(group_id)
        group.check_delete()
        errors: dict[str, KafkaError | None] = {}
        deleting: dict[UUID, str] = {}
        partitions: list[TopicIdPartition] = []
        for name in topics:
            info = self._topics.topic(name)
            mine = [] if info is None else self._with_state(group, info.topic_id)
            if info is None or not mine:
                errors[name] = KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    "This server does not host this topic-partition."
                    if info is None
                    else "There is no offset information to delete.",
                )
                continue
            errors[name] = None
            deleting[info.topic_id] = name
            partitions += mine
        if not partitions:
            return [Answer(ticket, DeleteShareGroupOffsetsResult(errors))]
        draft = ShareGroupDraft(group, now_ms)
        draft.write_partitions(with_deleting(group.partitions, deleting))

        def done(results: list[SharePartitionError], now_ms: int) -> Effects:
            self._asking.pop(ticket, None)
            for result in results:
                name = deleting[result.topic_id]
                errors[name] = errors[name] or result.error
            answer = Answer(ticket, DeleteShareGroupOffsetsResult(errors))
            gone = [topic_id for topic_id, name in deleting.items() if errors[name] is None]
            return self._forget(group_id, gone, now_ms, answer)

        return self._ask(draft, ticket, DeleteShareStates(group_id, tuple(partitions), done))

    def delete(self, group_id: str, ticket: Ticket, now_ms: int, *, then: Callable[[], Effects]) -> Effects:
        """Have the share coordinator forget an empty group; ``then`` ends the group itself, and may raise
        KafkaError (Kafka: ``sharePartitionDeleteRequests``)."""
        group = self._group(group_id)
        state = group.partitions
        topic_ids = {**state.initializing, **state.initialized, **state.deleting}
        partitions = [each for topic_id in topic_ids for each in self._with_state(group, topic_id)]
        if not partitions:
            return then()
        draft = ShareGroupDraft(group, now_ms)
        names = {key: each.topic for key, each in (*state.initializing.items(), *state.initialized.items())}
        draft.write_partitions(with_deleting(state, names))

        def done(results: list[SharePartitionError], now_ms: int) -> Effects:
            self._asking.pop(ticket, None)
            for result in results:
                if result.error is not None:
                    return [Answer(ticket, result.error)]
            try:
                return then()  # members may have come meanwhile
            except KafkaError as error:
                return [Answer(ticket, error)]

        return self._ask(draft, ticket, DeleteShareStates(group_id, tuple(partitions), done))

    def _with_state(self, group: ShareGroup, topic_id: UUID) -> list[TopicIdPartition]:
        """Of which partitions the share coordinator may keep state."""
        state = group.partitions
        numbers = _NONE
        for topics in (state.initializing, state.initialized):
            if topic_id in topics:
                numbers |= topics[topic_id].partitions
        if topic_id in state.deleting and (info := self._topics.topic_by_id(topic_id)):
            numbers |= frozenset(range(info.partition_count))
        return [TopicIdPartition(topic_id, number) for number in sorted(numbers)]

    def topics_deleted(self, now_ms: int) -> Effects:
        """Topics that are gone have no state: the share coordinator drops it by itself (Kafka:
        ``maybeCleanupShareGroupState``)."""
        effects: Effects = []
        for group in self._groups.values():
            if isinstance(group, ShareGroup):
                state = group.partitions
                known = {**state.initializing, **state.initialized, **state.deleting}
                gone = [each for each in known if self._topics.topic_by_id(each) is None]
                effects += self._forget(group.group_id, gone, now_ms)
        return effects

    def _forget(
        self, group_id: str, topic_ids: Iterable[UUID], now_ms: int, answer: Answer | None = None
    ) -> Effects:
        group = self._find(group_id)
        if group is None:
            return [] if answer is None else [answer]
        draft = ShareGroupDraft(group, now_ms)
        draft.write_partitions(without_topics(group.partitions, topic_ids))
        return self._carry_out(draft, [], answer)

    def _ask(
        self, draft: ShareGroupDraft, ticket: Ticket, question: InitializeShareStates | DeleteShareStates
    ) -> Effects:
        """Ask the share coordinator when what the draft says is committed; ``ticket`` waits for what it
        says."""
        self._asking[ticket] = None
        return [_Question(draft.records, self, ticket, question)] if draft.records else [question]

    def not_asked(self, ticket: Ticket) -> None:
        """What was to be written before has failed."""
        self._asking.pop(ticket, None)

    def describe(self, group_id: str) -> DescribedShareGroup:
        """A group that is not there, or no share group, is described as GROUP_ID_NOT_FOUND."""
        group = self._find(group_id)
        if group is None:
            error = _not_found(group_id)
            return DescribedShareGroup(group_id=group_id, error=error.code, error_message=error.message)
        return DescribedShareGroup(
            group_id=group_id,
            state=group.state,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=ASSIGNOR_NAME,
            members=tuple(
                DescribedShareMember(
                    member_id=member.member_id,
                    rack_id=member.metadata.rack_id,
                    member_epoch=member.epoch,
                    client_id=member.metadata.client_id,
                    client_host=member.metadata.client_host,
                    subscribed_topic_names=member.metadata.subscribed_topic_names,
                    assignment=member.assigned,
                )
                for member in group.members.values()
            ),
        )

    # Changes

    def _carry_out(
        self,
        draft: ShareGroupDraft,
        timers: Effects,
        answer: Answer | None = None,
        *,
        then: Iterable[Effect] = (),
        retry: GroupOperation | None = None,
    ) -> Effects:
        """See ``group.carry_out``."""
        group_id = draft.group.group_id
        return carry_out(
            draft,
            timers,
            answer,
            find=lambda: self._find(group_id),
            replay=self.replay,
            then=then,
            retry=retry,
        )

    def _find(self, group_id: str) -> ShareGroup | None:
        return find_group(self._groups, group_id, ShareGroup)

    def _group(self, group_id: str) -> ShareGroup:
        """Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self._find(group_id)
        if group is None:
            raise _not_found(group_id)
        return group

    # The log

    def replay(self, record: GroupRecord, now_ms: int) -> None:
        """Any record of a share group, when it is loaded and when it was written."""
        if group := group_of_record(self._groups, record, ShareGroup):
            group.apply(record, now_ms)

    def loaded(self, now_ms: int) -> Effects:
        """All members are waited for again. What was initializing is asked for again when its time is up."""
        return [
            self._session(group.group_id, member_id)
            for group in self._groups.values()
            if isinstance(group, ShareGroup)
            for member_id in group.members
        ]

    def waiting(self) -> list[Ticket]:
        """Who waits for what the share coordinator says."""
        return list(self._asking)


def _write_target(
    draft: ShareGroupDraft, targets: Mapping[str, TopicPartitions], epoch: int, now_ms: int
) -> None:
    """As far as it has changed; members that are gone have none."""
    group = draft.group
    for member_id, partitions in targets.items():
        if member_id in group.members and group.targets.get(member_id) != partitions:
            key = ShareGroupTargetAssignmentMemberKey(group.group_id, member_id)
            draft.write(key, ShareGroupTargetAssignmentMemberValue(partitions))
    draft.write(
        ShareGroupTargetAssignmentMetadataKey(group.group_id),
        ShareGroupTargetAssignmentMetadataValue(epoch, now_ms),
    )


def check_request(request: ShareGroupHeartbeat) -> None:
    """Whether a heartbeat makes sense by itself (``throwIfShareGroupHeartbeatRequestIsInvalid``).

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    reason = None
    for value, name in (
        (request.member_id, "MemberId"),
        (request.group_id, "GroupId"),
        (request.rack_id, "RackId"),
    ):
        if value is not None and not value.strip():
            reason = f"{name} can't be empty."
            break
    else:
        if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
            reason = "SubscribedTopicNames must be set in first request."
        elif request.member_epoch < LEAVE_EPOCH:
            reason = "MemberEpoch is invalid."
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _metadata(before: ShareGroupMember, request: ShareGroupHeartbeat) -> ShareGroupMemberMetadataValue:
    """What the member tells, with what it told before where it says nothing."""
    told, names = before.metadata, request.subscribed_topic_names
    return ShareGroupMemberMetadataValue(
        rack_id=told.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        subscribed_topic_names=(told.subscribed_topic_names if names is None else tuple(sorted(set(names)))),
    )


def _by_outcome(
    asked: Mapping[UUID, NamedPartitions], results: Iterable[SharePartitionError]
) -> tuple[dict[UUID, NamedPartitions], dict[UUID, NamedPartitions]]:
    """What is done, and what has failed."""
    well = {(result.topic_id, result.partition) for result in results if result.error is None}
    outcomes: tuple[dict[UUID, NamedPartitions], dict[UUID, NamedPartitions]] = ({}, {})
    for topic_id, each in asked.items():
        done = frozenset(number for number in each.partitions if (topic_id, number) in well)
        for outcome, numbers in zip(outcomes, (done, each.partitions - done), strict=True):
            if numbers:
                outcome[topic_id] = NamedPartitions(each.topic, numbers)
    return outcomes


def _unknown_partition() -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


def _not_found(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
