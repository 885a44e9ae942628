"""Groups of the next-generation protocol (KIP-848): heartbeats, leaving, silence.

Kafka: ``GroupMetadataManager.consumerGroupHeartbeat`` and what hangs on it. A heartbeat is three steps, each
of which writes only if something is new (``GroupDraft``):

1. what the member tells (``membership``): another subscription, or other topics, make a new
   group epoch;
2. for a new group epoch, a new target assignment (``target``);
3. one step of this member from what it owns to its target (``membership``).

So the group agrees without ever standing still: each member hears in its own heartbeat what to give back,
and gets what others have given back. The answer leaves when all of it is committed. A heartbeat that changes
nothing is answered at once.

**ConsumerGroupDescribe** shows a group as Kafka's ``ConsumerGroup.asDescribedGroup``.

**Heartbeats that make no sense** by themselves are refused. Kafka:
``GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid``.

**Members that speak the classic protocol**: their requests, served by the new machinery. Kafka:
``classicGroupJoinToConsumerGroup`` and its like. A member's epoch is its generation. It is told to join again
(REBALANCE_IN_PROGRESS) where a member of KIP-848 is told by its heartbeat's answer; its join is its step of
reconciliation, with what it owns in its subscription; its sync fetches what it has. There is no leader: the
coordinator assigns.

Different from Kafka: refusals are results with an error, as in ``classic_groups``.

**What all requests have in common** is in ``GroupUpdater``: a member moves on, members go, a change is
carried out. ``ConsumerGroups`` serves members that speak KIP-848, ``ClassicMembers`` those of the classic
protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

import msgspec

from minikafka.coordinator.group.classic_group import ClassicGroup, check_session_timeout, new_member_id
from minikafka.coordinator.group.classic_groups import ClassicGroups
from minikafka.coordinator.group.consumer.consumer_group import (
    NO_METADATA,
    PROTOCOL_TYPE,
    ConsumerGroup,
    ConsumerGroupMember,
    GroupDraft,
    MemberState,
)
from minikafka.coordinator.group.consumer.membership import (
    Refreshment,
    check_epoch,
    join_static_member,
    metadata_of_heartbeat,
    reconcile,
    refresh_regexes,
    regexes_due,
    remove_members,
    resolve_new_regexes,
    static_member_leave,
    update_subscription,
)
from minikafka.coordinator.group.consumer.migration import (
    by_name,
    by_topic_id,
    downgrade_if_due,
    draft_in_place_of,
    metadata_of_protocols,
)
from minikafka.coordinator.group.consumer.target import (
    bump_epoch,
    target_question,
    topics_have_changed,
    write_target,
)
from minikafka.coordinator.group.environment import GroupCounts, GroupEventKind, GroupSettings, TopicImage
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
    revocation_timer,
    session_timer,
)
from minikafka.coordinator.group.messages import (
    Answer,
    Append,
    Complete,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    Effect,
    Effects,
    GroupOperation,
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    MayDescribe,
    OperationKind,
    Park,
    SyncGroup,
    SyncGroupResult,
    Ticket,
    coordinator_error,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.consumer_protocol import (
    MalformedSubscription,
    read_subscription,
    write_assignment,
)
from minikafka.protocol.internal.group_records import (
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    TopicPartitions,
)

_SILENT = {
    OperationKind.SESSION: "no heartbeat within the session timeout",
    OperationKind.REVOCATION: "it did not give its partitions back within the rebalance timeout",
    OperationKind.JOIN: "it did not join again within the rebalance timeout",
    OperationKind.SYNC: "it joined, but did not sync in time",
}
"""Why a member is fenced when the time of an operation is up."""

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1

MEMBER_ID_VERSION = 1
"""ConsumerGroupHeartbeat since this version: the client makes its member id."""


class JoinAfterEnd(Append):
    """A group of another kind, without members, ends; then its id is free for a classic one."""

    __slots__ = ("_classic", "_is_written", "_replay", "_request", "_ticket")

    def __init__(
        self,
        tombstones: Iterable[GroupRecord],
        request: JoinGroup,
        ticket: Ticket,
        *,
        replay: Callable[[GroupRecord, int], None],
        classic: ClassicGroups,
    ) -> None:
        """``replay`` takes in the end of the group, ``classic`` is where the request joins."""
        super().__init__(tuple(tombstones))
        self._request = request
        self._ticket = ticket
        self._replay = replay
        self._classic = classic
        self._is_written = False

    def written(self, now_ms: int) -> Effects:
        self._is_written = True
        for record in self.records:
            self._replay(record, now_ms)
        return self._classic.join(self._request, self._ticket, now_ms)

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        if self._is_written:
            return []  # the classic group answers
        return [Answer(self._ticket, JoinGroupResult(error=coordinator_error(error).code))]


class ClassicMembers:
    """Every request is answered with a result of its kind."""

    def __init__(self, updater: GroupUpdater) -> None:
        self._updater = updater

    def join(self, request: JoinGroup, ticket: Ticket, now_ms: int) -> Effects:
        group = self._group(request.group_id)
        if group.is_empty:
            updater = self._updater
            return [
                JoinAfterEnd(
                    group.tombstones(), request, ticket, replay=updater.replay, classic=updater.classic
                )
            ]
        member_id = request.member_id or new_member_id(request.client_id, self._updater.new_uuid())
        try:
            return self._join(group, request, member_id, ticket, now_ms)
        except KafkaError as error:
            code = error.code
        except MalformedSubscription:
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return [Answer(ticket, JoinGroupResult(error=code, member_id=request.member_id))]

    def _join(
        self, group: ConsumerGroup, request: JoinGroup, member_id: str, ticket: Ticket, now_ms: int
    ) -> Effects:
        self._check_join(group, request, member_id)
        if request.requires_known_member_id and not request.member_id:
            refusal = JoinGroupResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
            return [Answer(ticket, refusal)]
        draft = GroupDraft(group)
        before = _joining(draft, request, member_id)
        replaced = group.static_members.get(request.group_instance_id or "")
        metadata = metadata_of_protocols(
            request.protocols,
            instance_id=request.group_instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
        )
        self._updater.check_memory(before, metadata)
        owned = by_topic_id(read_subscription(request.protocols[0][1]).owned_partitions, self._updater.topics)
        member = self._updater.advance(
            draft, before, metadata, owned=owned, now_ms=now_ms, may_describe=request.may_describe
        )
        if before.member_id not in group.members:
            # Only a static member that takes the place of one of KIP-848 can make the group all classic.
            downgrade_if_due(draft, self._updater.settings, self._updater.topics, now_ms)
        group.awaited_joins.discard(member_id)
        timers: Effects = []
        if replaced is not None and replaced != member_id:
            timers += forget_member(group.group_id, replaced)
        if draft.becomes is None:
            timers += [
                Complete(GroupOperation(OperationKind.JOIN, group.group_id, member_id)),
                self._updater.session(draft.group, member),
                Park(_sync(group, member_id), request.rebalance_timeout_ms),
            ]
        result = JoinGroupResult(
            generation=member.epoch if draft.becomes is None else draft.becomes.generation,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=request.protocols[0][0],
            member_id=member_id,
        )
        return self._updater.carry_out(draft, timers, Answer(ticket, result))

    def _check_join(self, group: ConsumerGroup, request: JoinGroup, member_id: str) -> None:
        settings = self._updater.settings
        check_session_timeout(request, settings)
        check_room(group.members, member_id, settings.group_consumer_max_size, kind=PROTOCOL_TYPE)
        if not group.supports_classic_protocols(
            request.protocol_type, [name for name, _ in request.protocols]
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def sync(self, request: SyncGroup, ticket: Ticket, now_ms: int) -> Effects:
        group = self._group(request.group_id)
        try:
            member = _classic_member(group, request.member_id, request.group_instance_id, request.generation)
            protocol = _first_protocol(member)
            if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (
                None,
                protocol[0],
            ):
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            # Who is giving back has joined already, and will join again when it has.
            if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
                answer = Answer(ticket, SyncGroupResult(error=ErrorCode.REBALANCE_IN_PROGRESS))
                return [*self._request_rejoin(group, member), answer]
        except KafkaError as error:
            return [Answer(ticket, SyncGroupResult(error=error.code))]
        version = read_subscription(protocol[1]).version
        result = SyncGroupResult(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=write_assignment(by_name(member.assigned, self._updater.topics), version=version),
        )
        timers: Effects = [Complete(_sync(group, member.member_id)), self._updater.session(group, member)]
        return self._updater.carry_out(GroupDraft(group), timers, Answer(ticket, result))

    def heartbeat(self, request: Heartbeat, ticket: Ticket, now_ms: int) -> Effects:
        group = self._group(request.group_id)
        try:
            member = _classic_member(group, request.member_id, request.group_instance_id, request.generation)
        except KafkaError as error:
            return [Answer(ticket, HeartbeatResult(error.code))]
        effects: Effects = [self._updater.session(group, member)]
        if (
            member.epoch < group.epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member))
        ):
            effects += self._request_rejoin(group, member)
            return [*effects, Answer(ticket, HeartbeatResult(ErrorCode.REBALANCE_IN_PROGRESS))]
        return [*effects, Answer(ticket, HeartbeatResult())]

    def leave(self, request: LeaveGroup, ticket: Ticket, now_ms: int) -> Effects:
        group = self._group(request.group_id)
        results: list[tuple[LeavingMember, ErrorCode]] = []
        leaving: dict[str, None] = {}
        for each in request.members:
            try:
                leaving[_leaving(group, each).member_id] = None
                results.append((each, ErrorCode.NONE))
            except KafkaError as error:
                results.append((each, error.code))
        answer = Answer(ticket, LeaveGroupResult(tuple(results)))
        draft = GroupDraft(group)
        timers = self._updater.remove(draft, leaving, now_ms) if leaving else []
        return self._updater.carry_out(draft, timers, answer)

    def _request_rejoin(self, group: ConsumerGroup, member: ConsumerGroupMember) -> Effects:
        """It must have joined again within its rebalance timeout, from the first time that it is told."""
        if member.member_id in group.awaited_joins:
            return []
        group.awaited_joins.add(member.member_id)
        operation = GroupOperation(OperationKind.JOIN, group.group_id, member.member_id)
        return [Park(operation, member.metadata.rebalance_timeout_ms)]

    def _group(self, group_id: str) -> ConsumerGroup:
        group = self._updater.find(group_id)
        assert group is not None
        return group


def _joining(draft: GroupDraft, request: JoinGroup, member_id: str) -> ConsumerGroupMember:
    if request.group_instance_id is None:
        return draft.group.members.get(member_id) or ConsumerGroupMember(member_id)
    if not request.member_id:
        return join_static_member(draft, request.group_instance_id, member_id, is_classic=True)
    return draft.group.known_static_member(request.group_instance_id, member_id)


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ConsumerGroupMember:
    """Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION."""
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = group.known_static_member(instance_id, member_id)
    _check_classic(member)
    if generation != member.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member


def _leaving(group: ConsumerGroup, leaving: LeavingMember) -> ConsumerGroupMember:
    """An administrator names a static member by its instance id alone."""
    if leaving.group_instance_id is None:
        member = group.member(leaving.member_id)
    elif leaving.member_id:
        member = group.known_static_member(leaving.group_instance_id, leaving.member_id)
    else:
        found = group.static_member(leaving.group_instance_id)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = found
    _check_classic(member)
    return member


def _check_classic(member: ConsumerGroupMember) -> None:
    if not member.is_classic:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol."
        )


def _first_protocol(member: ConsumerGroupMember) -> tuple[str, bytes]:
    classic = member.metadata.classic_member_metadata
    assert classic is not None
    first = classic.supported_protocols[0]
    return first.name, first.metadata


def _waits_for_others(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    """Whether anything of its target still belongs to another member."""
    return any(
        group.owner(topic_id, number) not in (None, member.member_id)
        for topic_id, numbers in group.targets.get(member.member_id, {}).items()
        for number in sorted(numbers - member.assigned.get(topic_id, frozenset()))
    )


def _sync(group: ConsumerGroup, member_id: str) -> GroupOperation:
    return GroupOperation(OperationKind.SYNC, group.group_id, member_id)


def describe_group(group: ConsumerGroup, default_assignor: str) -> DescribedConsumerGroup:
    """With the ids of topics, some of which may be gone."""
    members = tuple(
        DescribedConsumerMember(
            member_id=member.member_id,
            instance_id=member.metadata.instance_id,
            rack_id=member.metadata.rack_id,
            member_epoch=member.epoch,
            client_id=member.metadata.client_id,
            client_host=member.metadata.client_host,
            subscribed_topic_names=member.metadata.subscribed_topic_names,
            subscribed_topic_regex=member.regex,
            assignment=member.assigned,
            target_assignment=group.targets.get(member.member_id, {}),
            member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
        )
        for member in group.members.values()
    )
    return DescribedConsumerGroup(
        group_id=group.group_id,
        state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=members,
    )


def check_request(request: ConsumerGroupHeartbeat, assignors: tuple[str, ...]) -> None:
    """Raises KafkaError INVALID_REQUEST, UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    if request.version >= MEMBER_ID_VERSION or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        _check_not_blank(request.member_id, "MemberId")
    _check_not_blank(request.group_id, "GroupId")
    _check_not_blank(request.instance_id, "InstanceId")
    _check_not_blank(request.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _check_join(request: ConsumerGroupHeartbeat) -> None:
    if request.rebalance_timeout_ms == -1:
        reason = "RebalanceTimeoutMs must be provided in first request."
    elif request.topic_partitions is None or request.topic_partitions:
        reason = "TopicPartitions must be empty when (re-)joining."
    elif request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        reason = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REQUEST, reason)


