"""JoinGroup, to a group of the classic protocol. Kafka: ``GroupMetadataManager.classicGroupJoin…``.

A stranger with an instance id is a static member (KIP-345): new, or the one of that instance come back, which
takes the old one's place. A stranger without one gets an id first, if its version knows that (KIP-394).

Different from Kafka: a refused join makes no group; and a static member's new id takes effect when its record
is in the log, so a refused append has nothing to revert.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from minikafka.coordinator.group.classic.classic_group import ClassicGroup, refused
from minikafka.coordinator.group.classic.member import ClassicMember, new_member_id
from minikafka.coordinator.group.classic.protocols import choose_protocol, why
from minikafka.coordinator.group.classic.rebalance import Rebalances
from minikafka.coordinator.group.classic.records import empty_record, group_record
from minikafka.coordinator.group.classic.state import ClassicGroupState
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
from minikafka.coordinator.group.footprint import member_bytes
from minikafka.coordinator.group.group import Group
from minikafka.coordinator.group.memory import GroupMap
from minikafka.coordinator.group.messages import JoinGroup, JoinGroupResult
from minikafka.coordinator.group.settings import GroupSettings
from minikafka.errors import ErrorCode, KafkaError

_log = logging.getLogger(__name__)

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""Kafka's ``CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS``: so long may a new member wait for its first answer.
It does not send heartbeats yet, and if its client gives up and asks again, it comes as somebody else."""

_STABLE = ClassicGroupState.STABLE
_PREPARING = ClassicGroupState.PREPARING_REBALANCE
_COMPLETING = ClassicGroupState.COMPLETING_REBALANCE
_EMPTY = ClassicGroupState.EMPTY


class NewGroup(Append):
    """A group that has begun; the record makes its existence outlive this broker. If the log refuses it there
    is no group, and whoever has joined meanwhile hears why."""

    __slots__ = ("_forget", "_group", "_is_written")

    def __init__(
        self, group: ClassicGroup, forget: Callable[[ClassicGroup, ErrorCode, int], Effects]
    ) -> None:
        super().__init__([empty_record(group)])
        self._group = group
        self._forget = forget
        self._is_written = False

    def written(self, now_ms: int) -> Effects:
        self._is_written = True
        return []

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        if self._is_written:
            return []
        return self._forget(self._group, coordinator_error(error).code, now_ms)


class NewStaticMemberId(Append):
    """A static member of a STABLE group has come back, and nothing else changes: no rebalance."""

    __slots__ = (
        "_generation",
        "_group",
        "_is_written",
        "_new",
        "_old",
        "_skip_assignment",
        "_ticket",
        "_told_leader",
    )

    def __init__(
        self,
        group: ClassicGroup,
        old: ClassicMember,
        new: ClassicMember,
        *,
        skip_assignment: bool,
        ticket: Ticket,
    ) -> None:
        leader = new.member_id if group.leader == old.member_id else group.leader
        members = [new if member is old else member for member in group.members.values()]
        assignments = {member.member_id: member.assignment for member in members}
        super().__init__([group_record(group, members=members, leader=leader, assignments=assignments)])
        self._group = group
        self._old = old
        self._new = new
        self._skip_assignment = skip_assignment
        self._ticket = ticket
        self._generation = group.generation
        self._is_written = False
        # A client that cannot skip the assignment must not take itself for the leader: it would assign
        # without a rebalance. So it is told the leader of before, even if that was itself.
        self._told_leader = group.leader

    def written(self, now_ms: int) -> Effects:
        group = self._group
        self._is_written = True
        if group.members.get(self._old.member_id) is not self._old:
            return [Answer(self._ticket, refused(ErrorCode.UNKNOWN_MEMBER_ID))]
        effects = group.replace_static_member(self._old, self._new, self._ticket)
        group.resolve_subscription()
        return effects

    def committed(self, now_ms: int) -> Effects:
        if not self._waits():
            return []
        group, new = self._group, self._new
        if self._skip_assignment:
            result = group.joined(new, skip_assignment=True)
        else:
            result = JoinGroupResult(
                generation=group.generation,
                protocol_type=group.protocol_type,
                protocol_name=group.protocol,
                leader=self._told_leader or "",
                member_id=new.member_id,
            )
        return [*group.answer_join(new, result), new.session]

    def failed(self, error: KafkaError, now_ms: int) -> Effects:
        result = refused(coordinator_error(error).code)
        if not self._is_written:
            return [Answer(self._ticket, result)]
        if not self._waits():
            return []
        return [*self._group.answer_join(self._new, result), self._new.session]

    def _waits(self) -> bool:
        """Otherwise a rebalance has begun meanwhile, and answers the member; or the member was replaced."""
        group = self._group
        return (
            group.state is _STABLE
            and group.generation == self._generation
            and self._new.awaiting_join is self._ticket
        )


