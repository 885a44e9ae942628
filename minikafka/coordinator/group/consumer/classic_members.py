"""Members that speak the classic protocol in a KIP-848 group: their requests, served by the new machinery.

Kafka: ``classicGroupJoinToConsumerGroup`` and its like. A member's epoch is its generation. It is told to
join again (REBALANCE_IN_PROGRESS) where a member of KIP-848 is told by its heartbeat's answer; its join is
its step of reconciliation, with what it owns in its subscription; its sync fetches what it has. There is no
leader: the coordinator assigns.

Different from Kafka: refusals are results with an error, as in ``classic_groups``.
"""

from __future__ import annotations

from minikafka.coordinator.group.classic.classic_group import (
    new_member_id,
)
from minikafka.coordinator.group.consumer.consumer_group import (
    PROTOCOL_TYPE,
    ConsumerGroup,
    ConsumerGroupMember,
    GroupDraft,
    MemberState,
)
from minikafka.coordinator.group.consumer.membership import (
    check_room,
    join_static_member,
    known_static_member,
)
from minikafka.coordinator.group.consumer.migration import (
    by_name,
    by_topic_id,
    downgrade_if_due,
    metadata_of_protocols,
)
from minikafka.coordinator.group.consumer.updater import GroupUpdater, forget_timers
from minikafka.coordinator.group.effects import (
    Answer,
    Append,
    Complete,
    Effects,
    GroupOperation,
    OperationKind,
    Park,
    Ticket,
    coordinator_error,
)
from minikafka.coordinator.group.messages import (
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    SyncGroup,
    SyncGroupResult,
)
from minikafka.errors import ErrorCode, KafkaError
from minikafka.protocol.internal.consumer_protocol import (
    MalformedSubscription,
    read_subscription,
    write_assignment,
)


class JoinAfterEnd(Append):
    """A KIP-848 group without members ends; then its id is free for a classic one."""

    __slots__ = ("_is_written", "_request", "_ticket", "_updater")

    def __init__(
        self, group: ConsumerGroup, request: JoinGroup, ticket: Ticket, updater: GroupUpdater
    ) -> None:
        super().__init__(group.tombstones())
        self._request = request
        self._ticket = ticket
        self._updater = updater
        self._is_written = False

    def written(self, now_ms: int) -> Effects:
        self._is_written = True
        for record in self.records:
            self._updater.replay(record, now_ms)
        return self._updater.classic.join(self._request, self._ticket, now_ms)

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
            return [JoinAfterEnd(group, request, ticket, self._updater)]
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
            timers += forget_timers(group.group_id, replaced)
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
        if not (
            settings.group_min_session_timeout_ms
            <= request.session_timeout_ms
            <= settings.group_max_session_timeout_ms
        ):
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        check_room(group, member_id, settings.group_consumer_max_size)
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
    return known_static_member(draft.group, request.group_instance_id, member_id)


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ConsumerGroupMember:
    """Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION."""
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = known_static_member(group, instance_id, member_id)
    _check_classic(member)
    if generation != member.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member


def _leaving(group: ConsumerGroup, leaving: LeavingMember) -> ConsumerGroupMember:
    """An administrator names a static member by its instance id alone."""
    if leaving.group_instance_id is None:
        member = group.member(leaving.member_id)
    elif leaving.member_id:
        member = known_static_member(group, leaving.group_instance_id, leaving.member_id)
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