def _check_not_blank(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")


class ConsumerGroups:
    """The requests of the protocol; what they all need is in ``GroupUpdater``."""

    def __init__(self, updater: GroupUpdater) -> None:
        self._updater = updater
        self._groups = updater.groups
        self._settings = updater.settings
        self._topics = updater.topics
        self._classic_members = ClassicMembers(updater)

    def __repr__(self) -> str:
        count = sum(isinstance(group, ConsumerGroup) for group in self._groups.values())
        return f"ConsumerGroups({count} groups)"

    def heartbeat(self, request: ConsumerGroupHeartbeat, ticket: Ticket, now_ms: int) -> Effects:
        """Also for a group of the classic protocol, which is upgraded if it may be.

        Raises:
            KafkaError: as the answer says; nothing has changed then.
        """
        check_request(request, self._settings.group_consumer_assignors)
        draft = self._draft(request)
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leave(draft, request, ticket, now_ms)
        group = draft.group
        member_id = request.member_id or str(self._updater.new_uuid())
        check_room(group.members, member_id, self._settings.group_consumer_max_size, kind=PROTOCOL_TYPE)
        replaced = group.static_members.get(request.instance_id or "")
        before = _member_of(draft, request, member_id)
        metadata = metadata_of_heartbeat(before.metadata, request)
        self._updater.check_memory(before, metadata)
        member = self._updater.advance(
            draft,
            before,
            metadata,
            owned=request.topic_partitions,
            now_ms=now_ms,
            may_describe=request.may_describe,
        )
        timers: Effects = [self._updater.session(draft.group, member)]
        if replaced is not None and replaced != member_id:
            timers += forget_member(group.group_id, replaced)
        if member.current is not before.current:
            timers.append(revocation(group.group_id, member))
        result = ConsumerGroupHeartbeatResult(
            member_id=member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._settings.consumer_group(group.group_id).heartbeat_interval_ms,
            assignment=member.assigned if _hears_assignment(request, before, member) else None,
        )
        return self._updater.carry_out(draft, timers, Answer(ticket, result))

    def _draft(self, request: ConsumerGroupHeartbeat) -> GroupDraft:
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return GroupDraft(group)
        if request.member_epoch == JOIN_EPOCH:
            if group is None:
                return GroupDraft(ConsumerGroup(request.group_id))
            if isinstance(group, ClassicGroup):
                return draft_in_place_of(group, self._settings, self._topics)
        raise _not_found(request.group_id)

    def _leave(
        self, draft: GroupDraft, request: ConsumerGroupHeartbeat, ticket: Ticket, now_ms: int
    ) -> Effects:
        group, member_id = draft.group, request.member_id
        if request.instance_id is None:
            group.member(member_id)
        else:
            group.known_static_member(request.instance_id, member_id)
        answer = Answer(
            ticket,
            ConsumerGroupHeartbeatResult(
                member_id=member_id, member_epoch=request.member_epoch, heartbeat_interval_ms=0
            ),
        )
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            static_member_leave(draft, group.members[member_id])
            # Its session continues: that is how long it is waited for.
            operation = GroupOperation(OperationKind.REVOCATION, group.group_id, member_id)
            return self._updater.carry_out(draft, [Complete(operation)], answer)
        timers = self._updater.remove(draft, [member_id], now_ms)
        return self._updater.carry_out(draft, timers, answer)

    def expired(self, operation: GroupOperation, now_ms: int) -> Effects:
        """A member is silent, keeps partitions that it was to give back, or (of the classic protocol) does
        not join or sync as it was told: it is fenced."""
        group = self._updater.find(operation.group_id)
        member = None if group is None else group.members.get(operation.member_id)
        if group is None or member is None:
            return []
        if (
            operation.kind is OperationKind.REVOCATION
            and member.state is not MemberState.UNREVOKED_PARTITIONS
        ):
            return []
        draft = GroupDraft(group)
        removed = _SILENT.get(operation.kind, "its time was over")
        timers = self._updater.remove(draft, [member.member_id], now_ms, removed=removed)
        return self._updater.carry_out(draft, timers, retry=operation)

    # Members that speak the classic protocol, in a group of this one

    def classic_join(self, request: JoinGroup, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with a JoinGroupResult. A group without members becomes one of the classic protocol."""
        return self._classic_members.join(request, ticket, now_ms)

    def classic_sync(self, request: SyncGroup, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with a SyncGroupResult."""
        return self._classic_members.sync(request, ticket, now_ms)

    def classic_heartbeat(self, request: Heartbeat, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with a HeartbeatResult."""
        return self._classic_members.heartbeat(request, ticket, now_ms)

    def classic_leave(self, request: LeaveGroup, ticket: Ticket, now_ms: int) -> Effects:
        """Answered with a LeaveGroupResult."""
        return self._classic_members.leave(request, ticket, now_ms)

    # What others ask

    def regexes_due(self, group: ConsumerGroup, now_ms: int, *, has_rules: bool) -> list[str]:
        """See ``membership.regexes_due``."""
        refreshment = Refreshment(self._settings.group_consumer_regex_refresh_interval_ms, has_rules)
        return regexes_due(group, self._topics, now_ms, refreshment)

    def describe(self, group_id: str) -> DescribedConsumerGroup:
        """A group that is not there, or not of this protocol, is described as GROUP_ID_NOT_FOUND."""
        group = self._updater.find(group_id)
        if group is None:
            error = _not_found(group_id)
            return DescribedConsumerGroup(group_id=group_id, error=error.code, error_message=error.message)
        return describe_group(group, self._settings.group_consumer_assignors[0])

    # The log

    def replay(self, record: GroupRecord, now_ms: int) -> None:
        """Any record of KIP-848, when it is loaded and when it was written."""
        self._updater.replay(record, now_ms)

    def loaded(self, now_ms: int) -> Effects:
        """All members are waited for again."""
        effects: Effects = []
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                for member in group.members.values():
                    effects.append(self._updater.session(group, member))
                    if member.state is MemberState.UNREVOKED_PARTITIONS:
                        effects.append(revocation(group.group_id, member))
        return effects

    def waiting(self) -> list[Ticket]:
        """None: an answer that waits belongs to an append."""
        return []


def _member_of(draft: GroupDraft, request: ConsumerGroupHeartbeat, member_id: str) -> ConsumerGroupMember:
    """Who sends the heartbeat, as it was before."""
    joins = request.member_epoch == JOIN_EPOCH
    if request.instance_id is not None:
        if joins:
            return join_static_member(draft, request.instance_id, member_id, is_classic=False)
        member = draft.group.known_static_member(request.instance_id, member_id)
    elif joins and member_id not in draft.group.members:
        return ConsumerGroupMember(member_id)
    else:
        member = draft.group.member(member_id)
    check_epoch(member, request.member_epoch, request.topic_partitions)
    return member


def _hears_assignment(
    request: ConsumerGroupHeartbeat, before: ConsumerGroupMember, member: ConsumerGroupMember
) -> bool:
    """Whether the answer has the member's partitions: when they have changed, or all is asked for.

    And while partitions are to be given back, in every answer to a heartbeat that does not say what the
    member owns: the answer that told it first may have been lost with its coordinator. Java's client asks for
    all then, librdkafka does not, and its group would wait for it until the rebalance timeout,
    as it does with Apache Kafka. A client that has the assignment already does nothing about it.
    """
    return (
        _asks_for_all(request)
        or member.assigned != before.assigned
        or (member.state is MemberState.UNREVOKED_PARTITIONS and request.topic_partitions is None)
    )


def _asks_for_all(request: ConsumerGroupHeartbeat) -> bool:
    """A heartbeat that tells all wants to hear all: its client joins, or has missed an answer."""
    return request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def _not_found(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")


class GroupUpdater:
    """Updates KIP-848 groups. See the module header."""

    def __init__(
        self,
        groups: GroupMap,
        *,
        classic: ClassicGroups,
        settings: GroupSettings,
        topics: TopicImage,
        new_uuid: Callable[[], UUID],
        counts: GroupCounts,
    ) -> None:
        """``groups`` is shared with the shard's other parts; ``classic`` is where groups come from that are
        upgraded, and go that are downgraded."""
        self.groups = groups
        self.classic = classic
        self.settings = settings
        self.topics = topics
        self.new_uuid = new_uuid
        self.counts = counts

    def find(self, group_id: str) -> ConsumerGroup | None:
        return find_group(self.groups, group_id, ConsumerGroup)

    def advance(
        self,
        draft: GroupDraft,
        before: ConsumerGroupMember,
        metadata: ConsumerGroupMemberMetadataValue,
        *,
        owned: TopicPartitions | None,
        now_ms: int,
        may_describe: MayDescribe | None = None,
    ) -> ConsumerGroupMember:
        """The three steps of ``consumer_groups``'s module header, for a member that was ``before``, tells
        ``metadata`` and says that it owns ``owned``; what it is then.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION, FENCED_MEMBER_EPOCH.
        """
        topics = self.topics
        noted = draft.group
        wants_others = update_subscription(draft, before, metadata, topics, now_ms, may_describe)
        interval_ms = self.settings.group_consumer_regex_refresh_interval_ms
        others_match = refresh_regexes(draft, noted, topics, now_ms, interval_ms, may_describe)
        if not wants_others:
            others_match |= resolve_new_regexes(draft, topics, now_ms, may_describe)
        if wants_others or others_match or draft.group.epoch == 0 or topics_have_changed(draft.group, topics):
            bump_epoch(draft, topics)
            self.counts.consumer_group_rebalances += 1
            self._note_rebalance(draft, before, is_of_member=wants_others, now_ms=now_ms)
        if draft.group.epoch > draft.group.assignment_epoch and self._may_assign(draft.group, now_ms):
            self._assign(draft)
        reconcile(draft, before.member_id, topics, owned=owned, subscription_changed=wants_others)
        return draft.group.members[before.member_id]

    def _note_rebalance(
        self, draft: GroupDraft, before: ConsumerGroupMember, *, is_of_member: bool, now_ms: int
    ) -> None:
        if not is_of_member:
            why = "the topics that its members want have changed"
        elif before.metadata is NO_METADATA:
            why = f"member {before.member_id} has joined"
        else:
            why = f"member {before.member_id} wants other topics"
        group = draft.group
        self.counts.history.note(
            group.group_id, GroupEventKind.REBALANCE, f"{why} (epoch {group.epoch})", now_ms=now_ms
        )
        self._rebalance_begins(group, group.epoch - 1, why)

    def _rebalance_begins(self, group: ConsumerGroup, epoch: int, cause: str) -> None:
        """``epoch`` ends."""
        self.counts.rebalance_begins(
            group.group_id, generation=epoch, members=len(group.members), cause=cause
        )

    def note_gone(self, group: ConsumerGroup, member_id: str, removed: str | None, now_ms: int) -> None:
        """``removed``: why it was fenced; None: it leaves."""
        member = group.members.get(member_id)
        self.counts.history.note(
            group.group_id,
            GroupEventKind.LEFT if removed is None else GroupEventKind.REMOVED,
            removed or "",
            now_ms=now_ms,
            member_id=member_id,
            client_id="" if member is None else member.metadata.client_id,
        )

    def _may_assign(self, group: ConsumerGroup, now_ms: int) -> bool:
        """Whether the last assignment is old enough for another one (``canComputeNextTargetAssignment``,
        KIP-1263). Until it is, a member that joins has nothing; its heartbeats ask again."""
        interval_ms = self.settings.consumer_group(group.group_id).assignment_interval_ms
        return may_assign(group.assigned_ms or 0, interval_ms, now_ms)

    def _assign(self, draft: GroupDraft) -> None:
        """A target for the group's epoch: now, or when it is worked out, if that takes long. The member has
        the last one until then, as in Kafka (KIP-1263)."""
        group = draft.group
        if group.computing_epoch >= 0:
            return
        assignor, spec = target_question(group, self.topics, self.settings.group_consumer_assignors[0])
        settings = self.settings.consumer_group(group.group_id)
        if not is_computed_beside(group, spec.cost, enabled=settings.assignor_offload_enable):
            write_target(draft, assignor(spec), group.epoch)
            return
        group_id, epoch = group.group_id, group.epoch

        def write(group: ConsumerGroup, targets: Mapping[str, TopicPartitions], now_ms: int) -> Effects:
            draft = GroupDraft(group)
            write_target(draft, targets, epoch)
            return self.carry_out(draft, [])

        draft.begins.append(
            lambda: compute_assignment(
                group_id, epoch, lambda: assignor(spec), find=lambda: self.find(group_id), write=write
            )
        )

    def check_memory(self, before: ConsumerGroupMember, metadata: ConsumerGroupMemberMetadataValue) -> None:
        """Whether the member may tell ``metadata``.

        Raises:
            KafkaError: INVALID_REQUEST, GROUP_MAX_SIZE_REACHED.
        """
        if metadata != before.metadata:
            after = msgspec.structs.replace(before, metadata=metadata)
            is_new = before.metadata is NO_METADATA
            check_memory(self.groups.memory, before, after, is_new=is_new)

    def remove(
        self, draft: GroupDraft, member_ids: Iterable[str], now_ms: int, *, removed: str | None = None
    ) -> Effects:
        """Members leave, or are fenced and why; the timers that end with that."""
        member_ids = list(member_ids)
        for each in member_ids:
            self.note_gone(draft.group, each, removed, now_ms)
        cause = f"member {', '.join(member_ids)} {'leaves' if removed is None else f'is fenced: {removed}'}"
        self._rebalance_begins(draft.group, draft.group.epoch, cause)
        remove_members(draft, member_ids, self.topics)
        downgrade_if_due(draft, self.settings, self.topics, now_ms)
        return [timer for each in member_ids for timer in forget_member(draft.group.group_id, each)]

    def carry_out(
        self,
        draft: GroupDraft,
        timers: Effects,
        answer: Answer | None = None,
        *,
        retry: GroupOperation | None = None,
    ) -> Effects:
        """See ``group.carry_out``."""
        group_id = draft.group.group_id
        return carry_out(
            draft,
            timers,
            answer,
            find=lambda: self.find(group_id),
            replay=self.replay,
            before=lambda now_ms: self._end_classic(draft, now_ms),
            after=lambda now_ms: self._begin_classic(draft, now_ms),
            retry=retry,
        )

    def _end_classic(self, draft: GroupDraft, now_ms: int) -> Effects:
        """Who waits in the group that becomes this one joins again, and finds this one."""
        if draft.replaces is None:
            return []
        effects = self.classic.forget(draft.replaces, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        return effects + [self.session(draft.group, member) for member in draft.group.members.values()]

    def _begin_classic(self, draft: GroupDraft, now_ms: int) -> Effects:
        """The members of the group that this one becomes have sessions there, and rebalance if anything is to
        be assigned again."""
        if draft.becomes is None:
            return []
        effects: Effects = []
        for member_id in draft.becomes.members:
            effects += forget_member(draft.becomes.group_id, member_id)
        effects += self.classic.adopt(draft.becomes, now_ms)
        if draft.group.epoch > draft.origin.epoch:
            effects += self.classic.prepare_rebalance(draft.becomes, "downgraded from KIP-848", now_ms)
        return effects

    def session(self, group: ConsumerGroup, member: ConsumerGroupMember) -> Park[GroupOperation]:
        classic = member.metadata.classic_member_metadata
        timeout_ms = (
            self.settings.consumer_group(group.group_id).session_timeout_ms
            if classic is None
            else classic.session_timeout_ms
        )
        return session_timer(group.group_id, member.member_id, timeout_ms)

    def replay(self, record: GroupRecord, now_ms: int) -> None:
        """Any record of KIP-848, and those of classic groups that end or begin with a change."""
        key, value = record.key, record.value
        if isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self.classic.replay(key, value, now_ms)
            return
        group = group_of_record(self.groups, record, ConsumerGroup)
        if group is None:
            return
        group.apply(record)
        if isinstance(key, ConsumerGroupTargetAssignmentMetadataKey) and value is not None:
            group.assigned_ms = now_ms


def revocation(group_id: str, member: ConsumerGroupMember) -> Effect:
    """Begin or end the time in which the member must have given back what is taken from it."""
    is_due = member.state is MemberState.UNREVOKED_PARTITIONS
    return revocation_timer(group_id, member.member_id, member.metadata.rebalance_timeout_ms, is_due=is_due)


def forget_member(group_id: str, member_id: str) -> Effects:
    """The timers of a member that is gone, whichever protocol it spoke."""
    return forget_timers(group_id, member_id, OperationKind.JOIN, OperationKind.SYNC)