class Joins:
    """Takes in JoinGroup requests, for one shard."""

    def __init__(
        self,
        groups: GroupMap,
        *,
        settings: GroupSettings,
        rebalances: Rebalances,
        new_uuid: Callable[[], UUID],
        forget: Callable[[ClassicGroup, ErrorCode, int], Effects],
    ) -> None:
        """``forget(group, error, now_ms)`` drops a group, and answers all who wait there."""
        self._groups = groups
        self._settings = settings
        self._rebalances = rebalances
        self._new_uuid = new_uuid
        self._forget = forget

    def join(self, request: JoinGroup, ticket: Ticket, now_ms: int) -> Effects:
        settings = self._settings
        if not (
            settings.group_min_session_timeout_ms
            <= request.session_timeout_ms
            <= settings.group_max_session_timeout_ms
        ):
            return _refuse(ticket, ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
        group = self._groups.get(request.group_id)
        try:
            self._check_memory(group, request)
        except KafkaError as error:
            _log.warning("Group %s: a join is refused: %s", request.group_id, error)
            return _refuse(ticket, error.code, request.member_id)
        if group is None:
            if request.member_id:
                return _refuse(ticket, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            return self._join_new_group(request, ticket, now_ms)
        if not isinstance(group, ClassicGroup):
            return _refuse(ticket, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        if not self._has_room(group, request.member_id):
            return self._turn_away(group, request.member_id, ticket, now_ms)
        if not group.supports_protocols(request.protocol_type, request.protocols):
            return _refuse(ticket, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        if request.member_id:
            return self._join_known(group, request, ticket, now_ms)
        return self._join_stranger(group, request, ticket, now_ms)

    def _check_memory(self, group: Group | None, request: JoinGroup) -> None:
        """Raises KafkaError INVALID_REQUEST, GROUP_MAX_SIZE_REACHED."""
        member = None
        if isinstance(group, ClassicGroup):
            member_id = group.static_members.get(request.group_instance_id or "", request.member_id)
            member = group.members.get(member_id)
        about = (request.member_id, request.group_instance_id, request.client_id, request.client_host)
        self._groups.memory.check_member(
            member_bytes(about, request.protocols), before_bytes=0 if member is None else member.size_bytes
        )

    def _join_new_group(self, request: JoinGroup, ticket: Ticket, now_ms: int) -> Effects:
        group = ClassicGroup(request.group_id, state_timestamp_ms=now_ms)
        if not group.supports_protocols(request.protocol_type, request.protocols):
            return _refuse(ticket, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        self._groups[request.group_id] = group
        new_group = NewGroup(group, self._forget)
        return [*self._join_stranger(group, request, ticket, now_ms), new_group]

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Kafka: ``acceptJoiningMember``. While a rebalance is prepared those count who have joined: a group
        that is too large, since the limit was lowered, so loses those who come last."""
        if group.state is _EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is _PREPARING:
            if member is not None and member.awaiting_join is not None:
                return True
            return group.awaiting_join_count < self._settings.group_max_size
        return member is not None or len(group.members) < self._settings.group_max_size

    def _turn_away(self, group: ClassicGroup, member_id: str, ticket: Ticket, now_ms: int) -> Effects:
        effects = _refuse(ticket, ErrorCode.GROUP_MAX_SIZE_REACHED)
        member = group.members.get(member_id)
        if member is not None:
            effects += group.remove(member)
        elif member_id in group.pending_joins:
            group.expect_no_join(member_id)
            effects.append(Complete(GroupOperation(OperationKind.NEW_MEMBER, group.group_id, member_id)))
        return effects + self._rebalances.complete_if_all_joined(group, now_ms)

    def _join_stranger(self, group: ClassicGroup, request: JoinGroup, ticket: Ticket, now_ms: int) -> Effects:
        instance_id = request.group_instance_id
        prefix = request.client_id if instance_id is None else instance_id
        member_id = new_member_id(prefix, self._new_uuid())
        if instance_id is not None:
            current = group.static_members.get(instance_id)
            if current is not None:
                return self._replace_static(group, group.members[current], member_id, request, ticket, now_ms)
        elif request.requires_known_member_id:
            group.expect_join(member_id)
            operation = GroupOperation(OperationKind.NEW_MEMBER, group.group_id, member_id)
            return [
                *_refuse(ticket, ErrorCode.MEMBER_ID_REQUIRED, member_id),
                Park(operation, request.session_timeout_ms),
            ]
        return self._add(group, member_id, request, ticket, now_ms)

    def _join_known(self, group: ClassicGroup, request: JoinGroup, ticket: Ticket, now_ms: int) -> Effects:
        member_id = request.member_id
        if member_id in group.pending_joins:
            if request.group_instance_id is not None:  # only members without one are given such ids
                return _refuse(ticket, ErrorCode.UNKNOWN_SERVER_ERROR, member_id)
            operation = GroupOperation(OperationKind.NEW_MEMBER, group.group_id, member_id)
            return [Complete(operation), *self._add(group, member_id, request, ticket, now_ms)]
        error = group.member_error(member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return _refuse(ticket, error, member_id)
        member = group.members[member_id]
        if _answers_at_once(group, member, request):
            return [Answer(ticket, group.joined(member))]
        effects = group.update_member(
            member,
            protocols=request.protocols,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            ticket=ticket,
        )
        reason = f"member {member_id} joins again{why(request.reason)}"
        return effects + self._rebalances.prepare_or_complete(group, reason, now_ms)

    def _add(
        self, group: ClassicGroup, member_id: str, request: JoinGroup, ticket: Ticket, now_ms: int
    ) -> Effects:
        member = _member(member_id, request)
        member.is_new = True
        if group.state is _PREPARING and group.previous_state is _EMPTY:
            group.new_member_added = True
        group.add_member(member, ticket)
        reason = f"member {member_id} joins{why(request.reason)}"
        return [
            Park(member.session.operation, NEW_MEMBER_JOIN_TIMEOUT_MS),
            *self._rebalances.prepare_or_complete(group, reason, now_ms),
        ]

    def _replace_static(
        self,
        group: ClassicGroup,
        old: ClassicMember,
        member_id: str,
        request: JoinGroup,
        ticket: Ticket,
        now_ms: int,
    ) -> Effects:
        new = _member(member_id, request)
        new.assignment = old.assignment
        _log.info("Group %s: %s is now %s", group.group_id, old.member_id, member_id)
        if group.state is _STABLE:
            ballots = [(new if member is old else member).protocols for member in group.members.values()]
            if choose_protocol(ballots) == group.protocol:
                skip_assignment = request.supports_skipping_assignment
                return [NewStaticMemberId(group, old, new, skip_assignment=skip_assignment, ticket=ticket)]
        effects = group.replace_static_member(old, new, ticket)
        # In COMPLETING_REBALANCE the leader may be assigning to the old id at this moment.
        reason = f"static member {member_id} joins{why(request.reason)}"
        return effects + self._rebalances.prepare_or_complete(group, reason, now_ms)


def _answers_at_once(group: ClassicGroup, member: ClassicMember, request: JoinGroup) -> bool:
    """Whether a member that joins again only needs to hear of the current generation, because it has missed
    the answer. When the leader does so in a STABLE group, it wants to assign anew."""
    if member.protocols != request.protocols:
        return False
    if group.state is _COMPLETING:
        return True
    return group.state is _STABLE and member.member_id != group.leader


def _member(member_id: str, request: JoinGroup) -> ClassicMember:
    return ClassicMember(
        member_id,
        group_id=request.group_id,
        group_instance_id=request.group_instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=request.protocols,
    )


def _refuse(ticket: Ticket, error: ErrorCode, member_id: str = "") -> Effects:
    return [Answer(ticket, refused(error, member_id))]
